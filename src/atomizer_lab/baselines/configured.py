"""What baselines share: a model of a task specification and one dataclass of settings, and the counting of FLOPs."""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.base import Model
from atomizer_io.models.settings import settings_from


class Configured(Model, abc.ABC):
    """A model whose settings are those of the dataclass ``Settings``."""

    Settings: ClassVar[type[Any]]

    def __init__(self, task_spec: TaskSpec, settings: Any, preset: str | None = None) -> None:
        super().__init__(task_spec, preset)
        self.chosen = settings

    @classmethod
    def build(cls, task_spec: TaskSpec, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a model with fresh weights."""
        return cls(task_spec, settings_from(cls.Settings, settings), preset)

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self.chosen)


def counted(module: nn.Module, *inputs: Tensor) -> float:
    """Return the FLOPs of ``module(*inputs)``; a multiply-add counts as two.

    It runs on the meta device: nothing is computed there, and attention is counted, which it is not on a CPU.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        copy.deepcopy(module).eval().to("meta")(*(tensor.to("meta") for tensor in inputs))
    return float(counter.get_total_flops())

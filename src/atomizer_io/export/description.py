"""What an exported file has to say of its model: the settings of the network and its task specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.config import AtomizerConfig


class Described(Protocol):
    """Has the settings of a network and its task specification: a model, or a :class:`Description`."""

    @property
    def config(self) -> AtomizerConfig:
        """Return the settings of the network."""
        ...

    @property
    def task_spec(self) -> TaskSpec:
        """Return what is asked of the network: task, outputs and statistics."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """The settings and task specification of a model without its weights."""

    config: AtomizerConfig
    task_spec: TaskSpec

"""What an exported file has to say of its model: the settings of the network and the problem it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.config import AtomizerConfig


class Described(Protocol):
    """What tells the settings of a network and the problem it answers: a model, or a :class:`Description`."""

    @property
    def config(self) -> AtomizerConfig:
        """Return the settings of the network."""
        ...

    @property
    def problem(self) -> TaskSpec:
        """Return what is asked of the network: task, outputs and statistics."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """The settings and the problem of a model without its weights."""

    config: AtomizerConfig
    problem: TaskSpec

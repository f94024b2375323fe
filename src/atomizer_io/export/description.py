"""What an exported file has to say of its model: the settings of the network and the problem it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.problem import Problem


class Described(Protocol):
    """A model, or only its description."""

    @property
    def config(self) -> AtomizerConfig:
        """The settings of the network."""
        ...

    @property
    def problem(self) -> Problem:
        """What is asked."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """The settings and the problem of a model without its weights."""

    config: AtomizerConfig
    problem: Problem

"""Squares of scenes: the units on which a promise is tested.

A scene is cut into 8 × 8 squares, and a square is drawn as the one around a position drawn at random. So the expected
share of a square that differs is the expected share of all positions of a scene. The squares of a scene share its
encoding and its read-out: a further square costs no more than asking the model's own answer there.

With as many scenes as squares, each square is of another scene, and a square of a new scene is exchangeable with them.
With fewer, each square is of a scene drawn anew, and exchangeable with them is a further square of these scenes.

Shapes: M positions, U positions in squares, Q squares, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import Prediction, different
from atomizer_io.errors import ConfigError, check_count
from atomizer_io.models.atomizer.geometry.neighbors import SitesOfQueries

SIDES = 8  # squares along each side of a scene
CHOOSING_SCENES = 12  # at most, and at most a third of all
CHOOSING_SQUARES = 16  # of each of them


class Scenes(Protocol):
    """The scenes to calibrate on: a list or a dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many ``squares`` test the promise (None: 5/alpha), of how many ``scenes`` at most, and the seed of all draws.

    With 5/alpha squares, four fifths of alpha are left for what is measured on them.
    """

    squares: int | None = None
    scenes: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("scenes", self.scenes)
        if self.squares is not None:
            check_count("squares", self.squares)

    def draw(self, available: int, squares: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return how many squares of which scenes choose, and how many of which others then test the choice."""
        generator = np.random.default_rng(self.seed)
        order = generator.permutation(available)[: self.scenes]
        first = min(CHOOSING_SCENES, len(order) // 3)
        choosing, testing = (order[:first], order[first:]) if first else (order, order)
        if len(testing) >= squares:
            drawn = testing[:squares]
        else:
            drawn = testing[generator.integers(len(testing), size=squares)]
        numbers, counts = np.unique(drawn, return_counts=True)
        return {int(n): CHOOSING_SQUARES for n in choosing}, dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What was observed, where it is asked, and the sites that are named there."""

    number: int
    atoms: AtomSet
    where: Grid | Tensor
    sites: SitesOfQueries | None
    footprint_m: Tensor | None = None

    @property
    def positions_M2(self) -> Tensor:
        """Return all positions that are asked."""
        return self.where.shared_positions() if isinstance(self.where, Grid) else torch.as_tensor(self.where)


@dataclass(frozen=True, slots=True, eq=False)
class Squares:
    """Squares of one scene: the numbers of all positions in them, and the weight of each in each square."""

    numbers_U: Tensor
    weight_QU: Tensor

    @classmethod
    def draw(cls, scene: Scene, count: int, seed: int) -> Squares:
        """Draw squares of a scene, each as the one around a random position; one may be drawn twice."""
        positions_M2 = scene.positions_M2
        low_2, high_2 = positions_M2.amin(dim=0), positions_M2.amax(dim=0)
        share_M2 = (positions_M2 - low_2) / (high_2 - low_2).clamp(min=1e-9)
        cell_M2 = (share_M2 * SIDES).long().clamp(max=SIDES - 1)
        square_M = cell_M2[:, 0] * SIDES + cell_M2[:, 1]
        generator = np.random.default_rng([seed, scene.number])
        drawn_Q = square_M[torch.from_numpy(generator.integers(len(square_M), size=count))]
        numbers_U = torch.isin(square_M, drawn_Q).nonzero()[:, 0]
        inside_QU = (square_M[numbers_U] == drawn_Q[:, None]).double()
        return cls(numbers_U, inside_QU / inside_QU.sum(dim=1, keepdim=True))

    def losses(self, found: Prediction, truth_UC: Tensor, precision: float | None) -> Tensor:
        """Return the share of each square (Q,) in which the answers differ from ``truth_UC``."""
        found_UC = found.outputs.reshape(-1, truth_UC.shape[1])[self.numbers_U]
        return self.weight_QU @ different(found_UC, truth_UC, found.classes, precision or 0.0).double()

    def class_losses(self, found: Prediction, truth_UC: Tensor) -> Tensor:
        """Return the share of each class in each square (Q, C) whose class differs; NaN where the square lacks it.

        The positions of a class are those that have it in ``truth_UC``.
        """
        found_UC = found.outputs.reshape(-1, truth_UC.shape[1])[self.numbers_U]
        of_class_UC = members(truth_UC)
        lost_UC = of_class_UC * different(found_UC, truth_UC, True)[:, None]
        return (self.weight_QU @ lost_UC) / (self.weight_QU @ of_class_UC)

    def areas(self, found: Prediction) -> Tensor:
        """Return how much of the squares each class (C,) has, in squares."""
        outputs_UC = found.outputs.reshape(-1, found.outputs.shape[-1])[self.numbers_U]
        return (self.weight_QU @ members(outputs_UC)).sum(dim=0)


def members(outputs_UC: Tensor) -> Tensor:
    """Return 1 for the class of each answer and 0 for all others, (U, C)."""
    return one_hot(outputs_UC.argmax(dim=1), outputs_UC.shape[1]).double()


def observed(scenes: Scenes, numbers: dict[int, int]) -> Iterator[tuple[Scene, int]]:
    """Yield the scenes of these numbers in which anything was observed, with the number of their squares."""
    for number, count in numbers.items():
        scene = scenes[number]
        if scene:  # else it could not be read
            atoms, where, sites, footprint_m = scene_of(scene)
            if atoms.num_atoms and (isinstance(where, Grid) or len(where)):
                yield Scene(number, atoms, where, sites, footprint_m), count


def scene_of(scene: Any) -> tuple[AtomSet, Any, SitesOfQueries | None, Tensor | None]:
    """Return the atoms of a pair or a sample, where to ask, and the sites that are named and the footprints there."""
    if isinstance(scene, tuple) and len(scene) == 2 and isinstance(scene[0], AtomSet):
        return (*scene, None, None)
    queries = getattr(scene, "queries", None)
    if queries is None:
        raise ConfigError(f"a scene is a pair of atoms and grid, or a sample with queries, not {type(scene).__name__}")
    where = queries.positions if queries.grid is None else queries.grid
    return scene.atoms, where, queries.sites, queries.footprint_m

"""Blocks of scenes: the units on which a promise is tested.

A scene is cut into 8 × 8 blocks, and a block is sampled as the one around a position sampled at random. So the expected
share of a block that differs is the expected share of all positions of a scene. The blocks of a scene share its
encoding and its decoding: a further block costs no more than the model's own prediction there.

With as many scenes as blocks, each block is of another scene, and a block of a new scene is exchangeable with them.
With fewer, each block is of a scene sampled anew, and exchangeable with them is a further block of these scenes.

Shapes: M positions, U positions in blocks, Q blocks, C outputs.
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

SIDES = 8  # blocks along each side of a scene
SEARCH_SCENES = 12  # at most, and at most a third of all
SEARCH_BLOCKS = 16  # of each of them


class Scenes(Protocol):
    """The scenes to calibrate on: a list or a dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many ``blocks`` test the promise (None: 5/alpha), of how many ``scenes`` at most, and the seed.

    With 5/alpha blocks, four fifths of alpha are left for what is measured on them.
    """

    blocks: int | None = None
    scenes: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("scenes", self.scenes)
        if self.blocks is not None:
            check_count("blocks", self.blocks)

    def sample(self, available: int, blocks: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return how many blocks of which scenes choose, and how many of which others then test the choice."""
        generator = np.random.default_rng(self.seed)
        order = generator.permutation(available)[: self.scenes]
        first = min(SEARCH_SCENES, len(order) // 3)
        choosing, testing = (order[:first], order[first:]) if first else (order, order)
        if len(testing) >= blocks:
            sampled = testing[:blocks]
        else:
            sampled = testing[generator.integers(len(testing), size=blocks)]
        numbers, counts = np.unique(sampled, return_counts=True)
        return {int(n): SEARCH_BLOCKS for n in choosing}, dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What was observed, where it is decoded, and the sites that are named there."""

    number: int
    atoms: AtomSet
    where: Grid | Tensor
    sites: SitesOfQueries | None
    footprint_m: Tensor | None = None

    @property
    def positions_M2(self) -> Tensor:
        """All positions."""
        return self.where.shared_positions() if isinstance(self.where, Grid) else torch.as_tensor(self.where)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks of one scene: the indices of all positions in them, and the weight of each in each block."""

    indices_U: Tensor
    weight_QU: Tensor

    @classmethod
    def sample(cls, scene: Scene, count: int, seed: int) -> Blocks:
        """Sample blocks of a scene, each as the one around a random position; one may be sampled twice."""
        positions_M2 = scene.positions_M2
        low_2, high_2 = positions_M2.amin(dim=0), positions_M2.amax(dim=0)
        share_M2 = (positions_M2 - low_2) / (high_2 - low_2).clamp(min=1e-9)
        cell_M2 = (share_M2 * SIDES).long().clamp(max=SIDES - 1)
        block_M = cell_M2[:, 0] * SIDES + cell_M2[:, 1]
        generator = np.random.default_rng([seed, scene.number])
        sampled_Q = block_M[torch.from_numpy(generator.integers(len(block_M), size=count))]
        indices_U = torch.isin(block_M, sampled_Q).nonzero()[:, 0]
        inside_QU = (block_M[indices_U] == sampled_Q[:, None]).double()
        return cls(indices_U, inside_QU / inside_QU.sum(dim=1, keepdim=True))

    def losses(self, prediction: Prediction, reference_UC: Tensor, precision: float | None) -> Tensor:
        """Return the share of each block (Q,) in which the outputs differ from ``reference_UC``."""
        outputs_UC = prediction.outputs.reshape(-1, reference_UC.shape[1])[self.indices_U]
        return self.weight_QU @ different(outputs_UC, reference_UC, prediction.classes, precision or 0.0).double()

    def class_losses(self, prediction: Prediction, reference_UC: Tensor) -> Tensor:
        """Return the share of each class in each block (Q, C) whose class differs; NaN where the block lacks it.

        The positions of a class are those that have it in ``reference_UC``.
        """
        outputs_UC = prediction.outputs.reshape(-1, reference_UC.shape[1])[self.indices_U]
        of_class_UC = members(reference_UC)
        lost_UC = of_class_UC * different(outputs_UC, reference_UC, True)[:, None]
        return (self.weight_QU @ lost_UC) / (self.weight_QU @ of_class_UC)

    def areas(self, prediction: Prediction) -> Tensor:
        """Return how much of the blocks each class (C,) has, in blocks."""
        outputs_UC = prediction.outputs.reshape(-1, prediction.outputs.shape[-1])[self.indices_U]
        return (self.weight_QU @ members(outputs_UC)).sum(dim=0)


def members(outputs_UC: Tensor) -> Tensor:
    """Return 1 for the class of each output and 0 for all others, (U, C)."""
    return one_hot(outputs_UC.argmax(dim=1), outputs_UC.shape[1]).double()


def observed(scenes: Scenes, numbers: dict[int, int]) -> Iterator[tuple[Scene, int]]:
    """Yield the scenes of these numbers in which anything was observed, with the number of their blocks."""
    for number, count in numbers.items():
        scene = scenes[number]
        if scene:  # else it could not be read
            atoms, where, sites, footprint_m = scene_of(scene)
            if atoms.num_atoms and (isinstance(where, Grid) or len(where)):
                yield Scene(number, atoms, where, sites, footprint_m), count


def scene_of(scene: Any) -> tuple[AtomSet, Any, SitesOfQueries | None, Tensor | None]:
    """Return the atoms of a pair or a sample, where it is decoded, the sites named there and the footprints."""
    if isinstance(scene, tuple) and len(scene) == 2 and isinstance(scene[0], AtomSet):
        return (*scene, None, None)
    queries = getattr(scene, "queries", None)
    if queries is None:
        raise ConfigError(f"a scene is a pair of atoms and grid, or a sample with queries, not {type(scene).__name__}")
    where = queries.positions if queries.grid is None else queries.grid
    return scene.atoms, where, queries.sites, queries.footprint_m

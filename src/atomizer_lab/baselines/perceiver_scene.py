"""What Perceiver-IO reads of a scene, and what its queries look at: everything that needs no weights.

A position means something to it only where training had positions, so a model that was trained on crops reads larger
scenes in windows of their size, each on its own (see :mod:`.perceiver_windows`).

Shapes: P sites, C channels of an acquisition, M queries, A acquisitions, n atoms of a block, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.inputs import metres
from atomizer_io.data.sample import Queries
from atomizer_io.errors import AtomsError, QueryError
from atomizer_io.models.atomizer.geometry.partition import check_scene
from atomizer_io.models.base import Cost
from atomizer_io.models.sites import colocated_sites
from atomizer_lab.baselines.perceiver_windows import Lattice, cut

FAR_M = 20_000.0  # no dataset has larger scenes
SEED = 0  # draws points and atoms where no generator does, as in evaluation


@dataclass(frozen=True, slots=True)
class Block:
    """Atoms ``first`` to ``last`` of one acquisition; they are counted site by site, channel by channel."""

    acquisition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class PerceiverInput:
    """A scene, which of its atoms are read, and its queries; positions are metres from ``center_2``, in float64.

    ``used`` has, by acquisition, the sorted numbers (site · C + channel) of the atoms that were drawn; None: all valid
    ones. ``sites_MA`` is the site that each query looks at in each acquisition of points (−1: none; pixels are never
    looked at); None where queries are positions only.
    """

    atoms: AtomSet
    center_2: Tensor
    used: tuple[Tensor | None, ...]
    queries_M2: Tensor | None = None
    sites_MA: Tensor | None = None

    def blocks(self, size: int) -> list[Block]:
        """Return the atoms in blocks of at most ``size``; a block may hold invalid ones, which are left out later."""
        blocks = []
        for number, (acquisition, used) in enumerate(zip(self.atoms, self.used, strict=True)):
            count = acquisition.values.numel() if used is None else len(used)
            blocks += [Block(number, first, min(first + size, count)) for first in range(0, count, size)]
        return blocks

    @property
    def num_atoms(self) -> int:
        """The number of atoms that are read."""
        pairs = zip(self.atoms, self.used, strict=True)
        return sum(acquisition.num_atoms if used is None else len(used) for acquisition, used in pairs)

    @property
    def points(self) -> Iterator[tuple[int, Acquisition]]:
        """The acquisitions of points, with their numbers."""
        return ((number, acquisition) for number, acquisition in enumerate(self.atoms) if of_points(acquisition))

    @property
    def parts(self) -> tuple[PerceiverInput, ...]:
        """What is read one by one: the scene itself."""
        return (self,)

    def joined(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return the outputs for the scene from those for its parts."""
        return outputs[0]


@dataclass(frozen=True, slots=True, eq=False)
class PerceiverWindows:
    """A scene in windows that are read one by one; ``rows`` are the numbers of the queries that each decodes."""

    parts: tuple[PerceiverInput, ...]
    rows: tuple[Tensor, ...]

    def joined(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return the outputs (M, outputs) in the order of the queries from those of the windows."""
        order_M = torch.cat(self.rows).argsort().to(outputs[0].device)
        return torch.cat(list(outputs))[order_M]


@dataclass(frozen=True, slots=True)
class PerceiverPreparer:
    """Prepares a sample: draws what is read where there is a limit, and finds the points that queries look at.

    Maps of pixels of ``pixel_m`` that are wider than ``window_m`` are read in windows of that width.
    """

    dense: bool
    point_tokens: bool
    max_points: int | None
    window_m: float | None = None
    pixel_m: float = 0.0

    def __call__(
        self, atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
    ) -> PerceiverInput | PerceiverWindows:
        """Draw at most ``cost.max_points`` points, then ``cost.budget`` atoms; without a generator the same each time.

        Points that are not drawn can still be queried and looked at. A window has a budget of its own.
        """
        check_scene(atoms, 0)
        drawing = torch.Generator().manual_seed(SEED) if generator is None else generator
        if self.window_m is None or queries is None or any(of_points(part) for part in atoms):
            return self.whole(atoms, queries, cost, drawing)
        lattice = Lattice.over(atoms, self.window_m, self.pixel_m)
        if len(lattice) == 1:
            return self.whole(atoms, queries, cost, drawing)
        center_2, width_m = middle_of(atoms)
        windows = cut(atoms, center_2 + checked(queries.positions, center_2, width_m), lattice)
        parts = tuple(self.whole(own, queries.part(row), cost, drawing) for own, row in windows)
        return PerceiverWindows(parts, tuple(row for _, row in windows))

    def whole(self, atoms: AtomSet, queries: Queries | None, cost: Cost, drawing: torch.Generator) -> PerceiverInput:
        """Prepare a scene that is read at once; positions count from its middle."""
        most = self.max_points if cost.max_points is None else cost.max_points
        used = drawn(atoms, most, cost.budget, drawing)
        center_2, width_m = middle_of(atoms)
        if not self.dense:
            return PerceiverInput(atoms, center_2, used)
        assert queries is not None
        queries_M2 = checked(queries.positions, center_2, width_m)
        seen = points_at(queries_M2, atoms, center_2, queries.sites) if self.point_tokens else None
        return PerceiverInput(atoms, center_2, used, queries_M2, seen)


def middle_of(atoms: AtomSet) -> tuple[Tensor, float]:
    """Return the middle (2,) of a scene, and how wide it is along its longer side."""
    x_min, y_min, x_max, y_max = atoms.bounds
    middle_2 = torch.tensor([(x_min + x_max) / 2, (y_min + y_max) / 2], dtype=torch.float64)
    return middle_2, max(x_max - x_min, y_max - y_min)


def of_points(acquisition: Acquisition) -> bool:
    """Return whether the sites of an acquisition are points, such as LiDAR returns, rather than pixels."""
    return acquisition.footprint_m == (0.0, 0.0)


def drawn(
    atoms: AtomSet, max_points: int | None, budget: int | None, generator: torch.Generator
) -> tuple[Tensor | None, ...]:
    """Return the atoms of each acquisition that are read, as in ``PerceiverInput.used``.

    At most ``max_points`` points of all acquisitions together are kept with all their channels, then at most ``budget``
    atoms of the scene; both are drawn uniformly without replacement.
    """
    used: list[Tensor | None] = [None] * len(atoms)
    points = [number for number, acquisition in enumerate(atoms) if of_points(acquisition)]
    occupied = [atoms.acquisitions[number].occupied().cpu().nonzero()[:, 0] for number in points]
    kept = _chosen(occupied, max_points, generator)
    if kept is not None:
        for number, sites in zip(points, kept, strict=True):
            channels = len(atoms.acquisitions[number].channels)
            index = (sites[:, None] * channels + torch.arange(channels)).flatten()
            used[number] = index[_valid(atoms.acquisitions[number], index)]
    if budget is not None and atoms.num_atoms > budget:
        pairs = zip(atoms, used, strict=True)
        fewer = _chosen(
            [_numbers(acquisition) if part is None else part for acquisition, part in pairs], budget, generator
        )
        used = used if fewer is None else list(fewer)
    return tuple(used)


def _chosen(parts: Sequence[Tensor], most: int | None, generator: torch.Generator) -> list[Tensor] | None:
    """Return ``most`` of the numbers of all parts together, each part in its order; None where there are no more."""
    counts = [len(part) for part in parts]
    if most is None or sum(counts) <= most:
        return None
    kept = torch.zeros(sum(counts), dtype=torch.bool)
    kept[torch.randperm(sum(counts), generator=generator)[:most]] = True
    return [part[keep] for part, keep in zip(parts, kept.split(counts), strict=True)]


def _numbers(acquisition: Acquisition) -> Tensor:
    """Return the numbers of all valid atoms."""
    if acquisition.valid is None:
        return torch.arange(acquisition.values.numel())
    return acquisition.valid.cpu().flatten().nonzero()[:, 0]


def _valid(acquisition: Acquisition, index: Tensor) -> Tensor:
    """Return which of the atoms with these numbers were observed."""
    if acquisition.valid is None:
        return torch.ones_like(index, dtype=torch.bool)
    return acquisition.valid.cpu().flatten()[index]


def checked(positions: Tensor, center_2: Tensor, extent_m: float) -> Tensor:
    """Return positions (M, 2) relative to the scene's centre; refuse those that are not finite or far away."""
    try:
        position_M2 = metres(positions, "positions")
    except AtomsError as error:
        raise QueryError(str(error)) from None
    if position_M2.ndim != 2 or position_M2.shape[1] != 2:
        raise QueryError(f"positions have shape {tuple(position_M2.shape)}, expected (queries, 2): x, y in metres")
    queries_M2 = position_M2 - center_2
    distance_M = queries_M2.abs().amax(dim=1)
    strange = ~(distance_M <= max(1.5 * extent_m, FAR_M))
    if bool(strange.any()):
        first = int(strange.nonzero()[0])
        raise QueryError(
            f"query {first} is at {position_M2[first].tolist()}, but the scene is {extent_m:g} m wide around "
            f"{center_2.tolist()}: positions are finite metres in the frame of the atoms"
        )
    return queries_M2


def points_at(queries_M2: Tensor, atoms: AtomSet, center_2: Tensor, named: Mapping[int, Tensor]) -> Tensor:
    """Return the point (M, A) of each acquisition that each query looks at, −1 for none and for acquisitions of pixels.

    It is the site that the query names, or else the nearest point within 5 cm.
    """
    unknown = [number for number in named if not 0 <= number < len(atoms)]
    if unknown:
        raise QueryError(f"sites are given for acquisition {unknown[0]}, but the scene has {len(atoms)} acquisitions")
    site_MA = torch.full((len(queries_M2), len(atoms)), -1)
    for number, acquisition in enumerate(atoms):
        if not of_points(acquisition):
            continue
        if number not in named:
            where = (acquisition.positions - center_2).numpy()
            nearest_M = colocated_sites(queries_M2.numpy(), where, acquisition.occupied().cpu().numpy(), (0.0, 0.0))
            site_MA[:, number] = torch.from_numpy(nearest_M)
            continue
        site_M, count = torch.as_tensor(named[number]).to("cpu", torch.long), len(acquisition.positions)
        if site_M.shape != (len(queries_M2),):
            raise QueryError(
                f"sites of acquisition {number} have shape {tuple(site_M.shape)}, expected one per query: "
                f"({len(queries_M2)},)"
            )
        wrong = site_M[(site_M < -1) | (site_M >= count)]
        if len(wrong):
            raise QueryError(f"site {int(wrong[0])} of acquisition {number} does not exist: it has {count} (−1: none)")
        site_MA[:, number] = site_M
    return site_MA

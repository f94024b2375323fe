"""Geometry kept for grids that come again: in training, most samples of a dataset share theirs.

Shapes: P sites of one acquisition, M queries, 2 = (x, y) in metres.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition, memory
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.inputs import metres
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, LocatedQueries, SitesOfQueries, locate
from atomizer_io.models.atomizer.geometry.partition import Geometry, around, first_site, geometry_of
from atomizer_io.models.atomizer.geometry.raster import Raster
from atomizer_io.models.atomizer.temporal import time_steps

KEPT_BYTES = 512 << 20  # of all kept geometries together
ATOM_BYTES = 16  # of a geometry


@dataclass(slots=True)
class _Kept:
    """A scene that may come again: its geometry around its first site, and queries located in it."""

    geometry: Geometry
    origin_2: Tensor  # where the scene of the last request lay
    placed: Geometry  # the geometry there
    queries: int = 0  # located in it so far
    located: dict[bytes, LocatedQueries] = field(default_factory=dict)
    sites: dict[object, tuple[Raster, LocatedQueries] | None] = field(default_factory=dict)  # by neighbours, footprint

    @property
    def bytes(self) -> int:
        """How much memory it takes, roughly."""
        parts = [*self.located.values(), *(kept[1] for kept in self.sites.values() if kept is not None)]
        return ATOM_BYTES * self.geometry.atoms + sum(located.bytes for located in parts)

    def at(self, origin_2: Tensor) -> Geometry:
        """Return the geometry of an equal scene whose first site lies at ``origin_2``."""
        if not torch.equal(origin_2, self.origin_2):
            self.origin_2 = origin_2
            self.placed = replace(self.placed, center_2=self.geometry.center_2 + origin_2)
        return self.placed


class GeometryCache:
    """Builds the geometry of scenes and queries for models of ``config``; keeps that of the ``entries`` used last.

    A scene is recognised by the positions of its sites relative to the first, by their footprints and validity, and
    by its time steps; values, channels and where the scene lies do not matter.
    A geometry takes about 16 bytes per atom.
    """

    def __init__(self, config: AtomizerConfig, entries: int = 16) -> None:
        self.config, self.entries = config, entries
        self._scenes: OrderedDict[bytes, _Kept] = OrderedDict()

    def geometry(
        self, atoms: AtomSet, *, atoms_per_latent: int | None = None, max_points: int | None = None
    ) -> Geometry:
        """Return the geometry of a scene, built or kept from before, with whole cells."""
        origin_2 = first_site(atoms)
        return self._kept(atoms, origin_2, atoms_per_latent, max_points).at(origin_2)

    def locate(
        self,
        atoms: AtomSet,
        positions: Tensor,
        *,
        sites: SitesOfQueries | None = None,
        atoms_per_latent: int | None = None,
        max_points: int | None = None,
    ) -> LocatedQueries:
        """Return ``positions`` located in the geometry of the scene, built or kept from before."""
        return self.prepare(atoms, positions, sites=sites, atoms_per_latent=atoms_per_latent, max_points=max_points)[1]

    def prepare(
        self,
        atoms: AtomSet,
        positions: Tensor,
        *,
        sites: SitesOfQueries | None = None,
        atoms_per_latent: int | None = None,
        max_points: int | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
    ) -> tuple[Geometry, LocatedQueries]:
        """Return the geometry and the located positions at once, for which the scene is read only once."""
        origin_2 = first_site(atoms)
        kept = self._kept(atoms, origin_2, atoms_per_latent, max_points)
        where_M2 = positions
        if isinstance(positions, Tensor) and positions.shape[1:] == (2,):  # else locate reports what is wrong
            where_M2 = metres(positions, "positions") - origin_2
        named = [item for number, indices in (sites or {}).items() for item in (number, indices)]
        how: dict[str, Any] = {"neighbors": neighbors, "footprint_m": footprint_m}
        key = _digest([neighbors, footprint_m, where_M2, *named])
        if key in kept.located:
            return kept.at(origin_2), kept.located[key]
        located = self._from_sites(kept, atoms, origin_2, where_M2, how) if not sites else None
        if located is None:
            near = around(atoms, origin_2)
            located = locate(self.config, near, kept.geometry, where_M2, sites=sites, **how)
            kept.located = {key: located}  # those of the last request
        kept.queries += len(located)
        return kept.at(origin_2), located

    def _from_sites(
        self, kept: _Kept, atoms: AtomSet, origin_2: Tensor, where_M2: Tensor, how: dict[str, Any]
    ) -> LocatedQueries | None:
        """Return queries that lie exactly on pixels from all pixels, located once; None where they do not.

        All pixels are located as soon as so many queries were: this at most doubles the work.
        """
        if kept.queries < max((len(a.positions) for a in rasters(atoms)), default=1):
            return None
        footprint_m = how["footprint_m"]
        if np.ndim(footprint_m if footprint_m is not None else 0.0) > 1:  # each query has its own
            return None
        key = (how["neighbors"], None if footprint_m is None else tuple(np.ravel(footprint_m).tolist()))
        if key not in kept.sites:
            kept.sites[key] = self._locate_sites(kept, atoms, origin_2, where_M2, how)
        pixels = kept.sites[key]
        index_M = None if pixels is None else pixels[0].index(where_M2)
        return None if pixels is None or index_M is None else pixels[1].at(index_M)

    def _locate_sites(
        self, kept: _Kept, atoms: AtomSet, origin_2: Tensor, where_M2: Tensor, how: dict[str, Any]
    ) -> tuple[Raster, LocatedQueries] | None:
        """Return the first raster on whose pixels all queries lie, with its pixels located; None if there is none."""
        near = around(atoms, origin_2)
        for positions_P2 in {memory(a.positions): a.positions for a in rasters(near)}.values():
            raster = Raster.of(positions_P2)
            if raster is not None and raster.index(where_M2) is not None:
                return raster, locate(self.config, near, kept.geometry, positions_P2, **how)
        return None

    def _kept(self, atoms: AtomSet, origin_2: Tensor, atoms_per_latent: int | None, max_points: int | None) -> _Kept:
        """Return a scene that was kept, or that is kept from now on, as the one used last."""
        key = _digest([self._scene(atoms, origin_2), atoms_per_latent, max_points])
        kept = self._scenes.pop(key, None)
        if kept is None:
            # the scene begins at zero here, so that this is the geometry around its first site
            own = geometry_of(
                self.config, around(atoms, origin_2), atoms_per_latent=atoms_per_latent, max_points=max_points
            )
            kept = _Kept(own, origin_2, replace(own, center_2=own.center_2 + origin_2))
        self._scenes[key] = kept
        while len(self._scenes) > self.entries or (len(self._scenes) > 1 and self._bytes() > KEPT_BYTES):
            self._scenes.popitem(last=False)
        return kept

    def _bytes(self) -> int:
        return sum(kept.bytes for kept in self._scenes.values())

    def _scene(self, atoms: AtomSet, origin_2: Tensor) -> bytes:
        """Return a checksum of 16 bytes of what the geometry of a scene depends on."""
        grids: dict[object, int] = {}  # acquisitions on one grid often share the tensor of its positions
        parts: list[object] = [time_steps(atoms)[0] if self.config.temporal else None]
        for a in atoms:
            if (key := memory(a.positions)) not in grids:
                grids[key] = len(grids)
                parts.append(a.positions - origin_2)
            # transposed, as rasters are stored channel by channel and then need not be copied
            parts += [
                (tuple(a.values.shape), a.footprint_m, bool(a.site_fields), grids[key]),
                None if a.valid is None else a.valid.T,
            ]
        return _digest(parts)


def rasters(atoms: AtomSet) -> list[Acquisition]:
    """Return the acquisitions of pixels."""
    return [acquisition for acquisition in atoms if max(acquisition.footprint_m or (0.0,)) > 0]


def _digest(items: Iterable[object]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        digest.update(item.cpu().contiguous().numpy().data if isinstance(item, Tensor) else repr(item).encode())
    return digest.digest()

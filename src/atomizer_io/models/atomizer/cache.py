"""Geometry kept for grids that come again: in training, most samples of a dataset share theirs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import Tensor

from atomizer_io.atoms import AtomSet
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry import Geometry, geometry_of
from atomizer_io.models.atomizer.queries import LocatedQueries, SitesOfQueries, locate
from atomizer_io.models.atomizer.temporal import time_steps

Kept = TypeVar("Kept")


class GeometryCache:
    """Builds the geometry of scenes and queries for models of ``config``; keeps that of the ``entries`` used last.

    A scene is recognised by the positions, footprints and validity of its sites, their heights where the model uses
    them, and by its time steps; values and channels do not matter. A geometry takes about 16 bytes per atom.
    """

    def __init__(self, config: AtomizerConfig, entries: int = 16) -> None:
        self.config, self.entries = config, entries
        self._geometries: OrderedDict[bytes, Geometry] = OrderedDict()
        self._located: OrderedDict[bytes, LocatedQueries] = OrderedDict()

    def geometry(
        self, atoms: AtomSet, *, atoms_per_latent: int | None = None, max_points: int | None = None
    ) -> Geometry:
        """Return the geometry of a scene, built or kept from before, with whole cells."""
        return self._geometry(self._scene(atoms), atoms, atoms_per_latent, max_points)

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
    ) -> tuple[Geometry, LocatedQueries]:
        """Return the geometry and the located positions at once, for which the scene is read only once."""
        scene = self._scene(atoms)
        geometry = self._geometry(scene, atoms, atoms_per_latent, max_points)
        named = [item for number, places in (sites or {}).items() for item in (number, places)]
        key = _digest([scene, atoms_per_latent, max_points, neighbors, positions, *named])
        located = self._get(
            self._located,
            key,
            lambda: locate(self.config, atoms, geometry, positions, sites=sites, neighbors=neighbors),
        )
        return geometry, located

    def _geometry(self, scene: bytes, atoms: AtomSet, atoms_per_latent: int | None, max_points: int | None) -> Geometry:
        return self._get(
            self._geometries,
            _digest([scene, atoms_per_latent, max_points]),
            lambda: geometry_of(self.config, atoms, atoms_per_latent=atoms_per_latent, max_points=max_points),
        )

    def _get(self, kept: OrderedDict[bytes, Kept], key: bytes, build: Callable[[], Kept]) -> Kept:
        found = kept.pop(key, None)
        kept[key] = build() if found is None else found
        if len(kept) > self.entries:
            kept.popitem(last=False)
        return kept[key]

    def _scene(self, atoms: AtomSet) -> bytes:
        """Return a checksum of 16 bytes of what the geometry of a scene depends on."""
        steps = time_steps(atoms)[0] if self.config.temporal else None
        heights = self.config.dimensions == 3 or self.config.query_height
        grids: dict[int, bytes] = {}  # acquisitions on one grid often share the tensor of its positions
        parts: list[object] = [steps]
        for a in atoms:
            where = a.positions.data_ptr()
            if where not in grids:
                grids[where] = _digest([a.positions])
            # transposed, as rasters are stored channel by channel and then need not be copied
            parts += [
                a.values.shape,
                a.footprint_m,
                bool(a.site_fields),
                grids[where],
                None if a.valid is None else a.valid.T,
                a.heights_m if heights else None,
            ]
        return _digest(parts)


def _digest(items: Iterable[object]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        digest.update(item.cpu().contiguous().numpy().data if isinstance(item, Tensor) else repr(item).encode())
    return digest.digest()

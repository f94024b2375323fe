"""Geometry kept for grids that come again: in training, most samples of a dataset share theirs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from atomizer_io.atoms import AtomSet
from atomizer_io.model import placing
from atomizer_io.model.config import AtomizerConfig
from atomizer_io.model.geometry import Geometry
from atomizer_io.model.placing import Located, SitesOfQueries

Kept = TypeVar("Kept")


class GeometryCache:
    """Builds the geometry of scenes and queries for models of ``config``; keeps that of the ``entries`` used last.

    A scene is recognised by the positions, footprints and validity of its sites and by its time steps; values and
    channels do not matter. A geometry takes about 16 bytes per atom.
    """

    def __init__(self, config: AtomizerConfig, entries: int = 16) -> None:
        self.config, self.entries = config, entries
        self._geometries: OrderedDict[bytes, Geometry] = OrderedDict()
        self._located: OrderedDict[bytes, Located] = OrderedDict()

    def geometry(self, atoms: AtomSet, *, atoms_per_latent: int | None = None) -> Geometry:
        """As ``model.geometry``."""
        key = self._digest(atoms, atoms_per_latent)
        return self._get(
            self._geometries,
            key,
            lambda: placing.geometry_of(self.config, atoms, atoms_per_latent=atoms_per_latent),
        )

    def locate(
        self,
        atoms: AtomSet,
        positions: Tensor,
        *,
        sites: SitesOfQueries | None = None,
        atoms_per_latent: int | None = None,
    ) -> Located:
        """As ``model.locate``, in the geometry of :meth:`geometry`."""
        geometry = self.geometry(atoms, atoms_per_latent=atoms_per_latent)
        named = [item for number, places in (sites or {}).items() for item in (number, places)]
        key = self._digest(atoms, atoms_per_latent, positions, *named)
        return self._get(
            self._located, key, lambda: placing.locate(self.config, atoms, geometry, positions, sites=sites)
        )

    def _get(self, kept: OrderedDict[bytes, Kept], key: bytes, build: Callable[[], Kept]) -> Kept:
        found = kept.pop(key, None)
        kept[key] = build() if found is None else found
        if len(kept) > self.entries:
            kept.popitem(last=False)
        return kept[key]

    def _digest(self, atoms: AtomSet, *more: int | Tensor | None) -> bytes:
        """What the geometry of a scene depends on, in 16 bytes."""
        digest = hashlib.blake2b(digest_size=16)

        def add(item: object) -> None:
            digest.update(item.cpu().contiguous().numpy().data if isinstance(item, Tensor) else repr(item).encode())

        for a in atoms:
            add((a.values.shape, a.footprint_m, bool(a.site_fields)))
            add((a.timestep, a.day_of_year) if self.config.temporal else None)
            add(a.positions)
            add(a.valid)
        for item in more:
            add(item)
        return digest.digest()

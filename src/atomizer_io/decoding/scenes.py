"""Scenes that are read out one after the other: each is encoded once, then asked as a strategy wants.

Shapes: M positions, K channels.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.operating_point import STRATEGIES
from atomizer_io.decoding.predictor import Prediction, ScenePredictor
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, SitesOfQueries
from atomizer_io.models.base import Cost

KEPT_GEOMETRIES = 4  # windows of one raster look alike


class SceneReader:
    """Encodes scenes with one model and reads them out; several threads may share it."""

    def __init__(self, model: AtomizerIO) -> None:
        self.model, self._cache, self._lock = model, GeometryCache(model.config, KEPT_GEOMETRIES), threading.Lock()

    def encoded(
        self,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        sites: SitesOfQueries | None = None,
        cost: Cost = Cost(),
        seed: int = 0,
        footprint_m: Footprint | None = None,
    ) -> ScenePredictor:
        """Encode a scene, to be asked at ``where``; ``seed`` draws the atoms that ``cost.budget`` keeps of a cell.

        The footprint of a query is the pixel where ``where`` is a grid, unless another is given.
        """
        with self._lock:
            geometry = self._cache.geometry(atoms, atoms_per_latent=cost.atoms_per_latent, max_points=cost.max_points)
        generator = None if cost.budget is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            latents = self.model.encode(
                [atoms], geometry=[geometry], budget=cost.budget, max_points=cost.max_points, generator=generator
            )
        return ScenePredictor(
            self.model, latents, where, sites=sites, neighbors=cost.neighbors, footprint_m=footprint_m
        )


def read_out(predictor: ScenePredictor, strategy: str, calibration: Calibration | None = None) -> Prediction:
    """Ask where ``strategy`` must with its usual settings, or as calibrated; ``dense`` asks everywhere."""
    if calibration is not None:
        return calibration.point.guide(predictor)
    chosen = STRATEGIES[strategy]
    return chosen.guide(predictor, **chosen.usual, margin=0.0, tolerance=0.0)


def attention_of(predictor: ScenePredictor, channels: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """Return how much attention each (sensor, name) of ``channels`` received (M, K), at a position and around it."""
    latents = predictor.latents
    where = predictor.model.locate(
        predictor.atoms,
        predictor.geometry,
        predictor.positions_M2,
        sites=predictor.named,
        neighbors=predictor.neighbors,
        footprint_m=predictor.footprint_m,
    )
    with torch.no_grad():
        found = predictor.model.explain(latents, [where])[0]
    shares_MK = ((found.here + found.around) / 2).cpu().numpy()
    total = np.zeros((len(shares_MK), len(channels)), dtype=np.float32)
    np.add.at(total.T, [channels.index((c.sensor, c.name)) for c in found.channels], shares_MK.T)
    return total

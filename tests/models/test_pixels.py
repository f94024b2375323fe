"""The pixel regression learns what single pixels tell."""

from __future__ import annotations

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.datasets import Meta, Sample
from atomizer_io.errors import AtomsError
from atomizer_io.models.rivals.pixels import PixelRegression
from atomizer_io.sensors import SENTINEL2
from atomizer_io.training.bands import configuration


def sample(seed: int, holes: bool = False) -> Sample:
    rng = np.random.default_rng(seed)
    target = rng.integers(-1, 2, (12, 12))
    values = rng.normal(1000, 100, (2, 12, 12)).astype(np.float32)
    values[0] += 600 * (target == 1)  # the first band tells, the second does not
    if holes:
        values[0, :6] = np.nan
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B11", "B02"), 10.0)
    return Sample.of_map(atoms, aio.Grid(12, 12, gsd_m=10.0), target, Meta(str(seed)))


def accuracy(model: PixelRegression, asked: Sample) -> float:
    known = asked.target >= 0
    return float((model(asked).argmax(dim=1) == asked.target)[known].float().mean())


def test_it_learns_and_does_without() -> None:
    training = [sample(i) for i in range(6)]
    assert accuracy(PixelRegression(training, 2), sample(9)) > 0.97
    assert accuracy(PixelRegression(training, 2, configuration("no-swir")), sample(9)) < 0.7
    assert 0.6 < accuracy(PixelRegression([sample(i, holes=True) for i in range(6)], 2), sample(9, holes=True)) < 0.95


def test_sensors_on_other_grids_are_refused() -> None:
    asked = sample(1)
    coarse = aio.AtomSet.from_raster(np.ones((1, 6, 6)), SENTINEL2.pick("B12"), 20.0)
    both = Sample(asked.atoms + coarse, asked.target, asked.queries, asked.meta)
    with pytest.raises(AtomsError, match="do not lie on the grid"):
        PixelRegression([both], 2)

"""Turning a sample moves positions and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.datasets import Meta, Sample
from atomizer_io.datasets.crop import SpatialSplit, cropped, random_box
from atomizer_io.errors import ConfigError
from atomizer_io.training.augmentation import augmented, rotated
from scenes import SMALL, points, raster


def sample(seed: int = 0) -> Sample:
    atoms = raster(seed, size=(6, 4), gsd=(10.0, 20.0)) + raster(seed + 1, size=(18, 12), gsd=(10 / 3, 20 / 3), day=200)
    target = np.arange(24).reshape(6, 4) % 3
    return Sample.of_map(atoms, aio.Grid(6, 4, gsd_m=(10.0, 20.0)), target, Meta("a"))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_it_is_the_rotated_raster(quarters: int, flip: bool) -> None:
    values = torch.arange(12.0).reshape(1, 3, 4)
    plain = Sample.of_map(
        aio.AtomSet.from_raster(values, aio.sensors.SENTINEL2.pick("B02"), 10.0),
        aio.Grid(3, 4, 10.0),
        np.zeros((3, 4)),
        Meta("a"),
    )
    moved = rotated(plain, quarters, flip).atoms.acquisitions[0]
    values = torch.rot90(values.flip(2) if flip else values, quarters, dims=(1, 2))
    expected = aio.AtomSet.from_raster(values, aio.sensors.SENTINEL2.pick("B02"), 10.0).acquisitions[0]
    table = {tuple(p): v for p, v in zip(moved.positions.round().tolist(), moved.values[:, 0].tolist(), strict=True)}
    assert table == {
        tuple(p): v for p, v in zip(expected.positions.tolist(), expected.values[:, 0].tolist(), strict=True)
    }


def test_footprints_turn_too_and_targets_stay() -> None:
    plain = sample()
    moved = rotated(plain, 1, False)
    assert [a.footprint_m for a in moved.atoms] == [(20.0, 10.0), (20 / 3, 10 / 3)]
    assert torch.equal(moved.target, plain.target) and moved.queries.grid is None
    assert rotated(plain, 4, False) is plain
    model = aio.create_model("atomizer_io_tiny", **SMALL).eval()
    sees = model.locate(moved.atoms, model.geometry(moved.atoms), moved.queries.positions).sites_MA
    assert torch.equal(sees, model.locate(plain.atoms, model.geometry(plain.atoms), plain.queries.positions).sites_MA)


def test_all_eight_come_up() -> None:
    own = torch.Generator().manual_seed(0)
    plain = sample()
    corners = {tuple(augmented(plain, own).atoms.acquisitions[0].positions[0].tolist()) for _ in range(100)}
    assert len(corners) == 8
    assert augmented(plain, own, flips=False, rotations=False) is plain


def test_a_crop_is_what_lies_inside() -> None:
    plain = sample()
    part = cropped(plain, (-20.0, 0.0, 0.0, 60.0))
    assert all(((a.positions[:, 0] < 0) & (a.positions[:, 1] > 0)).all() for a in part.atoms)
    assert [len(a.positions) for a in part.atoms] == [6, 54]
    assert part.target.tolist() == [0, 1, 1, 2, 2, 0]
    empty = cropped(plain, (1000.0, 1000.0, 1001.0, 1001.0))
    assert len(empty.atoms) == 0 and len(empty.target) == 0


def test_sites_of_queries_are_counted_anew() -> None:
    cloud = points(3)
    places = cloud.acquisitions[0].positions
    plain = Sample.of_points(cloud, places, np.zeros(150, int), Meta("p"), sites={0: torch.arange(150)})
    part = cropped(plain, (0.0, -25.0, 25.0, 25.0))
    sites = part.queries.sites[0]
    assert torch.equal(part.atoms.acquisitions[0].positions[sites], part.queries.positions)


def test_parts_and_random_boxes() -> None:
    plain = sample()
    west, east = SpatialSplit((0, 0, 0.5, 1))(plain), SpatialSplit((0.5, 0, 1, 1))(plain)
    assert len(west.target) + len(east.target) == len(plain.target)
    with pytest.raises(ConfigError, match="west, south, east, north"):
        SpatialSplit((0.5, 0, 0.5, 1))
    cloud = points(3)
    places = cloud.acquisitions[0].positions
    queried = Sample.of_points(cloud, places, np.zeros(150, int), Meta("p"), sites={0: torch.arange(150)})
    halves = [SpatialSplit(share)(queried) for share in ((0, 0, 1, 0.5), (0, 0.5, 1, 1))]
    assert sum(len(half.target) for half in halves) == 150  # those on the far edges too
    x0, y0, x1, _ = random_box(plain, 15.0, torch.Generator().manual_seed(1))
    assert x1 - x0 == pytest.approx(15) and -20.001 <= x0 <= 5.001 and -60.001 <= y0 <= 45.001


def test_crops_show_the_border_of_a_sample_about_as_often_as_its_middle() -> None:
    plain, own = sample(), torch.Generator().manual_seed(0)
    south, north = plain.atoms.bounds[1], plain.atoms.bounds[3]
    side, heights = (north - south) / 3, np.linspace(south, north, 13)
    weight = {inside: np.zeros(13) for inside in (False, True)}
    for inside, sums in weight.items():
        for _ in range(4000):
            _, low, _, high = random_box(plain, side, own, inside=inside)
            shown = (heights >= low) & (heights <= high)
            sums += shown / (min(high, north) - max(low, south))  # a smaller crop has as many queries
            assert not inside or (south - 1e-9 <= low and high <= north + 1e-9)
    assert weight[False].max() < 2 * weight[False].min()
    assert weight[True].min() > 0.25 * weight[True].max()  # it was never for the outermost

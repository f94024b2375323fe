"""Changed clouds: what a draw changes, what it leaves alone, and that queries keep looking at their own points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.errors import ConfigError
from atomizer_io.training import config
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import TrainingSamples
from atomizer_io.training.draws import Draw
from atomizer_io.training.point_augmentation import FEW, GROUND_ERROR, PointAugmentation
from scenes import raster

COUNT = 600


def hill(count: int = COUNT) -> aio.AtomSet:
    """Points of trees on a hill; the intensity of each is its own number, so that it can be known again."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(-25, 25, (count, 2))
    above, total = rng.uniform(0, 15, count), rng.integers(1, 4, count)
    elevation = above + 10 + 5 * np.sin(xy[:, 0] / 9)
    number = 1 + (rng.uniform(size=count) * total).astype(int)
    cloud = aio.AtomSet.from_points(np.column_stack([xy, elevation]), number, total, np.arange(count)).acquisitions[0]
    height = torch.from_numpy(above).float()
    rank = torch.arange(count) / count
    return aio.AtomSet(
        (
            replace(
                cloud,
                values=torch.stack([cloud.values[:, 0], height], dim=1),
                channels=(*LIDAR.channels, *LIDAR_HEIGHT.channels),
                site_fields={**cloud.site_fields, "intensity_rank": rank},
            ),
        )
    )


def sample_of(atoms: aio.AtomSet, first: int = 0) -> Sample:
    """Every point from ``first`` on is queried, in another order than that of the points; its class is its number."""
    cloud = atoms.acquisitions[0]
    order = first + torch.randperm(len(cloud.positions) - first, generator=torch.Generator().manual_seed(1))
    sample = Sample.of_points(atoms, cloud.positions[order], order, Meta("hill"), {0: order})
    return replace(sample, queries=replace(sample.queries, whole="hill", members=order + 5000))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def column(sample: Sample, name: str) -> torch.Tensor:
    (cloud,) = sample.atoms
    return cloud.values[:, [channel.name for channel in cloud.channels].index(name)].double()


def check_consistent(sample: Sample) -> None:
    """Every query stands at its own point, with the class and the number of that point."""
    cloud, queries = sample.atoms.acquisitions[0], sample.queries
    sites = queries.sites[0]
    assert torch.equal(cloud.positions[sites], queries.positions)
    assert torch.equal(cloud.site_fields["intensity"][sites].long(), sample.target)
    assert torch.equal(queries.members, sample.target + 5000) and len(queries.ignore) == len(sample.target)
    assert queries.whole == "hill" and len(cloud.heights_m) == len(cloud.positions)


def test_by_default_nothing_is_changed_or_drawn() -> None:
    plain, own = sample_of(hill()), seeded()
    assert PointAugmentation()(plain, own) is plain
    assert torch.equal(torch.rand(3, generator=own), torch.rand(3, generator=seeded()))


@pytest.mark.parametrize("seed", range(4))
def test_a_tilt_adds_a_plane_to_elevations_and_hardly_anything_to_heights_above_ground(seed: int) -> None:
    plain = sample_of(hill())
    tilted = PointAugmentation(slope=0.3)(plain, seeded(seed))
    places, rise = plain.atoms.acquisitions[0].positions, column(tilted, "elevation") - column(plain, "elevation")
    design = torch.cat([places, torch.ones(COUNT, 1)], dim=1)
    plane = torch.linalg.lstsq(design, rise[:, None]).solution[:, 0]
    torch.testing.assert_close(design @ plane, rise, rtol=0, atol=1e-4)
    slope = float(plane[:2].norm())
    assert 0 < slope <= 0.3 and float(column(tilted, "elevation").min()) == pytest.approx(0, abs=1e-4)
    error = (column(tilted, "height") - column(plain, "height")).abs()
    assert 0 < float(error.max()) <= GROUND_ERROR * slope * float(places.norm(dim=1).max()) + 1e-3
    check_consistent(tilted)


def test_a_shift_moves_all_heights_alike() -> None:
    plain = sample_of(hill())
    moved = [PointAugmentation(height_m=0.5)(plain, seeded(seed)) for seed in range(20)]
    shifts = [float((column(sample, "height") - column(plain, "height")).mean()) for sample in moved]
    assert min(shifts) < -0.2 and max(shifts) > 0.2 and max(map(abs, shifts)) <= 0.5
    for name in ("elevation", "height"):
        torch.testing.assert_close(column(moved[0], name), column(plain, name) + shifts[0], rtol=0, atol=1e-5)


def test_intensity_is_scaled_and_its_rank_bent() -> None:
    plain = sample_of(hill())
    before = plain.atoms.acquisitions[0].site_fields
    factors = []
    for seed in range(30):
        after = PointAugmentation(intensity=3.0)(plain, seeded(seed)).atoms.acquisitions[0].site_fields
        scale = float(after["intensity"][-1] / before["intensity"][-1])
        torch.testing.assert_close(after["intensity"], before["intensity"] * scale)
        rank = after["intensity_rank"]
        assert bool((rank.diff() > 0).all()) and float(rank.min()) == 0 and float(rank.max()) < 1
        power = float(rank[300].log() / before["intensity_rank"][300].log())
        assert 0.5 <= power <= 2.0
        factors.append(scale)
    assert 1 / 8 <= min(factors) < 0.5 and 2 < max(factors) <= 8


def test_thinning_removes_points_with_their_queries() -> None:
    plain = sample_of(hill())
    shares = []
    for seed in range(60):
        thin = PointAugmentation(thinning=0.05)(plain, seeded(seed))
        check_consistent(thin)
        count = len(thin.atoms.acquisitions[0].positions)
        assert count == len(thin.queries) == len(thin.target)
        shares.append(count / COUNT)
    assert min(shares) >= 0.05 and max(shares) > 0.7
    assert 0.3 < np.mean(np.array(shares) < 0.05**0.5) < 0.7  # evenly on a logarithmic scale


def test_a_few_points_always_stay_and_never_none_that_is_queried() -> None:
    thin = PointAugmentation(thinning=1e-6)(sample_of(hill()), seeded(3))
    assert len(thin.atoms.acquisitions[0].positions) == FEW
    few = sample_of(hill(5))
    assert len(PointAugmentation(thinning=0.01, returns=1.0)(few, seeded()).queries) == 5
    lonely = sample_of(hill(), first=COUNT - 1)  # one of 600 is queried
    for seed in range(10):
        thin = PointAugmentation(thinning=1e-6, slope=0.1)(lonely, seeded(seed))
        assert len(thin.queries) == 1
        check_consistent(thin)


def test_only_first_or_only_last_returns_stay_as_if_there_were_no_others() -> None:
    plain = sample_of(hill())
    fields = plain.atoms.acquisitions[0].site_fields
    first, last = (set((fields[name] == 0).nonzero()[:, 0].tolist()) for name in ("echo_before", "echo_after"))
    kept = []
    for seed in range(20):
        single = PointAugmentation(returns=1.0)(plain, seeded(seed))
        check_consistent(single)
        cloud = single.atoms.acquisitions[0]
        kept.append(frozenset(cloud.site_fields["intensity"].long().tolist()))
        assert not cloud.site_fields["echo_before"].any() and not cloud.site_fields["echo_after"].any()
    assert set(kept) == {frozenset(first), frozenset(last)}
    happened = [len(PointAugmentation(returns=0.3)(plain, seeded(seed)).target) < COUNT for seed in range(100)]
    assert 15 < sum(happened) < 45


def test_unknown_returns_stay() -> None:
    cloud = hill().acquisitions[0]
    unknown = {name: torch.full_like(value, torch.nan) for name, value in cloud.site_fields.items() if "echo" in name}
    blind = replace(cloud, site_fields={**cloud.site_fields, **unknown})
    sample = PointAugmentation(returns=1.0)(sample_of(aio.AtomSet((blind,))), seeded())
    assert len(sample.target) == COUNT and sample.atoms.acquisitions[0].site_fields["echo_after"].isnan().all()


def test_returns_and_intensity_are_left_out() -> None:
    """A third each of those that lack something lack returns, intensity and both."""
    plain = sample_of(hill())
    groups = {"echo_before", "echo_after"}, {"intensity", "intensity_rank"}
    seen = list[tuple[bool, ...]]()
    for seed in range(120):
        (cloud,) = PointAugmentation(field_dropout=0.75)(plain, seeded(seed)).atoms
        assert torch.equal(cloud.values, plain.atoms.acquisitions[0].values)
        assert all(group <= cloud.site_fields.keys() or not group & cloud.site_fields.keys() for group in groups)
        seen.append(tuple(not group & cloud.site_fields.keys() for group in groups))
    for lost in ((True, False), (False, True), (True, True), (False, False)):
        assert 0.15 < seen.count(lost) / len(seen) < 0.35
    assert PointAugmentation(slope=0.3, returns=0.5).random_change(seeded()).lacks == ()


def test_pixels_stay_as_they_are_and_images_beside_points_keep_their_sites() -> None:
    image = raster(1, sensor=AERIAL, names=("R", "G"), size=(20, 20), gsd=2.5)
    draws = PointAugmentation(slope=0.3, height_m=1.0, intensity=3.0, thinning=0.1, returns=0.5)
    only = Sample.of_map(image, aio.Grid(20, 20, 2.5), np.zeros((20, 20), int), Meta("image"))
    assert draws(only, seeded()) is only
    plain = sample_of(hill() + image)
    pixels = torch.arange(COUNT) % 400
    plain = replace(plain, queries=replace(plain.queries, sites={**plain.queries.sites, 1: pixels}))
    thin = PointAugmentation(thinning=0.1)(plain, seeded())
    assert thin.atoms.acquisitions[1] is image.acquisitions[0] and len(thin.target) < COUNT
    check_consistent(thin)
    pixel_of = dict(zip(plain.target.tolist(), pixels.tolist(), strict=True))
    assert thin.queries.sites[1].tolist() == [pixel_of[number] for number in thin.target.tolist()]


def test_queries_of_a_raster_stay_where_points_go() -> None:
    atoms, grid = hill(), aio.Grid(10, 10, 5.0)
    canopy = Sample.of_map(atoms, grid, np.ones((10, 10), np.float32), Meta("canopy"))
    thin = PointAugmentation(thinning=0.01)(canopy, seeded(1))
    assert len(thin.atoms.acquisitions[0].positions) < COUNT and thin.queries.grid == grid and len(thin.target) == 100


def test_a_model_reads_what_is_drawn_and_each_visit_draws_anew() -> None:
    draws = PointAugmentation(slope=0.3, height_m=0.3, intensity=3.0, thinning=0.02, returns=0.2, field_dropout=1.0)
    drawn = TrainingSamples([sample_of(hill())], TrainingSettings(point_augmentation=draws), 0)
    visits = [drawn[Draw(0, epoch, 0, 0)][0] for epoch in (0, 1, 0)]
    assert len({len(sample.target) for sample in visits}) == 2
    assert torch.equal(visits[0].atoms.acquisitions[0].values, visits[2].atoms.acquisitions[0].values)
    model = aio.create_model("atomizer_io_tiny", width=24, depth=1, self_head_dim=8, cross_head_dim=8)
    for sample in visits:
        logits = model([sample.atoms], [sample.queries.positions], sites=[sample.queries.sites])[0]
        assert len(logits) == len(sample.target) and bool(logits.isfinite().all())


def test_settings_are_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("training: {cloud_draws: {slope: 0.2, thinning: 0.01}}")
    assert config.load(path).training.point_augmentation == PointAugmentation(slope=0.2, thinning=0.01)
    assert config.load(path, ["training.point_augmentation.returns=0.1"]).training.point_augmentation.returns == 0.1
    with pytest.raises(ConfigError, match=r"did you mean training.point_augmentation.slope\?"):
        config.load(path, ["training.point_augmentation.slop=0.1"])
    for wrong, message in (
        ({"slope": -0.1}, "slope must be 0 or more"),
        ({"thinning": 0.0}, "smallest share"),
        ({"thinning": 2.0}, "smallest share"),
        ({"returns": 1.5}, "a probability"),
        ({"field_dropout": -0.1}, "field_dropout is a probability"),
    ):
        with pytest.raises(ConfigError, match=message):
            PointAugmentation(**wrong)

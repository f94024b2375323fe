import pytest
import torch

from atomizer_io.datasets.synthetic import SyntheticScene, water_scene
from atomizer_io.sensors import SENTINEL1, SENTINEL2


def test_same_seed_same_scene() -> None:
    one, two = water_scene(7, 48), water_scene(7, 48)
    assert torch.equal(one.target, two.target)
    for a, b in zip(one.atoms, two.atoms, strict=True):
        assert torch.equal(a.values.nan_to_num(-1), b.values.nan_to_num(-1))
        assert a.day_of_year == b.day_of_year


def test_other_seed_other_scene() -> None:
    assert not torch.equal(water_scene(0, 48).target, water_scene(1, 48).target)


@pytest.mark.parametrize(("size", "gsd_m"), [(16, 10.0), (64, 10.0), (33, 20.0)])
def test_shapes(size: int, gsd_m: float) -> None:
    scene = water_scene(0, size, gsd_m)
    optical, radar = scene.atoms
    assert scene.target.shape == scene.grid.shape == (size, size)
    assert scene.target.dtype == torch.long
    assert optical.values.shape == (size * size, 13) and radar.values.shape == (size * size, 2)
    assert [c.name for c in scene.atoms.channels] == [*SENTINEL2.names, "VV", "VH"]
    assert torch.equal(optical.positions, scene.grid.positions())
    assert optical.footprint_m == radar.footprint_m == (gsd_m, gsd_m)
    assert {c.gsd_m for c in scene.atoms.channels} == {gsd_m}


@pytest.mark.parametrize("seed", range(12))
def test_both_classes_and_two_days(seed: int) -> None:
    scene = water_scene(seed)
    assert set(scene.target.unique().tolist()) == {-1, 0, 1}
    assert 0.05 < (scene.target == 1).float().mean() < 0.5
    optical, radar = scene.atoms
    assert optical.day_of_year != radar.day_of_year
    assert all(1 <= float(a.day_of_year or 0) <= 366 for a in scene.atoms)


def test_values_are_in_the_units_of_the_sensors() -> None:
    optical, radar = water_scene(0).atoms
    assert optical.values.nan_to_num(1.0).min() > 0 and optical.values.nan_to_num(1.0).max() < 10000
    assert radar.values.nan_to_num(-10.0).min() > -50 and radar.values.nan_to_num(-10.0).max() < 20


def test_water_is_dark_in_the_infrared_and_to_radar_on_average() -> None:
    values = {name: {0: [], 1: []} for name in ("B11", "VH")}
    for seed in range(6):
        scene = water_scene(seed)
        for name, by_class in values.items():
            column = scene.atoms.select(name).acquisitions[0].values[:, 0]
            for k in (0, 1):
                chosen = column[scene.target.flatten() == k]
                by_class[k].append(chosen[chosen.isfinite()].median())
    for by_class in values.values():
        assert torch.stack(by_class[1]).mean() < torch.stack(by_class[0]).mean()


def test_clouds_remove_atoms() -> None:
    cloudy, clear = water_scene(3, cloud_share=0.3), water_scene(3, cloud_share=0.0)
    optical = cloudy.atoms.acquisitions[0]
    absent = optical.values.isnan()
    assert absent.any() and bool((absent.all(dim=1) == absent.any(dim=1)).all())
    assert optical.num_atoms == optical.values.numel() - int(absent.sum())
    assert clear.atoms.acquisitions[0].num_atoms == 64 * 64 * 13


def test_radar_is_cut_at_the_edge_of_the_swath_in_some_scenes() -> None:
    cut = [water_scene(seed, 32).atoms.acquisitions[1].valid is not None for seed in range(20)]
    assert 0 < sum(cut) < 15


def seen(scene: SyntheticScene) -> torch.Tensor:
    return torch.stack([a.occupied() for a in scene.atoms]).any(dim=0).reshape(scene.grid.shape)


def test_nothing_is_asked_where_nothing_was_observed() -> None:
    blind = [water_scene(seed, cloud_share=0.5) for seed in range(10)]
    assert any(not bool(seen(scene).all()) for scene in blind)
    for scene in blind:
        assert bool((scene.target[~seen(scene)] == -1).all())


def test_more_looks_less_speckle() -> None:
    def roughness(looks: float) -> float:
        band = water_scene(5, looks=looks).atoms.select("VV", sensor=SENTINEL1.name).acquisitions[0].values
        return float(band.reshape(64, 64).diff(dim=1).nan_to_num(0.0).abs().mean())

    assert roughness(50.0) < 0.6 * roughness(1.0)

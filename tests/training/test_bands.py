"""Band dropout and the channel configurations of the paper."""

from __future__ import annotations

import pytest
import torch

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import ConfigError
from atomizer_io.sensors import SENTINEL1, SENTINEL2
from atomizer_io.training.bands import CONFIGURATIONS, BandDropout, configuration, observed, restricted
from scenes import raster


def scene() -> AtomSet:
    return raster(1, SENTINEL1, ("VV", "VH")) + raster(2, SENTINEL2, SENTINEL2.names)


def names(atoms: AtomSet) -> set[str]:
    return {channel.name for channel in observed(atoms)}


def test_a_sensor_goes() -> None:
    own = torch.Generator().manual_seed(0)
    left = [frozenset(c.sensor for c in observed(BandDropout(sensor=1.0)(scene(), own))) for _ in range(40)]
    assert set(left) == {frozenset({"sentinel1"}), frozenset({"sentinel2"})}


def test_a_group_goes() -> None:
    own = torch.Generator().manual_seed(0)
    gone = {frozenset(names(scene()) - names(BandDropout(group=1.0)(scene(), own))) for _ in range(60)}
    assert {frozenset({"B11", "B12"}), frozenset({"B05", "B06", "B07"}), frozenset({"B04", "B03", "B02"})} <= gone
    assert all(len(group) in (2, 3) for group in gone)


def test_single_bands_go_but_never_all() -> None:
    own = torch.Generator().manual_seed(0)
    counts = [len(names(BandDropout(band=1.0, each=0.5)(scene(), own))) for _ in range(60)]
    assert min(counts) >= 1 and max(counts) < 15 and 5 < sum(counts) / 60 < 10
    assert len(names(BandDropout(band=1.0, each=1.0)(scene(), own))) == 15  # a choice that leaves nothing is not made
    alone = raster(1, SENTINEL1, ("VV", "VH"))
    assert BandDropout(sensor=1.0)(alone, own) is alone


def test_nothing_goes_by_default_and_shares_add_up() -> None:
    own = torch.Generator().manual_seed(0)
    atoms = scene()
    assert BandDropout()(atoms, own) is atoms
    happened = [len(names(BandDropout(sensor=0.2, group=0.2, band=0.2)(atoms, own))) < 15 for _ in range(400)]
    assert 0.5 < sum(happened) / 400 < 0.7
    with pytest.raises(ConfigError, match="sum"):
        BandDropout(sensor=0.6, group=0.6)
    with pytest.raises(ConfigError, match="probability"):
        BandDropout(each=2.0)


@pytest.mark.parametrize(
    ("name", "count", "out"),
    [
        ("all", 15, ""),
        ("s2-only", 13, "VV"),
        ("s1-only", 2, "B02"),
        ("rgb-only", 3, "VV"),
        ("no-swir", 13, "B11"),
        ("no-red-edge", 12, "B06"),
    ],
)
def test_the_configurations_of_the_paper(name: str, count: int, out: str) -> None:
    left = names(restricted(scene(), configuration(name), name))
    assert len(left) == count and out not in left
    assert name in CONFIGURATIONS


def test_own_configurations() -> None:
    assert names(restricted(scene(), configuration("B04,VH"), "x")) == {"B04", "VH"}
    assert names(restricted(scene(), configuration("sentinel2 B04"), "x")) == {"B04"}
    with pytest.raises(ConfigError, match="s2-only"):
        configuration("s2-olny")
    with pytest.raises(ConfigError, match=r"'B99' leaves nothing: the sample has sentinel1 VV"):
        restricted(scene(), configuration("B99"), "B99")

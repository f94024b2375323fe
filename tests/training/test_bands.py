"""Channels that are chosen by name, and the channel configurations of the paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import LIDAR, SENTINEL1, SENTINEL2, Sensor
from atomizer_io.errors import ConfigError
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_io.training.bands import (
    CONFIGURATIONS,
    configuration,
    configurations,
    observed,
    restricted,
)
from scenes import names, of, raster, sentinels


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
    left = names(restricted(sentinels(), configuration(name), name))
    assert len(left) == count and out not in left
    assert name in CONFIGURATIONS


def test_own_configurations() -> None:
    present = observed(sentinels().atoms)
    assert names(restricted(sentinels(), configuration("B04,VH", present), "x")) == {"B04", "VH"}
    assert names(restricted(sentinels(), configuration("sentinel2 B04", present), "x")) == {"B04"}
    with pytest.raises(ConfigError, match="s2-only"):
        configuration("s2-olny", present)
    with pytest.raises(ConfigError, match=r"'B99' matches no channel; .*the data have sentinel1 VV.*and 3 more"):
        configuration("B99", present)
    with pytest.raises(ConfigError, match=r"'rgb-only' leaves nothing: the sample has sentinel1 VV"):
        restricted(of(raster(1, SENTINEL1, ("VV", "VH"))), configuration("rgb-only"), "rgb-only")


BANDS = {"band one": (0.45, 0.05), "band, two": (0.55, 0.05), "b+3": (0.65, 0.05), "near": (0.85, 0.05)}
OWN = Sensor.define("My Drone", gsd_m=0.1, bands=BANDS)


def own_channels() -> list[Channel]:
    return [*SENTINEL1.pick("VV", "VH"), *SENTINEL2.channels, *LIDAR.channels, *OWN.channels]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("my drone-only", "band one|band, two|b+3|near"),
        ("My Drone", "band one|band, two|b+3|near"),
        ("lidar-only", "elevation"),
        ("sentinel1", "VV|VH"),
        ("s1+near", "VV|VH|near"),
        ("band one", "band one"),
        ("b+3", "b+3"),
        ('"band, two"+"b+3"+VV', "VV|band, two|b+3"),
        ("my drone near", "near"),
        ("my drone+no-near", "band one|band, two|b+3"),
        ("no-sentinel2+no-lidar+no-my-drone", "VV|VH"),
        ("0.64-0.67um", "B04|b+3"),
        ("640-670 nm+elevation", "B04|elevation|b+3"),
        ("my drone+every-2nd", "band one|b+3"),
        ("sentinel2+every-6th", "B01|B07|B12"),
        ("swir-only", "B11|B12"),
    ],
)
def test_configurations_of_any_sensor(text: str, kept: str) -> None:
    keep = configuration(text, own_channels())
    assert "|".join(channel.name for channel in own_channels() if keep(channel)) == kept


def test_every_third_is_of_each_sensor() -> None:
    keep = configuration("every-3rd", own_channels())
    optical = {"B01", "B04", "B07", "B09", "B12"}
    assert {c.name for c in own_channels() if keep(c)} == {"VV", "elevation", "band one", "near", *optical}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("my dron-only", "did you mean .*My Drone-only"),
        ("B04+nea", "'nea' matches no channel; did you mean near"),
        ("8-9um", "matches no channel; the data have sentinel1 VV, sentinel1 VH.* and 8 more$"),
        ("s1+no-s1", "leaves nothing"),
    ],
)
def test_what_matches_nothing_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration(text, own_channels())


def test_the_command_line_separates_configurations() -> None:
    assert configurations("all,s2-only") == ["all", "s2-only"]
    assert configurations("all,lidar-only,400-700nm") == ["all", "lidar-only", "400-700nm"]
    assert configurations("B04,B08") == ["B04,B08"]
    assert configurations('B04+"a;b,c" ; my drone') == ['B04+"a;b,c"', "my drone"]


def test_queries_name_the_same_sites_when_an_acquisition_goes() -> None:
    cloud = aio.datasets.create("synthetic", like="fractal", size=16)[0]
    sensors = [acquisition.sensor for acquisition in cloud.atoms]
    assert sensors[0] == "lidar" and len(sensors) > 1 and list(cloud.queries.sites) == [0]
    present = observed(cloud.atoms)
    without = restricted(cloud, configuration("no-lidar", present), "no-lidar")
    assert not without.queries.sites and "lidar" not in {a.sensor for a in without.atoms}
    swapped = replace(cloud, atoms=AtomSet(tuple(reversed(cloud.atoms.acquisitions))))
    place = len(sensors) - 1
    swapped = replace(swapped, queries=replace(cloud.queries, sites={place: cloud.queries.sites[0]}))
    only = restricted(swapped, configuration("lidar-only", present), "lidar-only")
    assert list(only.queries.sites) == [0] and torch.equal(only.queries.sites[0], cloud.queries.sites[0])
    draws, own = ChannelDropout("sensors", share=1.0), torch.Generator().manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", width=24, depth=1, channels=tuple(present)).eval()
    for sample in (without, only, *(draws(cloud, own) for _ in range(4))):
        assert ("lidar" in {a.sensor for a in sample.atoms}) == bool(sample.queries.sites)
        assert len(model.predict([model.preparer()(sample.atoms, sample.queries)])[0]) == len(sample.queries)


@pytest.mark.parametrize("text", ["", " ", ";"])
def test_nothing_is_no_configuration(text: str) -> None:
    with pytest.raises(ConfigError, match="no channel configuration is named"):
        configurations(text)


def test_every_zeroth_channel_is_none() -> None:
    with pytest.raises(ConfigError):
        configuration("every-0th", SENTINEL2.channels)

"""Channels, dates and wavelengths that training samples show."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_io.training.augmentation import ChannelDropout, units_of
from atomizer_io.training.bands import observed
from scenes import names, of, raster, sentinels


def left(draws: ChannelDropout, sample: Sample, count: int = 200) -> list[frozenset[str]]:
    """What stays of the channels, drawn several times."""
    own = torch.Generator().manual_seed(0)
    return [frozenset(names(draws(sample, own))) for _ in range(count)]


def test_in_a_share_of_the_draws_one_group_is_alone() -> None:
    visible = left(ChannelDropout("groups", share=1.0, alone=0.5), sentinels(), 600)
    rgb = frozenset({"B02", "B03", "B04"})
    seldom = left(ChannelDropout("groups", share=1.0), sentinels(), 600)
    assert sum(one == rgb for one in visible) > 1.5 * sum(one == rgb for one in seldom) > 0
    always = left(ChannelDropout("groups", share=1.0, alone=1.0), sentinels(), 100)
    assert len(set(always)) == 8 and not any(one > rgb for one in always)
    with pytest.raises(ConfigError, match="alone"):
        ChannelDropout("groups", alone=2.0)


def test_sensors_go_as_a_whole() -> None:
    radar, optical = frozenset({"VV", "VH"}), frozenset(SENTINEL2.names)
    assert set(left(ChannelDropout("sensors", share=1.0), sentinels())) == {radar, optical, radar | optical}


def test_groups_of_every_size_stay() -> None:
    visible = left(ChannelDropout("groups", share=1.0), sentinels(), 600)
    units = units_of(observed(sentinels().atoms), "groups")
    assert [len(unit) for unit in units] == [2, 3, 3, 2, 2, 1, 1, 1]  # NIR, red edge, RGB, SWIR; S1; B01, B09, B10
    sizes = Counter(sum(any(name in one for _, name in unit) for unit in units) for one in visible)
    assert all(sizes[size] > 30 for size in range(1, 9))  # one group is as likely as all
    for unit in units:
        members = {name for _, name in unit}
        assert {len(members & one) for one in visible} == {0, len(members)}  # together or not at all
    assert frozenset({"B02", "B03", "B04"}) in visible and frozenset({"VV", "VH"}) in visible


def test_single_bands_stay() -> None:
    sizes = Counter(len(one) for one in left(ChannelDropout("bands", share=1.0), sentinels(), 600))
    assert set(sizes) == set(range(1, 16)) and sizes[1] > 20 and sizes[15] > 20


def test_a_mixture_draws_all_kinds() -> None:
    visible = left(ChannelDropout("mixed", share=1.0), sentinels(), 600)
    assert any(one == {"VV", "VH"} for one in visible) and any("B02" in one and "B03" not in one for one in visible)


def test_only_a_share_of_the_samples_is_concerned() -> None:
    whole = [len(one) == 15 for one in left(ChannelDropout("bands", share=0.4), sentinels(), 600)]
    assert 0.55 < sum(whole) / 600 < 0.72  # and a few of which all bands stay
    sample, own = sentinels(), torch.Generator().manual_seed(0)
    assert ChannelDropout()(sample, own) is sample
    assert names(ChannelDropout("sensors", share=1.0)(of(raster(1, SENTINEL1, ("VV", "VH"))), own)) == {"VV", "VH"}


def test_bands_move_together_on_all_dates() -> None:
    own = torch.Generator().manual_seed(0)
    series = of(raster(1, SENTINEL1, ("VV",)) + raster(2, SENTINEL2, ("B04", "B11"), day=30) + raster(2, day=90))
    visible = [ChannelDropout(wavelengths=0.06)(series, own).atoms for _ in range(200)]
    red = torch.tensor([[part.channels[0].wavelength_um for part in list(atoms)[1:2]] for atoms in visible])
    assert (
        0.15 < float((red == red.new_tensor(SENTINEL2.pick("B04")[0].wavelength_um)).double().mean()) < 0.35
    )  # a quarter stays as it is
    assert 0.665 * 0.94 <= red.min() < 0.64 < 0.69 < red.max() <= 0.665 * 1.06
    for atoms in visible:
        radar, first, second = atoms
        assert radar.channels == series.atoms.acquisitions[0].channels  # without a wavelength nothing moves
        moved = {channel.name: channel for channel in first.channels}
        assert all(channel == moved.get(channel.name, channel) for channel in second.channels)
        assert 0.5 <= moved["B04"].bandwidth_um / SENTINEL2.pick("B04")[0].bandwidth_um <= 2.0
        assert torch.equal(first.values, series.atoms.acquisitions[1].values)
    with pytest.raises(ConfigError, match=r"channel_dropout.wavelengths is a share from 0 to 0.5, got 0.6"):
        ChannelDropout(wavelengths=0.6)


def test_dates_go() -> None:
    own, undated = torch.Generator().manual_seed(0), raster(9, SENTINEL1, ("VV",), day=None)
    series = of(sum((raster(seed, day=30 * seed) for seed in range(1, 7)), undated))
    stays = [ChannelDropout(dates=1.0)(series, own).atoms for _ in range(300)]
    assert all("VV" in {c.name for c in atoms.channels} for atoms in stays)
    assert Counter(len(atoms) - 1 for atoms in stays).keys() == set(range(1, 7))
    assert len(ChannelDropout(dates=1.0)(of(raster(1, day=30)), own).atoms) == 1


def test_wrong_draws_are_refused() -> None:
    with pytest.raises(ConfigError, match="'sensor' is not known; use none, sensors, groups, bands, mixed"):
        ChannelDropout("sensor")
    with pytest.raises(ConfigError, match=r"channel_dropout.dates is a share from 0 to 1, got 2"):
        ChannelDropout(dates=2.0)

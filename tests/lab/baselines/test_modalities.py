"""RAMEN and UniverSat behind the contract: tasks, absent and new channels, sensors of several pixel sizes, dates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import SENTINEL1
from atomizer_io.errors import UnknownChannelError
from atomizer_io.models.base import Model
from scenes import raster

NAMES = ("ramen", "universat")
TINY: dict[str, dict[str, Any]] = {
    "ramen": {"width": 48, "depth": 4, "heads": 2, "decoder_width": 16},
    "universat": {"width": 64, "depth": 1, "heads": 2},
}


def made(name: str, atoms: aio.AtomSet, **options: Any) -> Model:
    torch.manual_seed(0)
    model: Model = aio.create_model(name, **{"channels": atoms.channels, **TINY[name], **options})
    return model.eval()


def grown(model: Model) -> Model:
    """``model`` with branches that begin at nearly nothing made large, so that every part matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_scale"):
                parameter.fill_(0.5)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_date_matters_unless_dates_are_not_to_be_used(name: str) -> None:
    def series(days: tuple[int, int]) -> aio.AtomSet:
        return raster(0, size=(8, 8), day=days[0]) + raster(1, size=(8, 8), day=days[1])

    def outputs(dates: bool) -> list[torch.Tensor]:
        model = grown(made(name, series((10, 90)), dates=dates))
        with torch.no_grad():
            return [
                model([series(days)], [aio.Grid(8, 8, gsd_m=10.0).positions()])[0] for days in ((10, 90), (10, 200))
            ]

    assert not torch.allclose(*outputs(dates=True), atol=1e-5)
    assert torch.equal(*outputs(dates=False))


# --- what is absent, new, coarse ---


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_channel_is_left_out(name: str) -> None:
    both = raster(0, size=(8, 8)) + raster(1, SENTINEL1, ("VV", "VH"), size=(8, 8))
    model, where = grown(made(name, both)), aio.Grid(8, 8, gsd_m=10.0).positions()
    optical, radar = both.acquisitions
    hidden = replace(optical, valid=torch.tensor([True, False, True]).expand(64, -1))
    with torch.no_grad():
        (whole,), (named,), (masked,), (alone,) = (
            model([atoms], [where])
            for atoms in (both, both.drop("B03"), aio.AtomSet((hidden, radar)), both.select(sensor="sentinel2"))
        )
    torch.testing.assert_close(named, masked)
    assert not torch.allclose(whole, named, atol=1e-5) and not torch.allclose(whole, alone, atol=1e-5)
    assert len(model.preparer()(both.select(sensor="sentinel2"), queries_at(where)).values) == 1  # not one of zeros


@pytest.mark.parametrize("name", NAMES)
def test_a_hole_is_the_mean(name: str) -> None:
    """Neither model can leave out single pixels: those are zero after standardisation."""
    whole = raster(0, names=("B02",), size=(8, 8))
    values = whole.acquisitions[0].observed().clone()
    values[10] = whole.channels[0].mean
    filled = aio.AtomSet.from_raster(values.T.reshape(1, 8, 8), whole.channels, 10.0, 100)
    values[10] = torch.nan
    holed = aio.AtomSet.from_raster(values.T.reshape(1, 8, 8), whole.channels, 10.0, 100)
    prepare = made(name, whole).preparer()
    torch.testing.assert_close(prepare(holed, None).values, prepare(filled, None).values)


@pytest.mark.parametrize("name", NAMES)
def test_new_channels_are_read_by_their_wavelength_and_others_refused(name: str) -> None:
    scene, where = raster(0, size=(8, 8)), aio.Grid(8, 8, gsd_m=10.0).positions()
    model = grown(made(name, scene))
    moved = [Channel("drone", f"{c.name}x", c.wavelength_um, mean=c.mean, std=c.std) for c in scene.channels]
    values = scene.acquisitions[0].observed().T.reshape(-1, 8, 8)
    shifted = aio.AtomSet.from_raster(values, moved, 10.0, 100)
    with torch.no_grad():
        torch.testing.assert_close(model([shifted], [where]), model([scene], [where]))
    assert model.capabilities.new_channels and not model.unreadable(moved)
    soil = Channel("drone", "soil", mean=0.0, std=1.0)
    assert model.unreadable([soil, SENTINEL1["VV"]]) == [soil, SENTINEL1["VV"]]  # its code was never trained
    with pytest.raises(UnknownChannelError, match="drone soil has no wavelength and the model has no learned code"):
        model([aio.AtomSet.from_raster(np.zeros((1, 8, 8)), [soil], 10.0)], [where])


@pytest.mark.parametrize("name", NAMES)
def test_sensors_of_several_pixel_sizes_in_one_batch(name: str) -> None:
    fine, coarse = raster(0, size=(12, 10)), raster(1, SENTINEL1, ("VV",), size=(6, 5), gsd=20.0)
    scenes = [fine + coarse, coarse, fine + coarse, fine]
    model, where = grown(made(name, scenes[0])), aio.Grid(12, 10, gsd_m=10.0).positions()
    with torch.no_grad():
        together = model(scenes, [where] * 4)
        alone = [model([scene], [where])[0] for scene in scenes]
    for one, two in zip(together, alone, strict=True):
        assert one.shape == (120, 2)
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[0], together[2], rtol=1e-4, atol=1e-5)

"""Odd numbers: whatever finite values are observed, and wherever, outputs are finite, compiled or not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import AtomizerError
from atomizer_io.io.crs import LocalFrame
from atomizer_io.models.atomizer.ops.kernels.build import without_kernels
from atomizer_io.models.base import Model
from atomizer_io.models.registry import list_models, preset
from atomizer_io.models.sites import TIE_M, nearest_anchors
from scenes import SMALL, queries

MODELS = {
    "atomizer_io_tiny": SMALL,
    "unet_small": {"widths": (4, 8, 8, 8)},
    "perceiver_io_small": {"latents": 8, "width": 24, "depth": 1},
    "pixels": {},
    "universat_small": {"depth": 1},
    "ramen_small": {"depth": 1},
    "resnet_small": {"width": 4, "decoder_width": 8},
    "vit_tiny": {"depth": 1},
}
BANDS = SENTINEL2.pick("B02", "B03", "B08")
MANY = tuple(Channel("own", f"b{i}", 0.4 + i / 100, 0.01, 10.0, 1000.0, 300.0) for i in range(224))
AT = queries(0, 5, 30.0)
VALUES = (1e30, -1e30, 3.4e38, 1e-40, 5e-324, 0.0, 1.0, 65535.0)


def examples(count: int):
    return settings(derandomize=True, deadline=None, max_examples=count)


@cache
def model_of(name: str, channels: tuple[Channel, ...] = BANDS) -> Model:
    torch.manual_seed(0)
    chosen = {key: value for key, value in MODELS[name].items() if key != "num_outputs"}
    return aio.create_model(name, num_outputs=3, channels=channels, **chosen).eval().requires_grad_(False)


def scene(value: float, *, spike: bool = False, size: tuple[int, int] = (6, 5)) -> aio.AtomSet:
    """A scene of one value, or an ordinary one in which one pixel has it."""
    values = np.full((3, *size), value, np.float64)
    if spike:
        values[:] = np.random.default_rng(0).normal(1500, 300, values.shape)
        values[1, -1, 0] = value
    return aio.AtomSet.from_raster(values, BANDS, 10.0, 100)


def predict(model: Model, atoms: aio.AtomSet) -> torch.Tensor:
    (outputs,) = model([atoms], [AT])
    return outputs


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("value", VALUES)
def test_one_odd_value_or_a_scene_of_it_gives_finite_outputs(name: str, value: float) -> None:
    for spike in (False, True):
        outputs = predict(model_of(name), scene(value, spike=spike))
        assert outputs.isfinite().all() and outputs.shape[-1] == 3


def test_every_registered_model_is_tried() -> None:
    assert {preset(name)[0].family for name in MODELS} == {preset(name)[0].family for name in list_models()}


@pytest.mark.parametrize("name", MODELS)
def test_one_atom_is_a_scene(name: str) -> None:
    atoms = aio.AtomSet.from_raster(np.full((1, 1, 1), 1500.0), BANDS[:1], 10.0, 100)
    assert predict(model_of(name), atoms).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_224_bands_and_400_dates(name: str) -> None:
    rng = np.random.default_rng(0)
    bands = aio.AtomSet.from_raster(rng.normal(1000, 300, (224, 4, 4)), MANY, 10.0, 100)
    assert predict(model_of(name, MANY), bands).isfinite().all()
    dates = [aio.AtomSet.from_raster(rng.normal(1500, 300, (3, 2, 2)), BANDS, 10.0, d % 365 + 1) for d in range(400)]
    try:
        outputs = predict(model_of(name), sum(dates, aio.AtomSet()))
    except AtomizerError as error:  # of a model that takes one date
        assert "date" in str(error)
    else:
        assert outputs.isfinite().all()


def test_all_atoms_at_one_position() -> None:
    count = 300
    xyz = np.zeros((count, 3))
    xyz[:, 2] = np.linspace(0, 10, count)
    ones = np.ones(count, np.int64)
    atoms = aio.AtomSet.from_points(xyz, ones, ones, np.full(count, 100.0))
    torch.manual_seed(0)
    chosen = {key: value for key, value in SMALL.items() if key != "num_outputs"}
    model = aio.create_model("atomizer_io_tiny", num_outputs=3, channels=atoms.channels, **chosen).eval()
    with torch.no_grad():
        assert predict(model, atoms).isfinite().all()


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
POINTS = st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=15)


@examples(25)
@given(st.lists(FINITE, min_size=1, max_size=12), st.booleans())
@example([3.4028234663852886e38], True)
@example([1e-45], False)
def test_compiled_and_plain_path_agree_on_any_numbers(values: list[float], tall: bool) -> None:
    shape = (len(values), 1) if tall else (1, len(values))
    array = np.broadcast_to(np.array(values, np.float32).reshape(shape), (3, *shape))
    atoms = aio.AtomSet.from_raster(np.ascontiguousarray(array), BANDS, 10.0, 100)
    compiled = predict(model_of("atomizer_io_tiny"), atoms)
    with without_kernels():
        plain = predict(model_of("atomizer_io_tiny"), atoms)
    assert compiled.isfinite().all()
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-3)


@examples(50)
@given(POINTS, POINTS)
def test_the_nearest_anchor_is_the_nearest(
    points: list[tuple[float, float]], anchors: list[tuple[float, float]]
) -> None:
    here, there = np.array(points, np.float64), np.array(anchors, np.float64)
    nearest = nearest_anchors(here, there, 1)[:, 0]
    distance = np.hypot(*(here[:, None] - there[None]).transpose(2, 0, 1))
    assert (distance[np.arange(len(here)), nearest] <= distance.min(axis=1) * (1 + 1e-9) + TIE_M).all()


@st.composite
def rasters(draw: st.DrawFn) -> aio.AtomSet:
    """A small raster of any finite numbers, some of which may be absent, with any bands, pixels and day."""
    height, width, count = (draw(st.integers(1, most)) for most in (4, 4, 3))
    numbers = draw(st.lists(FINITE | st.just(float("nan")), min_size=1, max_size=6))
    values = np.resize(np.array(numbers, np.float64), (count, height, width))
    values[0, 0, 0] = draw(FINITE)
    gsd_m = draw(st.sampled_from((0.1, 1.0, 10.0, 1000.0)))
    return aio.AtomSet.from_raster(values, BANDS[:count], gsd_m, draw(st.integers(1, 366)))


@pytest.mark.parametrize("name", MODELS)
@examples(15)
@given(atoms=rasters())
def test_any_finite_numbers_give_finite_outputs_of_every_model(name: str, atoms: aio.AtomSet) -> None:
    assert predict(model_of(name), atoms).isfinite().all()


@examples(40)
@given(POINTS, st.floats(-1e6, 1e6), st.lists(FINITE, min_size=3, max_size=3))
@example([(0.0, 0.0)] * 15, 0.0, [1.0, 1.0, 1.0])
@example([(3.4028234663852886e38, -3.4028234663852886e38), (0.0, 0.0)], 0.0, [1.0, 1.0, 1.0])
def test_any_positions_give_finite_outputs_or_a_clear_error(
    points: list[tuple[float, float]], at: float, values: list[float]
) -> None:
    table = torch.tensor([values] * len(points), dtype=torch.float64)
    positions = torch.tensor(points, dtype=torch.float64)
    atoms = aio.AtomSet((aio.Acquisition(table, positions, BANDS, footprint_m=(10.0, 10.0)),))
    try:
        (outputs,) = model_of("atomizer_io_tiny")([atoms], [torch.full((2, 2), at, dtype=torch.float64)])
    except AtomizerError as error:
        assert str(error)
    else:
        assert outputs.isfinite().all()


@examples(60)
@given(POINTS, st.lists(FINITE | st.just(float("nan")), min_size=2, max_size=30), st.integers(0, 14))
def test_parts_of_sets_hold_the_rest(points: list[tuple[float, float]], numbers: list[float], kept: int) -> None:
    """Absent values are no atoms; channels and sites that are taken out take their atoms with them."""
    values = torch.tensor(np.resize(np.array(numbers), (len(points), 2)))
    channels = tuple(Channel("own", f"b{i}", 0.5, 0.1, 10.0, 0.0, 1.0) for i in range(2))
    one = aio.Acquisition(values, torch.tensor(points, dtype=torch.float64), channels, footprint_m=(1.0, 1.0))
    atoms = aio.AtomSet((one,))
    assert atoms.num_atoms == int(values.isfinite().sum())
    first, second = (atoms.select(name).num_atoms if values[:, i].isfinite().any() else 0 for i, name in NAMED)
    assert first + second == atoms.num_atoms
    part = one.with_sites(torch.tensor([kept % len(points)]))
    assert part.num_atoms == int(values[kept % len(points)].isfinite().sum())


NAMED = ((0, "b0"), (1, "b1"))


@examples(60)
@given(
    st.sampled_from(("EPSG:4326", "EPSG:32631", "EPSG:3857", None)),
    st.tuples(st.floats(-170, 170), st.floats(-80, 80)),
    st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)),
)
def test_frames_lead_there_and_back(crs: str | None, origin: tuple[float, float], metres: tuple[float, float]) -> None:
    frame = LocalFrame.around(crs, *origin)
    assert frame.metres(*frame.coordinates(*metres)) == pytest.approx(metres, rel=1e-6, abs=1e-3)

"""Atoms: what is absent, which arrays are accepted, where sites lie, and the errors for wrong input."""

from __future__ import annotations

import datetime
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import atomizer_io as aio
from atomizer_io import Acquisition, AtomSet, Channel, Grid
from atomizer_io.data.atoms import encode_echo
from atomizer_io.data.sensors import AERIAL, LIDAR, SENTINEL1, SENTINEL2
from atomizer_io.errors import AtomsError, UnknownChannelError

RGB = SENTINEL2.pick("B04", "B03", "B02")
BLUE_GREEN = SENTINEL2.pick("B02", "B03")
NAN, INF = float("nan"), float("inf")


def counted(count: int, height: int, width: int) -> np.ndarray:
    """A raster in which every number is different."""
    return np.arange(count * height * width, dtype=np.float32).reshape(count, height, width)


# --- absent is absent ---


def test_every_finite_pixel_is_an_atom() -> None:
    atoms = AtomSet.from_raster(counted(3, 4, 5), RGB, gsd=10.0)
    (acquisition,) = atoms
    assert atoms.num_atoms == 3 * 4 * 5
    assert acquisition.valid is None
    assert acquisition.occupied().tolist() == [True] * 20
    assert acquisition.values[7].tolist() == [7.0, 27.0, 47.0]  # a site is a pixel, its row holds the channels


@pytest.mark.parametrize("absent", [NAN, INF, -INF])
def test_values_that_are_no_numbers_are_absent(absent: float) -> None:
    values = counted(2, 3, 3)
    values[0, 1, 1] = absent
    values[:, 2, 0] = absent
    (acquisition,) = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0)
    assert acquisition.num_atoms == 2 * 9 - 3
    assert acquisition.valid_mask()[4].tolist() == [False, True]
    assert acquisition.occupied().tolist() == [True] * 6 + [False] + [True] * 2


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.float32, np.float64])
def test_nodata_is_absent_in_every_dtype(dtype: type) -> None:
    values = counted(2, 3, 3).astype(dtype)
    values[1, 0, 2] = values[0, 2, 2] = 999
    (acquisition,) = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0, nodata=999)
    assert acquisition.num_atoms == 16
    assert (~acquisition.valid_mask()).nonzero().tolist() == [[2, 1], [8, 0]]


def test_nodata_that_float32_cannot_hold_exactly() -> None:
    values = np.array([[[0.1, 0.2, -3.4028234663852886e38]]], np.float32)
    assert AtomSet.from_raster(values, RGB[:1], gsd=10.0, nodata=0.1).num_atoms == 2
    assert AtomSet.from_raster(values, RGB[:1], gsd=10.0, nodata=-3.4028234663852886e38).num_atoms == 2


def test_zero_is_a_value_and_nan_as_nodata_changes_nothing() -> None:
    assert AtomSet.from_raster(np.zeros((2, 3, 3)), BLUE_GREEN, gsd=10.0).num_atoms == 18
    assert AtomSet.from_raster(np.zeros((2, 3, 3)), BLUE_GREEN, gsd=10.0, nodata=NAN).num_atoms == 18
    assert AtomSet.from_raster(np.zeros((2, 3, 3)), BLUE_GREEN, gsd=10.0, nodata=0).num_atoms == 0


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)], ids=["of pixels", "of channels"])
def test_a_mask_hides_values(shape: tuple[int, ...]) -> None:
    valid = np.ones(shape, bool)
    valid[..., 0, 1] = valid[-1, ..., 3] = False
    (acquisition,) = AtomSet.from_raster(counted(2, 3, 4), BLUE_GREEN, gsd=10.0, valid=valid)
    expected = np.broadcast_to(valid, (2, 3, 4))
    assert acquisition.num_atoms == expected.sum()
    assert acquisition.valid_mask().T.reshape(2, 3, 4).tolist() == expected.tolist()
    assert acquisition.occupied().tolist() == expected.any(axis=0).flatten().tolist()


def test_ways_of_being_absent_add_up() -> None:
    values = counted(2, 2, 2)
    values[0, 0, 0] = NAN
    valid = np.array([[True, False], [True, True]])
    (acquisition,) = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0, valid=valid, nodata=7.0)
    assert acquisition.valid_mask().tolist() == [[False, True], [False, False], [True, True], [True, False]]
    assert acquisition.num_atoms == 4


def test_numpy_masked_array_keeps_its_mask() -> None:
    values = np.ma.masked_array(counted(2, 3, 4), mask=np.zeros((2, 3, 4), bool))
    values.mask[0, 1, 1] = True
    assert AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0).num_atoms == 23


def test_valid_cannot_make_nan_a_value() -> None:
    values = torch.tensor([[1.0], [NAN]])
    acquisition = Acquisition(values, torch.zeros(2, 2), RGB[:1], valid=torch.ones(2, 1, dtype=torch.bool))
    assert acquisition.num_atoms == 1


# --- arrays ---


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        *(("int16", torch.int16), ("uint16", torch.uint16), ("uint8", torch.uint8), (">i2", torch.int16)),
        *((">f4", torch.float32), (">f8", torch.float64), ("float16", torch.float32), ("int64", torch.float32)),
        *((">u2", torch.uint16), ("bool", torch.float32)),
    ],
)
def test_numbers_of_any_dtype_arrive_unchanged(dtype: str, kept: torch.dtype) -> None:
    values = counted(2, 3, 3).astype(dtype)
    (acquisition,) = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0)
    assert acquisition.values.dtype == kept
    assert acquisition.values.T.reshape(2, 3, 3).tolist() == values.astype(float).tolist()
    assert acquisition.observed().is_floating_point()


def test_large_unsigned_numbers_do_not_turn_negative() -> None:
    (acquisition,) = AtomSet.from_raster(np.full((1, 1, 1), 65535, np.uint16), RGB[:1], gsd=10.0)
    assert acquisition.values.item() == 65535.0


def test_whole_numbers_and_floats_are_the_same_to_a_model() -> None:
    values = np.random.default_rng(0).integers(1, 4000, (2, 6, 5), np.uint16)
    model = aio.create_model("atomizer_io_tiny").eval()
    positions = [aio.Grid(6, 5, gsd_m=10.0).positions()]
    predictions = [
        model([AtomSet.from_raster(values.astype(kind), BLUE_GREEN, gsd=10.0, nodata=1)], positions)[0]
        for kind in (np.uint16, np.int16, np.float32, np.float64)
    ]
    assert all(torch.equal(predictions[0], later) for later in predictions[1:])


def test_read_only_arrays_are_accepted_and_not_shared() -> None:
    values = counted(2, 3, 3)
    values.flags.writeable = False
    (acquisition,) = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0)
    acquisition.values[0, 0] = -1.0
    assert values[0, 0, 0] == 0.0
    assert acquisition.num_atoms == 18


def test_float64_is_kept() -> None:
    values = np.full((1, 1, 1), 1.0 + 1e-12)
    (acquisition,) = AtomSet.from_raster(values, RGB[:1], gsd=10.0)
    assert acquisition.values.item() == 1.0 + 1e-12
    assert acquisition.positions.dtype == torch.float64


def test_tensors_lists_and_transposed_arrays_say_the_same() -> None:
    values = counted(2, 3, 4)
    expected = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0).acquisitions[0].values
    turned = np.ascontiguousarray(values.transpose(1, 2, 0)).transpose(2, 0, 1)  # as images are often stored
    for given_as in (torch.from_numpy(values), values.tolist(), turned):
        assert torch.equal(AtomSet.from_raster(given_as, BLUE_GREEN, gsd=10.0).acquisitions[0].values, expected)


def test_gradients_do_not_leak_into_atoms() -> None:
    values = torch.ones(1, 2, 2, requires_grad=True)
    assert not AtomSet.from_raster(values, RGB[:1], gsd=10.0).acquisitions[0].values.requires_grad


@pytest.mark.parametrize("array", [np.array([[["a"]]]), None, np.array([[[object()]]])])
def test_arrays_of_anything_else_are_refused(array: object) -> None:
    with pytest.raises(AtomsError, match="values must be an array of numbers"):
        AtomSet.from_raster(array, RGB[:1], gsd=10.0)  # type: ignore[arg-type]


# --- channels ---


def test_objects_with_the_attributes_of_a_bandspec_are_channels() -> None:
    spec = SimpleNamespace(sensor="s2", name="red", wavelength_um=0.665, bandwidth_um=0.03, mean=3.0, std=2.0, min=0)
    (acquisition,) = AtomSet.from_raster(np.ones((1, 2, 2)), [spec], gsd=10.0)
    channel = acquisition.channels[0]
    assert (channel.sensor, channel.name, channel.wavelength_um) == ("s2", "red", 0.665)
    assert (channel.bandwidth_um, channel.mean, channel.std, channel.min, channel.max) == (0.03, 3.0, 2.0, 0, None)
    assert Channel.of(channel) is channel


def test_a_name_alone_is_not_a_channel() -> None:
    with pytest.raises(UnknownChannelError, match=r"'B02' does not describe a channel: pass .*pick\('B02'\)"):
        AtomSet.from_raster(np.ones((1, 2, 2)), ["B02"], gsd=10.0)  # type: ignore[list-item]


def test_a_channel_given_twice_is_named() -> None:
    with pytest.raises(AtomsError, match="'B03' of sentinel2 is given twice"):
        AtomSet.from_raster(counted(3, 2, 2), (*BLUE_GREEN, BLUE_GREEN[1]), gsd=10.0)


def test_same_name_of_two_sensors_is_no_clash() -> None:
    atoms = AtomSet.from_raster(counted(2, 2, 2), [Channel("a", "red"), Channel("b", "red")], gsd=1.0)
    assert len(atoms.channels) == 2


def test_called_knows_every_name_in_any_case() -> None:
    channel = Channel("x", "B02", source_name="blue_band", aliases=("Blue",))
    assert all(channel.called(name) for name in ("b02", "BLUE", "Blue_Band"))
    assert not channel.called("green")


# --- ground sampling distance ---


def test_gsd_comes_from_the_channels() -> None:
    (acquisition,) = AtomSet.from_raster(counted(2, 2, 2), BLUE_GREEN)
    assert acquisition.footprint_m == (10.0, 10.0)
    assert [channel.gsd_m for channel in acquisition.channels] == [10.0, 10.0]
    assert acquisition.positions.tolist() == [[-5.0, 5.0], [5.0, 5.0], [-5.0, -5.0], [5.0, -5.0]]


def test_gsd_given_overrides_the_channels() -> None:
    (acquisition,) = AtomSet.from_raster(counted(2, 2, 2), BLUE_GREEN, gsd=20.0)
    assert acquisition.footprint_m == (20.0, 20.0)
    assert [channel.gsd_m for channel in acquisition.channels] == [20.0, 20.0]
    assert acquisition.positions[0].tolist() == [-10.0, 10.0]
    assert BLUE_GREEN[0].gsd_m == 10.0  # the catalogue is left alone


def test_gsd_along_x_and_y() -> None:
    (acquisition,) = AtomSet.from_raster(counted(1, 2, 2), RGB[:1], gsd=(10.0, 30.0))
    assert acquisition.positions.tolist() == [[-5.0, 15.0], [5.0, 15.0], [-5.0, -15.0], [5.0, -15.0]]
    assert acquisition.footprint_m == (10.0, 30.0)
    assert acquisition.channels[0].gsd_m == 30.0
    (turned,) = AtomSet.from_raster(counted(1, 2, 2), RGB[:1], gsd=(30.0, 10.0))
    assert (turned.footprint_m, turned.channels[0].gsd_m) == ((30.0, 10.0), 30.0)


def test_footprint_of_sites_placed_by_hand() -> None:
    bands, positions = SENTINEL2.pick("B11", "B02", "B01"), torch.zeros(2, 2)  # 20, 10 and 60 m
    assert Acquisition(torch.ones(2, 3), positions, bands).footprint_m == (10.0, 10.0)
    without_blue = torch.tensor([[1.0, NAN, 1.0], [1.0, NAN, NAN]])
    assert Acquisition(without_blue, positions, bands).footprint_m == (20.0, 20.0)  # B02 was nowhere observed
    assert Acquisition(torch.ones(2, 3), positions, bands, footprint_m=(3.0, 4.0)).footprint_m == (3.0, 4.0)
    assert Acquisition(torch.ones(2, 1), positions, [Channel("x", "y")]).footprint_m == (0.0, 0.0)
    mixed = [Channel("x", "y"), Channel("x", "z", gsd_m=7.0)]
    assert Acquisition(torch.ones(2, 2), positions, mixed).footprint_m == (7.0, 7.0)


def test_a_footprint_stays_when_channels_go() -> None:
    atoms = AtomSet.from_raster(counted(2, 2, 2), BLUE_GREEN, gsd=(10.0, 30.0))
    for fewer in (atoms.select("B02"), atoms.drop("B02"), atoms.to("cpu")):
        assert fewer.acquisitions[0].footprint_m == (10.0, 30.0)


def test_there_is_no_other_gsd_of_an_acquisition() -> None:
    assert not hasattr(AtomSet.from_points(XYZ).acquisitions[0], "gsd_m")


@pytest.mark.parametrize(
    ("channels", "known"), [(SENTINEL2.pick("B02", "B11"), r"\[10.0, 20.0\]"), ([Channel("x", "y")], "unknown")]
)
def test_a_gsd_that_the_channels_do_not_share_is_needed(channels: list[Channel], known: str) -> None:
    with pytest.raises(AtomsError, match=f"{known}: pass gsd= in metres"):
        AtomSet.from_raster(counted(len(channels), 2, 2), channels)


# --- where ---


@pytest.mark.parametrize("gsd", [10.0, (10.0, 4.0)])
def test_raster_and_grid_share_a_frame(gsd: float | tuple[float, float]) -> None:
    center = (500_000.0, 4_600_000.0)
    (acquisition,) = AtomSet.from_raster(counted(1, 3, 4), RGB[:1], gsd=gsd, center_m=center)
    assert torch.equal(acquisition.positions, Grid(3, 4, gsd_m=gsd, center_m=center).positions())
    assert acquisition.positions.mean(dim=0).tolist() == list(center)


def test_bounds_take_whole_pixels() -> None:
    assert AtomSet.from_raster(counted(1, 3, 5), RGB[:1], gsd=10.0).bounds == (-25.0, -15.0, 25.0, 15.0)
    assert AtomSet.from_raster(counted(1, 3, 5), RGB[:1], gsd=(2.0, 10.0)).bounds == (-5.0, -15.0, 5.0, 15.0)


def test_bounds_follow_the_valid_sites_only() -> None:
    values = np.full((2, 5, 5), NAN)
    values[0, 0, 1] = values[1, 1, 3] = 1.0
    assert AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0).bounds == (-15.0, 5.0, 15.0, 25.0)


def test_bounds_of_points_have_no_margin() -> None:
    assert AtomSet.from_points(np.array([[1.0, 2.0, 0.0], [4.0, -3.0, 9.0]])).bounds == (1.0, -3.0, 4.0, 2.0)


def test_bounds_span_all_acquisitions() -> None:
    raster = AtomSet.from_raster(counted(1, 2, 2), RGB[:1], gsd=10.0)
    points = AtomSet.from_points(np.array([[1.0, 70.0, 0.0]]))
    assert (raster + points).bounds == (-10.0, -10.0, 10.0, 70.0)


@pytest.mark.parametrize("atoms", [AtomSet(), AtomSet.from_raster(np.full((1, 2, 2), NAN), RGB[:1], gsd=10.0)])
def test_nothing_has_no_bounds(atoms: AtomSet) -> None:
    with pytest.raises(AtomsError, match=r"AtomSet\(0 atoms.*no valid atom: every value is NaN, nodata or masked"):
        _ = atoms.bounds


# --- when ---


JULY = datetime.date(2021, 7, 4)


@pytest.mark.parametrize(
    ("day", "number", "date"),
    [
        *((183, 183.0, None), (400.5, 400.5, None), (None, None, None)),
        (datetime.date(2020, 12, 31), 366.0, datetime.date(2020, 12, 31)),
        (datetime.datetime(2021, 7, 4, 12), 185.0, JULY),
        *((day, 185.0, JULY) for day in ("2021-07-04", "2021-07-04T10:00:00Z", np.datetime64("2021-07-04"), JULY)),
    ],
)
def test_dates_in_many_forms(day: object, number: float | None, date: datetime.date | None) -> None:
    raster = AtomSet.from_raster(counted(1, 2, 2), RGB[:1], gsd=10.0, day_of_year=day)
    points = AtomSet.from_points(np.zeros((1, 3)), day_of_year=day)
    for (acquisition,) in (raster, points):
        assert (acquisition.day_of_year, acquisition.date) == (number, date)


@pytest.mark.parametrize("day", [20210704, "183", "yesterday", NAN, INF])
def test_what_is_no_day(day: object) -> None:
    with pytest.raises(
        AtomsError, match=r"day_of_year is .*: pass a day number, a date.*None where the date is unknown"
    ):
        AtomSet.from_raster(counted(1, 2, 2), RGB[:1], gsd=10.0, day_of_year=day)


# --- points ---

XYZ = np.array([[1.0, 2.0, 30.0], [3.0, 4.0, 25.0], [5.0, 6.0, 37.5]])


def test_points_are_elevation_above_the_lowest() -> None:
    (acquisition,) = AtomSet.from_points(XYZ)
    assert acquisition.channels == LIDAR.pick("elevation")
    assert acquisition.values[:, 0].tolist() == [5.0, 0.0, 12.5] == acquisition.heights_m.tolist()
    assert acquisition.positions.tolist() == XYZ[:, :2].tolist()
    assert acquisition.footprint_m == (0.0, 0.0)
    assert acquisition.site_fields == {}


def test_datum_and_far_frames_keep_their_decimals() -> None:
    xyz = XYZ + np.array([5e5, 4.6e6, 2000.0])
    (acquisition,) = AtomSet.from_points(xyz, datum_m=2020.0)
    assert acquisition.values[:, 0].tolist() == [10.0, 5.0, 17.5]
    assert acquisition.positions.tolist() == xyz[:, :2].tolist()


def test_datum_skips_points_without_height() -> None:
    xyz = XYZ.copy()
    xyz[1, 2] = NAN
    atoms = AtomSet.from_points(xyz)
    assert atoms.num_atoms == 2
    assert atoms.acquisitions[0].values[[0, 2], 0].tolist() == [0.0, 7.5]


def test_points_with_colour() -> None:
    colour = np.array([[10, 20], [30, 40], [50, 60]], np.uint16)
    (acquisition,) = AtomSet.from_points(XYZ, values=colour, channels=AERIAL.pick("R", "G"))
    assert [channel.name for channel in acquisition.channels] == ["elevation", "R", "G"]
    assert acquisition.values.tolist() == [[5.0, 10.0, 20.0], [0.0, 30.0, 40.0], [12.5, 50.0, 60.0]]


def test_points_with_colour_are_still_points() -> None:
    atoms = AtomSet.from_points(XYZ, values=np.ones((3, 2)), channels=AERIAL.pick("R", "G"))
    assert atoms.acquisitions[0].footprint_m == (0.0, 0.0)
    assert [channel.gsd_m for channel in atoms.channels] == [None, *(c.gsd_m for c in AERIAL.pick("R", "G"))]
    assert atoms.bounds == (1.0, 2.0, 5.0, 6.0)


def test_echo_and_intensity_become_site_fields() -> None:
    (acquisition,) = AtomSet.from_points(XYZ, np.array([1, 2, 4]), np.array([1, 4, 4]), np.array([7, 8, 9], np.uint16))
    fields = acquisition.site_fields
    assert fields["echo_before"].tolist() == [0.0, 0.25, 0.75]
    assert fields["echo_after"].tolist() == [0.0, 0.5, 0.0]
    assert fields["intensity"].tolist() == [7.0, 8.0, 9.0]


def test_echo_outside_its_domain_is_unknown() -> None:
    before, after = encode_echo(np.array([0, 3, 1, 2]), np.array([0, 2, 0, 2]))
    assert before.isnan().tolist() == after.isnan().tolist() == [True, True, True, False]


def pulse_of(before: torch.Tensor, after: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of the encoding: R = 1/(1 − (a + b)), r = aR + 1, as whole numbers."""
    total = 1.0 / (1.0 - (before.double() + after.double()))
    return (before * total + 1).round().long(), total.round().long()


@settings(deadline=None, derandomize=True)
@given(total=st.integers(1, 255), data=st.data())
def test_echo_encoding_inverts(total: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, total))
    before, after = encode_echo(np.array([number]), np.array([total]))
    assert 0 <= before.item() < 1 and 0 <= after.item() < 1
    assert [part.item() for part in pulse_of(before, after)] == [number, total]


def test_all_pairs_of_15_returns_have_an_echo_encoding_of_their_own() -> None:
    pairs = [(r, total) for total in range(1, 16) for r in range(1, total + 1)]
    r, total = torch.tensor(pairs).T
    before, after = encode_echo(r, total)
    assert torch.equal(torch.stack(pulse_of(before, after)), torch.stack([r, total]))
    assert len(set(zip(before.tolist(), after.tolist(), strict=True))) == len(pairs)
    assert bool(((before >= 0) & (before < 1) & (after >= 0) & (after < 1)).all())


def test_echo_follows_the_paper() -> None:
    before, after = encode_echo(np.array([2]), np.array([5]))
    assert (before.item(), after.item()) == (pytest.approx(1 / 5), pytest.approx(3 / 5))


# --- sets ---


def scene() -> AtomSet:
    return (
        AtomSet.from_raster(counted(3, 2, 2), RGB, gsd=10.0, day_of_year=100)
        + AtomSet.from_raster(counted(2, 1, 2), SENTINEL1.pick("VV", "VH"), gsd=20.0)
        + AtomSet.from_points(XYZ)
    )


def names(atoms: AtomSet) -> list[list[str]]:
    return [[channel.name for channel in acquisition.channels] for acquisition in atoms]


def test_adding_keeps_order_and_counts() -> None:
    atoms = scene()
    assert len(atoms) == 3
    assert atoms.num_atoms == 12 + 4 + 3
    assert names(atoms) == [["B04", "B03", "B02"], ["VV", "VH"], ["elevation"]]
    doubled = atoms + atoms
    assert (len(doubled), doubled.num_atoms, len(doubled.channels)) == (6, 38, 6)


def test_adding_in_place_leaves_the_first_alone() -> None:
    first = atoms = AtomSet.from_points(XYZ)
    atoms += AtomSet.from_points(XYZ)
    assert (len(first), len(atoms)) == (1, 2)


def test_select_by_name_alias_and_case() -> None:
    assert names(scene().select("b02", "Red", "vh")) == [["B04", "B02"], ["VH"]]
    red_edge = AtomSet.from_raster(np.ones((1, 2, 2)), SENTINEL2.pick("B05"), 20.0)
    assert names(red_edge.select("red edge 1")) == [["B05"]]


def test_selected_values_belong_to_the_channels_kept() -> None:
    values = counted(3, 2, 2)
    values[2, 0, 0] = -9999.0
    (acquisition,) = AtomSet.from_raster(values, RGB, gsd=10.0, nodata=-9999.0).select("B04", "B02")
    assert acquisition.values[1:].tolist() == [[1.0, 9.0], [2.0, 10.0], [3.0, 11.0]]
    assert acquisition.valid_mask().tolist() == [[True, False], *[[True, True]] * 3]


@pytest.mark.parametrize("sensor", ["sentinel1", "Sentinel-1", "SENTINEL 1"])
def test_select_and_drop_by_sensor(sensor: str) -> None:
    assert names(scene().select(sensor=sensor)) == [["VV", "VH"]]
    assert names(scene().drop(sensor=sensor)) == [["B04", "B03", "B02"], ["elevation"]]
    assert names(scene().drop("VV", sensor=sensor)) == [["B04", "B03", "B02"], ["VH"], ["elevation"]]


def test_drop_is_the_complement_of_select() -> None:
    atoms = scene()
    kept, dropped = atoms.select("B03", "z"), atoms.drop("B03", "z")
    assert names(dropped) == [["B04", "B02"], ["VV", "VH"]]
    assert kept.num_atoms + dropped.num_atoms == atoms.num_atoms


def test_a_dropped_channel_takes_its_sites_with_it() -> None:
    values = np.full((2, 1, 3), 5.0)
    values[0, 0, 1:] = NAN
    atoms = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0).drop("B03")
    assert atoms.num_atoms == 1
    assert atoms.bounds == (-15.0, -5.0, -5.0, 5.0)


@pytest.mark.parametrize("verb", ["select", "drop"])
def test_unknown_names_name_what_is_there(verb: str) -> None:
    with pytest.raises(UnknownChannelError, match=r"'B12' is not in this set; it has sentinel2 B04, .*sentinel1 VV"):
        getattr(scene(), verb)("B02", "B12")
    with pytest.raises(UnknownChannelError, match=r"sensor 'landsat8' .*it has lidar, sentinel1, sentinel2"):
        getattr(scene(), verb)(sensor="landsat8")
    with pytest.raises(UnknownChannelError, match="name at least one channel or a sensor"):
        getattr(scene(), verb)()


def test_repr_lists_the_acquisitions() -> None:
    assert repr(scene()) == (
        "AtomSet(19 atoms; sentinel2: 4 sites × 3 channels on day 100; sentinel1: 2 sites × 2 channels; "
        "lidar: 3 sites × 1 channels)"
    )


def test_only_leaves_what_was_observed_and_is_marked() -> None:
    values = torch.tensor([[1.0, torch.nan], [3.0, 4.0]])
    whole = Acquisition(values, torch.zeros(2, 2), SENTINEL2.pick("B02", "B03"))
    marked = torch.tensor([[True, True], [False, True]])
    part, same = whole.only(marked), replace(whole, valid=marked)
    assert torch.equal(part.valid, same.valid) and part.num_atoms == same.num_atoms == 2
    assert part.positions is whole.positions and part.footprint_m == whole.footprint_m
    bytes_ = replace(whole, values=torch.ones(2, 2, dtype=torch.uint8), valid=None)
    assert bytes_.only(torch.ones(2, 2, dtype=torch.bool)).valid is None


def test_to_keeps_everything() -> None:
    values = counted(2, 2, 2)
    values[0, 0, 0] = NAN
    before = AtomSet.from_raster(values, BLUE_GREEN, gsd=10.0, day_of_year=3, timestep=2) + AtomSet.from_points(
        XYZ, np.array([1, 1, 1]), np.array([1, 2, 2])
    )
    after = before.to("cpu")
    for a, b in zip(before, after, strict=True):
        assert a.channels == b.channels and (a.day_of_year, a.timestep) == (b.day_of_year, b.timestep)
        assert torch.equal(a.values.nan_to_num(-1.0), b.values.nan_to_num(-1.0))
        assert torch.equal(a.valid_mask(), b.valid_mask()) and torch.equal(a.positions, b.positions)
        assert a.site_fields.keys() == b.site_fields.keys()
    assert torch.equal(after.acquisitions[1].site_fields["echo_after"], torch.tensor([0.0, 0.5, 0.5]))


def test_atoms_are_frozen() -> None:
    with pytest.raises(AttributeError):
        scene().acquisitions[0].values = torch.zeros(1)  # type: ignore[misc]


# --- shapes and positions that cannot be ---


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((2, 4, 4)), r"raster has shape \(2, 4, 4\) for 3 channels; expected \(3, height, width\)"),
        (np.ones((4, 4)), r"raster has shape \(4, 4\) for 3 channels"),
        (np.ones((5, 3, 4, 4)), r"\(5, 3, 4, 4\).*a series: call from_raster once per date and add"),
        (np.ones((3, 0, 4)), r"raster has shape \(3, 0, 4\) for 3 channels; expected \(3, height, width\)$"),
    ],
)
def test_raster_of_the_wrong_shape(values: np.ndarray, words: str) -> None:
    with pytest.raises(AtomsError, match=words):
        AtomSet.from_raster(values, RGB, gsd=10.0)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3, 4), (2, 4, 3), (12,)])
def test_mask_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(AtomsError, match=r"valid has shape .* expected \(3, 4\) or \(2, 3, 4\)"):
        AtomSet.from_raster(counted(2, 3, 4), BLUE_GREEN, gsd=10.0, valid=np.ones(shape, bool))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": torch.ones(3)}, r"sentinel2: values have shape \(3,\) but 2 channels.*\(sites, channels\)"),
        ({"values": torch.ones(3, 3)}, r"values have shape \(3, 3\) but 2 channels are named"),
        ({"values": torch.ones(3, 0), "channels": ()}, "0 channels are named"),
        ({"positions": torch.zeros(2, 2)}, r"positions have shape \(2, 2\), expected \(3, 2\)"),
        ({"positions": torch.zeros(3, 3)}, r"positions have shape \(3, 3\), expected \(3, 2\)"),
        ({"valid": torch.ones(3, 1)}, r"valid has shape \(3, 1\) but values have \(3, 2\)"),
        ({"site_fields": {"height": torch.ones(2)}}, r"site field 'height' has shape \(2,\), expected \(3,\)"),
        (
            {"positions": torch.tensor([[0.0, 0.0], [1.0, NAN], [INF, 2.0]])},
            r"sentinel2: position of site 1 is \[1.0, nan\] \(2 such sites\).*remove these sites",
        ),
    ],
)
def test_acquisition_that_does_not_fit_together(changes: dict[str, object], words: str) -> None:
    fitting = {"values": torch.ones(3, 2), "positions": torch.zeros(3, 2), "channels": BLUE_GREEN}
    assert Acquisition(**fitting).num_atoms == 6
    with pytest.raises(AtomsError, match=words):
        Acquisition(**(fitting | changes))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"xyz": XYZ[:, :2]}, r"points have shape \(3, 2\), expected \(points, 3\)"),
        ({"xyz": XYZ[0]}, r"points have shape \(3,\)"),
        ({"xyz": XYZ, "return_number": np.ones(3)}, "pass both or neither"),
        ({"xyz": XYZ, "number_of_returns": np.ones(3)}, "pass both or neither"),
        (
            {"xyz": XYZ, "return_number": np.ones(3), "number_of_returns": np.ones(2)},
            r"return_number has shape \(3,\), number_of_returns \(2,\)",
        ),
        (
            {"xyz": XYZ, "return_number": np.ones(2), "number_of_returns": np.ones(2)},
            r"site field 'echo_before' has shape \(2,\), expected \(3,\)",
        ),
        ({"xyz": XYZ, "intensity": np.ones(4)}, r"site field 'intensity' has shape \(4,\), expected \(3,\)"),
        ({"xyz": XYZ, "values": np.ones((2, 1)), "channels": RGB[:1]}, r"values have shape \(2, 1\) for 3 points"),
        ({"xyz": XYZ, "values": np.ones((3, 2)), "channels": RGB[:1]}, r"\(3, 3\) but 2 channels are named"),
        ({"xyz": XYZ, "channels": RGB[:1]}, r"\(3, 1\) but 2 channels are named"),
        ({"xyz": XYZ * np.array([NAN, 1, 1])}, r"lidar: position of site 0 is \[nan, 2.0\] \(3 such sites\)"),
    ],
)
def test_points_that_do_not_fit_together(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(AtomsError, match=words):
        AtomSet.from_points(**arguments)


def test_atoms_keep_their_values_when_the_array_changes() -> None:
    values = np.ones((1, 2, 2), dtype=np.float32)
    atoms = AtomSet.from_raster(values, SENTINEL2.pick("B02"), gsd=10.0)
    values[:] = 7
    assert atoms.acquisitions[0].values.unique().tolist() == [1.0]


def test_positions_with_too_few_digits_are_refused() -> None:
    xyz = np.array([[627760.25, 6277550.5, 10.0]], dtype=np.float32)
    with pytest.raises(AtomsError, match=r"xyz are float32 and reach 6277550 m, .* 0.75 m apart: pass float64"):
        AtomSet.from_points(xyz)
    assert AtomSet.from_points(xyz.astype(np.float64)).num_atoms == 1
    assert AtomSet.from_points(xyz - xyz).num_atoms == 1


def test_sets_can_be_summed() -> None:
    one = AtomSet.from_raster(np.ones((1, 2, 2)), SENTINEL2.pick("B02"), 10.0)
    assert sum([one, one]).num_atoms == 8

"""Sensors: lookups in anybody's band names, the catalogue's sanity, sensors of one's own and sensors from files."""

from __future__ import annotations

import builtins
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atomizer_io import LEARNED_CHANNELS, create_model, sensors
from atomizer_io.data.atoms import AtomSet, Channel
from atomizer_io.data.sensors import (
    AERIAL,
    GRAYSCALE,
    HLS,
    LANDSAT8,
    LIDAR,
    SENSORS,
    SENTINEL1,
    SENTINEL2,
    SENTINEL2_L2A,
    VHR,
    Sensor,
    from_descriptions,
    from_geotiff,
)
from atomizer_io.errors import AtomsError, UnknownChannelError
from atomizer_lab.synthetic.rasters import write_raster
from scenes import data_folder

ENMAP = ["band 1 (418.24 Nanometers)", "band 2 (423.874 Nanometers)", "band 3 (429.294 Nanometers)"]


def names(channels: tuple[Channel, ...]) -> list[str]:
    return [channel.name for channel in channels]


# --- lookups ---


def test_pick_keeps_the_order_of_its_arguments() -> None:
    assert names(SENTINEL2.pick("B12", "B02", "B8A")) == ["B12", "B02", "B8A"]
    assert SENTINEL2.pick() == ()


@pytest.mark.parametrize(
    ("sensor", "name", "canonical"),
    [
        (SENTINEL2, "b8a", "B8A"),
        (SENTINEL2, "B8", "B08"),
        (SENTINEL2, "B1", "B01"),
        (SENTINEL2, "nir_narrow", "B8A"),
        (SENTINEL2, "Red Edge 1", "B05"),
        (SENTINEL2, "COASTAL_AEROSOL", "B01"),
        (SENTINEL2, "04 - Red", "B04"),
        (SENTINEL2, "08A - Vegetation Red Edge", "B8A"),
        (SENTINEL2, "07 - Vegetation Red Edge", "B07"),
        (SENTINEL2, "10 - SWIR - Cirrus", "B10"),
        (SENTINEL2_L2A, "12 - SWIR", "B12"),
        (SENTINEL1, "vv", "VV"),
        (SENTINEL1, "VV_asc", "ASC_VV"),
        (SENTINEL1, "VV Asc", "ASC_VV"),
        (SENTINEL1, "VH desc", "DSC_VH"),
        (SENTINEL1, "VV-VH", "VV-VH"),
        (LANDSAT8, "SR_B4", "B4"),
        (LANDSAT8, "06 - SWIR1", "B6"),
        (HLS, "NIR_NARROW", "B8A"),
        (AERIAL, "red", "R"),
        (LIDAR, "Z", "elevation"),
    ],
)
def test_every_dialect_finds_the_channel(sensor: Sensor, name: str, canonical: str) -> None:
    assert sensor[name].name == canonical
    assert name in sensor


@pytest.mark.parametrize("name", ["red edge 1", "Red-Edge_1", "RED_EDGE_1", "b5"])
def test_observations_know_the_names_that_sensors_know(name: str) -> None:
    assert names(SENTINEL2.pick(name)) == ["B05"]
    atoms = AtomSet.from_raster(np.zeros((3, 4, 4)), SENTINEL2.pick("B04", "B05", "B06"), gsd=20.0)
    assert names(atoms.select(name).channels) == ["B05"]
    assert names(atoms.drop(name, sensor="Sentinel 2").channels) == ["B04", "B06"]
    assert sensors.get("SENTINEL 2") is SENTINEL2


def test_channels_are_found_by_source_name() -> None:
    sensor = Sensor("mysat", (Channel("mysat", "green", 0.56, 0.04, source_name="layer_7"),))
    assert sensor["LAYER_7"].name == "green"


@pytest.mark.parametrize(
    ("sensor", "name", "message"),
    [
        (SENTINEL2, "B8B", "'B8B' is not a Sentinel-2 band; did you mean B08 or B8A?"),
        (SENTINEL2, "NIR", "'NIR' is not a Sentinel-2 band; did you mean B08 or B8A?"),
        (GRAYSCALE, "gravy", "'gravy' is not a Grayscale band; did you mean gray?"),
        (AERIAL, "thermal", "'thermal' is not an Aerial band; known are R, G, B, NIR"),
    ],
)
def test_errors_for_unknown_names_suggest_near_ones(sensor: Sensor, name: str, message: str) -> None:
    with pytest.raises(UnknownChannelError) as error:
        sensor.pick(name)
    assert str(error.value) == message
    assert name not in sensor


def test_level_2a_has_no_cirrus_band() -> None:
    with pytest.raises(UnknownChannelError, match="'B10' is not a Sentinel-2 L2A band; did you mean"):
        SENTINEL2_L2A.pick("B02", "B10")


def test_a_long_list_of_names_is_cut() -> None:
    sensor = Sensor.define("many", gsd_m=None, bands={f"layer{i}": None for i in range(200)})
    with pytest.raises(UnknownChannelError, match=r"known are layer0, .*layer11, … and 188 more$"):
        sensor.pick("?")


@pytest.mark.parametrize("name", [("B02", "B02"), ("B02", "B03", "blue")])
def test_naming_a_band_twice_is_an_error(name: tuple[str, ...]) -> None:
    with pytest.raises(UnknownChannelError, match="Sentinel-2 band B02 is named twice"):
        SENTINEL2.pick(*name)


def test_container_behaviour() -> None:
    assert len(SENTINEL2) == 13 and len(SENTINEL2_L2A) == 12
    assert tuple(SENTINEL2) == SENTINEL2.channels
    assert SENTINEL2.names[:2] == ("B01", "B02")
    assert 3 not in SENTINEL2
    assert pickle.loads(pickle.dumps(SENTINEL2)) == SENTINEL2
    assert hash(SENTINEL2) != hash(SENTINEL2_L2A)


# --- groups ---


@pytest.mark.parametrize(
    ("sensor", "group", "expected"),
    [
        (SENTINEL2, "rgb", "B04 B03 B02"),
        (SENTINEL2, "RGB", "B04 B03 B02"),
        (SENTINEL2, "red-edge", "B05 B06 B07"),
        (SENTINEL2, "nir", "B08 B8A"),
        (SENTINEL2, "swir", "B11 B12"),
        (SENTINEL2, "10m", "B02 B03 B04 B08"),
        (SENTINEL2, "20m", "B05 B06 B07 B8A B11 B12"),
        (SENTINEL2, "60m", "B01 B09 B10"),
        (SENTINEL2_L2A, "60m", "B01 B09"),
        (LANDSAT8, "thermal", "B10 B11"),
        (VHR, "rgb", "R G B"),
    ],
)
def test_groups(sensor: Sensor, group: str, expected: str) -> None:
    assert names(sensor.group(group)) == expected.split()


def test_unknown_groups_name_the_known_ones() -> None:
    with pytest.raises(UnknownChannelError, match=r"'swirl' is not a group of Sentinel-2 bands; did you mean swir\?"):
        SENTINEL2.group("swirl")
    with pytest.raises(UnknownChannelError, match="'rgb' is not a group of LiDAR bands; it has none"):
        LIDAR.group("rgb")
    with pytest.raises(UnknownChannelError, match="'rgb' is not a group"):
        SENTINEL2.subset("B02", "B08").group("rgb")


# --- the catalogue ---


@pytest.mark.parametrize(("key", "sensor"), SENSORS.items(), ids=SENSORS)
def test_catalogue_is_sane(key: str, sensor: Sensor) -> None:
    assert sensors.get(key) is sensors.get(sensor.name) is sensor  # by key and by title
    for channel in sensor:
        assert channel.sensor == key
        assert (channel.wavelength_um is None) == (channel.bandwidth_um is None)
        if channel.wavelength_um is not None and channel.bandwidth_um is not None:
            assert 0.3 < channel.wavelength_um < 13
            assert 0 < channel.bandwidth_um < channel.wavelength_um
        assert channel.gsd_m is None or channel.gsd_m > 0
        assert (channel.mean is None) == (channel.std is None)
        assert channel.std is None or channel.std > 0
        for alias in (channel.name, *channel.aliases):
            assert sensor[alias] is channel
    for group in sensor.groups:
        assert len(sensor.group(group)) > 0


@pytest.mark.parametrize("key", ["sentinel2", "sentinel2_l2a", "hls", "superdove", "sentinel3_olci", "emit", "desis"])
def test_wavelengths_ascend_in_band_order(key: str) -> None:
    wavelengths = [channel.wavelength_um or 0.0 for channel in SENSORS[key]]
    assert wavelengths == sorted(wavelengths) and len(set(wavelengths)) == len(wavelengths)


def test_groups_lie_where_their_names_say() -> None:
    ranges = {"red_edge": (0.69, 0.8), "nir": (0.75, 1.0), "swir": (1.1, 2.5), "thermal": (8.0, 13.0)}
    for sensor in SENSORS.values():
        if "rgb" in sensor.groups:
            red, green, blue = (channel.wavelength_um or 0.0 for channel in sensor.group("rgb"))
            assert 0.7 > red > green > blue > 0.4
        for group, (low, high) in ranges.items():
            assert all(
                low < (c.wavelength_um or 0) < high for c in (sensor.group(group) if group in sensor.groups else ())
            )


def test_sensors_of_one_instrument_and_of_radars_of_one_wavelength() -> None:
    assert len(SENSORS) >= 25
    assert [c.wavelength_um for c in SENSORS["landsat9"]] == [c.wavelength_um for c in LANDSAT8]
    assert SENSORS["enmap"].names[90:92] == ("VNIR091", "SWIR001") and len(SENSORS["enmap"]) == 224
    assert SENSORS["emit"]["B285"].wavelength_um == 2.493 and SENSORS["emit"]["B285"].gsd_m == 60.0
    model = create_model("atomizer_io_tiny", channels=(*SENSORS["palsar2"].pick("HH"), SENSORS["landsat5"]["B6"]))
    assert model.config.learned_channels == (*LEARNED_CHANNELS, "L_HH", "landsat5 B6")  # and not the C-band HH


def test_catalogue_values() -> None:
    assert (SENTINEL2["B08"].wavelength_um, SENTINEL2["B08"].bandwidth_um) == (0.8328, 0.106)
    assert (SENTINEL2["B8A"].mean, SENTINEL2["B09"].mean) == (3077.4822, 486.8744)
    assert (SENTINEL2_L2A["B12"].mean, SENTINEL2_L2A["B12"].std) == (1626.8431, 1375.2511)
    assert [c.gsd_m for c in HLS] == [30.0] * 6
    assert SENTINEL1["DSC_HV"].wavelength_um is None and SENTINEL1["DSC_HV"].std == 3.3727
    assert len(SENTINEL1) == 13
    assert LANDSAT8["B10"].wavelength_um == pytest.approx((10.60 + 11.19) / 2)
    assert LANDSAT8["B8"].gsd_m == 15.0 and LANDSAT8["B8"].mean is None
    assert LIDAR["elevation"].std == pytest.approx(10 / 3) and LIDAR["elevation"].gsd_m is None
    assert (GRAYSCALE["gray"].wavelength_um, GRAYSCALE["gray"].bandwidth_um) == (0.55, 0.3)


def test_get() -> None:
    assert sensors.get("sentinel2") is SENTINEL2
    assert sensors.get("Sentinel-2 L2A") is SENTINEL2_L2A
    assert all(sensors.get(sensor.name) is sensor for sensor in SENSORS.values())
    with pytest.raises(UnknownChannelError, match=r"'landsat' is not a known sensor; did you mean landsat"):
        sensors.get("landsat")


# --- sensors of one's own ---


def test_own_sensor_in_three_lines() -> None:
    values = np.random.default_rng(0).normal([[[5.0]], [[50.0]], [[0.5]]], 2.0, (3, 40, 50))
    mysat = Sensor.define("mysat", gsd_m=3.0, bands={"green": (0.56, 0.04), "nir": (0.85, 0.08), "wetness": None})
    mysat = mysat.with_statistics(values)
    assert mysat.names == ("green", "nir", "wetness")
    assert (mysat["green"].wavelength_um, mysat["green"].bandwidth_um, mysat["green"].gsd_m) == (0.56, 0.04, 3.0)
    assert mysat["wetness"].wavelength_um is None and mysat["wetness"].sensor == "mysat"
    assert [c.mean for c in mysat] == pytest.approx(values.mean((1, 2)).tolist())
    assert [c.std for c in mysat] == pytest.approx(values.std((1, 2)).tolist())


@pytest.mark.parametrize("support", [(560.0, 40.0), (-0.5, 0.1), (0.5, 0.0), (float("nan"), 0.1)])
def test_own_sensor_refuses_nanometres_and_nonsense(support: tuple[float, float]) -> None:
    with pytest.raises(UnknownChannelError, match=r"mysat 'green': centre .* in micrometres"):
        Sensor.define("mysat", gsd_m=3.0, bands={"green": support})


def test_two_bands_cannot_share_a_name() -> None:
    with pytest.raises(UnknownChannelError, match="mysat: bands 1 and 2 are both called 'red_edge'"):
        Sensor.define("mysat", gsd_m=3.0, bands={"red edge": None, "RED_EDGE": None})
    channel = Channel("mysat", "a")
    with pytest.raises(UnknownChannelError, match="bands 1 and 2 are both called 'a'"):
        Sensor("mysat", (channel, channel))


@pytest.mark.parametrize("layout", ["(C, H, W)", "(T, C, H, W)", "(P, C)", "masked", "tensor"])
def test_statistics_ignore_what_is_absent(layout: str) -> None:
    channels_first = np.array([[[1.0, 3.0, np.nan]], [[10.0, np.inf, 30.0]]])
    values: Any = {
        "(C, H, W)": channels_first,
        "(T, C, H, W)": channels_first[None],
        "(P, C)": channels_first.reshape(2, 3).T,
        "masked": np.ma.masked_invalid(np.nan_to_num(channels_first, nan=-9999, posinf=-9999)),
        "tensor": pytest.importorskip("torch").from_numpy(channels_first),
    }[layout]
    if layout == "masked":
        values = np.ma.masked_equal(values, -9999)
    measured = SENTINEL1.subset("VV", "VH").with_statistics(values)
    assert [(c.mean, c.std, c.min, c.max) for c in measured] == [(2.0, 1.0, 1.0, 3.0), (20.0, 10.0, 10.0, 30.0)]
    assert (SENTINEL1["VV"].mean, SENTINEL1["VV"].min) == (-10.184, None)  # the catalogue is left alone


def test_a_channel_absent_throughout_has_no_statistics() -> None:
    pair = SENTINEL1.subset("VV", "VH").with_statistics(np.stack([np.arange(4.0), np.full(4, np.nan)], 1))
    assert (pair["VV"].mean, pair["VH"].mean, pair["VH"].std) == (1.5, None, None)


def test_statistics_as_lists() -> None:
    pair = SENTINEL1.subset("VV", "VH").with_statistics(mean=[1.0, 2.0], std=[3.0, 4.0])
    assert [(c.mean, c.std) for c in pair] == [(1.0, 3.0), (2.0, 4.0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either as values or as mean"),
        ({"values": np.ones((2, 3, 3)), "mean": [0, 0], "std": [1, 1]}, "either as values or as mean"),
        ({"mean": [1.0, 2.0]}, "has 2 bands; give one mean and one std for each"),
        ({"mean": [1.0], "std": [1.0]}, "has 2 bands; give one mean and one std for each"),
        ({"mean": [1.0, 2.0], "std": [1.0, 0.0]}, "VH: mean 2.0 and std 0.0 must be finite and std above zero"),
        ({"values": np.ones((3, 4, 4))}, r"has 2 bands, but values have shape \(3, 4, 4\)"),
        ({"values": np.ones(2)}, "has 2 bands, but values have shape"),
        ({"values": np.stack([np.arange(4.0), np.full(4, 7.0)], 1)}, "VH is 7 everywhere"),
    ],
)
def test_statistics_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AtomsError, match=message):
        SENTINEL1.subset("VV", "VH").with_statistics(**arguments)


# --- sensors from files ---


def test_descriptions_with_wavelengths() -> None:
    sensor = from_descriptions("EnMAP", ENMAP, gsd_m=30.0)
    assert sensor.names == ("band 1", "band 2", "band 3")
    assert [c.wavelength_um for c in sensor] == pytest.approx([0.41824, 0.423874, 0.429294])
    assert [c.bandwidth_um for c in sensor] == pytest.approx([0.005634, 0.00542, 0.00542])  # to the nearer neighbour
    assert sensor[ENMAP[1]] is sensor["band 2"]
    assert {c.gsd_m for c in sensor} == {30.0}
    assert from_descriptions("EnMAP", ENMAP[:1], gsd_m=30.0, bandwidths_um=[0.007])["band 1"].bandwidth_um == 0.007


@pytest.mark.parametrize(
    "text", ["560 nm", "560.0nm", "0.56 µm", "0.56 μm", "0.56um", "0.56 Micrometers", "5.6e2 nanometre"]
)
def test_units_of_wavelength(text: str) -> None:
    (channel,) = from_descriptions("mysat", [text], gsd_m=1.0, bandwidths_um=[0.01])
    assert channel.wavelength_um == pytest.approx(0.56)
    assert channel.name == "band 1"


def test_a_gap_or_a_second_detector_does_not_widen_a_band() -> None:
    sensor = from_descriptions("x", [f"{nm} nm" for nm in (980, 990, 902, 912, 1461)], gsd_m=None)
    assert [c.bandwidth_um for c in sensor] == pytest.approx([0.010, 0.010, 0.010, 0.010, 0.549])


def test_descriptions_of_a_catalogue_sensor() -> None:
    sensor = from_descriptions("sentinel2", ["B8A", "B2", "B04 (665 nm)"], gsd_m=10.0)
    assert sensor.names == ("B8A", "B02", "B04")
    assert sensor["B8A"] == SENTINEL2["B8A"]
    assert (sensor["B02"].source_name, sensor["B02"].mean) == ("B2", SENTINEL2["B02"].mean)
    assert sensor["B04"].wavelength_um == SENTINEL2["B04"].wavelength_um
    assert from_descriptions("Sentinel-1", ["VV", "VH"], gsd_m=10.0).channels == SENTINEL1.pick("VV", "VH")


@pytest.mark.parametrize("text", ["lyr.2", None, "", "B99"])
def test_a_description_without_a_band(text: str | None) -> None:
    with pytest.raises(UnknownChannelError) as error:
        from_descriptions("sentinel2", ["B02", text], gsd_m=10.0)
    assert f"band 2 of Sentinel-2 is described as {text!r}" in str(error.value)
    assert "Sensor.define" in str(error.value)


def test_band_names_need_their_sensor() -> None:
    with pytest.raises(
        UnknownChannelError, match=r"band 1 of scene is described as 'B02'.*name its sensor \(sentinel2"
    ):
        from_descriptions("scene", ["B02"], gsd_m=10.0)


def test_widths_that_cannot_be_known() -> None:
    with pytest.raises(UnknownChannelError, match=r"band 1 of x .* has no neighbour"):
        from_descriptions("x", ["560 nm"], gsd_m=1.0)
    with pytest.raises(UnknownChannelError, match="x: 1 bands but 2 bandwidths"):
        from_descriptions("x", ["560 nm"], gsd_m=1.0, bandwidths_um=[0.01, 0.01])


def write(path: Path, descriptions: list[str], *, crs: str = "EPSG:32633", size: float = 30.0, **extra: Any) -> Path:
    rasterio = pytest.importorskip("rasterio")
    transform = rasterio.Affine(size, 0, 400_000 if size > 1 else 13, 0, -size, 5_800_000 if size > 1 else 52)
    profile = {"driver": "GTiff", "count": len(descriptions), "height": 2, "width": 3, "dtype": "int16"}
    with rasterio.open(path, "w", crs=crs, transform=transform, **profile) as file:
        file.write(np.zeros((len(descriptions), 2, 3), np.int16))
        file.descriptions = descriptions
        for name, value in extra.items():
            if name == "tags":
                for i, tags in enumerate(value):
                    file.update_tags(i + 1, **tags)
            else:
                setattr(file, name, value)
    return path


def test_geotiff_tags_win_over_descriptions(tmp_path: Path) -> None:
    tags = [
        {"wavelength": "418.24", "wavelength_units": "Nanometers", "fwhm": "6.99561"},
        {"wavelength": "0.4239", "wavelength_units": "Micrometers"},
        {},
    ]
    path = write(tmp_path / "scene.tif", ["a (400 nm)", "b", "c (430 nm)"], tags=tags)
    sensor = from_geotiff(path)
    assert sensor.name == "geotiff" and sensor.names == ("a", "b", "c")  # one name whatever the file
    assert from_geotiff(path, sensor="mysat")["a"].sensor == "mysat"
    assert [c.wavelength_um for c in sensor] == pytest.approx([0.41824, 0.4239, 0.43])
    assert [c.bandwidth_um for c in sensor] == pytest.approx([0.00699561, 0.4239 - 0.41824, 0.0061])
    assert [c.gsd_m for c in sensor] == [30.0] * 3
    assert [c.mean for c in sensor] == [None] * 3


def test_geotiff_of_a_catalogue_sensor(tmp_path: Path) -> None:
    path = write(tmp_path / "s2.tif", ["B2", "B8A"], size=10.0)
    sensor = from_geotiff(path, sensor="sentinel2_l2a")
    assert sensor.name == "Sentinel-2 L2A" and sensor.names == ("B02", "B8A")
    assert sensor["B8A"] == replace(SENTINEL2_L2A["B8A"], gsd_m=10.0)  # as sampled in the file, not as flown
    assert from_geotiff(path, sensor="sentinel2_l2a", gsd_m=20.0)["B02"].gsd_m == 20.0


def test_statistics_leave_nodata_out() -> None:
    values = np.array([[[1.0, 3.0], [-9999.0, -9999.0]]])
    channel = Sensor.define("mysat", gsd_m=1.0, bands={"green": (0.56, 0.04)}).with_statistics(values, nodata=-9999)[
        "green"
    ]
    assert (channel.mean, channel.std) == (2.0, 1.0)


def test_bands_are_named_one_by_one() -> None:
    with pytest.raises(UnknownChannelError, match=r"one by one, pick\('B02', 'B03'\); got \['B02'\]"):
        SENTINEL2.pick(["B02"])


def test_catalogue_statistics_follow_the_scales_of_the_file(tmp_path: Path) -> None:
    scaled = write(tmp_path / "s2.tif", ["B02"], scales=(1e-4,), offsets=(-0.1,))
    blue = from_geotiff(scaled, sensor="sentinel2_l2a")["B02"]
    assert blue.mean == pytest.approx(1161.6764 + 1000) and blue.std == pytest.approx(2045.0698)
    integers = write(tmp_path / "hls.tif", ["B02"], scales=(1e-4,))
    blue = from_geotiff(integers, sensor="hls")["B02"]
    assert blue.mean == pytest.approx(333.497) and blue.std == pytest.approx(226.914)


def test_geotiff_pixel_size(tmp_path: Path) -> None:
    feet = write(tmp_path / "feet.tif", ENMAP, crs="EPSG:2263", size=10.0)  # New York, US survey feet
    assert from_geotiff(feet)["band 1"].gsd_m == pytest.approx(3.048006)
    degrees = write(tmp_path / "degrees.tif", ENMAP, crs="EPSG:4326", size=1e-4)
    with pytest.raises(AtomsError, match=r"degrees.tif has no projected CRS.*pass gsd_m="):
        from_geotiff(degrees)
    assert from_geotiff(degrees, gsd_m=10.0)["band 1"].gsd_m == 10.0
    unplaced = tmp_path / "unplaced.tif"
    write_raster(unplaced, np.ones((1, 4, 4), np.uint8), descriptions=["B02"])
    assert from_geotiff(unplaced, sensor="sentinel2", gsd_m=20.0)["B02"].gsd_m == 20.0  # and no warning
    with pytest.raises(AtomsError, match=r"unplaced\.tif has no projected CRS"):
        from_geotiff(unplaced)


def test_geotiff_without_rasterio(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_rasterio(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "rasterio":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_rasterio)
    with pytest.raises(ImportError, match=r"pip install 'atomizer-io\[geo\]'"):
        from_geotiff("scene.tif")


@pytest.mark.realdata
def test_geotiff_enmap() -> None:
    rasterio = pytest.importorskip("rasterio")
    path = min((data_folder("enmap-potsdam") / "images").glob("*.tif"))
    sensor = from_geotiff(path, sensor="EnMAP")
    with rasterio.open(path) as file:
        tags = [file.tags(i) for i in file.indexes]
        descriptions, values = file.descriptions, file.read(masked=True)
    assert len(sensor) == 224 and {c.gsd_m for c in sensor} == {30.0}
    assert [c.wavelength_um for c in sensor] == pytest.approx([float(t["wavelength"]) / 1000 for t in tags])
    assert [c.bandwidth_um for c in sensor] == pytest.approx([float(t["fwhm"]) / 1000 for t in tags])
    assert [c.source_name for c in sensor] == list(descriptions)
    measured = sensor.with_statistics(values)
    assert measured["band 50"].mean == pytest.approx(values[49].astype(float).mean())
    absent = [c.name for c in measured if c.mean is None]
    assert absent == [f"band {i + 1}" for i in range(224) if values[i].count() == 0] and absent
    spaced = from_descriptions("EnMAP", descriptions, gsd_m=30.0)
    ratio = np.array([a.bandwidth_um for a in spaced]) / np.array([b.bandwidth_um for b in sensor])
    assert ratio.min() > 0.6 and ratio.max() < 1.4  # spacing stands in for the measured width


@pytest.mark.realdata
def test_geotiff_sen1floods11() -> None:
    pytest.importorskip("rasterio")
    folder = data_folder("sen1floods11") / "v1.1/data/flood_events/HandLabeled"
    optical = from_geotiff(min((folder / "S2Hand").glob("*.tif")), sensor="sentinel2", gsd_m=10.0)
    radar = from_geotiff(min((folder / "S1Hand").glob("*.tif")), sensor="sentinel1", gsd_m=10.0)
    assert optical.names == SENTINEL2.names and [c.mean for c in optical] == [c.mean for c in SENTINEL2]
    assert radar.channels == SENTINEL1.pick("VV", "VH")

"""Rasters as users have them: well described, badly described, broken."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp
from rasterio.transform import Affine

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.raster_sources import LocalFrame, RasterInput, RasterSource, open_rasters
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from chips import CORNER, NAMES, UTM, model_folder, read, scene, values, without_crs, write


def opened(**options) -> RasterSource:
    return RasterSource.open(RasterInput.of(options))


def test_bands_by_description_list_and_sidecar(tmp_path: Path) -> None:
    named = write(tmp_path / "named.tif", values(5, 5))
    bare = write(tmp_path / "bare_20210704.tif", values(5, 5), names=None)
    assert [c.name for c in opened(path=named, sensor="sentinel2").channels] == list(NAMES)
    listed = opened(path=bare, sensor="sentinel2", bands="B02, B03,B08")
    assert [c.name for c in listed.channels] == list(NAMES)
    assert listed.date == datetime.date(2021, 7, 4), "from the name of the file"
    beside = tmp_path / "bare_20210704.bands.yaml"
    beside.write_text("sensor: sentinel2\nbands: [B04, B03, B02]\ndate: 2021-07-05\n")
    by_file = opened(path=bare)
    assert [c.name for c in by_file.channels] == ["B04", "B03", "B02"]
    assert by_file.date == datetime.date(2021, 7, 5)
    assert "bare_20210704.tif: sentinel2 B04" in str(by_file)
    assert opened(path=bare, date="2020-01-01").date == datetime.date(2020, 1, 1), "the option counts more"
    beside.write_text(
        "sensor: mine\nbands:\n  blue: [0.49, 0.07]\n  dem: null\n  red: {wavelength_um: 0.66, mean: 5, std: 2}\n"
    )
    own = opened(path=bare)
    assert [(c.sensor, c.name, c.wavelength_um) for c in own.channels] == [
        ("mine", "blue", 0.49),
        ("mine", "dem", None),
        ("mine", "red", 0.66),
    ]
    assert own.channels[2].mean == 5


@pytest.mark.parametrize("text", ["bands: [", "- B02", "colour: red", "bands: {blue: [1, 2, 3]}", "bands: {a: blue}"])
def test_sidecars_with_wrong_values(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "scene.tif", values(5, 5))
    (tmp_path / "scene.bands.yaml").write_text(text)
    with pytest.raises(DataError, match="scene"):
        opened(path=path)


def test_what_is_given_badly(tmp_path: Path) -> None:
    path = write(tmp_path / "scene.tif", values(5, 5), names=None)
    with pytest.raises(ConfigError, match="is not a date"):
        opened(path=path, date="July")
    with pytest.raises(ConfigError, match="'colour' is not an option of a raster"):
        opened(path=path, colour="red")
    with pytest.raises(ConfigError, match="needs a path"):
        RasterInput.of({"sensor": "sentinel2"})
    with pytest.raises(ConfigError, match="no raster"):
        open_rasters([])
    with pytest.raises(DataError, match=r"scene\.tif.*bands are unknown"):
        opened(path=path)
    with pytest.raises(DataError, match="has 3 bands, 2 are named"):
        opened(path=path, sensor="sentinel2", bands="B02,B03")
    with pytest.raises(DataError, match="no such file"):
        opened(path=tmp_path / "none.tif", sensor="sentinel2")


def test_pixels_of_a_box_are_those_that_reach_into_it(tmp_path: Path) -> None:
    source = opened(path=write(tmp_path / "scene.tif", values(12, 12)), sensor="sentinel2")
    frame = LocalFrame.around(UTM, CORNER[0] + 60, CORNER[1] - 60)
    aligned = source.atoms(frame, (-20.0, -20.0, 30.0, 20.0))
    assert aligned.acquisitions[0].values.shape[0] == 5 * 4
    shifted = source.atoms(frame, (-25.0, -20.0, 25.0, 20.0))
    assert shifted.acquisitions[0].values.shape[0] == 6 * 4
    assert source.atoms(frame, (500.0, 0.0, 600.0, 50.0)) is None
    positions = aligned.acquisitions[0].positions.numpy()
    np.testing.assert_allclose(positions.min(axis=0), (-15, -15), atol=1e-6)
    np.testing.assert_allclose(positions.max(axis=0), (25, 15), atol=1e-6)
    # the same pixels, whichever way they are specified
    column, row = 2 + 4, 12 - 1 - (2 + 4)
    here = np.flatnonzero((np.abs(positions - (5, 5)) < 1e-6).all(axis=1))[0]
    assert aligned.acquisitions[0].values[here, 0] == read(source.path)[0, row, column]


def test_without_a_coordinate_system(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.tif", values(15, 15), crs=None)
    with pytest.raises(DataError, match=r"bare\.tif.*pass gsd_m"):
        opened(path=path, sensor="sentinel2")
    product = predict_raster(
        model_folder(),
        {"path": path, "sensor": "sentinel2", "gsd_m": 10.0},
        tmp_path / "map.tif",
        execution=Execution(progress=False),
    )
    assert read(product.path).shape == (1, 15, 15)
    assert sum(product.hectares.values()) == pytest.approx(2.25)
    with pytest.raises(DataError, match="other rasters have one"):
        open_rasters([scene(tmp_path), {"path": path, "sensor": "sentinel2", "gsd_m": 10.0}])


def test_a_coordinate_system_that_the_file_does_not_name(tmp_path: Path) -> None:
    """Its pixels have positions; the user names their coordinate system, as an option or in a file beside."""
    array = values(15, 15)
    bare = without_crs(tmp_path / "bare.tif", array)
    named = write(tmp_path / "named.tif", array)
    options = {"path": bare, "sensor": "sentinel2"}
    with pytest.raises(DataError, match=r"bare\.tif: has no coordinate system, but other rasters have one: pass crs="):
        open_rasters([scene(tmp_path), {**options, "gsd_m": 10.0}])
    placed, expected = opened(**options, crs=UTM), opened(path=named, sensor="sentinel2")
    assert (placed.crs, placed.bounds, placed.pixel_m) == (UTM, expected.bounds, (10.0, 10.0))
    assert len(open_rasters([scene(tmp_path), {**options, "crs": UTM}])) == 2
    maps = [
        predict_raster(
            model_folder(), [scene(tmp_path, 15, 15, 3), raster], tmp_path / name, execution=Execution(progress=False)
        )
        for raster, name in (({**options, "crs": UTM}, "a.tif"), ({"path": named, "sensor": "sentinel2"}, "b.tif"))
    ]
    np.testing.assert_array_equal(*(read(product.path) for product in maps))
    (tmp_path / "bare.bands.yaml").write_text(f"crs: {UTM}\n")
    assert opened(**options).crs == UTM
    with pytest.raises(DataError, match=r"named\.tif: is in EPSG:32631 by its own tags, not in EPSG:32632"):
        opened(path=named, sensor="sentinel2", crs="EPSG:32632")
    with pytest.raises(ConfigError, match=r"bare\.tif: 'EPSG:nonsense' is not a coordinate system"):
        opened(**options, crs="EPSG:nonsense")


def test_a_file_without_any_georeference_cannot_be_placed(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.tif", values(5, 5), crs=None)
    with pytest.raises(
        DataError, match=rf"bare\.tif: cannot be placed in {UTM}: it does not state where its pixels lie"
    ):
        opened(path=path, sensor="sentinel2", crs=UTM)


@pytest.mark.parametrize("kind", ["rgb", "rgba", "rgb and nir", "rgb and undefined"])
def test_an_orthophoto_needs_no_names(tmp_path: Path, kind: str) -> None:
    """Bands that the file knows as colours, of the sensor that the user names."""
    count = 3 if kind == "rgb" else 4
    array = np.full((count, 6, 6), 90, np.uint8)
    array[3:, :2] = 0
    path = write(tmp_path / "ortho.tif", array, names=None, photometric="RGB", alpha="YES" if kind == "rgba" else "NO")
    if kind == "rgb and nir":
        with rasterio.open(path, "r+") as target:
            target.colorinterp = [*target.colorinterp[:3], ColorInterp.nir]
    source = opened(path=path, sensor="aerial")
    assert [c.name for c in source.channels] == ["R", "G", "B", "NIR"][: 3 if kind == "rgba" else count]
    atoms = source.atoms(LocalFrame.around(UTM, CORNER[0] + 30, CORNER[1] - 30), (-30.0, -30.0, 30.0, 30.0))
    assert atoms.num_atoms == (3 * 24 if kind == "rgba" else count * 36)
    if count == 3:
        assert [c.name for c in opened(path=path, sensor="sentinel2").channels] == ["B04", "B03", "B02"]
    if kind.startswith("rgb and"):
        with pytest.raises(DataError, match="bands are unknown"):
            opened(path=path, sensor="sentinel2")
    with pytest.raises(DataError, match="bands are unknown"):
        opened(path=path)


def test_names_and_wavelengths_of_a_sensor_of_ones_own(tmp_path: Path) -> None:
    """Any name will do where the file or the user gives the wavelengths of the bands; else they are requested."""
    texts = ("one (490 nm)", "two (560 nm)", "three (842 nm)")
    path = write(tmp_path / "own.tif", values(5, 5), names=texts)
    for sensor in ("hyspex", "landsat9"):
        source = opened(path=path, sensor=sensor)
        assert [(c.sensor, c.name, c.wavelength_um) for c in source.channels] == [
            (sensor, "one", 0.49),
            (sensor, "two", 0.56),
            (sensor, "three", 0.842),
        ]
    subset = opened(path=path, sensor="hyspex", bands=["blue", "-", "nir"])
    assert [(c.name, c.wavelength_um) for c in subset.channels] == [("blue", 0.49), ("nir", 0.842)]
    assert subset.numbers == (1, 3) and subset.channels[0].bandwidth_um == pytest.approx(0.07)
    silent = write(tmp_path / "silent.tif", values(5, 5), names=None)
    for bands in (None, "a,b,c"):
        with pytest.raises(ConfigError, match=r"'hyspex' is not a known sensor; .*wavelengths.*silent\.bands\.yaml"):
            opened(path=silent, sensor="hyspex", bands=bands)
    with pytest.raises(ConfigError, match=r"'sentinl2' is not a known sensor; did you mean sentinel2"):
        opened(path=silent, sensor="sentinl2")


def test_beside_the_first(tmp_path: Path) -> None:
    here = scene(tmp_path, 12, 12)
    away = write(tmp_path / "away.tif", values(12, 12), transform=Affine(10, 0, CORNER[0] + 5000, 0, -10, CORNER[1]))
    far = write(tmp_path / "far.tif", values(12, 12), crs="EPSG:4326", transform=Affine(1e-4, 0, 80, 0, -1e-4, -20))
    for path in (away, far):
        with pytest.raises(DataError, match=rf"{path.name}.*does not overlap the reference raster scene0\.tif"):
            predict_raster(
                model_folder(),
                [here, {"path": path, "sensor": "sentinel2"}],
                tmp_path / "map.tif",
                execution=Execution(progress=False),
            )


def test_a_raster_in_the_root_of_the_file_system() -> None:
    """The root lies in no folder, and has no name for a file beside it."""
    assert RasterInput.of("/scene.tif").path == Path("/scene.tif")

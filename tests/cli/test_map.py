"""``atomizer map``: from a raster and labels to a map with its accuracy, prediction sets, styles and a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
import rasterio
import shapely
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.transform import Affine

from atomizer_io.cli import main
from atomizer_io.cli.map import renamed, seconds
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.vectors import moved, write_vector

BANDS = ("B02", "B03", "B04", "B08")
WEST, NORTH = 600000.0, 5000000.0
HEIGHT, WIDTH = 130, 120
NAMES = ("<b>wood</b>", "field & meadow", "water")
QUICK = ("training.max_steps=60", "training.validate_every=100", "training.accelerator=cpu", "data.workers=0")
SHORT = ("training.max_steps=2", "training.baselines=false")
RASTER = "s2 <i>.tif"


def cover() -> NDArray[np.int64]:
    return patches(np.random.default_rng(0), HEIGHT, WIDTH, 3)


def write_scene(folder: Path) -> None:
    image = bands(np.random.default_rng(1), cover(), SENTINEL2.pick(*BANDS), np.uint16)
    where = {"crs": CRS.from_epsg(32632), "transform": Affine(10, 0, WEST, 0, -10, NORTH)}
    write_raster(folder / RASTER, image, nodata=0, **where)
    radar = np.random.default_rng(0).normal(-12, 3, (2, HEIGHT // 2, WIDTH // 2)).astype(np.float32)
    write_raster(folder / "s1.tif", radar, **where | {"transform": Affine(20, 0, WEST, 0, -20, NORTH)})


def points(count: int, seed: int = 2) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Positions over the raster, at random, and the class there."""
    xy = np.random.default_rng(seed).uniform((WEST, NORTH - 10 * HEIGHT), (WEST + 10 * WIDTH, NORTH), (count, 2))
    return xy, cover()[((NORTH - xy[:, 1]) // 10).astype(int), ((xy[:, 0] - WEST) // 10).astype(int)]


def write_points(path: Path, values: list[object], xy: NDArray[np.float64], column: str = "cover") -> Path:
    return write_vector(path, moved(shapely.points(xy), 32632, 4326), {column: values}, 4326)


def command(folder: Path, labels: str = "labels.gpkg", *more: str) -> int:
    rasters = ["--raster", str(folder / RASTER), "--sensor", "sentinel2", "--bands", ",".join(BANDS)]
    rasters += ["--raster", str(folder / "s1.tif"), "--sensor", "sentinel1", "--bands", "VV,VH"]
    named = ["--labels", str(folder / labels), "-o", str(folder / "map.tif")]
    return main(["map", *rasters, *named, "--quiet", *QUICK, *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("map")
    write_scene(folder)
    xy, classes = points(300)
    xy[:5] -= (5000, 0)  # outside
    write_points(folder / "labels.gpkg", [NAMES[number] for number in classes], xy)
    assert command(folder, "labels.gpkg", "--class-column", "cover", "--random-sample") == 0
    return folder


def read(path: Path) -> NDArray[np.generic]:
    with rasterio.open(path) as source:
        return source.read()


@pytest.mark.slow
def test_the_map_has_the_classes_of_the_labels_and_is_better_than_the_majority(made: Path) -> None:
    with rasterio.open(made / "map.tif") as source:
        assert source.crs.to_epsg() == 32632 and source.shape == (HEIGHT, WIDTH)
        names = json.loads(source.tags()["classes"])
    assert sorted(names) == sorted(NAMES)
    table = np.array([names.index(name) for name in NAMES])
    true, mapped = table[cover()], read(made / "map.tif")[0]
    right, majority = (mapped == true).mean(), np.bincount(true.ravel()).max() / true.size
    assert right > majority + 0.2
    report = json.loads((made / "map.accuracy.json").read_text())
    overall = report["overall_accuracy"]
    assert overall["low"] <= overall["value"] <= overall["high"] and abs(overall["value"] - right) < 0.15
    confusion = np.array(report["confusion"]["counts"])
    assert confusion.sum() == report["prediction_sets"]["labels"] and 30 <= confusion.sum() <= 100
    assert sum(report["labels"].values()) == 295
    assert report["notes"] == ["5 of 300 labels lie outside of the rasters: not used"]


@pytest.mark.slow
def test_prediction_sets_cover_the_target(made: Path) -> None:
    with rasterio.open(made / "map.sets.tif") as source:
        names, size, inside = source.descriptions[1:], source.read(1), source.read()[1:]
        assert source.nodata == 255 and "at least 0.9" in source.tags()["prediction_sets"]
    np.testing.assert_array_equal(size, inside.sum(axis=0))
    table = np.array([names.index(name) for name in NAMES])
    covered = np.take_along_axis(inside, table[cover()][None], axis=0)
    assert covered.mean() > 0.85
    mapped = read(made / "map.tif")[0]
    assert np.take_along_axis(inside, mapped[None].astype(int), axis=0).all()
    report = json.loads((made / "map.accuracy.json").read_text())
    assert report["prediction_sets"]["pixels_by_size"] == np.bincount(size.ravel(), minlength=4).tolist()


@pytest.mark.slow
def test_every_product_has_a_style(made: Path) -> None:
    for path in made.glob("map*.tif"):
        assert fromstring(path.with_suffix(".qml").read_text()).tag == "qgis", path
    entries = fromstring((made / "map.qml").read_text()).iter("paletteEntry")
    shown = {int(entry.get("value", "")): (entry.get("label"), entry.get("color")) for entry in entries}
    with rasterio.open(made / "map.tif") as source:
        tags, colours = source.tags(), source.colormap(1)
    assert [shown[code][0] for code in json.loads(tags["codes"])] == json.loads(tags["classes"])
    assert all(shown[code][1] == "#" + "".join(f"{part:02x}" for part in colours[code][:3]) for code in shown)


class Elements(HTMLParser):
    """The names of all elements of a page, its addresses and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_the_report_is_one_page_in_which_no_name_is_markup(made: Path) -> None:
    text = (made / "map.html").read_text()
    assert "<b>wood" not in text and "&lt;b&gt;wood&lt;/b&gt;" in text and "<i>" not in text
    page = Elements()
    page.feed(text)
    assert "i" not in page.names and "script" not in page.names
    assert len(page.addresses) == 1 and page.addresses[0].startswith("data:image/png;base64,")
    for words in (*NAMES, RASTER, "Overall accuracy", "adjusted (ha)", "Prediction sets", "map.sets.tif"):
        assert words in page.text


@pytest.mark.slow
def test_an_interrupted_map_goes_on_and_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_scene(tmp_path)
    xy, classes = points(100)
    write_points(tmp_path / "labels.gpkg", [NAMES[number] for number in classes], xy)
    assert command(tmp_path, "labels.gpkg", *SHORT, "--random-sample") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("map*.*") if path.is_file()}
    weights = tmp_path / "map.run/fold-0/best/model.safetensors"
    trained = weights.stat().st_mtime_ns
    for name in before:
        (tmp_path / name).unlink()
    capsys.readouterr()
    assert command(tmp_path, "labels.gpkg", *SHORT, "--random-sample") == 2
    assert "has an unfinished map: --resume continues it, --overwrite starts again" in capsys.readouterr().err
    assert command(tmp_path, "labels.gpkg", *SHORT, "--random-sample", "--resume") == 0
    assert weights.stat().st_mtime_ns == trained
    for name in ("map.tif", "map.sets.tif", "map.accuracy.json", "map.qml"):
        assert (tmp_path / name).read_bytes() == before[name], name
    made = (tmp_path / "map.tif").stat().st_mtime_ns
    assert command(tmp_path, "labels.gpkg", *SHORT, "--resume") == 0  # of the finished map
    assert (tmp_path / "map.tif").stat().st_mtime_ns == made
    assert "areas are those of the map and not adjusted" in capsys.readouterr().out
    assert not json.loads((tmp_path / "map.accuracy.json").read_text())["area_adjusted"]
    assert command(tmp_path, "labels.gpkg", *SHORT) == 2
    assert "map.tif exists: --overwrite replaces it" in capsys.readouterr().err
    xy, classes = points(100, seed=3)
    write_points(tmp_path / "labels.gpkg", [NAMES[number] for number in classes], xy)
    assert command(tmp_path, "labels.gpkg", *SHORT, "--resume") == 2
    assert "cannot continue with other labels, rasters or settings than it was begun with" in capsys.readouterr().err


@pytest.mark.slow
def test_cross_validation_holds_every_label_out_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With polygons whose classes are codes; one code is nowhere inside the rasters."""
    write_scene(tmp_path)
    xy, classes = points(60)
    shapes = [shapely.box(x - 12, y - 12, x + 12, y + 12) for x, y in xy]
    shapes.append(shapely.box(WEST + 9e4, NORTH, WEST + 9e4 + 30, NORTH + 30))
    codes = [*((11, 40, 300)[number] for number in classes), 77]
    write_vector(tmp_path / "labels.geojson", moved(shapes, 32632, 4326), {"code": codes}, 4326)
    options = ("--folds", "3", "--coverage", "0.8", "data.options.block_m=200")
    assert command(tmp_path, "labels.geojson", *SHORT, *options) == 0
    report = json.loads((tmp_path / "map.accuracy.json").read_text())
    assert report["classes"] == {"11": 11, "40": 40, "300": 300}
    counts = np.array(report["confusion"]["counts"])
    assert counts.sum(axis=0).tolist() == list(report["labels"].values()) == np.bincount(classes).tolist()
    assert "cross-validation" in report["tested_on"]
    assert set(np.unique(read(tmp_path / "map.tif"))) <= {11, 40, 300}
    assert len(list((tmp_path / "map.run").glob("fold-*/best"))) == 3
    out = capsys.readouterr().out
    assert "no label inside the rasters of class 77: not on the map" in out and "fold 3 of 3" in out


Change = Callable[[NDArray[np.float64], list[object]], None]


def alone(xy: NDArray[np.float64], values: list[object]) -> None:
    values[:] = ["a"] * len(values)


def once(xy: NDArray[np.float64], values: list[object]) -> None:
    values[3] = "rock"


def far(xy: NDArray[np.float64], values: list[object]) -> None:
    xy += 50000


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (far, (), "labels.gpkg: none of its labels lies inside the rasters"),
        (alone, (), "labels.gpkg: has one class only inside the rasters, 'a', in column 'cover'"),
        (once, (), "labels.gpkg: has a single label inside the rasters of class 'rock' (feature 4)"),
        (None, ("--class-column", "crop"), "labels.gpkg: has no column 'crop'; it has cover"),
        (None, ("--coverage", "90"), "coverage must lie between 0 and 1, got 90"),
        (None, ("--max-time", "soon"), "--max-time is 'soon'; write 10m, 1h30m or hh:mm:ss"),
        (None, ("data.options.block_m=1e6",), "fewer than 5 folds: make block_m smaller"),
        (None, ("training.epoch=3",), "unknown setting training.epoch; did you mean training.epochs?"),
    ],
)
def test_what_cannot_work_is_an_error_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture, change: Change | None, more: tuple[str, ...], message: str
) -> None:
    write_scene(tmp_path)
    xy, classes = points(40)
    values: list[object] = [NAMES[number] for number in classes]
    if change is not None:
        change(xy, values)
    write_points(tmp_path / "labels.gpkg", values, xy)
    assert command(tmp_path, "labels.gpkg", *more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "map.tif").exists() and not list(tmp_path.glob("map.run/*"))


def test_durations_and_options_in_messages() -> None:
    assert [seconds(text) for text in ("10m", "1h30m", "45s", "00:20:00", "2H")] == [600, 5400, 45, 1200, 7200]
    for text in ("", "0m", "10", "m"):
        with pytest.raises(ConfigError, match="write 10m"):
            seconds(text)
    assert (
        renamed("name the column of the labels (column=...)") == "name the column of the labels (--class-column NAME)"
    )
    assert renamed("pass gsd_m= or crs=, please") == "pass --gsd or --crs, please"
    assert renamed("name it (crs=EPSG:...)") == "name it (data.options.labels_crs=EPSG:...)"

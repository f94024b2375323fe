"""What is written: maps that any GIS reads, layers, areas, a preview."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.figures.map_preview import LEAST, MARGIN
from atomizer_io.models.storage import seal_at
from atomizer_io.prediction.options import Decoding, Windows
from atomizer_io.prediction.products import MapClasses, RasterProduct
from atomizer_io.prediction.qgis_style import paletted, sizes
from atomizer_io.prediction.raster_windows import MapGrid
from chips import CORNER, UTM, model_folder, read, regression_folder, scene, values, write
from predicting import predict_raster

LAYERS = ("probabilities", "confidence", "attention")
COLOURS = [tuple(round(255 * part) for part in colour) for colour in class_colours(("dry", "wet", "bare"))]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> RasterProduct:
    folder = tmp_path_factory.mktemp("product")
    array = values(20, 30)
    array[:, :4] = 0
    path = write(folder / "scene.tif", array, nodata=0)
    raster = {"path": path, "sensor": "sentinel2"}
    return predict_raster(model_folder(), raster, folder / "map.tif", layers=LAYERS)


def test_the_map_is_a_cloud_optimized_geotiff(product: RasterProduct) -> None:
    with rasterio.open(product.path) as result:
        assert result.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert result.tags(ns="IMAGE_STRUCTURE")["COMPRESSION"] == "DEFLATE"
        assert result.crs.to_epsg() == 32631
        assert result.transform == Affine(10, 0, CORNER[0], 0, -10, CORNER[1])
        assert result.dtypes == ("uint8",)
        assert result.nodata == 255
        assert result.descriptions == ("class",)
        assert json.loads(result.tags()["classes"]) == ["dry", "wet", "bare"]
        assert result.tags()["model"] == model_folder().name
        assert result.tags()["model_seal"] == seal_at(model_folder())
        colours = result.colormap(1)
        assert [colours[i][:3] for i in range(3)] == COLOURS
        assert colours[255][3] == 0
        assert (result.read(1)[:4] == 255).all()
        assert (result.read(1)[4:] < 3).all()
    names = product.files["map.aux.xml"].read_text()
    assert product.files["map.aux.xml"].name == "map.tif.aux.xml"
    assert "<Category>wet</Category>" in names


def test_a_large_map_has_overviews_and_blocks(tmp_path: Path) -> None:
    """Data first by overview, blocks in order: what a reader of a cloud-optimized file counts on."""
    path = write(tmp_path / "coarse.tif", values(9, 9), transform=Affine(120, 0, CORNER[0], 0, -120, CORNER[1]))
    result = predict_raster(
        model_folder(),
        {"path": path, "sensor": "sentinel2"},
        tmp_path / "map.tif",
        gsd_m=1,
        layers=["confidence"],
        windows=Windows(1200),
        decoding=Decoding("quadtree"),
    )
    for file in (result.path, result.files["confidence.tif"]):
        with rasterio.open(file) as source:
            assert source.shape == (1080, 1080)
            assert source.overviews(1) == [2, 4]
            assert source.block_shapes[0] == (512, 512)
            assert source.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
            full = int(source.get_tag_item("IFD_OFFSET", "TIFF", bidx=1))
            small = int(source.get_tag_item("IFD_OFFSET", "TIFF", bidx=1, ovr=0))
            data = [int(source.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1, ovr=level)) for level in (None, 0, 1)]
        assert full < small < min(data), "directories come first"
        assert data == sorted(data, reverse=True), "and the smallest overview before the full resolution"


def test_layers(product: RasterProduct) -> None:
    probabilities, confidence, attention = (read(product.files[f"{layer}.tif"]) for layer in LAYERS)
    classes = read(product.path)[0]
    seen = classes != 255
    np.testing.assert_allclose(probabilities[:, seen].sum(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(probabilities[:, seen].argmax(axis=0), classes[seen])
    assert np.isnan(probabilities[:, ~seen]).all()
    ordered = np.sort(probabilities[:, seen], axis=0)
    np.testing.assert_allclose(confidence[0][seen], ordered[-1] - ordered[-2], atol=1e-5)
    entropy = -(probabilities[:, seen] * np.log(np.maximum(probabilities[:, seen], 1e-9))).sum(axis=0)
    np.testing.assert_allclose(confidence[1][seen], entropy, atol=1e-4)
    np.testing.assert_allclose(attention[:, seen].sum(axis=0), 1, atol=0.02)
    with rasterio.open(product.files["attention.tif"]) as result:
        assert result.descriptions == ("sentinel2 B02", "sentinel2 B03", "sentinel2 B08")
        assert np.isnan(result.nodata)
    with rasterio.open(product.files["probabilities.tif"]) as result:
        assert result.descriptions == ("dry", "wet", "bare")


def test_areas(product: RasterProduct) -> None:
    classes = read(product.path)[0]
    expected = {name: (classes == i).sum() * 0.01 for i, name in enumerate(("dry", "wet", "bare"))}
    assert product.hectares == pytest.approx(expected)
    areas = json.loads(product.files["areas.json"].read_text())
    assert areas["hectares"] == pytest.approx(expected)
    assert areas["model_seal"] == seal_at(model_folder())
    with product.files["areas.csv"].open() as file:
        rows = list(csv.DictReader(file))
    assert {row["class"]: float(row["hectares"]) for row in rows} == pytest.approx(expected)
    assert [int(row["code"]) for row in rows] == [0, 1, 2]
    assert product.files["areas.csv"].name == "map.areas.csv"


def mapped_part(preview: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The pixels of the map in its preview, in which each is enlarged to a square."""
    times = LEAST // max(shape)
    rows, columns = (MARGIN + times * np.arange(side) + times // 2 for side in shape)
    return preview[:3, rows[:, None], columns]


def colours_in(part: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(colour) for colour in part.reshape(len(part), -1).T.tolist()}


def test_the_preview_has_the_colours_of_the_map_a_legend_and_a_scale_bar(product: RasterProduct) -> None:
    preview, classes = read(product.files["preview.png"]), read(product.path)[0]
    shown = mapped_part(preview, classes.shape)
    for number, colour in (*enumerate(COLOURS), (255, (255, 255, 255))):
        assert (shown[:, classes == number] == np.array(colour)[:, None]).all()
    times = LEAST // max(classes.shape)
    beside = preview[:3, :, 2 * MARGIN + times * classes.shape[1] :]
    present = {COLOURS[number] for number in np.unique(classes) if number != 255}
    assert colours_in(beside) & set(COLOURS) == present, "the legend has the classes that occur"
    below = preview[:3, MARGIN + times * classes.shape[0] + 2 :, : times * classes.shape[1]]
    run = (below == 0).all(axis=0).sum(axis=1).max()  # black pixels in a row
    assert abs(run - times * 10) <= 1, "100 m are ten pixels"


def test_a_preview_without_matplotlib_is_the_map_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for number, folder in enumerate((model_folder(), regression_folder())):
        target = tmp_path / f"map{number}.tif"
        product = predict_raster(folder, scene(tmp_path), target, windows=Windows())
        assert read(product.files["preview.png"]).shape == (4, 20, 30)


def test_the_preview_of_names_that_are_no_formulas(tmp_path: Path) -> None:
    names = ("$x^", "_hidden \x1b[31m", "水" * 90)
    product = predict_raster(model_folder(class_names=names), scene(tmp_path), tmp_path / "map.tif", windows=Windows())
    assert read(product.files["preview.png"]).ndim == 3


def test_a_regression_target_in_its_units(tmp_path: Path) -> None:
    product = predict_raster(
        regression_folder(), scene(tmp_path), tmp_path / "map.tif", layers=["attention"], windows=Windows()
    )
    result = read(product.path)
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    with rasterio.open(product.path) as source:
        assert source.descriptions == ("value",)
        assert np.isnan(source.nodata)
        assert source.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    assert product.mean == pytest.approx(result.mean(), rel=1e-4)
    assert set(product.files) == {"map.tif", "attention.tif", "preview.png"}
    shown = mapped_part(read(product.files["preview.png"]), result.shape[1:])
    lowest, highest = (shown.reshape(3, -1)[:, at].tolist() for at in (result.argmin(), result.argmax()))
    assert (lowest, highest) == ([68, 1, 84], [253, 231, 36]), "the ends of viridis, which stand beside it"


def test_areas_of_pixels_in_degrees() -> None:
    """Against the zones of a sphere, which are within a percent of those of the ellipsoid."""
    place = MapGrid("EPSG:4326", (0.1, 0, 0, 0, -0.1, 80), 800, 1)
    radius = 6371007.2
    edges = np.radians(80 - 0.1 * np.arange(801))
    expected = radius**2 * np.radians(0.1) * -np.diff(np.sin(edges)) / 1e4
    np.testing.assert_allclose(place.row_hectares(), expected, rtol=0.01)
    assert MapGrid(UTM, (10, 0, 0, 0, -20, 0), 3, 3).row_hectares().tolist() == [0.02] * 3
    assert MapGrid(None, (10, 0, 0, 0, -20, 0), 3, 3).row_hectares().tolist() == [0.02] * 3


def renderer(style: str) -> Element:
    element = fromstring(style).find("pipe/rasterrenderer")
    assert element is not None and element.get("band") == "1"
    return element


def test_classes_have_the_codes_names_and_colours_of_the_map() -> None:
    names = ("forest", 'a "b" <c> & d\x07\n', "wässer")
    legend = MapClasses.of(TaskSpec(num_outputs=3, class_names=names, class_codes=(7, -2, 300))).legend
    style = renderer(paletted(legend))
    assert style.get("type") == "paletted"
    entries = style.findall("colorPalette/paletteEntry")
    assert [(entry.get("value"), entry.get("label")) for entry in entries] == [
        ("7", "forest"),
        ("-2", 'a "b" <c> & d\ufffd\n'),
        ("300", "wässer"),
    ]
    colours = ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for _, colour in legend.values()]
    assert [entry.get("color") for entry in entries] == colours


@pytest.mark.parametrize("classes", [1, 2, 9])
def test_sizes_of_sets_have_a_colour_each(classes: int) -> None:
    entries = renderer(sizes(classes)).findall("colorPalette/paletteEntry")
    assert [entry.get("value") for entry in entries] == [str(number) for number in range(1, classes + 1)]
    assert len({entry.get("color") for entry in entries}) == classes
    assert entries[0].get("label") == "1 class"

"""The pages about one's own data run as they stand, on synthetic files; options are explained where one looks."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import laspy
import numpy as np
import pytest
import rasterio
import shapely
from rasterio.crs import CRS
from rasterio.transform import Affine

from atomizer_io.cli import main
from atomizer_io.data.sensors import SENTINEL2_L2A, Sensor
from atomizer_io.datasets.geotiff_folder import GeoTiffFolder
from atomizer_io.datasets.labels import Labelled
from atomizer_io.datasets.las_folder import LasFolder
from atomizer_io.datasets.registry import options_of
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_lab.synthetic.rasters import write_raster
from data.content import bands, patches
from data.fractal import write_laz
from data.vectors import write_vector

DOCS = Path(__file__).parents[1] / "docs"
DRONE = Sensor.define("drone", gsd_m=2.0, bands={"green": (0.56, 0.04), "nir": (0.84, 0.06)})
DATES = {"may": "2021-05-04", "july": "2021-07-13", "drone": "2021-06-20"}
# what the test adds to commands: few steps, and no further processes
QUICK = {
    "train": [
        *("training.max_steps=3", "training.figures=0"),
        *("training.accelerator=cpu", "data.workers=0"),
    ],
    "predict": ["--workers", "0"],
    "embed": ["--workers", "0"],
    "map": ["training.max_steps=3", "training.accelerator=cpu", "data.workers=0"],
}
MISSING = {("july", "plot_02"), ("drone", "plot_03")}


def blocks(language: str, page: str) -> list[str]:
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(page: str) -> list[list[str]]:
    text = "".join(blocks("sh", page)).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def write_plots(root: Path) -> None:
    """Eight plots of 120 m, seen at 10 m on two dates and at 2 m by a drone, with masks of 2 m."""
    rng = np.random.default_rng(0)
    rows = ["image,date"]
    for number in range(1, 9):
        name, west = f"plot_{number:02d}", 600000 + 500 * number
        crop = patches(rng, 60, 60, 2)
        fine = {"crs": CRS.from_epsg(32632), "transform": Affine(2, 0, west, 0, -2, 5000000)}
        coarse = fine | {"transform": Affine(10, 0, west, 0, -10, 5000000)}
        satellite = SENTINEL2_L2A.pick("B02", "B03", "B04", "B08")
        for folder, channels, grid in (
            ("may", satellite, coarse),
            ("july", satellite, coarse),
            ("drone", DRONE.channels, fine),
        ):
            if (folder, name) in MISSING:
                continue
            cover = crop if grid is fine else crop[2::5, 2::5]
            texts = () if folder == "drone" else [channel.name for channel in channels]
            image = bands(rng, cover, channels, np.uint16)
            write_raster(root / f"image_{folder}/{name}.tif", image, descriptions=texts, nodata=0, **grid)
            rows.append(f"image_{folder}/{name},{DATES[folder]}")
        crop[:3] = 255
        write_raster(root / f"mask/{name}.tif", crop.astype(np.uint8), **fine)
    (root / "dates.csv").write_text("\n".join(rows) + "\n")
    for split, numbers in {"train": range(1, 6), "val": range(6, 7), "test": range(7, 9)}.items():
        (root / f"{split}.txt").write_text("".join(f"plot_{number:02d}\n" for number in numbers))


def test_own_data_from_files_to_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_plots(Path("plots"))
    for text in blocks("yaml", "rasters.md"):
        Path(text.partition("\n")[0].removeprefix("# ")).write_text(text, encoding="utf-8")
    shown = {}
    for program, action, *rest in commands("rasters.md"):
        assert program == "atomizer"
        assert main([action, *rest, *QUICK.get(action, [])]) == 0, rest
        shown[action if action != "data" else rest[0]] = capsys.readouterr().out
    assert list(shown) == ["check", "show", "stats", "train", "evaluate", "predict"]
    assert "drone: 2 channels (green, nir), pixels of 2 m" in shown["check"] and "in 4 of 5 samples" in shown["check"]
    assert "1 … 2 dates a sample (2021-05-04 … 2021-07-13)" in shown["check"]
    assert "train, val, test: nothing is missing or broken" in shown["check"] and "look" not in shown["check"]
    assert "drone green, drone nir" in shown["evaluate"] and "s2-only" in shown["evaluate"]
    with rasterio.open("plot_08_map.tif") as predicted, rasterio.open("plots/image_drone/plot_08.tif") as image:
        assert predicted.shape == image.shape and predicted.transform == image.transform
        assert set(np.unique(predicted.read(1))) <= {0, 1}


def write_tiles(root: Path) -> None:
    """Tiles of 60 m with trees and houses, a photograph over two of them, and how high things are."""
    for number, name in enumerate(("train/a", "train/b", "val/a", "test/a")):
        rng = np.random.default_rng(number)
        west, count = 500000.0 + 1000 * number, 3000
        xy = np.round(rng.uniform(0, 60, (count, 2)), 2)
        kind = rng.integers(0, 3, count)
        columns = {
            "x": west + xy[:, 0],
            "y": 6500000 + xy[:, 1],
            "z": 100 + np.array([0.0, 8.0, 5.0])[kind] + rng.normal(0, 0.05, count),
            "intensity": (np.array([900, 200, 500])[kind] + rng.integers(0, 50, count)).astype(np.uint16),
            "return_number": np.ones(count, np.uint8),
            "number_of_returns": np.ones(count, np.uint8),
            "classification": np.array([2, 5, 6], np.uint8)[kind],
        }
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_laz(root / f"{name}.laz", columns, epsg=2154)
        over = {"crs": CRS.from_epsg(2154), "transform": Affine(2, 0, west, 0, -2, 6500060)}
        if name != "train/b":
            photograph = rng.integers(1, 255, (3, 30, 30)).astype(np.uint8)
            write_raster(root / "images" / f"{number}.tif", photograph, photometric="RGB", **over)
        write_raster(Path("canopy") / f"{number}.tif", rng.uniform(0, 9, (1, 30, 30)).astype(np.float32), **over)


def test_own_point_clouds_from_files_to_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiles(Path("mytiles"))
    Path("configs").symlink_to(DOCS.parent / "configs")
    shown = []
    for program, action, *rest in commands("point-clouds.md")[:5]:
        assert program == "atomizer"
        assert main([action, *rest, *QUICK.get(action, [])]) == 0, rest
        shown.append(capsys.readouterr().out)
    checked, _, scored, _, canopy = shown
    assert "aerial: 3 channels (R, G, B), pixels of 2 m" in checked and "nothing is missing or broken" in checked
    assert "no-aerial" in scored and "canopy height" in canopy + Path("runs/canopy/config.yaml").read_text()
    classified = laspy.read("classified.laz")
    assert len(classified.x) == 3000 and set(np.unique(classified.PredictedClassification)) <= {1, 2, 5, 6}


def test_own_labels_from_a_vector_file_to_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    crop = patches(np.random.default_rng(0), 80, 80, 2)
    satellite = SENTINEL2_L2A.pick("B02", "B03", "B04", "B08")
    image = bands(np.random.default_rng(1), crop, satellite, np.uint16)
    grid = {"crs": CRS.from_epsg(32632), "transform": Affine(10, 0, 600000, 0, -10, 5000000)}
    write_raster(Path("myfields/s2_20210704.tif"), image, descriptions=[c.name for c in satellite], nodata=0, **grid)
    xy = np.random.default_rng(2).uniform((600000, 4999200), (600800, 5000000), (120, 2))
    number = crop[((5000000 - xy[:, 1]) // 10).astype(int), ((xy[:, 0] - 600000) // 10).astype(int)]
    names = [("maize", "wheat")[n] for n in number]
    write_vector(Path("myfields/fields.gpkg"), shapely.points(xy), {"crop": names, "note": names})
    Path("configs").symlink_to(DOCS.parent / "configs")
    shown = []
    for program, action, *rest in commands("labels.md"):
        assert program == "atomizer"
        assert main([action, *rest, *QUICK.get(action, [])]) == 0, rest
        shown.append(capsys.readouterr().out)
    checked, _, _, folds, mapped, embedded, alike = shown
    assert "held-out labels of one of 5 folds" in mapped and "report: fields.html" in mapped
    assert "train, val, test: nothing is missing or broken" in checked and "maize" in checked and "look" not in checked
    with rasterio.open("crops.tif") as predicted:
        assert predicted.shape == (80, 80) and set(np.unique(predicted.read(1))) <= {0, 1}
    scores = json.loads(Path("runs/crops/folds.json").read_text())["scores"]["accuracy"]
    assert len(scores["values"]) == 3 and scores["mean"] == pytest.approx(np.mean(scores["values"]))
    assert json.loads(folds.strip().splitlines()[-1])["folds"] == 3
    assert "120 positions with vectors of" in embedded and "similarity" in alike
    names_of_page: dict[str, Any] = {}
    exec(blocks("python", 2)[-1], names_of_page)
    assert [*names_of_page["probe"].classes_] == ["maize", "wheat"]


def test_every_option_of_ones_own_files_is_explained() -> None:
    text = (DOCS / "reference" / "datasets.md").read_text(encoding="utf-8")
    for kind in (GeoTiffFolder, LasFolder, Labelled):
        assert [name for name in options_of(kind) if f"`{name}`" not in text] == []


def test_settings_that_depend_on_the_data_are_explained() -> None:
    pages = (DOCS / "how-to" / name for name in ("training.md", "missing-channels.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = ["data.measure", "data.keep", "data.workers", "offset_scale_m", "rope_scale_m"]
    names += [field.name for field in dataclasses.fields(ChannelDropout)]
    assert [name for name in names if f"`{name}`" not in text] == []

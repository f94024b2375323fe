"""Products have the class codes that the labels had: a map and its reference can be compared by code."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
import rasterio.shutil
import yaml

import atomizer_io as aio
import data as fixtures
from atomizer_io.cli import main
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.biomassters import BioMassters
from atomizer_io.datasets.las_folder import class_table, codes_of
from atomizer_io.errors import ConfigError
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.models.storage import fingerprint
from atomizer_io.prediction.las_classes import las_codes
from chips import CORNER, NAMES, model_folder, read, scene, values, write
from predicting import command, predict_at, predict_points, predict_raster, write_las
from scenes import forge

SIDE, UNKNOWN = 24, -9999


def labelled(folder: Path, codes: tuple[int, ...]) -> Path:
    """Images in which each class has its own brightness, and masks of these codes; a corner is unknown."""
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        classes = np.sort(rng.integers(0, len(codes), (SIDE, SIDE)), axis=1)
        mask = np.array(codes)[classes]
        mask[:3, :3] = UNKNOWN
        image = np.clip(values(SIDE, SIDE) * 0.02 + 400 + 1500 * classes, 1, 60000).astype(np.uint16)
        for kind, array, names in (("image", image, NAMES), ("mask", mask[None].astype(np.int16), None)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            write(folder / kind / f"{name}.tif", array, names=names)
    for split in ("train", "val"):
        (folder / f"{split}.txt").write_text("one\ntwo\n")
    return folder


def trained(folder: Path, codes: tuple[int, ...]) -> Path:
    """The model of a few steps on such labels."""
    root = labelled(folder / "data", codes)
    settings: dict[str, Any] = {
        "data": {
            "name": "geotiff-folder",
            "root": str(root),
            "test": None,
            "options": {
                "sensor": "sentinel2",
                "classes": {code: f"class of {code}" for code in codes},
                "ignore": [UNKNOWN],
            },
        },
        "model": {"preset": "atomizer_io_tiny", "settings": {"width": 24, "depth": 1, "atoms_per_latent": 40}},
        "training": {"max_steps": 60, "baselines": False, "figures": 0, "loggers": [], "validate_steps": 30},
        "output": str(folder),
        "name": "run",
    }
    folder.mkdir(exist_ok=True)
    (folder / "run.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    assert main(["train", str(folder / "run.yaml"), "--quiet"]) == 0
    return folder / "run" / "best"


@pytest.mark.parametrize("codes", [(0, 1, 3, 4), (300, 10, 20)], ids=str)
def test_a_trained_model_maps_the_codes_of_its_labels(codes: tuple[int, ...], tmp_path: Path) -> None:
    model = trained(tmp_path, codes)
    assert json.loads((model / "config.json").read_text())["problem"]["class_codes"] == list(codes)
    product = predict_raster(
        model, {"path": tmp_path / "data/image/two.tif", "sensor": "sentinel2"}, tmp_path / "map.tif"
    )
    reference, codes_read = read(tmp_path / "data/mask/two.tif")[0], read(product.path)[0]
    assert (codes_read == reference)[reference != UNKNOWN].mean() > 0.95
    assert set(np.unique(codes_read)) == set(codes)
    assert product.codes == {f"class of {code}": code for code in codes}


@pytest.mark.parametrize(
    ("codes", "dtype", "nodata"),
    [
        ((0, 3, 254), "uint8", 255),
        ((1, 7, 255), "uint16", 65535),
        ((300, 10, 20), "uint16", 65535),
        ((-1, 4, 3), "int16", -32768),
        ((0, 1, 65535), "int32", -(2**31)),
    ],
    ids=str,
)
def test_all_files_of_a_map_have_the_codes(codes: tuple[int, ...], dtype: str, nodata: int, tmp_path: Path) -> None:
    array = values(20, 30)
    array[:, -2:] = 0
    raster = {"path": write(tmp_path / "scene.tif", array, nodata=0), "sensor": "sentinel2"}
    plain = read(predict_raster(model_folder(), raster, tmp_path / "plain.tif").path)[0]
    product = predict_raster(model_folder(class_codes=codes), raster, tmp_path / "map.tif")
    codes_read, names = read(product.path)[0], ("dry", "wet", "bare")
    assert (codes_read[plain == 255] == nodata).all() and (plain[-2:] == 255).all()
    assert (codes_read[plain != 255] == np.array(codes)[plain[plain != 255]]).all()
    with product.files["areas.csv"].open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["class"], int(row["code"])) for row in rows] == list(zip(names, codes, strict=True))
    for row in rows:
        assert float(row["hectares"]) == pytest.approx((codes_read == int(row["code"])).sum() / 100)
    assert json.loads(product.files["areas.json"].read_text())["codes"] == product.codes
    with rasterio.open(product.path) as source:
        assert (source.dtypes[0], source.nodata) == (dtype, nodata)
        assert json.loads(source.tags()["codes"]) == list(codes)
        if dtype.startswith("uint"):  # TIFF has colours for no others
            colours = [tuple(round(255 * part) for part in colour) for colour in class_colours(names)]
            assert [source.colormap(1)[code][:3] for code in codes] == colours
    assert named_by_gdal(product.path, tmp_path / "copy.vrt") == dict(zip(codes, names, strict=True))


def named_by_gdal(path: Path, copy: Path) -> dict[int, str]:
    """The names of classes by code as GDAL reads them beside a file, and writes them into a virtual copy."""
    rasterio.shutil.copy(path, copy, driver="VRT")
    band = ElementTree.parse(copy).getroot().find("VRTRasterBand")
    assert band is not None
    listed = {number: category.text for number, category in enumerate(band.iter("Category")) if category.text}
    rows = [[cell.text or "" for cell in row] for row in band.iter("Row")]
    return {**listed, **{int(code): name for code, name, *_ in rows}}


def test_tables_and_arrays_have_the_codes(tmp_path: Path) -> None:
    raster, folder = scene(tmp_path), model_folder(class_codes=(7, 2, 300))
    (tmp_path / "places.csv").write_text(f"x,y\n{CORNER[0] + 55},{CORNER[1] - 55}\n{CORNER[0] - 900},{CORNER[1]}\n")
    predict_at(folder, raster, tmp_path / "places.csv", tmp_path / "found.csv")
    with (tmp_path / "found.csv").open() as file:
        here, outside = csv.DictReader(file)
    codes = {"dry": "7", "wet": "2", "bare": "300"}
    assert here["predicted_code"] == codes[here["predicted_class"]] and outside["predicted_code"] == ""


def test_point_clouds_have_the_codes_of_their_labels() -> None:
    """Classes of several codes have that of the standard, or the first that was named."""
    merged = {2: "ground", 3: "vegetation", 4: "vegetation", 5: "vegetation", 70: "fence", 41: "wire", 40: "wire"}
    names, labels = class_table(merged, (7,), "other")
    codes = codes_of(names, labels.mapping, merged)
    assert dict(zip(names, codes, strict=True)) == {"ground": 2, "vegetation": 5, "fence": 70, "wire": 41, "other": 1}
    assert las_codes(names, {"fence": 20}, codes) == {"ground": 2, "vegetation": 5, "fence": 20, "wire": 41, "other": 1}
    names, labels = class_table({1: "terrain", 20: "cars"}, (), None)
    assert las_codes(names, None, codes_of(names, labels.mapping, {1: "terrain", 20: "cars"})) == {
        "terrain": 1,
        "cars": 20,
    }
    assert las_codes(("ground", "cars")) == {"ground": 2, "cars": 65}, "of a model that knows no codes"


def test_a_model_without_codes_is_the_one_it_was(tmp_path: Path) -> None:
    """Checkpoints that were saved before there were codes load, keep their fingerprint, and map 0 … C−1."""
    folder = model_folder()
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    description = json.loads((old / "config.json").read_text())
    assert description["problem"].pop("class_codes") == []
    (old / "config.json").write_text(json.dumps(description))
    forge(old)
    before, after = aio.load_model(old), aio.load_model(folder)
    assert before.task_spec.codes == (0, 1, 2) and fingerprint(before) == fingerprint(after)
    assert fingerprint(aio.load_model(model_folder(class_codes=(0, 1, 5)))) != fingerprint(before)


@pytest.mark.parametrize(
    ("codes", "cause"),
    [((1, 2), "2 class codes for num_outputs=3"), ((1, 2, 2), "code 2 stands for two"), ((1, 2, 2**40), "32 bits")],
)
def test_codes_that_cannot_be(codes: tuple[int, ...], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        TaskSpec(num_outputs=3, class_codes=codes)


BIOMASS = {"target_name": "above-ground biomass", "target_unit": "t/ha"}


def biomass_folder() -> Path:
    settings = {"task": "regression", "num_outputs": 1, "class_names": (), "target_mean": 100.0, "target_std": 20.0}
    return model_folder(**settings, **BIOMASS)


def test_the_map_describes_its_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raster, output = scene(tmp_path, 14, 14), tmp_path / "map.tif"
    words = ("--window", 120, "--raster", raster["path"], "--sensor", "sentinel2")
    assert command(*words, "-o", output, model=biomass_folder()) == 0
    text = capsys.readouterr().out
    assert " t/ha (above-ground biomass)\n" in text
    assert "576 of 576 positions decoded (dense)\n" in text
    with rasterio.open(output) as file:
        assert file.descriptions == ("above-ground biomass",)
        assert file.units == ("t/ha",)
    (tmp_path / "places.csv").write_text(f"x,y\n{CORNER[0] + 45},{CORNER[1] - 45}\n")
    assert command(*words, "--at", tmp_path / "places.csv", "-o", tmp_path / "out.csv", model=biomass_folder()) == 0
    assert "1 of 1 positions (above-ground biomass in t/ha)" in capsys.readouterr().out


def test_models_without_names_still_load(tmp_path: Path) -> None:
    """And are the same to their calibration, as names change no prediction."""
    model = aio.AtomizerIO.from_pretrained(biomass_folder())
    assert (model.task_spec.target_name, model.task_spec.target_unit) == tuple(BIOMASS.values())
    model.save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    for name in BIOMASS:
        del described["problem"][name]
    (tmp_path / "config.json").write_text(json.dumps(described))
    forge(tmp_path)
    old = aio.AtomizerIO.from_pretrained(tmp_path)
    assert old.task_spec.target_unit is None
    assert fingerprint(old) == fingerprint(model)


def test_training_keeps_what_the_dataset_knows_of_its_target(tmp_path: Path) -> None:
    from atomizer_io.training.build import build, inspect
    from atomizer_io.training.config import ModelSettings, Run

    train = BioMassters(fixtures.write("biomassters", tmp_path, size=32), "train", months=[0])
    run = Run(model=ModelSettings(preset="atomizer_io_tiny"))
    task_spec = build(run, train, inspect(run, train))[0].task_spec
    assert (task_spec.target_name, task_spec.target_unit) == tuple(BIOMASS.values())


def test_dimensions_of_points_say_what_they_are(tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    write_las(tmp_path / "in.las", np.repeat(np.linspace(0, 20, 30)[:, None], 3, axis=1))
    predict_points(model_folder(), tmp_path / "in.las", tmp_path / "out.las")
    with laspy.open(tmp_path / "out.las") as file:
        descriptions = {d.name: d.description for d in file.header.point_format.extra_dimensions}
    assert descriptions["PredictedClassification"] == "LAS code of the likeliest class"
    assert descriptions["entropy"] == "nats"
    assert descriptions["wet"] == "probability"


WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("must be a positive number of metres, got inf", lambda: aio.Windows(math.inf)),
    ("must be a positive number of metres, got 0", lambda: aio.PointCloudWindows(0)),
    ("overlap must be a share of a window from 0 to 0.9, got 1.0", lambda: aio.Windows(overlap=1.0)),
    (
        "stride_m must be metres up to the side of a window, 50.0, got 60.0",
        lambda: aio.PointCloudWindows(stride_m=60.0),
    ),
    ("max_points must be a whole number of at least 1, got 0", lambda: aio.Cost(max_points=0)),
    ("decode_every_m must be a positive number of metres, got 0", lambda: aio.PointCloudWindows(decode_every_m=0)),
    ("decode 'x' is not known; use dense, quadtree, zone-probe, sketch", lambda: aio.Decoding("x")),
    ("decode 'calibrated' is not known", lambda: aio.Decoding("calibrated")),
    ("alpha must lie between 0 and 1, got 1", lambda: aio.Decoding(alpha=1.0)),
    ("leave out max_points", lambda: aio.Decoding("sketch", 0.1, aio.Cost(max_points=9))),
    ("neighbors must be a whole number", lambda: aio.Decoding(cost=aio.Cost(neighbors=0))),
]


@pytest.mark.parametrize(("message", "choose"), WRONG, ids=[message for message, _ in WRONG])
def test_what_makes_no_sense_is_refused(message: str, choose: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        choose()

"""A regression target has a name and a unit, from the dataset to the map."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio

import atomizer_io as aio
import data as fixtures
from atomizer_io.datasets.biomassters import BioMassters
from atomizer_io.models.storage import fingerprint
from chips import CORNER, model_folder, scene
from predicting import command, predict_points, write_las
from scenes import forge

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
    task_spec = build(run, train, inspect(run, train)).task_spec
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

"""Whole patches through a scene model: a table with a row for each."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets.geotiff_folder import GeoTiffFolder
from chips import CORNER, NAMES, model_folder, scene, values, write
from predicting import command

CLASSES = ("dry", "wet", "bare")


def classifier() -> Path:
    return model_folder(task="classification", channels=tuple(SENTINEL2.pick(*NAMES)))


def patches(folder: Path, count: int = 4) -> Path:
    (folder / "image").mkdir(parents=True)
    for number in range(count):
        place = Affine(10, 0, CORNER[0] + 80 * number, 0, -10, CORNER[1])
        write(folder / f"image/p{number}.tif", values(8, 8, number), transform=place)
    (folder / "labels.csv").write_text("image,label\n" + "".join(f"p{i}.tif,{CLASSES[i % 3]}\n" for i in range(count)))
    return folder / "image"


def predict(*words: object, model: Path | None = None) -> int:
    return command(*words, model=model or classifier())


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_folder_of_patches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = patches(tmp_path), tmp_path / "out.csv"
    assert predict("--raster", folder, "--sensor", "sentinel2", "-o", output) == 0
    assert "4 of 4 scenes in " in capsys.readouterr().out
    rows, model = table(output), aio.load_model(classifier()).eval()
    assert [row["scene"] for row in rows] == [f"p{i}.tif" for i in range(4)]
    assert list(rows[0]) == ["scene", "predicted_class", "predicted_code", "p_dry", "p_wet", "p_bare"]
    samples = GeoTiffFolder(tmp_path, "all", sensor="sentinel2", task="classification", classes=CLASSES)
    for row, sample in zip(rows, samples, strict=True):  # as training reads them
        with torch.no_grad():
            shares = model([sample.atoms])[0].softmax(dim=0).numpy()
        np.testing.assert_allclose([float(row[f"p_{name}"]) for name in CLASSES], shares, atol=6e-5)
        assert row["predicted_class"] == CLASSES[shares.argmax()]
    assert predict("--raster", folder, "--sensor", "sentinel2", "-o", output) == 2
    assert "out.csv exists: --overwrite replaces it" in capsys.readouterr().err


def test_a_list_with_several_rasters_a_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = patches(tmp_path)
    for number, names in enumerate((("B02",), ("B03", "B08"))):
        write(tmp_path / f"part{number}.tif", values(8, 8, 0)[number : 1 + 2 * number], names=names)
    (folder / "p2.tif").write_bytes(b"no raster")
    (tmp_path / "list.csv").write_text(
        "scene,path,sensor\n"
        "one,image/p0.tif,sentinel2\nbroken,image/p2.tif,sentinel2\n"
        "parts,part0.tif,sentinel2\nparts,part1.tif,sentinel2\n"
    )
    assert predict("--list", tmp_path / "list.csv", "-o", tmp_path / "out.csv") == 1
    printed = capsys.readouterr()
    assert "broken: failed: " in printed.err and "2 of 3 scenes in " in printed.out
    one, broken, parts = table(tmp_path / "out.csv")
    assert broken["predicted_class"] == broken["p_wet"] == ""
    assert one["predicted_class"] == parts["predicted_class"]
    assert float(one["p_wet"]) == pytest.approx(float(parts["p_wet"]), abs=1e-3)


def test_a_regression_target_of_a_scene(tmp_path: Path) -> None:
    settings = {"num_outputs": 1, "class_names": (), "target_mean": 100.0, "target_std": 20.0}
    model = model_folder(task="scene_regression", **settings)
    product = aio.predict_labels(model, {"a": [scene(tmp_path, 8, 8)]}, tmp_path / "a.csv")
    (row,) = table(product.path)
    atoms = aio.AtomSet.from_raster(values(8, 8), SENTINEL2.pick(*NAMES), 10.0)
    with torch.no_grad():
        expected = float(aio.load_model(model).eval()([atoms])[0])
    assert list(row) == ["scene", "predicted_value"] and float(row["predicted_value"]) == pytest.approx(
        expected, rel=1e-5
    )


def test_what_does_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = patches(tmp_path)
    words = ("--raster", folder / "p0.tif", "--sensor", "sentinel2")
    assert predict(*words, "-o", tmp_path / "map.tif") == 2
    assert "the model is for classification: it makes one prediction for a whole scene" in capsys.readouterr().err
    assert predict(*words, "-o", tmp_path / "a.csv", model=model_folder()) == 2
    assert "the model is for segmentation: it makes maps (-o map.tif)" in capsys.readouterr().err
    assert predict(*words, "-o", tmp_path / "a.csv", "--window", "100") == 2
    assert "--window is for maps, not for a table of scenes" in capsys.readouterr().err
    assert predict("--raster", folder, "--raster", folder / "p0.tif", "-o", tmp_path / "a.csv") == 2
    assert "is a folder of patches: name no other raster" in capsys.readouterr().err
    large = write(tmp_path / "large.tif", values(2000, 1500))
    assert predict("--raster", large, "--sensor", "sentinel2", "-o", tmp_path / "a.csv") == 2
    assert "has 9,000,000 values" in capsys.readouterr().err


@pytest.mark.parametrize(("extent_m", "warns"), [(None, 0), (60.0, 0), (150.0, 0), (640.0, 1), (50.0, 1)])
def test_a_patch_of_another_extent_is_warned_about(tmp_path: Path, extent_m: float | None, warns: int) -> None:
    model = model_folder(task="classification", channels=tuple(SENTINEL2.pick(*NAMES)), extent_m=extent_m)
    folder = patches(tmp_path, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert predict("--raster", folder, "--sensor", "sentinel2", "-o", tmp_path / "out.csv", model=model) == 0
    texts = [str(warning.message) for warning in caught if "covers 80 m" in str(warning.message)]
    assert len(texts) == warns
    assert all(f"p0.tif covers 80 m; the model was trained on scenes of {extent_m:g} m" in text for text in texts)
    assert all("(likewise p1.tif)" in text for text in texts)

"""`atomizer info`: what is here, and what a model or a sensor is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import SENSORS, SENTINEL2, Sensor
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.registry import create_model


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["info", *words]) == 0
    return capsys.readouterr().out


def test_alone_it_lists_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    words = " ".join(text.split())
    for name in (*aio.list_models(), *SENSORS):
        assert name in words
    rows = {line.split()[0]: line for line in text.splitlines() if line and not line.startswith(" ")}
    assert aio.__version__ in rows["atomizer-io"] and torch.__version__ in rows["torch"]
    assert re.search(r"compiled|plain", rows["kernels"]) and str(torch.get_num_threads()) in rows["threads"]
    assert "cpu" in rows["devices"]
    assert re.search(r"geo +rasterio \d", text) and re.search(r"dask +dask \d", text)


def test_a_missing_extra_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from atomizer_io import extras

    monkeypatch.setitem(extras.EXTRAS, "geo", ("rasterio", "no_such_library"))
    assert re.search(
        r"geo .*; no_such_library is missing: pip install 'atomizer-io\[geo\]'", " ".join(shown(capsys).split())
    )


def test_a_preset_and_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "atomizer_io_tiny", "--input", "64x32x4", "--kappa", "64")
    assert "atomizer_io_tiny: segmentation, 2 outputs" in text
    assert "64 × 32 pixels, 4 channels: 8,192 atoms at 2,048 sites" in text and "(κ = 64)" in text
    assert re.search(r"total +\d+,\d+", text)


def test_a_folder_shows_what_the_model_was_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bands: dict[str, tuple[float, float] | None] = {f"b{i}": (0.4 + i / 20, 0.01) for i in range(30)}
    model = aio.create_model(
        "atomizer_io_tiny",
        class_names=("dry", "water"),
        channels=Sensor.define("mysat", gsd_m=3.0, bands=bands).channels,
    )
    model.save_pretrained(tmp_path / "best")
    text = shown(capsys, str(tmp_path / "best"))
    assert "segmentation, 2 outputs (dry, water)" in text
    assert "mysat b0," in text and "mysat b11, … and 18 more" in " ".join(text.split()) and "b12" not in text
    assert "width 96" in text and "atoms_per_latent 128" in text and "temporal no" in text


def test_sensors_and_one_sensor(capsys: pytest.CaptureFixture[str]) -> None:
    listed = shown(capsys, "sensors")
    assert all(name in listed for name in SENSORS) and "B8A" in listed
    one = shown(capsys, "Sentinel-2")
    assert len(one.splitlines()) == 1 + 13 and re.search(r"sentinel2 +B8A +0\.8647", one)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("atomizer_io_sge", "did you mean atomizer_io_seg"),
        ("sensor", r"did you mean .*sensors"),
        ("landsat", r"did you mean landsat9, landsat8"),
    ],
)
def test_unknown_names_get_near_ones(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name!r} is neither a model, a folder nor a sensor; ")
    assert re.search(words, error)


def test_a_preset_that_reads_windows_is_measured_as_when_it_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task_spec = TaskSpec("segmentation", 2, channels=SENTINEL2.pick("B02", "B03", "B04", "B08"), pixel_m=10.0)
    create_model("perceiver_io_small", task_spec=task_spec).save_pretrained(tmp_path / "model")
    last = [
        shown(capsys, name, "--input", "32x32x4").splitlines()[-1]
        for name in ("perceiver_io_small", str(tmp_path / "model"))
    ]
    assert last[0].partition(" parameters, ")[2] == last[1].partition(" parameters, ")[2] != ""

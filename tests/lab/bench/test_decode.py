"""The benchmark of decoding: rows that can be trusted, saved as they come, and figures from them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.decoding import Calibration, Choices, OperatingPoint, calibrate
from atomizer_io.decoding.sketching import fitted, functions_of, probe_numbers
from atomizer_io.training.evaluate import score
from atomizer_lab.bench.decode import DecodeBenchmark, sketch_flops
from atomizer_lab.bench.decode_plots import line_of
from atomizer_lab.bench.decode_ways import USUAL, Way
from scenes import SMALL, raster

KAPPA = 64
FEW_OPTIONS = ["--atoms-per-latent", "128", "--budgets", "16", "--neighbors", "1", "--starts", "4", "--spacings", "4"]


def dataset(like: str = "texture", length: int = 3, size: int = 24, split: str = "test") -> Dataset:
    return aio.datasets.create("synthetic", None, split, like=like, size=size, length=length)


def model_of(data: Dataset, **settings: object) -> aio.AtomizerIO:
    torch.manual_seed(2)
    made = {**SMALL, "atoms_per_latent": KAPPA, "num_outputs": data.info.num_outputs, "channels": data.channels}
    return aio.create_model("atomizer_io_tiny", **{**made, **settings}).eval()


def folder_of(folder: Path, like: str = "texture", **settings: object) -> Path:
    """A run without training: settings and a model beside them."""
    model_of(dataset(like), **settings).save_pretrained(folder / "best")
    data = {"name": "synthetic", "options": {"like": like, "size": 24, "length": 3}}
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": data}), encoding="utf-8")
    return folder / "best"


def only(strategy: str, settings: dict[str, int]) -> Choices:
    """Nothing to choose but the margin."""
    return Choices((KAPPA,), (None,), (9,), {strategy: [settings]})


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, output = folder_of(tmp_path / "run"), tmp_path / "results" / "decode.json"
    scenes = dataset(length=12, split="val")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrate(model_of(scenes), scenes, 0.3, choices=only("zone_probe", {"probes": 9})).save(checkpoint)
    arguments = ["bench", "decode", str(checkpoint), "--alpha", "0.3", "--threads", "1", "--output", str(output)]
    assert main([*arguments, *FEW_OPTIONS, "--limit", "2"]) == 0
    printed, saved = capsys.readouterr().out, json.loads(output.read_text())
    assert (saved["benchmark"], saved["data"], saved["split"], saved["score"]) == (
        *("decode", "synthetic", "test", "miou"),
    )
    assert saved["machine"]["threads"] == 1 and saved["atoms_per_latent"] == KAPPA
    rows = saved["rows"]
    assert len(rows) == 4 + 2 + 3 * 4 + 1  # usual, another start and spacing, κ, m and k, calibrated
    assert len(printed.splitlines()) == len(rows) + 2
    for row in rows:
        assert row["scenes"] == 2 and row["positions"] == 2 * 24 * 24
        assert 0 < row["decoded"] <= 1 and 0 <= row["agreement"] <= 1 and 0 <= row["miou"] <= 1
        assert row["encode_seconds"] > 0 and row["decode_seconds"] > 0
        for counted in (row["gflops"], row["literal_gflops"]):
            assert counted["total"] == pytest.approx(
                counted["encode"] + counted["process"] + counted["decode"] + counted["sketch"]
            )
        same = ("atoms_per_latent", "budget", "neighbors")
        (dense,) = (d for d in rows if d["strategy"] == "dense" and all(d[key] == row[key] for key in same))
        assert dense["decoded"] == 1 and dense["agreement"] == 1
        assert row["gflops"]["decode"] <= dense["gflops"]["decode"]
        assert row["gflops"]["encode"] == dense["gflops"]["encode"] < row["literal_gflops"]["encode"]
        assert (row["gflops"]["sketch"] > 0) == (row["strategy"] == "sketch")
    (calibrated,) = (row for row in rows if row["alpha"] is not None)
    assert calibrated["strategy"] == "zone_probe" and calibrated["settings"] == {"probes": 9}
    for name, values in (("atoms_per_latent", [KAPPA, 128]), ("budget", [16, None]), ("neighbors", [1, 9])):
        assert [row[name] for row in line_of(saved, "dense", name)] == values
    assert [row["settings"]["start"] for row in line_of(saved, "quadtree", "start")] == [4, 32]
    for figure in (output.with_suffix(".png"), output.with_name("decode-sensitivity.png")):
        assert figure.read_bytes().startswith(b"\x89PNG")


def test_scores_are_of_all_positions_together() -> None:
    data = dataset()
    model = model_of(data)
    base = Way("dense", (), KAPPA, None, 9)
    quadtree = Way("quadtree", tuple(USUAL["quadtree"].items()), KAPPA, None, 9)
    dense, cheap = DecodeBenchmark(model, data, None).run([base, quadtree])["rows"]
    labels: dict[str, list[torch.Tensor]] = {"dense": [], "quadtree": []}
    flops = 0.0
    for sample in data:
        with torch.no_grad():
            latents = model.encode([sample.atoms])
        labels["dense"].append(model.decode(latents, [sample.queries.positions])[0].argmax(dim=1))
        prediction = aio.decoding.quadtree(model, latents, sample.queries.grid)
        labels["quadtree"].append(prediction.labels.flatten())
        flops += prediction.flops
    target = torch.cat([sample.target for sample in data])
    for row in (dense, cheap):
        result = torch.cat(labels[row["strategy"]])
        known = target >= 0
        ious = []
        for c in range(2):
            hit, either = ((result == c) & (target == c))[known], ((result == c) | (target == c))[known]
            ious.append(float(hit.sum() / either.sum()))
        assert row["miou"] == pytest.approx(sum(ious) / 2) and list(row["iou"].values()) == pytest.approx(ious)
    agree = (torch.cat(labels["dense"]) == torch.cat(labels["quadtree"])).double().mean()
    assert cheap["agreement"] == pytest.approx(float(agree))
    assert cheap["gflops"]["decode"] == pytest.approx(flops / len(data) / 1e9)


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("dates", [1, 30])
def test_flops_of_a_sketch(classes: bool, dates: int) -> None:
    atoms = raster(0, size=(20, 24))
    for day in range(1, dates):
        atoms += raster(day, size=(20, 24), day=day)
    outputs, shape = 3 if classes else 1, (20, 24)
    probes = probe_numbers(shape, 4)
    observed = torch.randn(20 * 24, 2 + 3 * dates, generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        fitted(functions_of(observed, probes), probes, torch.rand(len(probes), outputs), errors=not classes)
    counted = sketch_flops(atoms, shape, outputs, classes, spacing=4)
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.05)


def test_whole_predictions_beside_a_unet() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
    from bench_whole import whole_predictions

    torch.manual_seed(0)
    dataset = aio.datasets.create("synthetic", like="texture", size=20, length=1)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2}, channels=dataset.channels).eval()
    chosen = OperatingPoint(80, 20, 4, "quadtree", {"start": 8, "probes": 4}, 0.1)
    point = Calibration("", 0.3, None, chosen, None, 500, 40, 0.0, ())
    result = whole_predictions(model, dataset[0], [point], repeats=1)
    assert result["shape"] == [20, 20] and result["unet_image"] == [32, 32] and result["channels"] == 2
    dense, probes, plain, quadtree = result["rows"]
    assert [row["way"] for row in result["rows"]] == ["dense", "zone_probe", "quadtree", "quadtree, alpha 0.3"]
    assert dense["decoded"] == 1 and dense["differing"] == 0 and quadtree["decoded"] <= 1
    assert max(probes["gflops"], plain["gflops"], quadtree["gflops"]) <= dense["gflops"]
    own = score(model, dataset, progress=False)["miou"]
    assert dense["miou"] == pytest.approx(own)
    assert quadtree["times_unet"] == pytest.approx(quadtree["seconds"] / result["unet_seconds"])

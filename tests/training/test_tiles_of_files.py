"""Tiles of LAS files: scored as they are predicted, by one process or by two."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import ConfigError
from atomizer_io.training.config import parse
from atomizer_io.training.evaluate import score
from atomizer_io.training.splits import open_split
from runs import by_two
from scenes import SMALL

laspy = pytest.importorskip("laspy")
NAMES = {2: "ground", 5: "vegetation", 6: "building"}


def tile(path: Path, seed: int, points: int = 1500) -> Path:
    """A tile of 90 × 50 m with ground, trees and roofs; the class of some points is not known."""
    rng = np.random.default_rng(seed)
    header = laspy.LasHeader(version="1.4", point_format=6)
    header.scales, header.offsets = np.full(3, 0.01), np.array([700_000.0, 6_600_000.0, 0.0])
    cloud, classes = laspy.LasData(header), rng.choice([1, *NAMES], points)
    above = np.select([classes == 5, classes == 6], [rng.uniform(1, 15, points), 8.0], 0.0)
    x, y = rng.uniform(0, 90, points), rng.uniform(0, 50, points)
    cloud.x, cloud.y, cloud.z = 700_000 + x, 6_600_000 + y, 100 + 0.05 * x + above
    cloud.number_of_returns = rng.integers(1, 4, points)
    cloud.return_number = 1 + rng.integers(0, 3, points) % cloud.number_of_returns
    cloud.intensity, cloud.classification = rng.integers(1, 3000, points), classes
    path.parent.mkdir(parents=True, exist_ok=True)
    cloud.write(path)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiles")
    for seed, name in enumerate(("train/a", "train/b", "val/c", "test/d", "test/e")):
        tile(root / f"{name}.laz", seed)
    return root


def opened(root: Path, split: str) -> Dataset:
    cache = root.parent / "cache"
    return aio.datasets.create("las-folder", root, split, classes=NAMES, colour=False, cache=cache).for_evaluation()


def test_the_score_of_a_tile_is_that_of_its_prediction(root: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = opened(root, "test")
    fields = {"intensity_rank": (0.5, 0.3)}
    task_spec = TaskSpec(num_outputs=3, class_names=tuple(NAMES.values()), channels=data.channels, fields=fields)
    settings = {name: value for name, value in SMALL.items() if name != "num_outputs"}
    model = aio.create_model("atomizer_io_tiny", task_spec=task_spec, **settings, max_points=200).eval()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(3)
    model.save_pretrained(tmp_path / "model")
    confusion = np.zeros((3, 3), int)
    codes = {"ground": 2, "vegetation": 5, "building": 6}
    for name in ("d", "e"):
        before, after = root / "test" / f"{name}.laz", tmp_path / f"{name}.laz"
        aio.predict_points(tmp_path / "model", before, after, classes=aio.PointCloudClasses(codes=codes, replace=True))
        target, predicted = (np.asarray(laspy.read(path).classification) for path in (before, after))
        order = list(NAMES)
        for code, label in zip(target.tolist(), predicted.tolist(), strict=True):
            if code in NAMES:
                confusion[order.index(code), order.index(label)] += 1
    scores = score(model, data, progress=False)
    hits = confusion.diagonal()
    assert scores["positions"] == confusion.sum()
    iou = hits / (confusion.sum(0) + confusion.sum(1) - hits)
    assert list(scores["iou"].values()) == pytest.approx(iou.tolist())
    assert (confusion.sum(0) > 0).sum() > 1  # more than one class is predicted


def test_parts_of_windows_that_overlap_are_refused(root: Path, tmp_path: Path) -> None:
    options = {"classes": NAMES, "colour": False, "cache": False}
    data = {"name": "las-folder", "root": str(root), "options": options, "parts": {"train": [0.0, 0.0, 0.5, 1.0]}}
    with pytest.raises(ConfigError, match=r"train/a.laz is cut into windows that overlap.*window_m=null"):
        open_split(parse({"data": data}), "train")
    assert len(open_split(parse({"data": data}), "val")) == 2  # which has no part
    whole = {**data, "options": {**options, "window_m": None}}
    assert len(open_split(parse({"data": whole}), "train")) == 2


@pytest.mark.slow
def test_two_processes_score_tiles_as_one(root: Path, tmp_path: Path) -> None:
    """One tile to validate on leaves nothing for the second process, which must not keep the first waiting."""
    document = {
        "data": {
            "name": "las-folder",
            "root": str(root),
            "options": {"classes": NAMES, "colour": False, "cache": str(tmp_path / "cache")},
            "workers": 0,
        },
        "model": {"preset": "atomizer_io_tiny", "settings": {"width": 24, "depth": 1, "max_points": 200}},
        "training": {
            **{"max_steps": 2, "batch_size": 1, "accelerator": "cpu"},
            **{"loggers": [], "figures": 0, "baselines": False},
        },
        "output": str(tmp_path / "runs"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
    words = ["train", str(tmp_path / "run.yaml"), "--quiet", "training.validate_every=1", "training.epochs=1"]
    assert main([*words, "name=one", "training.batch_size=2"]) == 0
    by_two(tmp_path, *words, "name=two", "training.devices=2", "training.strategy=ddp")
    histories = [(tmp_path / "runs" / name / "history.jsonl").read_text() for name in ("one", "two")]
    scores = [json.loads(text.splitlines()[0]) for text in histories]
    known = int(np.isin(np.asarray(laspy.read(root / "val" / "c.laz").classification), list(NAMES)).sum())
    assert scores[0]["positions"] == scores[1]["positions"] == known
    assert scores[1]["miou"] == pytest.approx(scores[0]["miou"], abs=0.02)

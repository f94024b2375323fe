"""Scores of tiles: windows overlap, and every point of a tile counts once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomizerError
from atomizer_io.training.data import NOTHING, EvaluationSamples, evaluation_loader
from atomizer_io.training.evaluate import score
from atomizer_io.training.metrics import Scores
from strips import CLASSES, Strips, cloud, model_of


def mean_outputs(model: aio.AtomizerIO, dataset: Strips, name: str) -> np.ndarray:
    """The outputs for all points of a tile, window by window and averaged the long way."""
    sums, counts = np.zeros((400, model.task_spec.num_outputs)), np.zeros((400, 1))
    for sample in dataset:
        if sample.queries.whole == name:
            with torch.no_grad():
                own = model([sample.atoms], [sample.queries.positions], sites=[sample.queries.sites])[0]
            for number, row in zip(sample.queries.members.tolist(), own, strict=True):
                sums[number] += (row if model.task_spec.regression else row.softmax(dim=-1)).numpy()
                counts[number] += 1
    assert counts.min() == 1 and counts.max() == 2
    return sums / counts


@pytest.mark.parametrize("workers", [0, 2])
def test_every_point_of_a_tile_counts_once_with_averaged_probabilities(tmp_path: Path, workers: int) -> None:
    model, dataset = model_of(class_names=CLASSES), Strips(tmp_path)
    confusion = np.zeros((3, 3))
    for name in dataset.names:
        target, outputs = cloud(name)[1], mean_outputs(model, dataset, name).argmax(axis=1)
        np.add.at(confusion, (target[target >= 0], outputs[target >= 0]), 1)
    scores = score(model, dataset, workers=workers, progress=False)
    assert scores["positions"] == confusion.sum() < 800
    iou = confusion.diagonal() / (confusion.sum(0) + confusion.sum(1) - confusion.diagonal())
    assert list(scores["iou"].values()) == pytest.approx(iou) and scores["miou"] == pytest.approx(iou.mean())


def test_the_loss_is_that_of_the_averaged_probabilities(tmp_path: Path) -> None:
    model, dataset = model_of(scale=1.0, class_names=CLASSES), Strips(tmp_path, ["one"])
    target, outputs = cloud("one")[1], mean_outputs(model, dataset, "one")
    known = target >= 0
    expected = -np.log(outputs[known, target[known]]).mean()
    assert score(model, dataset, progress=False)["loss"] == pytest.approx(expected, rel=1e-4)


def test_points_of_the_context_and_the_others_are_also_scored_apart(tmp_path: Path) -> None:
    model, dataset = model_of(class_names=CLASSES, max_points=30), Strips(tmp_path, ["one"])
    inside = set()
    for sample in dataset:
        drawn = model.preparer()(sample.atoms, sample.queries).geometry.cells[0].site_N.unique()
        assert len(drawn) == 30 < len(sample.target)
        inside |= set(sample.queries.members[drawn].tolist())
    target, outputs = cloud("one")[1], mean_outputs(model, dataset, "one").argmax(axis=1)
    known, context = target >= 0, np.isin(np.arange(400), list(inside))
    scores = score(model, dataset, progress=False)
    for part, members in (("context", known & context), ("rest", known & ~context)):
        t, a = target[members], outputs[members]
        iou = [((t == k) & (a == k)).sum() / ((t == k) | (a == k)).sum() for k in range(3)]
        assert list(scores[f"iou_{part}"].values()) == pytest.approx(iou)
        assert scores[f"miou_{part}"] == pytest.approx(np.mean(iou))
    assert "miou_rest" not in score(model_of(class_names=CLASSES), dataset, progress=False)


def test_a_regression_is_the_mean_of_the_outputs(tmp_path: Path) -> None:
    model = model_of(task="regression", num_outputs=1, target_mean=6.0, target_std=3.0)
    dataset = Strips(tmp_path, ["one"], regression=True)
    xyz, classes = cloud("one")
    error = (mean_outputs(model, dataset, "one")[:, 0] - xyz[:, 2])[classes >= 0]
    assert score(model, dataset, progress=False)["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)


def test_processes_get_whole_tiles_and_none_gets_nothing_at_all(tmp_path: Path) -> None:
    model, dataset = model_of(class_names=CLASSES), Strips(tmp_path, ["one", "number two", "the third"])
    samples = EvaluationSamples(dataset)
    assert [samples.dealt(p, 2) for p in range(2)] == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7]]
    assert [samples.dealt(p, 4) for p in (2, 3)] == [[8, 9, 10, 11], [NOTHING]]
    (idle,) = evaluation_loader(samples, model.preparer(), 0, process=3, processes=4)
    assert not idle.samples and not idle.skipped
    images = EvaluationSamples(aio.datasets.create("synthetic", size=16, length=5))
    assert [images.dealt(p, 2) for p in range(2)] == [[0, 2, 4], [1, 3]]


def test_only_one_tile_is_in_memory(tmp_path: Path) -> None:
    task_spec = TaskSpec(num_outputs=3)
    scores = Scores(task_spec)
    for number, sample in enumerate(Strips(tmp_path)):
        scores.add([sample], torch.zeros(len(sample.target), 3))
        assert scores.tile.name == sample.queries.whole and len(scores.finished) == number // 4


def test_windows_that_cannot_be_of_one_tile_are_refused(tmp_path: Path) -> None:
    task_spec = TaskSpec(num_outputs=3)
    one, _, _, _, second, *_ = Strips(tmp_path)
    scores = Scores(task_spec)
    with pytest.raises(AtomizerError, match="one do not follow each other"):
        for sample in (one, second, one):
            scores.add([sample], torch.zeros(len(sample.target), 3))
    scores = Scores(task_spec)
    scores.add([one], torch.zeros(len(one.target), 3))
    namesake = replace(one, target=(one.target + 1) % 3)
    with pytest.raises(AtomizerError, match="windows of one disagree on the target of a point"):
        scores.add([namesake], torch.zeros(len(one.target), 3))

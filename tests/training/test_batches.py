"""Small samples are evaluated together: the scores are those of one by one, and nothing gets too large."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets.dataset import Dataset, Info, Skipped
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.models.base import Cost
from atomizer_io.training import batches, data
from atomizer_io.training.batches import Batch, Grouped
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import EvaluationSamples, evaluation_loader
from atomizer_io.training.evaluate import score
from scenes import SMALL, of, raster
from strips import CLASSES, Strips, model_of


def made(like: str, **options: Any) -> Dataset:
    return aio.datasets.create("synthetic", like=like, split="test", **options)


def model_for(dataset: Dataset, preset: str, **settings: Any) -> aio.Model:
    torch.manual_seed(0)
    info = dataset.info
    return aio.create_model(
        preset,
        task=info.task,
        num_outputs=info.num_outputs,
        class_names=info.classes,
        channels=dataset.channels,
        **settings,
    ).eval()


ATOMIZER = {key: value for key, value in SMALL.items() if key != "num_outputs"}
CASES = {
    "scenes": ("eurosat", {"size": 16, "length": 9}, "atomizer_io_tiny", ATOMIZER),
    "maps": ("sen1floods11", {"size": 16, "length": 7}, "atomizer_io_tiny", ATOMIZER),
    "series": ("pastis-r", {"size": 16, "length": 4, "dates": 2}, "atomizer_io_tiny", ATOMIZER),
    "scenes by a ViT": ("eurosat", {"size": 16, "length": 9}, "vit_tiny", {}),
    "maps by a ViT": ("sen1floods11", {"size": 16, "length": 7}, "vit_tiny", {}),
    "maps by a Perceiver-IO": ("sen1floods11", {"size": 16, "length": 7}, "perceiver_io_small", {}),
}


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data, "Grouped", partial(Grouped, size=0))


def same(scores: Any, expected: Any) -> None:
    """Compare scores, which may differ by rounding, with their classes."""
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_one_by_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    like, options, preset, settings = CASES[case]
    dataset = made(like, **options)
    model = model_for(dataset, preset, **settings)
    lengths = [len(batch) for batch in evaluation_loader(EvaluationSamples(dataset), model.preparer(), 0)]
    assert sum(lengths) == options["length"] > len(lengths)
    scores = score(model, dataset, progress=False)
    one_by_one(monkeypatch)
    same(scores, score(model, dataset, progress=False))


@pytest.mark.parametrize("preset", ["atomizer_io_tiny", "vit_tiny"])
def test_samples_of_several_sizes_come_together(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = made("sen1floods11", size=16, length=6)
    model = model_for(dataset, preset, **(ATOMIZER if preset.startswith("atomizer") else {}))
    sizes = (16, 8, 8, 12, 16, 8)  # pixels of 10 m
    parts = [
        data.random_crop(s, 10.0 * n, torch.Generator().manual_seed(0)) for s, n in zip(dataset, sizes, strict=True)
    ]
    cut = dict(zip(dataset.items, parts, strict=True))
    monkeypatch.setattr(type(dataset), "read", lambda self, item: cut[item])
    scores = score(model, dataset, progress=False)
    assert scores["positions"] < 6 * 16 * 16
    one_by_one(monkeypatch)
    same(scores, score(model, dataset, progress=False))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [600, batches.GROUP])
def test_windows_of_tiles_are_averaged_as_before(
    size: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, dataset = model_of(class_names=CLASSES, max_points=30), Strips(tmp_path)
    monkeypatch.setattr(data, "Grouped", partial(Grouped, size=size))  # 600: batches end in the middle of a tile
    scores = score(model, dataset, workers=workers, progress=False)
    assert "miou_rest" in scores
    one_by_one(monkeypatch)
    same(scores, score(model, dataset, progress=False))


def test_a_budget_draws_by_the_number_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = made("sen1floods11", size=16, length=5)
    model, few = model_for(dataset, "atomizer_io_tiny", **ATOMIZER), Decoding(cost=Cost(budget=3))
    scores = score(model, dataset, decoding=few, progress=False)
    assert scores["loss"] != pytest.approx(score(model, dataset, progress=False)["loss"])
    one_by_one(monkeypatch)
    same(scores, score(model, dataset, decoding=few, progress=False))


def batch_of(number: int, size: int = 4) -> Batch:
    sample = of(raster(number, size=(size, size), names=("B02", "B03")))
    return Batch([replace(sample, target=torch.tensor(number))], [number], [], [])


def test_a_batch_is_no_larger_than_it_may_be_or_one_sample() -> None:
    singles = [batch_of(number, 20 if number == 3 else 4) for number in range(8)]
    singles.insert(2, Batch([], [], [Skipped(Path("broken.tif"), "it is broken")], []))
    groups = list(Grouped(singles, 9, size=100))
    assert [batch.inputs for batch in groups] == [[0, 1, 2], [3], [4, 5, 6], [7]]
    assert [batch.size for batch in groups] == [96, 800, 96, 32] and [batch.read for batch in groups] == [4, 1, 3, 1]
    assert groups[0].skipped == singles[2].skipped
    assert [int(sample.target) for sample in groups[2].samples] == [4, 5, 6]
    (nothing,) = Grouped([Batch([], [], [], [])], 0)
    assert not nothing.samples and not nothing.read


def test_positions_count_as_well() -> None:
    (batch,) = evaluation_loader(EvaluationSamples(made("sen1floods11", size=16, length=1)), lambda *arguments: None, 0)
    values = sum(part.values.numel() for part in batch.samples[0].atoms)
    assert batch.size == values + 256


def test_the_first_samples_are_drawn_with_their_own_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    from atomizer_io.figures import samples
    from atomizer_io.training.callbacks import Figures
    from atomizer_io.training.task import Task

    dataset = made("sen1floods11", size=16, length=5)
    model = model_for(dataset, "atomizer_io_tiny", **ATOMIZER)
    loader = evaluation_loader(EvaluationSamples(dataset), model.preparer(), 0)
    drawn: list[Any] = []
    monkeypatch.setattr(samples, "save_predictions", lambda pairs, *rest: drawn.extend(pairs))
    trainer = SimpleNamespace(is_global_zero=True, should_stop=False, val_dataloaders=loader, global_step=1)
    Figures(tmp_path, 3, dataset.info).on_validation_end(trainer, Task(model, TrainingSettings(), lambda _: 1.0, 0))
    assert [sample.meta.id for sample, _ in drawn] == [dataset[number].meta.id for number in range(3)]
    for sample, logits in drawn:
        with torch.no_grad():
            (alone,) = model([sample.atoms], [sample.queries.positions])
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-5)


class Tiny(Dataset):
    """Scenes of 2 × 2 pixels."""

    info = Info("tiny", "Tiny", "classification", SENTINEL2.pick("B02"), 20.0, classes=("a", "b"))

    def find(self) -> range:
        return range(150)

    def files(self, item: int) -> tuple[Path, ...]:
        return (Path(str(item)),)

    def read(self, item: int) -> Sample:
        return of(raster(item, names=("B02",), size=(2, 2)))


def test_a_worker_may_send_more_samples_than_files_may_be_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    dataset = Tiny(tmp_path)
    model = model_for(dataset, "atomizer_io_tiny", **ATOMIZER)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (120, before[1]))
    try:
        (batch,) = evaluation_loader(EvaluationSamples(dataset), model.preparer(), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(batch) == 150

"""Batches: with workers or without, what arrives is the same, and its geometry fits the model."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import atomizer_io as aio
import data as fixtures
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.datasets.dataset import Skipped, read_items
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import Collate, EvaluationSamples, TrainingSamples, loader
from atomizer_io.training.draws import Draw
from scenes import SMALL, points


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.write("sen1floods11", tmp_path_factory.mktemp("data") / "s1f")


def batches(folder: Path, model: aio.AtomizerIO, **options) -> list[Batch]:
    return list(loader(aio.datasets.create("sen1floods11", folder), model, **options))


@pytest.fixture(scope="module")
def model() -> aio.AtomizerIO:
    torch.manual_seed(0)
    return aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2, "atoms_per_latent": 500}).eval()


def test_geometry_comes_ready(folder: Path, model: aio.AtomizerIO) -> None:
    first, second = batches(folder, model, batch_size=2)
    assert (len(first), len(second)) == (2, 1)
    with torch.no_grad():
        ready = model.predict(first.inputs)
        plain = model(
            [sample.atoms for sample in first.samples], [sample.queries.positions for sample in first.samples]
        )
    assert all(torch.equal(a, b) for a, b in zip(ready, plain, strict=True))


def test_the_geometry_of_a_grid_that_comes_again_is_kept(folder: Path, model: aio.AtomizerIO) -> None:
    (batch,) = batches(folder, model, batch_size=2, drop_last=True)
    first, second = (part.geometry for part in batch.inputs)
    assert first.center_2 is second.center_2  # chips of one event lie on the same grid, absent rows alike


def test_workers_change_nothing(folder: Path, model: aio.AtomizerIO) -> None:
    here, there = batches(folder, model), batches(folder, model, workers=2)
    assert [b.samples[0].meta for b in here] == [b.samples[0].meta for b in there]
    for a, b in zip(here, there, strict=True):
        assert torch.equal(a.samples[0].target, b.samples[0].target)
        assert torch.equal(a.inputs[0].located.latents_Mk, b.inputs[0].located.latents_Mk)
        with torch.no_grad():
            logits = [model.predict(x.inputs)[0] for x in (a, b)]
        assert torch.equal(*logits)


def test_what_cannot_be_read_travels_with_the_batch(tmp_path: Path, model: aio.AtomizerIO) -> None:
    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    (copy / "v1.1/data/flood_events/HandLabeled/S2Hand/Ghana_24858_S2Hand.tif").unlink()
    dataset = aio.datasets.create("sen1floods11", copy, on_error="skip")
    loaded = list(loader(dataset, model, workers=1))
    assert [len(batch) for batch in loaded] == [1, 0, 1]
    assert [Path(s.path).name for batch in loaded for s in batch.skipped] == ["Ghana_24858_S2Hand.tif"]


def test_each_in_order_with_workers(folder: Path) -> None:
    dataset = aio.datasets.create("sen1floods11", folder)
    assert [s.meta.id for s in read_items(dataset, workers=2)] == dataset.items
    assert [s.meta.id for s in read_items(dataset, limit=2)] == dataset.items[:2]


@pytest.mark.parametrize("name", list(fixtures.WRITERS))
def test_samples_of_every_dataset_can_be_pickled(name: str, tmp_path: Path) -> None:
    dataset = aio.datasets.create(name, fixtures.write(name, tmp_path / name))
    sample = dataset[0]
    again = pickle.loads(pickle.dumps(sample))
    assert again.meta == sample.meta and torch.equal(again.target, sample.target)
    for a, b in zip(sample.atoms, again.atoms, strict=True):
        assert a.values.dtype == b.values.dtype and a.channels == b.channels and a.date == b.date
        assert torch.equal(a.observed().nan_to_num(), b.observed().nan_to_num())


def test_workers_read_laz_after_the_main_process_did(tmp_path: Path) -> None:
    """The parallel decompressor keeps threads, which a forked worker would wait for until the end of days."""
    dataset = aio.datasets.create("fractal", fixtures.write("fractal", tmp_path / "fractal"))
    assert dataset[0].atoms.num_atoms
    loaded = list(DataLoader(dataset, batch_size=None, num_workers=1, timeout=60))
    assert len(loaded) == len(dataset)


def test_what_workers_skip_is_listed_here(tmp_path: Path) -> None:
    copy = fixtures.write("sen1floods11", tmp_path / "copy")
    (copy / "v1.1/data/flood_events/HandLabeled/S2Hand/Ghana_24858_S2Hand.tif").unlink()
    dataset = aio.datasets.create("sen1floods11", copy, on_error="skip")
    assert len([item for item in read_items(dataset, workers=1) if item]) == 2
    assert [Path(skipped.path).name for skipped in dataset.skipped] == ["Ghana_24858_S2Hand.tif"]


def cloud(*xy: tuple[float, float], queried: tuple[tuple[float, float], ...] = ()) -> Sample:
    """Points at some positions, queried at others."""
    where = torch.tensor([(*position, 1.0) for position in xy], dtype=torch.float64)
    ones = torch.ones(len(xy), dtype=torch.long)
    atoms = aio.AtomSet.from_points(where, ones, ones, torch.ones(len(xy)))
    return Sample.of_points(
        atoms, torch.tensor(queried).reshape(-1, 2), torch.zeros(len(queried), dtype=int), Meta("c")
    )


def test_a_sample_without_queries_is_skipped() -> None:
    samples = [cloud((0, 0), (9, 9)), cloud((0, 0), (9, 9), queried=((1.0, 1.0),))]
    items = [TrainingSamples(samples, TrainingSettings(), 0)[Draw(i, 0, 0, 0)][0] for i in range(2)]
    assert isinstance(items[0], Skipped) and items[0].path == "c" and "there is no query" in items[0].cause
    assert isinstance(items[1], Sample)
    assert [isinstance(EvaluationSamples(samples)[i][0], Skipped) for i in range(2)] == [True, False]


def test_an_empty_crop_is_drawn_again() -> None:
    corners = ((0.0, 0.0), (100.0, 0.0), (0.0, 100.0), (100.0, 100.0))
    centre = (50.0, 50.0)
    sparse = cloud(*corners, centre, queried=(*corners, centre))
    drawn = TrainingSamples([sparse], TrainingSettings(crop_m=45.0), 0)
    items = [drawn[Draw(0, epoch, 0, 0)][0] for epoch in range(20)]
    assert all(item.atoms.num_atoms and len(item.queries) for item in items)
    lonely = TrainingSamples([sparse], TrainingSettings(crop_m=0.01), 0)[Draw(0, 0, 0, 0)][0]
    assert isinstance(lonely, Skipped) and "no measurement" in lonely.cause


def test_points_of_the_context_are_drawn_anew_in_each_epoch_and_alike_in_each_evaluation() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL, max_points=40).eval()
    atoms = points(3)
    places = atoms.acquisitions[0].positions
    sample = Sample.of_points(atoms, places, torch.zeros(150, dtype=int), Meta("p"), {0: torch.arange(150)})
    gather, drawn = (
        Collate(model.preparer(), [model.training_cost()], 0),
        TrainingSamples([sample], TrainingSettings(), 0),
    )

    def context(batch: Batch) -> set[int]:
        return set(batch.inputs[0].geometry.cells[0].site_N.tolist())

    epochs = [context(gather([drawn[Draw(0, epoch, 0, 0)]])) for epoch in (0, 1, 0)]
    assert epochs[0] != epochs[1] and epochs[0] == epochs[2] and len(epochs[0]) == 40
    show = Collate(model.preparer())
    batches = [show([EvaluationSamples([sample])[0]]) for _ in range(2)]
    assert context(batches[0]) == context(batches[1])
    with torch.no_grad():  # as a prediction does it
        alone = model([atoms], [places], sites=[{0: torch.arange(150)}])[0]
        assert torch.equal(batches[0].outputs(model), alone)

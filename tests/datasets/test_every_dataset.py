"""What holds for every published dataset, on its small copy: workers get a copy that reads the same, models take it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import atomizer_io as aio
import data as fixtures
from atomizer_io.datasets import Dataset

OPTIONS = {
    "biomassters": {"months": (8, 9)},
    "cashew": {"size": 40, "dates": 2},
    "forestnet": {"images": "all", "labels": "merged"},
    "pastis-r": {"dates": 2},
    "xview2": {"size": 64},
}


@pytest.fixture(scope="module", params=fixtures.WRITERS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder: Path = fixtures.write(request.param, tmp_path_factory.mktemp("data") / "copy")
    return aio.datasets.create(request.param, folder, **OPTIONS.get(request.param, {}))


def test_a_copy_for_a_worker_is_small_and_reads_the_same(dataset: Dataset) -> None:
    sample = dataset[0]
    data = pickle.dumps(dataset)
    assert len(data) < 100_000, "and holds no values"
    copy = pickle.loads(data)
    again = copy[0]
    assert len(copy) == len(dataset) and again.meta == sample.meta and copy.info == dataset.info
    assert torch.equal(again.target.nan_to_num(), sample.target.nan_to_num())
    for one, two in zip(again.atoms, sample.atoms, strict=True):
        assert torch.equal(one.observed().nan_to_num(), two.observed().nan_to_num())


def test_a_sample_names_its_files_dates_and_channels(dataset: Dataset) -> None:
    sample = dataset[0]
    assert sample.meta.files == tuple(map(str, dataset.files(dataset.items[0])))
    assert set(sample.meta.dates) == {a.date for a in sample.atoms if a.date is not None}
    known = {(channel.sensor, channel.name) for channel in dataset.channels}
    assert {(channel.sensor, channel.name) for channel in sample.atoms.channels} <= known


@torch.no_grad()
def test_a_model_takes_a_sample(dataset: Dataset) -> None:
    info, sample = dataset.info, dataset[0]
    dense = sample.queries is not None
    task = info.task if dense or info.classes else "scene_regression"
    named = {"task": task, "num_outputs": info.num_outputs, "channels": dataset.channels, "temporal": info.temporal}
    model = aio.create_model("atomizer_io_tiny", extent_m=info.extent_m, **named).eval()
    if not dense:
        outputs = model([sample.atoms])
        assert outputs.shape == (1, info.num_outputs) and bool(outputs.isfinite().all())
        return
    sites = [{number: of[:50] for number, of in sample.queries.sites.items()}]
    (outputs,) = model([sample.atoms], [sample.queries.positions[:50]], sites=sites)
    assert outputs.shape == (50, info.num_outputs) and bool(outputs.isfinite().all())

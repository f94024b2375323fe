"""What a training takes from its data: statistics and dates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.datasets import Meta, Sample
from atomizer_io.datasets.dataset import Info
from atomizer_io.sensors import SENTINEL1, SENTINEL2
from atomizer_io.training import config
from atomizer_io.training.build import FEW_VALUES, Looked, build, look, notes_of, started
from scenes import SMALL, raster

RUN = {"data": {"name": "made-up"}, "model": {"preset": "atomizer_io_tiny", "settings": {"width": 24, "depth": 1}}}
SIZE = (40, 40)  # more values than a few


def sample(atoms: aio.AtomSet, size: tuple[int, int] = SIZE) -> Sample:
    return Sample.of_map(atoms, aio.Grid(*size, 10.0), np.zeros(size, int), Meta("a"))


class InMemory(list):
    """Samples as a dataset; ``info`` has the channels with what is published of them."""

    def __init__(self, *samples: Sample) -> None:
        super().__init__(samples)
        self.channels = SENTINEL1.pick("VV", "VH") + SENTINEL2.channels
        self.info = Info("made-up", "Made up", "segmentation", self.channels, 400.0, classes=("dry", "wet"))


def settings(**data: object) -> config.Run:
    return config.parse({**RUN, "data": {**RUN["data"], **data}})


def shifted(spreads: float, seed: int = 1, size: tuple[int, int] = SIZE, day: int = 100) -> Sample:
    """A sample whose B02 is by so many published spreads above the published mean."""
    (acquisition,) = raster(seed, size=size, day=day)
    values = acquisition.values.clone()
    values[:, 0] += spreads * acquisition.channels[0].std
    return sample(aio.AtomSet((replace(acquisition, values=values),)), size)


def statistics_of(model: aio.AtomizerIO, name: str) -> tuple[float, float]:
    channel = next(channel for channel in model.problem.channels if channel.name == name)
    return channel.mean, channel.std


def made(run: config.Run, *samples: Sample) -> tuple[aio.AtomizerIO, Looked, list[str]]:
    data = InMemory(*samples)
    looked = look(run, data)
    return build(run, data, looked), looked, notes_of(run, data, looked)


def test_statistics_of_the_training_data_by_setting() -> None:
    published = SENTINEL2.pick("B02")[0]
    own = shifted(5.0).atoms.acquisitions[0].values[:, 0]
    model, _, notes = made(settings(statistics="measured"), shifted(5.0))
    assert statistics_of(model, "B02") == pytest.approx((float(own.mean()), float(own.std(correction=0))))
    assert len(notes) == 3 and "the measured ones are used" in notes[2]
    assert (
        f"sentinel2 B02 {own.mean():.4g}" in notes[2]
        and f"{published.mean:.4g} ± {published.std:.3g} published" in notes[2]
    )
    assert "B03" not in notes[2]


def test_published_statistics_by_default_and_where_little_was_measured(tmp_path: Path) -> None:
    published = SENTINEL2.pick("B02")[0]
    model, _, notes = made(settings(), shifted(5.0))
    assert statistics_of(model, "B02") == (published.mean, published.std) and "data.statistics=measured" in notes[-1]
    few = shifted(5.0, size=(9, 9))
    assert few.atoms.num_atoms / 3 < FEW_VALUES
    model, looked, _ = made(settings(statistics="measured"), few)
    assert statistics_of(model, "B02") == (published.mean, published.std)
    looked.statistics.save(tmp_path / "own.json")
    model, looked, _ = made(settings(statistics=str(tmp_path / "own.json")), few)
    assert statistics_of(model, "B02")[0] == pytest.approx(float(few.atoms.acquisitions[0].values[:, 0].mean()))


def test_statistics_that_agree_need_no_note() -> None:
    _, _, notes = made(settings(), shifted(0.0), shifted(0.0, seed=2, day=200))
    assert not [note for note in notes if "far apart" in note]


def test_dates_are_used_if_there_are_several() -> None:
    one, _, notes = made(settings(), shifted(0.0), shifted(0.0, seed=2))
    assert not one.problem.dates and "all training samples are of one day of the year, so dates are not used" in notes
    several, _, notes = made(settings(), shifted(0.0), shifted(0.0, seed=2, day=101))
    assert several.problem.dates and not [note for note in notes if "date" in note]
    radar = raster(3, SENTINEL1, ("VV", "VH"), size=SIZE, day=101)
    each, _, notes = made(settings(), sample(raster(1, size=SIZE) + radar))
    assert not each.problem.dates and "all training samples of a sensor are of one day" in " ".join(notes)
    undated, _, notes = made(settings(), sample(raster(1, size=SIZE, day=None)))
    assert not undated.problem.dates and not [note for note in notes if "date" in note]


def test_a_model_without_dates_gives_the_same_on_any_day(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL, dates=False).eval()
    where = [aio.Grid(9, 7, 10.0).positions()]
    answers = [model([raster(1, day=day)], where)[0] for day in (1, 200, None)]
    assert torch.equal(answers[0], answers[1]) and torch.equal(answers[0], answers[2])
    model.save_pretrained(tmp_path)
    assert not aio.AtomizerIO.from_pretrained(tmp_path).problem.dates
    again = started(str(tmp_path), dates=True).eval()
    assert again.problem.dates and not torch.equal(again([raster(1)], where)[0], answers[0])
    assert not started(str(tmp_path), dates=False).problem.dates

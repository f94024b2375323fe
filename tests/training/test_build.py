"""What a training takes from its data: statistics and dates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sensors import LIDAR, SENTINEL1, SENTINEL2
from atomizer_io.datasets import Meta, Sample
from atomizer_io.datasets.dataset import Info, Skipped
from atomizer_io.errors import AtomizerError, UnknownChannelError
from atomizer_io.models.base import Cost
from atomizer_io.training import config
from atomizer_io.training.build import FEW_VALUES, Inspection, build, costs_of, inspect, notes_of
from atomizer_io.training.evaluate import compare
from scenes import SMALL, points, raster

RUN = {"data": {"name": "synthetic"}, "model": {"preset": "atomizer_io_tiny", "settings": {"width": 24, "depth": 1}}}
SIZE = (40, 40)  # more values than a few


def sample(atoms: aio.AtomSet, size: tuple[int, int] = SIZE) -> Sample:
    return Sample.of_map(atoms, aio.Grid(*size, 10.0), np.zeros(size, int), Meta("a"))


class InMemory(list):
    """Samples as a dataset; ``info`` has the channels with what is published of them."""

    split = "test"

    def __init__(self, *samples: Sample) -> None:
        super().__init__(samples)
        self.channels = SENTINEL1.pick("VV", "VH") + SENTINEL2.channels
        self.info = Info("synthetic", "Synthetic", "segmentation", self.channels, 400.0, classes=("dry", "wet"))


def settings(**data: object) -> config.Run:
    return config.parse({**RUN, "data": {**RUN["data"], **data}})


def shifted(spreads: float, seed: int = 1, size: tuple[int, int] = SIZE, day: int = 100) -> Sample:
    """A sample whose B02 is by so many published spreads above the published mean."""
    (acquisition,) = raster(seed, size=size, day=day)
    values = acquisition.values.clone()
    values[:, 0] += spreads * acquisition.channels[0].std
    return sample(aio.AtomSet((replace(acquisition, values=values),)), size)


def statistics_of(model: aio.AtomizerIO, name: str) -> tuple[float, float]:
    channel = next(channel for channel in model.task_spec.channels if channel.name == name)
    return channel.mean, channel.std


def made(run: config.Run, *samples: Sample) -> tuple[aio.AtomizerIO, Inspection, list[str]]:
    data = InMemory(*samples)
    looked = inspect(run, data)
    return build(run, data, looked)[0], looked, notes_of(run, data, looked)


def test_statistics_of_the_training_data_by_setting() -> None:
    published = SENTINEL2.pick("B02")[0]
    own = shifted(5.0).atoms.acquisitions[0].values[:, 0]
    model, _, notes = made(settings(statistics="measured"), shifted(5.0))
    assert statistics_of(model, "B02") == pytest.approx((float(own.mean()), float(own.std(correction=0))))
    assert len(notes) == 3 and "the measured ones are used" in notes[2]
    assert "statistics of 1 of 3 channels are far apart" in notes[2]
    assert f"sentinel2 B02 ({own.mean():.4g} ± " in notes[2]
    assert f"published {published.mean:.4g} ± {published.std:.3g})" in notes[2]
    assert "B03" not in notes[2] and len(notes[2]) < 300


def test_the_note_on_statistics_is_short_however_many_channels_differ() -> None:
    atoms = raster(1, SENTINEL2, SENTINEL2.names, size=SIZE)
    far = [replace(part, values=part.values * 30) for part in atoms.acquisitions]
    _, _, notes = made(settings(statistics="measured"), sample(type(atoms)(tuple(far))))
    (note,) = [note for note in notes if "far apart" in note]
    assert f"of {len(SENTINEL2.channels)} of {len(SENTINEL2.channels)} channels" in note and len(note) < 300


def test_published_statistics_by_choice_and_where_little_was_measured(tmp_path: Path) -> None:
    published = SENTINEL2.pick("B02")[0]
    model, _, notes = made(settings(statistics="published"), shifted(5.0))
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
    assert not one.task_spec.dates and "all training samples are of one day of the year, so dates are not used" in notes
    several, _, notes = made(settings(), shifted(0.0), shifted(0.0, seed=2, day=101))
    assert several.task_spec.dates and not [note for note in notes if "date" in note]
    radar = raster(3, SENTINEL1, ("VV", "VH"), size=SIZE, day=101)
    paired, _, notes = made(settings(), sample(raster(1, size=SIZE) + radar))
    assert not paired.task_spec.dates and "all training samples of a sensor are of one day" in " ".join(notes)
    undated, _, notes = made(settings(), sample(raster(1, size=SIZE, day=None)))
    assert not undated.task_spec.dates and not [note for note in notes if "date" in note]


def test_a_model_without_dates_gives_the_same_on_any_day(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **SMALL, dates=False).eval()
    where = [aio.Grid(9, 7, 10.0).positions()]
    logits = [model([raster(1, day=day)], where)[0] for day in (1, 200, None)]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
    model.save_pretrained(tmp_path)
    assert not aio.AtomizerIO.from_pretrained(tmp_path).task_spec.dates
    start = config.parse({"data": {"name": "synthetic"}, "model": {"checkpoint": str(tmp_path)}})
    two_days, one_day = (
        inspect(start, InMemory(*(shifted(0.0, seed=day, day=day) for day in days))) for days in ((100, 200), (100,))
    )
    data = InMemory()
    again = build(start, data, two_days)[0].eval()
    assert again.task_spec.dates and not torch.equal(again([raster(1)], where)[0], logits[0])
    assert not build(start, data, one_day)[0].task_spec.dates


def test_a_model_knows_whether_it_was_ever_shown_less_than_all_channels(tmp_path: Path) -> None:
    radar = raster(3, SENTINEL1, ("VV", "VH"), size=SIZE)
    both, optical = sample(raster(1, size=SIZE) + radar), sample(raster(1, size=SIZE))
    fewer = sample(raster(1, names=("B02", "B03"), size=SIZE) + radar)
    (bands,) = raster(1, size=SIZE)
    valid = torch.ones_like(bands.values, dtype=torch.bool)
    valid[:, 2] = False
    empty = sample(aio.AtomSet((replace(bands, valid=valid),)) + radar)  # a band without a value is absent
    whole, _, _ = made(settings(), both, both)
    assert whole.task_spec.complete
    unet = {**RUN, "model": {"preset": "unet_small"}}
    assert not made(config.parse(unet), optical)[0].task_spec.complete  # it has inputs for radar, which no sample has
    for second in (optical, fewer, empty):
        assert not made(settings(), both, second)[0].task_spec.complete
    draws = {"training": {"channel_dropout": {"scheme": "sensors"}}}
    assert not made(config.parse({**RUN, **draws}), both)[0].task_spec.complete
    whole.save_pretrained(tmp_path)
    saved = {"data": {"name": "synthetic"}, "model": {"checkpoint": str(tmp_path)}}
    assert made(config.parse(saved), both)[0].task_spec.complete
    assert not made(config.parse(saved), optical)[0].task_spec.complete
    assert not made(config.parse({**saved, **draws}), both)[0].task_spec.complete


@pytest.mark.parametrize(
    ("preset", "complete"), [("atomizer_io_tiny", True), ("unet_small", True), ("atomizer_io_tiny", False)]
)
def test_channels_that_a_model_never_did_without_are_warned_of_before_scoring(preset: str, complete: bool) -> None:
    seen = SENTINEL2.pick("B02", "B03", "B11")
    data = InMemory(sample(raster(1, names=("B02", "B03", "B11"), size=SIZE)))
    data.channels = seen
    model = aio.create_model(preset, channels=seen, complete=complete)
    compare(model, data)
    if complete:
        gone = (
            r"channels no-swir: 1 of the 3 channels that each training sample had are missing: sentinel2 B11; the model"
        )
        with pytest.warns(UserWarning, match=gone):
            compare(model, data, ("all", "no-swir"))
    else:
        compare(model, data, ("all", "no-swir"))


def cloud(seed: int, without: tuple[str, ...] = ()) -> Sample:
    (part,) = points(seed)
    fields = {name: values for name, values in part.site_fields.items() if name not in without}
    return sample(aio.AtomSet((replace(part, site_fields=fields),)))


def test_a_model_knows_which_fields_of_points_it_was_always_shown(tmp_path: Path) -> None:
    every, echo = ("echo_before", "echo_after", "intensity"), ("echo_before", "echo_after")
    whole, _, _ = made(settings(), cloud(1), cloud(2))
    assert whole.task_spec.complete_fields == every and whole.task_spec.thinning == 1
    assert made(settings(), cloud(1), cloud(2, echo))[0].task_spec.complete_fields == ("intensity",)
    assert not made(settings(), sample(raster(1, size=SIZE)))[0].task_spec.complete_fields
    draws = {"training": {"point_augmentation": {"field_dropout": 0.3, "thinning": 0.1}}}
    dropped = made(config.parse({**RUN, **draws}), cloud(1))[0].task_spec
    assert not dropped.complete_fields and dropped.thinning == 0.1
    whole.save_pretrained(tmp_path)
    saved = {"data": {"name": "synthetic"}, "model": {"checkpoint": str(tmp_path)}}
    assert made(config.parse(saved), cloud(3))[0].task_spec.complete_fields == every
    assert made(config.parse(saved), cloud(3, ("intensity",)))[0].task_spec.complete_fields == echo
    again = made(config.parse({**saved, **draws}), cloud(3))[0].task_spec
    assert not again.complete_fields and again.thinning == 0.1


@pytest.mark.parametrize("lost", ["absent", "unknown", "constant", "in one file"])
def test_fields_of_points_that_a_model_never_did_without_are_warned_of_before_scoring(lost: str) -> None:
    good, (part,) = cloud(1), cloud(1).atoms
    values = torch.full_like(part.site_fields["echo_before"], 0.0 if lost == "constant" else torch.nan)
    echo = dict.fromkeys(("echo_before", "echo_after"), values)
    bad = cloud(1, (*echo,))
    if lost in ("unknown", "constant"):
        bad = sample(aio.AtomSet((replace(part, site_fields={**part.site_fields, **echo}),)))
    data = InMemory(good, good)
    data.channels = LIDAR.channels
    known = {"channels": LIDAR.channels, "class_names": ("dry", "wet")}
    model = aio.create_model("atomizer_io_tiny", **known, complete_fields=("echo_before", "echo_after", "intensity"))
    compare(model, data)
    data[:] = [good, bad] if lost == "in one file" else [bad, bad]
    with pytest.warns(UserWarning, match=r"split test: number_of_returns of points is missing or the same in all"):
        compare(model, data)
    compare(aio.create_model("atomizer_io_tiny", **known), data)  # trained before this was known, or with dropout


@pytest.mark.parametrize(
    ("task_spec", "message"),
    [
        ({"task": "regression", "num_outputs": 1}, "the task of the model is regression, that of synthetic is segm"),
        ({"task": "classification"}, "the task of the model is classification, that of synthetic is segmentation"),
        ({"num_outputs": 3}, "the model has 3 outputs, synthetic has 2 classes"),
        ({"class_names": ("wet", "dry")}, "the model knows the classes wet, dry; synthetic has dry, wet"),
    ],
)
def test_data_of_another_task_are_refused(task_spec: dict, message: str, tmp_path: Path) -> None:
    model = aio.create_model("atomizer_io_tiny", width=24, depth=1, **task_spec)
    model.save_pretrained(tmp_path)
    with pytest.raises(AtomizerError, match=message):
        compare(model, InMemory(shifted(0.0)))


def test_a_saved_model_keeps_its_settings_and_takes_the_cost_of_the_run(tmp_path: Path) -> None:
    aio.create_model("atomizer_io_tiny", width=24, depth=1).save_pretrained(tmp_path)
    plain = {"model": {"checkpoint": str(tmp_path)}, "training": {"configurations": [[100, 20], [300, 40]]}}
    model, _, _ = made(config.parse({"data": {"name": "synthetic"}, **plain}), shifted(0.0))
    assert model.config.atoms_per_latent == 300


def test_channels_without_an_input_are_refused_before_scoring(tmp_path: Path) -> None:
    model = aio.create_model("unet_small", channels=SENTINEL2.pick("B02", "B03"))
    data = InMemory(sample(raster(1, names=("B02", "B03", "B11"), size=SIZE)))
    with pytest.raises(UnknownChannelError, match="no input for sentinel2 B11 of synthetic"):
        compare(model, data)
    compare(model, data, ("no-swir", "B02"))
    with pytest.raises(UnknownChannelError, match="no input for sentinel2 B11 of synthetic"):
        compare(model, data, ("no-swir", "all"))
    model.save_pretrained(tmp_path)
    with pytest.raises(UnknownChannelError, match="no input for sentinel2 B11 of synthetic"):
        made(config.parse({"data": {"name": "synthetic"}, "model": {"checkpoint": str(tmp_path)}}), *data)


def test_a_fixed_input_for_every_published_channel() -> None:
    run = config.parse({"data": {"name": "synthetic"}, "model": {"preset": "unet_small"}})
    model, looked, _ = made(run, shifted(0.0))
    assert len(looked.statistics.channels) == 3 and len(model.task_spec.channels) == 15
    rare = raster(1, SENTINEL1, ("VV", "VH"), size=SIZE)
    assert len(model([rare], [aio.Grid(*SIZE, 10.0).positions()])[0]) == 1600
    assert len(made(settings(), shifted(0.0))[0].task_spec.channels) == 3


def test_unreadable_first_samples_do_not_matter() -> None:
    data = InMemory(*[Skipped("a", "broken")] * 20, shifted(0.0))
    looked = inspect(settings(), data)
    assert build(settings(), data, looked)[0].task_spec.task == "segmentation"


def test_the_points_of_the_context_are_those_of_the_model() -> None:
    document = {**RUN, "model": {"preset": "atomizer_io_tiny", "settings": {"max_points": 700, "budget": 90}}}
    model, _, _ = made(config.parse(document), shifted(0.0))
    assert costs_of(config.parse(document), model) == [Cost(budget=90, max_points=700)]
    several = config.parse({**document, "training": {"configurations": [[100, 20], [300, 40]]}})
    assert costs_of(several, model) == [Cost(100, 20, max_points=700), Cost(300, 40, max_points=700)]
    assert made(several, shifted(0.0))[0].config.max_points == 700


def test_the_time_steps_of_the_data_are_known_to_the_model() -> None:
    def at(step: int | None) -> Sample:
        (acquisition,) = shifted(0.0).atoms
        return sample(aio.AtomSet((replace(acquisition, timestep=step),)))

    assert made(settings(), at(7), at(1), at(10), at(7))[0].task_spec.timesteps == (1, 7, 10)
    assert made(settings(), at(None))[0].task_spec.timesteps == ()


def test_a_model_without_cells_trains_at_its_own_cost() -> None:
    """The m of a configuration is of a cell: as a budget for a whole scene it would leave next to nothing."""
    built = {"preset": "perceiver_io_small", "settings": {"budget": 5000}}
    run = config.parse({**RUN, "model": built, "training": {"configurations": [[100, 20], [300, 40]]}})
    model, _, _ = made(run, shifted(0.0))
    assert costs_of(run, model) == [Cost(budget=5000)] and model.settings()["budget"] == 5000

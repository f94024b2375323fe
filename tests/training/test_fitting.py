"""What a run leaves to the data: crops of large samples, how often these are drawn, and samples of a batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import yaml

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample, queries_at
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.summary import Summary
from atomizer_io.errors import ConfigError
from atomizer_io.models.registry import create_model
from atomizer_io.training import config
from atomizer_io.training.build import CROP_ATOMS, fitted
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.data import CACHE_BYTES, TrainingSamples, bytes_of
from atomizer_io.training.draws import Draw
from atomizer_io.training.run import train
from atomizer_io.training.task import Task
from scenes import points


def scene(size: int, channels: int = 4, gsd: float = 10.0) -> Sample:
    names = SENTINEL2.channels[:channels]
    atoms = aio.AtomSet.from_raster(torch.ones(channels, size, size), names, gsd)
    return sample_of(atoms)


def sample_of(atoms: aio.AtomSet) -> Sample:
    queries = queries_at(next(iter(atoms)).positions[::7])
    return Sample(atoms, torch.zeros(len(queries), dtype=torch.long), queries, Meta("a"))


def fit(
    *samples: Sample, preset: str = "atomizer_io_tiny", task: str = "segmentation", **training
) -> config.TrainingSettings:
    seen = Summary()
    for sample in samples:
        seen.add(sample)
    model = create_model(preset, task_spec=TaskSpec(task, 2, channels=SENTINEL2.pick("B04")))
    return fitted(config.parse({"training": training}), seen, model).training


@pytest.mark.parametrize(("size", "channels", "gsd"), [(500, 4, 10.0), (300, 13, 10.0), (400, 4, 0.5), (300, 4, 30.0)])
def test_large_scenes_are_cut_to_crops_of_about_as_many_measurements(size: int, channels: int, gsd: float) -> None:
    t = fit(scene(size, channels, gsd))
    assert isinstance(t.crop_m, float) and t.crop_m / gsd % 4 == 0
    pixels = round(t.crop_m / gsd)
    assert 0.85 * CROP_ATOMS < pixels**2 * channels < 1.15 * CROP_ATOMS
    assert t.repeat == round((size / pixels) ** 2)  # an epoch sees about all of a scene


@pytest.mark.parametrize(("preset", "pixels"), [("universat_small", 16), ("perceiver_io_small", 8)])
def test_a_model_may_name_the_crops_that_suit_it(preset: str, pixels: int) -> None:
    seen = Summary()
    seen.add(scene(200))
    task_spec = TaskSpec("segmentation", 2, channels=SENTINEL2.pick("B04"), pixel_m=10.0)
    own = fitted(config.parse({}), seen, create_model(preset, task_spec=task_spec)).training
    assert own.crop_m == 10.0 * pixels and own.repeat == 64
    chosen = fitted(config.parse({"training": {"crop_m": 320.0}}), seen, create_model(preset, task_spec=task_spec))
    assert chosen.training.crop_m == 320.0
    for size, side_m in ((40, 10.0 * pixels), (pixels, None)):  # few measurements are cut as well, a crop is not
        few = Summary()
        few.add(scene(size))
        assert fitted(config.parse({}), few, create_model(preset, task_spec=task_spec)).training.crop_m == side_m


@pytest.mark.parametrize("preset", ["atomizer_io_tiny", "resnet_small", "universat_small", "perceiver_io_small"])
def test_a_scene_that_with_one_label_is_not_cut(preset: str) -> None:
    t = fit(scene(500), preset=preset, task="classification")
    assert (t.crop_m, t.repeat) == (None, 1)
    assert fit(scene(500), preset=preset, task="classification", crop_m=640.0).crop_m == 640.0


@pytest.mark.parametrize(("preset", "pixels"), [("resnet_small", 128), ("unet_small", 128), ("ramen_small", 64)])
def test_models_of_images_get_the_room_they_need_and_all_queries(preset: str, pixels: int) -> None:
    t = fit(scene(500, channels=13), preset=preset)
    assert (t.crop_m, t.queries) == (10.0 * pixels, None)
    assert t.repeat == round((500 / pixels) ** 2)
    narrow = fit(
        sample_of(aio.AtomSet.from_raster(torch.ones(4, 40, 5000), SENTINEL2.channels[:4], 10.0)), preset=preset
    )
    assert narrow.crop_m == 400.0  # there is no more room
    assert fit(scene(500), preset=preset, queries=50).queries == 50


def test_models_that_decode_one_by_one_get_some_positions() -> None:
    assert fit(scene(500)).queries == fit(scene(500), preset="perceiver_io_small").queries == 250


def test_small_scenes_stay_whole() -> None:
    t = fit(scene(100), scene(90))
    assert (t.crop_m, t.repeat) == (None, 1)


def test_a_square_is_no_wider_than_the_narrowest_scene() -> None:
    wide = aio.AtomSet.from_raster(torch.ones(4, 40, 5000), SENTINEL2.channels[:4], 10.0)
    t = fit(sample_of(wide))
    assert t.crop_m == 400.0


def test_clouds_stay_whole_as_their_windows_are_chosen_by_the_dataset() -> None:
    t = fit(sample_of(points(0, count=200_000)))
    assert (t.crop_m, t.repeat) == (None, 1)


@pytest.mark.parametrize(("size", "batch"), [(500, 4), (85, 4), (40, 20), (5, 64)])
def test_more_small_samples_come_into_a_batch(size: int, batch: int) -> None:
    assert fit(scene(size)).batch_size == batch


def test_what_the_settings_say_stands() -> None:
    t = fit(scene(500), crop_m=160.0, repeat=3, batch_size=2)
    assert (t.crop_m, t.repeat, t.batch_size) == (160.0, 3, 2)
    whole = fit(scene(500), crop_m=None)
    assert (whole.crop_m, whole.repeat) == (None, 1)


def test_a_run_writes_what_was_filled_in_beside_its_settings(tmp_path: Path) -> None:
    data = {"name": "synthetic", "options": {"like": "sen1floods11", "size": 100, "length": 2}, "val": None}
    run = config.parse(
        {
            "data": {**data, "test": None, "workers": 0},
            "model": {"preset": "atomizer_io_tiny"},
            "training": {"max_steps": 1, "queries": 50, "loggers": []},
            "output": str(tmp_path),
        }
    )
    train(run, progress=False)
    chosen = yaml.safe_load((tmp_path / "synthetic" / "config.yaml").read_text())["training"]
    assert (chosen["crop_m"], chosen["repeat"]) == ("auto", None)
    written = yaml.safe_load((tmp_path / "synthetic" / "derived.yaml").read_text())["training"]
    assert 400 < written["crop_m"] < 520 and written["repeat"] == round((1000 / written["crop_m"]) ** 2)


class Counted:
    """A dataset that counts how often a sample is read."""

    def __init__(self, sample: Sample) -> None:
        self.sample, self.read = sample, 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Sample:
        self.read += 1
        return self.sample


@pytest.mark.parametrize(("keep", "read"), [(None, 3), (0, 6), (2, 4)])
def test_samples_that_fit_are_read_once(keep: int | None, read: int) -> None:
    data = Counted(scene(20))
    settings = dataclasses.replace(config.TrainingSettings(), crop_m=None)
    drawn = TrainingSamples(data, settings, 0, keep)  # type: ignore[arg-type]
    for index in (0, 1, 2, 0, 1, 2):
        drawn[Draw(index, 0, 0, 0)]
    assert data.read == read


def test_samples_that_do_not_fit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = scene(20)
    assert 400 * (4 * 4 + 16) <= bytes_of(sample) <= CACHE_BYTES
    data = Counted(sample)
    drawn = TrainingSamples(data, dataclasses.replace(config.TrainingSettings(), crop_m=None), 0, None)  # type: ignore[arg-type]
    drawn.room = 2 * bytes_of(sample)
    for index in (0, 1, 2, 0, 1, 2):
        drawn[Draw(index, 0, 0, 0)]
    assert data.read == 4


def test_a_state_with_two_learning_rates_is_refused() -> None:
    model = create_model("atomizer_io_tiny", task_spec=TaskSpec("segmentation", 2, channels=SENTINEL2.pick("B04")))
    task = Task(model, TrainingSettings(), lambda step: 1.0, 0)
    optimizer = task.configure_optimizers()["optimizer"].state_dict()
    task.on_load_checkpoint({"optimizer_states": [optimizer], "state_dict": task.state_dict()})
    optimizer["param_groups"] *= 2  # as earlier versions had them after a warm start
    with pytest.raises(ConfigError, match="earlier version"):
        task.on_load_checkpoint({"optimizer_states": [optimizer], "state_dict": task.state_dict()})

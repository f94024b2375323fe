"""Trainings that begin from a saved model: what is taken over, new or frozen, and that they resume exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import atomizer_io as aio
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL2, Sensor
from atomizer_io.datasets.dataset import Info
from atomizer_io.errors import ConfigError
from atomizer_io.training import config, task
from atomizer_io.training.build import build, initialise, inspect
from atomizer_io.training.optimizer import parameter_groups
from atomizer_io.training.run import make_loaders, prepare
from atomizer_io.training.transfer import Transfer
from runs import assert_same_end, broken_off, synthetic, trained, write_floods
from scenes import SMALL, raster

RELIEF = Sensor.define("relief", gsd_m=10.0, bands={"slope": None, "elevation": None})


class Scenes(list):
    """Scenes of two dates of a sensor and a relief, each with one of three labels."""

    split = "train"

    def __init__(self, names: tuple[str, ...] = ("B02", "B11"), task: str = "classification") -> None:
        for seed in range(3):
            (relief,) = raster(seed, RELIEF.with_statistics(mean=[0.0, 0.0], std=[1.0, 1.0]), ("slope", "elevation"))
            atoms = raster(seed, names=names) + aio.AtomSet((relief,))
            self.append(Sample.of_scene(atoms, seed, Meta(str(seed))))
        self.channels = (*SENTINEL2.channels, *RELIEF.channels)
        target: dict[str, Any] = {"target_name": "biomass"} if task == "regression" else {"classes": ("a", "b", "c")}
        self.info = Info("scenes", "Scenes", task, self.channels, 100.0, **target)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    channels = [replace(channel, mean=5.0, std=2.0) for channel in SENTINEL2.pick("B02", "B03", "B04")]
    folder = tmp_path / "saved"
    aio.create_model("atomizer_io_tiny", **SMALL, channels=channels, extent_m=300.0, pixel_m=10.0).save_pretrained(
        folder
    )
    return folder


def begun(saved: Path, data: Any, **model: Any) -> tuple[aio.AtomizerIO, Transfer]:
    run = config.parse({"data": {"name": "synthetic"}, "model": {"checkpoint": str(saved), **model}})
    made, transfer = build(run, data, inspect(run, data))
    assert isinstance(made, aio.AtomizerIO)
    return made, transfer


def test_another_task_takes_over_the_body_and_gets_outputs_and_channels_of_its_own(saved: Path) -> None:
    source, (model, transfer) = aio.AtomizerIO.from_pretrained(saved), begun(saved, Scenes())
    old, new = source.state_dict(), model.state_dict()
    assert model.task_spec.task == "classification" and model.task_spec.class_names == ("a", "b", "c")
    changed = {name for name in new if name not in old or not torch.equal(old[name], new[name])}
    assert changed == {"head.linear.weight", "head.linear.bias", "tokenizer.learned"}
    names, before = model.config.learned_channels, source.config.learned_channels
    assert names == (*before, "slope")
    assert torch.equal(new["tokenizer.learned"][: len(before)], old["tokenizer.learned"])
    assert bool(new["tokenizer.learned"][-1].any())
    blue = model.task_spec.statistics()["sentinel2", "B02"]
    assert blue.mean != 5.0  # of another task: those of the data
    assert model.config.rope_scale_m == 50.0 != source.config.rope_scale_m
    text = "\n".join(transfer.lines)
    assert "new: head.linear, rows of tokenizer.learned" in text and "not used of the checkpoint: decoder" in text
    assert "sentinel2 B11 (by wavelength); relief slope, relief elevation (as new learned vectors)" in text
    assert model([Scenes()[0].atoms]).shape == (1, 3)


def test_the_same_task_keeps_its_outputs_and_statistics(saved: Path) -> None:
    data = Scenes(("B02", "B03", "B04", "B11"))
    data[:] = [Sample.of_map(s.atoms, aio.Grid(4, 4, 10.0), torch.zeros(4, 4).int().numpy(), s.meta) for s in data]
    data.info = replace(data.info, task="segmentation", classes=("a", "b", "c"), codes=(3, 1, 2))
    model, transfer = begun(saved, data)
    known = model.task_spec.statistics()
    assert (known["sentinel2", "B02"].mean, len(known), model.task_spec.codes) == (5.0, 6, (3, 1, 2))
    assert "head.linear.weight" in transfer.loaded and not transfer.fresh
    assert "new: rows of tokenizer.learned" in "\n".join(transfer.lines)


def test_new_stages_are_initialised_from_data_and_loaded_ones_stay(tmp_path: Path) -> None:
    aio.create_model("atomizer_io_tiny", **SMALL, task="classification").save_pretrained(tmp_path / "scenes")
    run = synthetic(tmp_path, network={}, max_steps=1)
    run = replace(run, model=config.ModelSettings(checkpoint=str(tmp_path / "scenes")))
    ready = prepare(run)
    before = {name: tensor.clone() for name, tensor in ready.model.state_dict().items()}
    initialise(ready.run, ready.model, make_loaders(ready.run, ready, 0, 1)[0], ready.transfer)
    after = ready.model.state_dict()
    changed = {name.split(".")[0] for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"decoder"} == ready.transfer.fresh


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"freeze": ["neck"]},
            "'neck' is no stage of atomizer_io_tiny; it has tokenizer, encoder, processor, head, and",
        ),
        ({"freeze": ["body", "head"], "settings": {"width": 48}}, r"model\.settings has width\): .* \(48,\) here and"),
        ({"settings": {"depth": 0}}, "depth"),
    ],
)
def test_what_cannot_be_taken_over_is_named(saved: Path, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        begun(saved, Scenes(), **model)


def test_nothing_to_freeze_or_to_train_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name one with model\.checkpoint"):
        config.parse({"model": {"freeze": ["body"]}})
    aio.create_model("atomizer_io_tiny", **SMALL, task="classification").save_pretrained(tmp_path / "scenes")
    dense = Scenes()
    dense[:] = [Sample.of_map(s.atoms, aio.Grid(4, 4, 10.0), torch.zeros(4, 4).int().numpy(), s.meta) for s in dense]
    dense.info = replace(dense.info, task="segmentation")
    with pytest.raises(ConfigError, match="nothing of decoder was loaded"):
        begun(tmp_path / "scenes", dense, freeze=["decoder"])


def test_the_earlier_name_is_still_read(saved: Path) -> None:
    assert config.parse({"model": {"start": str(saved)}}).model.checkpoint == str(saved)
    with pytest.raises(ConfigError, match=r"model\.start and model\.checkpoint are the same"):
        config.parse({"model": {"start": "a", "checkpoint": "b"}})


def test_rates_fall_from_layer_to_layer_for_what_was_loaded(saved: Path) -> None:
    model, transfer = begun(saved, Scenes(), freeze=["encoder"])
    training = config.TrainingSettings(learning_rate=1.0, layer_decay=0.5, sensitive_rate=1.0)
    rate = {id(p): group["lr"] for group in parameter_groups(model, training, transfer.loaded) for p in group["params"]}
    rates = {name: rate.get(id(weight)) for name, weight in model.named_parameters()}
    assert rates["head.linear.weight"] == 1.0 == rates["tokenizer.learned"]  # which has new rows
    last, first = (f"processor.blocks.{number}.attention.qkv.weight" for number in (model.config.depth - 1, 0))
    assert rates["head.norm.weight"] == 1.0 and rates[last] == 0.5 and rates["encoder.h_init"] is None
    assert rates["processor.global_latents"] == rates[first] / 2 == 0.5 ** (model.config.depth + 1)


def test_frozen_stages_stay_to_the_bit_and_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    settings = write_floods(tmp_path, epochs=2, save_every=3, learning_rate=1e-2)
    first = trained(settings, "first", "training.max_steps=1")
    options = [f"model.checkpoint={first}/best", "model.freeze=[body]", "training.layer_decay=0.8"]
    whole = trained(settings, "whole", *options)
    before, after = (load_file(folder / "last" / "model.safetensors") for folder in (first, whole))
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"head.norm.weight", "head.norm.bias", "head.linear.weight", "head.linear.bias"}
    broken_off(settings, "broken", task.Task, "training_step", 5, *options)
    assert_same_end(whole, trained(settings, "broken", *options, resume=True))

"""A model is one sealed thing: what was changed after saving is refused, and no config.json takes memory or time."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import CheckpointError
from atomizer_io.models import seal
from atomizer_io.models.registry import create_model
from atomizer_io.models.seal import digest
from atomizer_io.models.storage import seal_again, seal_at
from scenes import SMALL, forge

CHECKPOINTS = sorted(Path(__file__).parents[2].glob("results/checkpoints/*/best"))
FAMILIES = {
    "atomizer_io_tiny": SMALL,
    "perceiver_io_small": {"width": 16, "depth": 1},
    "pixels": {},
    "ramen_small": {"width": 32, "depth": 1},
    "resnet_small": {"width": 4},
    "universat_small": {"width": 96, "depth": 1},
    "unet_small": {},
    "vit_mnist_small": {},
}


def saved(folder: Path, preset: str = "atomizer_io_tiny", **settings: Any) -> Path:
    torch.manual_seed(0)
    channels = SENTINEL2.pick("B02", "B03", "B08")
    create_model(preset, channels=channels, pixel_m=10.0, extent_m=160.0, **settings).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "model", **SMALL, class_names=("dry", "wet", "bare"))


def description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def describe(folder: Path, content: Any) -> None:
    (folder / "config.json").write_text(json.dumps(content))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        aio.load_model(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)


# A hostile description


def numbers(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where numbers stand in nested settings."""
    entries = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in entries:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, name)
        yield from numbers(value, (*path, name))


def changed(values: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = json.loads(json.dumps(values))
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return result


@pytest.mark.parametrize("preset", FAMILIES)
def test_no_number_of_a_description_takes_memory_or_time(preset: str, tmp_path: Path) -> None:
    """Also where the seal is valid: it is the attacker's."""
    folder = saved(tmp_path, preset, **FAMILIES[preset])
    content = description(folder)
    parts = {"config": content["config"], "problem": {**content["problem"], "channels": []}}  # old name
    before, began, tried = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), 0
    for path in numbers(parts):
        for value in (10**9, 100_000):
            describe(folder, changed(content, path, value))
            forge(folder)
            tried += 1
            try:
                aio.load_model(folder)
            except CheckpointError as error:
                assert str(folder) in str(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert tried and grown < 200_000, f"{grown / 1e3:.0f} MB"  # kB
    assert (time.process_time() - began) / tried < 0.5


def test_a_width_and_a_depth_are_compared_with_the_weights(folder: Path) -> None:
    content = description(folder)
    describe(folder, changed(content, ("config", "width"), 10**9))
    forge(folder)
    refused(folder, "config.json does not describe a model")
    describe(folder, changed(content, ("config", "width"), 10**6))  # 4 TB a layer
    forge(folder)
    refused(folder, str(folder), "norm.bias is (24,) in model.safetensors, (1000000,) by config.json")
    describe(folder, changed(content, ("config", "depth"), 100_000))
    forge(folder)
    refused(folder, "config.json", "describes a model with more than", "tensors, but model.safetensors has 70")
    describe(folder, changed(content, ("config", "self_head_dim"), 2**62))
    forge(folder)
    with pytest.raises(CheckpointError, match=r"config\.json does not describe a model of this version: [^\n]*$"):
        aio.load_model(folder)


def test_a_tensor_of_another_type_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("norm.bias"))
    save_file({**tensors, name: tensors[name].long()}, path)
    forge(folder)
    refused(folder, f"{name} is of type I64 in model.safetensors, float32 by config.json")


@pytest.mark.parametrize("setting", ["value_max_frequency", "offset_max_frequency", "gsd_max_frequency"])
@pytest.mark.parametrize("value", ["8", None, [8], {}, True, float("nan"), -8.0, 0])
def test_what_is_no_frequency_is_refused(setting: str, value: Any, folder: Path) -> None:
    describe(folder, changed(description(folder), ("config", setting), value))
    forge(folder)
    refused(folder, "config.json", setting)


# The seal


@pytest.mark.parametrize(
    "change",
    [
        lambda content: changed(
            content, ("problem", "class_names"), content["problem"]["class_names"][::-1]
        ),  # old name
        lambda content: changed(content, ("problem", "channels", 0, "mean"), 5000),  # old name
        lambda content: {**content, "format_version": 2},
        lambda content: {**content, "comment": "harmless"},
    ],
)
def test_a_changed_description_is_refused_until_it_is_sealed_again(change: Any, folder: Path) -> None:
    before = seal_at(folder)
    describe(folder, change(description(folder)))
    refused(folder, str(folder / "config.json"), "was changed after the model was saved", f"info {folder} --seal")
    seal_again(folder)
    model = aio.load_model(folder)
    assert (seal_at(folder) != before) == (model.task_spec != saved_task_spec(folder.parent))


def saved_task_spec(folder: Path) -> Any:
    return aio.load_model(saved(folder / "again", **SMALL, class_names=("dry", "wet", "bare"))).task_spec


def test_a_renamed_checksum_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    assert raw.count(b'"checksum":"') == 1
    path.write_bytes(raw.replace(b'"checksum":"', b'"checksun":"'))
    refused(folder, "model.safetensors has lost the seal", "get the folder anew")
    save_file(load_file(path), path, metadata={"format": "pt"})
    refused(folder, "model.safetensors has lost the seal", f"atomizer info {folder} --seal")


def test_a_changed_digest_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    own = digest((folder / "config.json").read_text()).encode()
    path.write_bytes(path.read_bytes().replace(own, own[::-1]))
    refused(folder, "model.safetensors is damaged")  # the checksum covers it


def test_the_same_model_has_the_same_seal(folder: Path, tmp_path: Path) -> None:
    again = saved(tmp_path / "again", **SMALL, class_names=("dry", "wet", "bare"))
    assert seal_at(again) == seal_at(folder)
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_damaged_weights_cannot_be_sealed(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="damaged"):
        seal_again(folder)


def test_the_seal_survives_copies_line_ends_and_better_weights(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "config.json").write_bytes((copy / "config.json").read_bytes().replace(b"\n", b"\r\n"))
    aio.load_model(copy)
    assert seal_at(copy) == seal_at(folder)
    model = aio.load_model(folder)
    model.head.linear.bias.data += 1
    model.save_pretrained(tmp_path / "better")
    os.replace(tmp_path / "better" / "model.safetensors", folder / "model.safetensors")  # and then the power fails
    aio.load_model(folder)
    assert seal_at(copy) != seal_at(folder)


@pytest.mark.parametrize("best", CHECKPOINTS, ids=lambda best: best.parent.name)
def test_older_models_load_without_a_seal_and_can_get_one(best: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(best, tmp_path / "old"))
    before = aio.load_model(old)
    assert description(old)["format_version"] == 2 and seal_at(old) is None
    seal_again(old)
    after = aio.load_model(old)
    assert len(seal_at(old) or "") == 40
    assert before.settings() == after.settings() and before.task_spec == after.task_spec
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())


# Who may read it


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077], ids=oct)
def test_both_files_have_the_mode_of_new_files(mask: int, tmp_path: Path) -> None:
    old = os.umask(mask)
    try:
        saved(tmp_path / "model", **SMALL)
        seal.save({"a": torch.ones(2)}, tmp_path / "state.safetensors", {})
    finally:
        os.umask(old)
    for path in (*(tmp_path / "model").iterdir(), tmp_path / "state.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path

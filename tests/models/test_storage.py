"""Saved models: two files, complete, self-describing, and refused with a reason when they do not fit."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.errors import AtomizerError, CheckpointError
from atomizer_io.models import seal, storage
from atomizer_io.models.atomizer.config import SiteField
from scenes import SMALL, forge, queries, raster

FILES = ["README.md", "config.json", "model.safetensors"]


def small(**changes) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | changes)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    small().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, **changes) -> None:
    """Change entries of config.json and seal it; a name with two underscores goes one level down."""
    description = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        target = description[outer[0]] if outer else description
        target[last] = value
    (folder / "config.json").write_text(json.dumps(description))
    forge(folder)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Round trip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temporal": True},
        {"task": "classification"},
        {"task": "regression", "num_outputs": 1, "target_mean": 60.0, "target_std": 70.0},
        {"rope": False, "observation_conditioning": False, "budget": 32},
    ],
    ids=str,
)
def test_round_trip(changes: dict, tmp_path: Path) -> None:
    model = small(**changes)
    model.save_pretrained(tmp_path / "new" / "folder")
    loaded = aio.AtomizerIO.from_pretrained(tmp_path / "new" / "folder")
    assert loaded.config == model.config and loaded.preset == "atomizer_io_tiny"
    assert not loaded.training
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    atoms = [raster(1) + raster(2, SENTINEL1, ("VV", "VH"), (5, 4), 20.0, day=107)]
    where = [queries(1)] if model.task_spec.dense else None
    with torch.no_grad():
        for one, second in zip(model(atoms, where), loaded(atoms, where), strict=True):
            assert torch.equal(one, second)


def test_the_description_comes_back_whole(tmp_path: Path) -> None:
    channels = (*SENTINEL2.pick("B02", "B8A"), *SENTINEL1.pick("VV"))
    channels = tuple(replace(c, mean=10.0 + i, std=2.5, min=-1.0, max=9.5) for i, c in enumerate(channels))
    fields = (SiteField("height_of_flight", fourier=True, mean=3.0, std=0.25),)
    model = small(channels=channels, class_names=("eau", "sol nu", "forêt"), site_fields=fields)
    model.save_pretrained(str(tmp_path))
    loaded = aio.AtomizerIO.from_pretrained(str(tmp_path))
    assert loaded.task_spec.channels == channels
    assert loaded.task_spec.class_names == ("eau", "sol nu", "forêt")
    assert loaded.config.site_fields == fields
    assert loaded.config == model.config
    description = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert description["parameters"] == model.num_parameters
    assert description["library_version"] == aio.__version__


def test_no_file_is_a_pickle(saved: Path) -> None:
    assert listing(saved) == FILES
    model = small()
    tensors = load_file(saved / "model.safetensors")  # a reader that cannot run code
    assert tensors.keys() == model.state_dict().keys()
    raw = (saved / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header.keys() - {"__metadata__"} == tensors.keys()
    for path in saved.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, KeyError, IndexError)):
            pickle.loads(path.read_bytes())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_come_back_to_the_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    model = small().double()
    for parameter in model.parameters():  # digits that float32 does not have
        parameter.data += 1e-9 * torch.rand_like(parameter)
    model = model.to(dtype)
    model.save_pretrained(tmp_path)
    loaded = aio.AtomizerIO.from_pretrained(tmp_path)
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == dtype
        assert torch.equal(loaded.state_dict()[name], tensor), name
    with torch.no_grad():
        one, second = (m([raster(1)], [queries(1)])[0] for m in (model, loaded))
    assert one.dtype == dtype and torch.equal(one, second)


def test_stored_statistics_take_precedence(tmp_path: Path) -> None:
    stored = tuple(replace(c, mean=1000.0, std=250.0) for c in SENTINEL2.pick("B02", "B03", "B08"))
    small(channels=stored).save_pretrained(tmp_path)
    loaded = aio.AtomizerIO.from_pretrained(tmp_path)
    raw = raster(1)

    def described(mean: float | None, std: float | None) -> aio.AtomSet:
        acquisition = raw.acquisitions[0]
        channels = tuple(replace(c, mean=mean, std=std) for c in acquisition.channels)
        return aio.AtomSet((replace(acquisition, channels=channels),))

    standard = loaded.tokenizer.standardise(described(-3.0, 77.0).acquisitions[0])
    expected = (raw.acquisitions[0].values - 1000.0) / 250.0 / loaded.config.value_divisor
    torch.testing.assert_close(standard.double(), expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        own, second, none = (
            loaded([atoms], [queries(1)])[0] for atoms in (raw, described(-3.0, 77.0), described(None, None))
        )
        unaware = small()
        assert torch.equal(own, second) and torch.equal(own, none)
        assert not torch.equal(unaware([raw], [queries(1)])[0], unaware([described(0.0, 900.0)], [queries(1)])[0])


# Refusals


def refuse(folder: object, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        aio.AtomizerIO.from_pretrained(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_a_missing_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "nowhere", "config.json", "model.safetensors")
    refuse("./nowhere", "./nowhere", "owner/name")
    refuse("nowhere", "nowhere", "owner/name")


def test_a_file_instead_of_a_folder(saved: Path) -> None:
    refuse(saved / "model.safetensors", "is not a folder")


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file(name: str, saved: Path) -> None:
    (saved / name).unlink()
    refuse(saved, str(saved), f"has no {name}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 99, "library_version": "9.4.1"}, ("format version 99", "9.4.1", "reads 3")),
        (
            {"config__width": 32},
            ("different models", "norm.bias is (24,) in model.safetensors, (32,) by config.json", "more"),
        ),
        ({"config__temporal": True}, ("temporal.", "is missing")),
        ({"config__rope": False}, ("processor.angles.log_ratio is not part of this model",)),
        ({"config__widht": 24}, ("config.json", "unknown setting 'widht'", "'width'")),
        ({"problem__task": "detection"}, ("config.json", "detection")),  # old name
        ({"problem__channels": [{"sensor": "s", "name": "n", "colour": "red"}]}, ("colour",)),  # old name
        *(({"config": config}, ("config.json", "does not describe a model")) for config in (None, [], "width", 3)),
        ({"model_type": "swin"}, ("'swin' is no kind of model that is known here", "atomizer_io")),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_named(changes: dict, words: tuple[str, ...], saved: Path) -> None:
    edit(saved, **changes)
    refuse(saved, *words)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *((text, "JSON") for text in (b"", b"{", b"\xff\xfe\x00", b"width: 24")),
        *((text, "model_type") for text in (b"[]", b"3", b"{}", b'{"model_type": 3}')),
    ],
    ids=repr,
)
def test_what_is_no_description_is_named(text: bytes, word: str, saved: Path) -> None:
    (saved / "config.json").write_bytes(text)
    refuse(saved, "config.json", word)


def test_models_saved_before_the_task_had_a_place_of_its_own_are_read(saved: Path) -> None:
    """In format 1 the settings of a network held task, outputs and channels too."""
    path, model = saved / "config.json", aio.AtomizerIO.from_pretrained(saved)
    description = json.loads(path.read_text())
    task_spec = {
        key: value for key, value in description.pop("problem").items() if key not in ("fields", "extent_m")
    }  # old name
    path.write_text(json.dumps({**description, "format_version": 1, "config": {**description["config"], **task_spec}}))
    save_file(load_file(saved / "model.safetensors"), saved / "model.safetensors")
    again = aio.load_model(saved)
    assert (again.task_spec, again.config) == (model.task_spec, model.config)


def mutated(content: bytes, seed: int) -> bytes:
    """Cut short, or with some bytes changed."""
    chance = random.Random(seed)
    if seed % 4 == 0:
        return content[: chance.randrange(len(content))]
    result = bytearray(content)
    for offset in chance.sample(range(len(content)), chance.randint(1, 3)):
        result[offset] ^= chance.randint(1, 255) if seed % 2 else 1 << chance.randrange(4)
    return bytes(result)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_weights(seed: int, saved: Path) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(mutated(path.read_bytes(), seed))
    refuse(saved, "model.safetensors is damaged or incomplete")


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_description(seed: int, saved: Path) -> None:
    path = saved / "config.json"
    path.write_bytes(mutated(path.read_bytes(), seed))
    try:
        model = aio.AtomizerIO.from_pretrained(saved)  # what is still a description of these weights may pass
    except AtomizerError as error:
        assert str(saved) in str(error)
    else:
        assert model.num_parameters == small().num_parameters


def test_weights_without_a_checksum_are_read_if_they_are_older(saved: Path) -> None:
    path = saved / "model.safetensors"
    edit(saved, format_version=2)
    save_file(load_file(path), path, metadata={"format": "pt"})
    assert aio.AtomizerIO.from_pretrained(saved)


class Trap:
    """Leaves a trace when unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return (open, (str(self.trace), "w"))


def test_a_pickle_is_never_read(saved: Path, tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "trace"))
    (saved / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "model.ckpt"):
        (saved / name).write_bytes(trap)
    refuse(saved, "has no model.safetensors", "never read")
    (saved / "model.safetensors").write_bytes(trap)
    refuse(saved, "damaged")
    assert not (tmp_path / "trace").exists()
    pickle.loads(trap).close()
    assert (tmp_path / "trace").exists()  # the trap does work


# Saving


def test_saving_again_replaces(saved: Path) -> None:
    second = small(num_outputs=5)
    second.save_pretrained(saved)
    loaded = aio.AtomizerIO.from_pretrained(saved)
    assert loaded.task_spec.num_outputs == 5 and listing(saved) == FILES
    assert torch.equal(loaded.head.linear.weight, second.head.linear.weight)


@pytest.mark.parametrize("failing", ["weights", "config", "sync"])
def test_a_failed_save_keeps_what_was_there(failing: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: (saved / name).read_bytes() for name in FILES}

    def half_written(tensors: dict, path: Path, **more) -> None:
        save_file(tensors, path, **more)
        path.write_bytes(path.read_bytes()[:1000])
        raise OSError(28, "No space left on device")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        if failing == "weights":
            patched.setattr(seal, "save_file", half_written)
        elif failing == "config":
            patched.setattr(storage, "write_text", full)
        else:
            patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            small(num_outputs=5).save_pretrained(saved)
    assert listing(saved) == FILES
    assert {name: (saved / name).read_bytes() for name in FILES} == before
    assert aio.AtomizerIO.from_pretrained(saved).task_spec.num_outputs == 3


def test_saving_where_a_file_is_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        small().save_pretrained(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "a file"


# The hub: its own code, without a network, on a cache prepared as it would have left it

HUB = """
import sys
import atomizer_io as aio
from atomizer_io.errors import CheckpointError

model = aio.AtomizerIO.from_pretrained("someone/water")
print("parameters", model.num_parameters, model.task_spec.class_names)
print("tagged", aio.AtomizerIO.from_pretrained("someone/water", revision="v1").task_spec.class_names)
for name in ("someone/else", "someone/half", "not a/name"):
    try:
        aio.AtomizerIO.from_pretrained(name)
    except CheckpointError as error:
        print("refused", name, "|", str(error).replace("\\n", " "))
"""


def cached(home: Path, name: str, revision: str, commit: str) -> Path:
    """The folder of one snapshot in the layout of the hub's cache."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / revision).write_text(commit)
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    return snapshot


def test_a_name_on_the_hub(tmp_path: Path) -> None:
    new, old = (small(class_names=names) for names in (("a", "b", "c"), ("x", "y", "z")))
    new.save_pretrained(cached(tmp_path, "someone/water", "main", "1" * 40))
    old.save_pretrained(cached(tmp_path, "someone/water", "v1", "2" * 40))
    half = cached(tmp_path, "someone/half", "main", "3" * 40)
    new.save_pretrained(half)
    (half / "model.safetensors").unlink()
    dropped = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN")
    clean = {name: value for name, value in os.environ.items() if name not in dropped}
    run = subprocess.run(
        [sys.executable, "-c", HUB],
        env=clean | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == f"parameters {new.num_parameters} ('a', 'b', 'c')"
    assert lines[1] == "tagged ('x', 'y', 'z')"
    assert re.match(
        r"refused someone/else \| there is no folder .*someone/else, and the Hugging Face hub could not", lines[2]
    )
    assert lines[3].startswith("refused someone/half |") and "has no model.safetensors" in lines[3]
    assert re.match(r"refused not a/name \| there is no folder .*, and the Hugging Face hub could not give", lines[4])
    assert len(lines) == 5

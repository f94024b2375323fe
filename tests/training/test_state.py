"""The training state: it comes back as it was, runs no code, and is refused where a byte of it changed."""

from __future__ import annotations

import math
import pickle
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.training import state
from runs import Payload

STATE: dict[str, Any] = {
    "epoch": 3,
    "version": '2.6 "x" µ',
    "state_dict": OrderedDict(a=torch.randn(3, 4), b=torch.arange(5, dtype=torch.int64), c=torch.zeros(0, 2)),
    "optimizer_states": [
        {
            "state": {0: {"step": torch.tensor(7.0), "exp_avg": torch.randn(2, dtype=torch.float64)}, 11: {}},
            "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.999), "fused": None, "foreach": False, "params": [0, 11]}],
        }
    ],
    "half": torch.randn(4).to(torch.bfloat16),
    "mask": torch.tensor([True, False]),
    "callbacks": {"KeepModels": {"best": -math.inf, "tensor": "a tensor", "tuple": (1, (2.5, None)), "list": [[], ()]}},
    "tricky": {"dict": [1, 2], "checksum": "0" * 64},
}


def equal(a: Any, b: Any) -> bool:
    """Whether two states have the same values of the same types; an OrderedDict counts as a dict."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    state.write(STATE, tmp_path / "s")
    assert equal(STATE, state.read(tmp_path / "s"))
    state.write({"nan": math.nan}, tmp_path / "s")
    assert math.isnan(state.read(tmp_path / "s")["nan"])


def test_tensors_that_share_memory(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    parts = {"whole": whole, "part": whole[2:4], "again": whole, "rotated": whole.reshape(2, 3).T}
    state.write(parts, tmp_path / "s")
    assert equal(parts, state.read(tmp_path / "s"))


def test_tensors_whose_names_read_alike(tmp_path: Path) -> None:
    alike = {"a.b": torch.zeros(2), "a": {"b": torch.ones(3)}, "l": [torch.ones(1)], "l.0": torch.zeros(1)}
    state.write(alike, tmp_path / "s")
    assert equal(alike, state.read(tmp_path / "s"))


@pytest.mark.parametrize("value", [Path("x"), {1.5: 2}, {(1, 2): 3}, {1, 2}, b"x", object(), torch.Size([1])])
def test_what_is_not_plain_is_named(value: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot hold callbacks\.Mine\.0"):
        state.write({"callbacks": {"Mine": [value]}}, tmp_path / "s")


def test_a_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    payload = pickle.dumps(Payload(tmp_path / "run-by-pickle"))
    pickle.loads(payload)
    (tmp_path / "run-by-pickle").rmdir()  # it would have worked
    (tmp_path / state.PICKLED).write_bytes(payload)
    with pytest.raises(
        ConfigError, match=r"state\.ckpt is the training state of an earlier version.*model\.checkpoint="
    ):
        state.find(tmp_path)
    (tmp_path / state.STATE).write_bytes(payload)
    with pytest.raises(DataError, match=r"state\.safetensors: the training state is damaged.*model\.checkpoint="):
        state.find(tmp_path)
    with pytest.raises(DataError):
        state.StateIO().load_checkpoint(tmp_path / state.PICKLED, weights_only=False)
    torch.save(Payload(tmp_path / "run-by-pickle"), tmp_path / state.STATE)
    with pytest.raises(DataError):
        state.read(tmp_path / state.STATE)
    assert not (tmp_path / "run-by-pickle").exists()


def mutated(content: bytes, seed: int) -> bytes:
    """Cut short, or with one to three bytes changed; a third of the changes are in the header."""
    chance = random.Random(seed)
    if seed % 3 == 0:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    end = 8 + int.from_bytes(content[:8], "little") if seed % 3 == 1 else len(content)
    for place in chance.sample(range(end), chance.randint(1, 3)):
        changed[place] ^= chance.randint(1, 255)
    return bytes(changed)


def test_the_schedule_of_an_earlier_version_is_found(tmp_path: Path) -> None:
    callbacks = {"SaveState": {"step": 3}, "FollowSchedule": {"best": 0.5}}
    state.write({"callbacks": callbacks}, tmp_path / "s")
    assert state.read(tmp_path / "s") == {"callbacks": {"SaveState": {"step": 3, "schedule": {"best": 0.5}}}}


@pytest.mark.parametrize("seed", range(90))
def test_a_damaged_state_is_refused(seed: int, tmp_path: Path) -> None:
    path = tmp_path / state.STATE
    state.write(STATE, path)
    path.write_bytes(mutated(path.read_bytes(), seed))
    with pytest.raises(DataError, match=r"state\.safetensors: the training state is damaged"):
        state.find(tmp_path)
    with pytest.raises(DataError, match="damaged"):
        state.read(path)

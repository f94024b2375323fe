"""Runs that are broken off, and how they are compared, for several tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file


class Killed(Exception):
    """Stands for a kill: nothing of ours handles it."""


def break_at(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, call: int) -> None:
    """Let the ``call``-th call of a method end the run before it does anything."""
    plain, calls = getattr(kind, method), iter(range(1, 100))

    def broken(*arguments: Any, **more: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return plain(*arguments, **more)

    monkeypatch.setattr(kind, method, broken)


def assert_same_end(one: Path, two: Path) -> None:
    """Best and last model, history and scores are equal."""
    for model in ("best", "last"):
        first, second = (load_file(folder / model / "model.safetensors") for folder in (one, two))
        assert all(torch.equal(first[name], second[name]) for name in first), model
    assert (one / "history.jsonl").read_text() == (two / "history.jsonl").read_text()
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (one, two))
    for key in ("finished", "steps", "epochs", "ended_by", "best", "scores", "scores_of"):
        assert first[key] == second[key], key

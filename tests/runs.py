"""Runs that are broken off, and how they are compared, for several tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import chips
from processes import command, exit_code, start


class Killed(Exception):
    """Stands for a kill: nothing of ours handles it."""


def break_at(monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, call: int) -> None:
    """Let the ``call``-th call of a method, or of a function of a module, end the run before it does anything."""
    plain, calls = getattr(kind, method), iter(range(1, 100))

    def broken(*arguments: Any, **more: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return plain(*arguments, **more)

    monkeypatch.setattr(kind, method, broken)


def kill_at(kind: Any, method: str, call: int) -> None:
    """Let the ``call``-th call of a method, or of a function of a module, kill this process: nothing handles that."""
    plain, calls = getattr(kind, method), iter(range(1, 100))

    def killing(*arguments: Any, **more: Any) -> Any:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **more)

    setattr(kind, method, killing)


def write_fields(folder: Path) -> dict[str, Any]:
    """Write small scenes for training and validation; return the settings of a run."""
    for number, split in enumerate(["train"] * 3 + ["val"]):
        for kind in ("image", "mask"):
            (folder / split / kind).mkdir(parents=True, exist_ok=True)
        image = chips.values(16, 16, number)
        mask = (image[2] > np.median(image[2])).astype(np.uint8)
        chips.write(folder / split / "image" / f"field{number}.tif", image)
        chips.write(folder / split / "mask" / f"field{number}.tif", mask[None], names=None)
    options = {"sensor": "sentinel2", "bands": list(chips.NAMES), "classes": ["bare", "green"]}
    small = {"width": 16, "depth": 1, "self_head_dim": 8, "cross_head_dim": 8, "global_latents": 2}
    training = {"max_steps": 4, "batch_size": 1, "queries": 50, "validate_steps": 2, "loggers": [], "figures": 0}
    return {
        "data": {"name": "geotiff-folder", "root": str(folder), "options": options, "test": None, "workers": 0},
        "model": {"preset": "atomizer_io_tiny", "settings": small},
        "training": {**training, "baselines": False, "accelerator": "cpu"},
        "output": str(folder / "runs"),
    }


def killed(before: Callable[[], None], *words: str) -> bool:
    """Whether ``atomizer`` with these words is killed in a process of its own, which calls ``before`` first."""
    return exit_code(start(command, words, before)) == -signal.SIGKILL


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``atomizer`` with these words in a new process, by a script in ``folder`` that others of a group start too."""
    script = folder / "atomizer.py"
    script.write_text("import sys\nfrom atomizer_io.cli import main\nsys.exit(main(sys.argv[1:]))")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-W", "ignore", str(script), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment, check=False)


def by_two(folder: Path, *words: str) -> None:
    """``atomizer`` with these words in two processes of one group, started as a launcher such as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    errors = [folder / f"errors-{rank}" for rank in range(2)]
    addresses = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": "0", "WORLD_SIZE": "2"}
    both = [
        start(command, words, errors=error_file, LOCAL_RANK=str(rank), **addresses)
        for rank, error_file in enumerate(errors)
    ]
    wait([process.sentinel for process in both])
    if any(process.exitcode for process in both):  # the other waits for the one that failed
        for process in both:
            process.kill()
    assert [exit_code(process) for process in both] == [0, 0], "\n".join(
        error_file.read_text() for error_file in errors
    )


def assert_same_end(one: Path, two: Path) -> None:
    """Best and last model, history and scores are equal."""
    for model in ("best", "last"):
        first, second = (load_file(folder / model / "model.safetensors") for folder in (one, two))
        assert all(torch.equal(first[name], second[name]) for name in first), model
    assert (one / "history.jsonl").read_text() == (two / "history.jsonl").read_text()
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (one, two))
    for key in ("finished", "steps", "epochs", "ended_by", "best", "scores", "scores_of"):
        assert first[key] == second[key], key

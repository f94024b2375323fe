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
import yaml
from safetensors.torch import load_file

import chips
import data as fixtures
from atomizer_io.training import config
from processes import command, exit_code, start

NETWORK = {"width": 16, "depth": 1, "self_head_dim": 8, "cross_head_dim": 8, "global_latents": 2}
MODEL = {"preset": "atomizer_io_tiny", "settings": NETWORK}
QUIET = {"batch_size": 1, "loggers": [], "figures": 0, "baselines": False, "accelerator": "cpu"}


def synthetic(
    folder: Path, data: dict[str, Any] | None = None, network: dict[str, Any] = NETWORK, **training: Any
) -> config.Run:
    """The settings of a short training on few synthetic floods, in the folder ``run`` of a folder."""
    floods = {"name": "synthetic", "options": {"like": "sen1floods11", "size": 16, "length": 4}}
    few = {**QUIET, "queries": 20, "validation_samples": 2}
    settings = {"data": {**floods, "workers": 0, "measure": 2, **(data or {})}, "training": {**few, **training}}
    return config.parse({**settings, "model": {**MODEL, "settings": network}, "output": str(folder), "name": "run"})


def write_floods(folder: Path, size: int = 16, data: dict[str, Any] | None = None, **training: Any) -> Path:
    """Write three chips of Sen1Floods11 for each split; return the file of the settings of runs below ``runs``."""
    root = fixtures.write("sen1floods11", folder / "data", size=size)
    chosen = {"name": "sen1floods11", "root": str(root), "workers": 0, "measure": 1, "test": None, **(data or {})}
    document = {"data": chosen, "model": MODEL, "training": {**QUIET, **training}, "output": str(folder / "runs")}
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    return folder / "config.yaml"


def trained(settings: Path, name: str, *options: str, resume: bool = False) -> Path:
    """The folder of a run of these settings."""
    from atomizer_io.training.run import train

    train(config.load(settings, [f"name={name}", *options]), resume=resume, progress=False)
    return settings.parent / "runs" / name


def result(folder: Path) -> dict[str, Any]:
    """What a run wrote at its end."""
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return metrics


def history(folder: Path) -> list[dict[str, Any]]:
    """The scores of the validations of a run."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


class Killed(Exception):
    """Stands for a kill: nothing of ours handles it."""


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def break_at(
    monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, call: int, error: type[BaseException] = Killed
) -> None:
    """Let the ``call``-th call of a method, or of a function of a module, end the run before it does anything."""
    plain, calls = getattr(kind, method), iter(range(1, 100))

    def broken(*arguments: Any, **more: Any) -> Any:
        if next(calls) == call:
            raise error
        return plain(*arguments, **more)

    monkeypatch.setattr(kind, method, broken)


def broken_off(
    settings: Path, name: str, kind: Any, method: str, call: int, *options: str, resume: bool = False
) -> None:
    """Train until the ``call``-th call of a function, at which the run ends as by a kill."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        break_at(patch, kind, method, call)
        trained(settings, name, *options, resume=resume)


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

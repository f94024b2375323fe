"""Trainings that several items share: each is done once, in a folder named after its settings, and goes on if stopped.

A finished run that was kept with the results (its model and its ``metrics.json``) is not trained again.
"""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io import locks
from atomizer_io.errors import AtomizerError
from atomizer_io.texts import parse_json, read_text, write_text
from atomizer_io.training.config import Run, parse
from atomizer_io.training.run import train
from atomizer_lab.matrix import recorded

KEPT = "checkpoints"  # folder of kept models beside the results
METRICS, STATE, BEST = "metrics.json", "state.safetensors", "best"
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training: its settings, the folder of its best model, and what ``metrics.json`` holds."""

    run: Run
    model: Path
    metrics: Mapping[str, Any]

    @property
    def cost(self) -> dict[str, Any]:
        """What it took: steps, and seconds of its last part where it was interrupted."""
        return {key: self.metrics[key] for key in ("steps", "seconds")}


def trained(document: Document, label: str, root: str, work: str, results: str) -> Trained:
    """Return the training with these settings, done now or before; ``root`` is the folder of its data.

    The folder of the run has the name ``label`` and a mark of the settings: other settings train elsewhere.
    """
    done = find(document, label, root, work, results)
    if done is not None:
        return done
    run, run_folder, _ = _placed(document, label, root, work, results)
    with alone(run_folder):
        metrics = finished(run_folder)  # another process may have trained it meanwhile
        if metrics is None:
            resume = (run_folder / STATE).exists()
            if not resume and run_folder.exists():
                shutil.rmtree(run_folder)  # it was stopped before anything was saved
            metrics = train(run, resume=resume, progress=False)
    return Trained(run, run_folder / BEST, metrics)


def find(document: Document, label: str, root: str, work: str, results: str) -> Trained | None:
    """Return the training with these settings if it was done before, see :func:`trained`; None if it was not."""
    run, run_folder, kept = _placed(document, label, root, work, results)
    for folder in (kept, run_folder):
        if (metrics := finished(folder)) is not None:
            return Trained(run, folder / BEST, metrics)
    return None


def _placed(document: Document, label: str, root: str, work: str, results: str) -> tuple[Run, Path, Path]:
    """Return a run with these settings, the folder that it trains in, and that of its kept model."""
    name = f"{label}-{mark(document)}"
    run_folder = Path(work) / "runs" / name
    data = {**document["data"], **({"root": root} if root else {})}
    run = parse({**document, "data": data, "output": str(run_folder.parent), "name": name})
    return run, run_folder, _kept(results, name)


def _kept(results: str, name: str) -> Path:
    return Path(results) / KEPT / name


def mark(document: Document) -> str:
    """Return eight digits that tell settings apart; where data lie and where runs go does not count."""
    return f"{zlib.crc32(json.dumps(recorded(document), sort_keys=True).encode()):08x}"


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the metrics of a finished run, None of any other."""
    if not (folder / METRICS).is_file() or not (folder / BEST).is_dir():
        return None
    try:
        metrics = parse_json(read_text(folder / METRICS))
        return {**metrics, "scores": _scores(metrics.get("scores", {}))} if metrics.get("finished") else None
    except (OSError, ValueError, AttributeError) as error:
        raise AtomizerError(f"{folder / METRICS} cannot be read ({error}): remove {folder}, and run again") from error


def _scores(value: Any) -> Any:
    """Return scores read from JSON, where an absent class is null, as they were: NaN."""
    if isinstance(value, Mapping):
        return {name: _scores(score) for name, score in value.items()}
    return math.nan if value is None else value


def alone(folder: Path) -> AbstractContextManager[None]:
    """Let only one process at a time work on a folder; others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return locks.alone(folder.with_name(f".{folder.name}.lock"))


def keep(done: Trained, results: str) -> None:
    """Copy the model and the metrics of a training beside the results, where it is found again without training."""
    target = _kept(results, done.model.parent.name)
    if not (target / METRICS).exists():
        shutil.copytree(done.model, target / BEST, dirs_exist_ok=True)
        metrics = {key: value for key, value in done.metrics.items() if key != "folder"}
        write_text(target / METRICS, json.dumps(metrics, indent=1) + "\n")

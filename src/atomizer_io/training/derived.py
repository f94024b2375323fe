"""What a run found out by itself, apart from what its user chose: ``derived.yaml`` beside ``config.yaml``.

``config.yaml`` holds the settings as they were chosen, and what they leave open stays open there. So a run that was
killed before all of this was known finds it out again, as the run that nobody killed did.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Model
from atomizer_io.texts import write_text
from atomizer_io.training import config
from atomizer_io.training.config import AUTO, Run
from atomizer_io.training.warm_start import SMALL_RATE, wanted

SETTINGS, DERIVED = "config.yaml", "derived.yaml"
LEFT_OPEN = ("batch_size", "crop_m", "repeat", "queries", "learning_rate")  # of the group training
KEPT, DROPPED = "kept", "dropped"  # what became of a warm start


@dataclass(frozen=True)
class Derived:
    """Settings of the group ``training`` that were left to the data, and whether the warm start was kept.

    ``warm_start`` is None before that is known, and where there is none.
    """

    training: dict[str, Any] = field(default_factory=dict)
    warm_start: str | None = None


def read(folder: Path) -> Derived | None:
    """Return what a run found out before; None where it is of an earlier version, or there is no run."""
    path = folder / DERIVED
    if not path.exists():
        return None
    document = config.renamed(config.read_yaml(path))
    training, warm_start = document.get("training", {}), document.get("warm_start")
    if not isinstance(training, dict) or {*training} - {*LEFT_OPEN} or warm_start not in (KEPT, DROPPED, None):
        raise ConfigError(f"{path} is damaged: remove it, and what it held is found out again")
    return Derived(training, warm_start)


def write(chosen: Run, run: Run, warm_start: str | None, folder: Path) -> None:
    """Write what ``run`` has and ``chosen`` left open."""
    before, now = (config.plain(each)["training"] for each in (chosen, run))
    training = {name: now[name] for name in LEFT_OPEN if now[name] != before[name]}
    write_text(folder / DERIVED, yaml.safe_dump({"training": training, "warm_start": warm_start}, sort_keys=False))


def begin(chosen: Run, run: Run, folder: Path) -> None:
    """Write both files of a new run; the settings, by which a run is known, come last."""
    write(chosen, run, None, folder)
    write_text(folder / SETTINGS, yaml.safe_dump(config.plain(chosen), sort_keys=False))


def with_found(run: Run, found: Derived | None) -> Run:
    """Return ``run`` with what it found out before, where its settings leave that open; the rate comes later."""
    if found is None:
        return run
    left = {name for name in LEFT_OPEN[:-1] if getattr(run.training, name) in (None, AUTO)}
    left -= {"crop_m"} if run.training.crop_m is None else set()  # where None is a choice
    filled = {name: value for name, value in found.training.items() if name in left}
    return dataclasses.replace(run, training=dataclasses.replace(run.training, **filled))


def was_kept(folder: Path, found: Derived | None) -> bool:
    """Whether the run in a folder kept its warm start; earlier versions wrote that into the settings."""
    if found is not None:
        return found.warm_start == KEPT
    return config.load(folder / SETTINGS).training.warm_start


def chosen_before(run: Run, model: Model) -> Run:
    """Return the settings of a run of an earlier version, which wrote the rate for a warm start among them.

    It wrote them before it had fitted anything, so where it never made a step such a rate may not have been chosen.
    """
    from atomizer_io.training.state import STATE

    begun = (config.folder_of(run) / STATE).exists()
    warm = model.warm_start(()) if wanted(run) else None
    if begun or warm is None or not warm.small_steps or run.training.learning_rate != SMALL_RATE:
        return run
    if config.first_process():
        print(
            f"note: {SETTINGS} is of an earlier version, so its learning rate of {SMALL_RATE:g} is taken as the one "
            "for a warm start, not as a choice"
        )
    return dataclasses.replace(run, training=dataclasses.replace(run.training, learning_rate=None))

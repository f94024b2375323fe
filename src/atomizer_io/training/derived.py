"""What a run found out by itself, apart from what its user chose: ``derived.yaml`` beside ``config.yaml``.

``config.yaml`` holds the settings as they were chosen, and what they leave open stays open there. So a run that was
killed before all of this was known finds it out again, as the run that nobody killed did.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from atomizer_io.errors import ConfigError
from atomizer_io.texts import write_text
from atomizer_io.training import config
from atomizer_io.training.config import AUTO, Run

SETTINGS, DERIVED = "config.yaml", "derived.yaml"
LEFT_OPEN = ("batch_size", "crop_m", "repeat", "queries")  # of the group training
EARLIER = ("learning_rate",)  # what earlier versions left open, too


def read(folder: Path) -> dict[str, Any]:
    """Return the settings of the group ``training`` that a run found out before; none where there is no run."""
    path = folder / DERIVED
    if not path.exists():
        return {}
    training = config.read_yaml(path).get("training", {})
    if not isinstance(training, dict) or {*training} - {*LEFT_OPEN, *EARLIER}:
        raise ConfigError(f"{path} is damaged: remove it, and what it held is found out again")
    return {name: value for name, value in training.items() if name in LEFT_OPEN}


def begin(chosen: Run, run: Run, folder: Path) -> None:
    """Write what ``run`` has and ``chosen`` left open, then the settings, by which a run is known."""
    before, now = (config.plain(settings)["training"] for settings in (chosen, run))
    training = {name: now[name] for name in LEFT_OPEN if now[name] != before[name]}
    write_text(folder / DERIVED, yaml.safe_dump({"training": training}, sort_keys=False))
    write_text(folder / SETTINGS, yaml.safe_dump(config.plain(chosen), sort_keys=False))


def with_found(run: Run, found: dict[str, Any]) -> Run:
    """Return ``run`` with what it found out before, where its settings leave that open."""
    left = {name for name in found if getattr(run.training, name) in (None, AUTO)}
    left -= {"crop_m"} if run.training.crop_m is None else set()  # where None is a choice
    filled = {name: value for name, value in found.items() if name in left}
    return dataclasses.replace(run, training=dataclasses.replace(run.training, **filled))

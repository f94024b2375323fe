"""The folder of a run: made, checked and locked; ``config.yaml`` has its settings, ``derived.yaml`` what was left open.

``config.yaml`` holds the settings as they were chosen; what they leave open stays open there, and what a run derived
from the data is in ``derived.yaml``. So a run that was killed before all of this was known derives it again, as the run
that nobody killed did.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from atomizer_io.errors import ConfigError, size_text
from atomizer_io.locks import lock
from atomizer_io.models.base import Model
from atomizer_io.models.storage import SAVING
from atomizer_io.texts import write_text
from atomizer_io.training import config
from atomizer_io.training.config import AUTO, Run

SETTINGS, DERIVED = "config.yaml", "derived.yaml"
BEST, LAST, HISTORY = "best", "last", "history.jsonl"
LOCK = ".lock"  # a file of the folder, held by the process that trains
SPARE_BYTES = 200 << 20  # beside the checkpoints: logs, figures
LEFT_OPEN = ("batch_size", "crop_m", "repeat", "queries")  # of the group training
COUNTS = ("batch_size", "repeat", "queries")
EARLIER = ("learning_rate",)  # what earlier versions left open, too


def with_derived(run: Run, folder: Path) -> Run:
    """Return ``run`` with the values that it derived before, where its settings leave them open."""
    path = folder / DERIVED
    derived = config.read_yaml(path).get("training", {}) if path.exists() else {}
    plausible = isinstance(derived, dict) and not {*derived} - {*LEFT_OPEN, *EARLIER}
    for name, value in derived.items() if plausible else ():
        number = type(value) is int or (type(value) is float and name not in COUNTS)
        plausible &= value is None or (number and 0 < value < math.inf)
    if not plausible:
        raise ConfigError(f"{path} is damaged: remove it, and what it held is found out again")
    t = run.training
    left = {name for name in LEFT_OPEN if getattr(t, name) in (None, AUTO)}
    left -= {"crop_m"} if t.crop_m is None else set()  # where None is a choice
    filled = {name: value for name, value in derived.items() if name in left}
    return dataclasses.replace(run, training=dataclasses.replace(t, **filled))


def write_settings(chosen: Run, run: Run, folder: Path) -> None:
    """Write what ``run`` has and ``chosen`` left open, then the settings, by which a run is known."""
    before, now = (config.plain(settings)["training"] for settings in (chosen, run))
    training = {name: now[name] for name in LEFT_OPEN if now[name] != before[name]}
    write_text(folder / DERIVED, yaml.safe_dump({"training": training}, sort_keys=False))
    write_text(folder / SETTINGS, yaml.safe_dump(config.plain(chosen), sort_keys=False))


def check_folder(run: Run, resume: bool) -> None:
    """Refuse a folder that holds a run, or to resume one whose training state is of no use, before all the work."""
    folder = config.folder_of(run)
    if resume:
        from atomizer_io.training import state

        state.find(folder)
    elif (folder / SETTINGS).exists() and config.first_process():
        raise ConfigError(
            f"{folder} holds a run already: --resume goes on with it, name=... or output=... makes another"
        )


def make_folder(folder: Path, model: Model) -> None:
    """Make the folder of the run and check that its checkpoints fit: better to know before the first step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # processes of one run do this at once
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from error
    # weights (best, last) and two training states (weights, EMA and two moments) while one replaces the other
    needed = 4 * model.num_parameters * (2 + 2 * 4) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(f"{folder}: {size_text(free)} are free, about {size_text(needed)} are needed: make room")


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other trainings out of the folder of a run within this context; begin without what a killed one left."""
    if not config.first_process():
        yield
        return
    own = lock(folder / LOCK, wait_s=0)
    if own is None:
        raise ConfigError(f"another training writes to {folder}: wait until it ends, or choose another name=...")
    with own:
        for saved in (folder, folder / BEST, folder / LAST):
            for left in saved.glob(f"{SAVING}*"):
                shutil.rmtree(left, ignore_errors=True)
        yield

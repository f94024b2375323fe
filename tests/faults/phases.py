"""Kills at every boundary between two phases of a training."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

import yaml

from atomizer_io.training.folder import SETTINGS
from processes import command, exit_code, start
from runs import assert_same_end, kill_at, killed, write_fields

# module of atomizer_io.training, then class and function, and which call of it: what comes before is done, it is not
BOUNDARIES = (
    ("folder:make_folder", 1),  # statistics are measured, nothing is written
    ("folder:write_text", 1),  # the folder is there
    ("folder:write_text", 2),  # what was derived is written, the settings are not
    ("run:make_loaders", 1),  # the settings are written
    ("run:initialise", 1),
    ("callbacks:SaveState.save", 1),
    ("task:Task.training_step", 1),
    ("callbacks:SaveState.on_train_batch_end", 1),  # the first step is made
    ("task:Task.on_validation_epoch_start", 2),
    ("callbacks:KeepModels.on_validation_end", 2),  # before the best model is written
    ("callbacks:append_line", 2),  # after it
    ("callbacks:SaveState.on_train_epoch_end", 1),
    ("callbacks:SaveState.on_train_epoch_end", 2),
    ("results:final_scores", 1),  # all steps are made
    ("results:write_metrics", 1),
    ("results:compare", 1),
)


def die_in(name: str, call: int) -> None:
    """Let this process be killed at the ``call``-th call of a function, named ``module:class.function``."""
    module, _, path = name.partition(":")
    *outer, method = path.split(".")
    kind = importlib.import_module(f"atomizer_io.training.{module}")
    for part in outer:
        kind = getattr(kind, part)
    kill_at(kind, method, call)


def kill_between_phases(work: Path) -> dict[str, float]:
    """A training that is killed at any boundary of its phases ends with the weights and history of one that is not."""
    (work / "run.yaml").write_text(yaml.safe_dump(write_fields(work)))
    words = ("train", str(work / "run.yaml"), "--quiet")
    assert exit_code(start(command, (*words, "name=whole"))) == 0
    whole = work / "runs" / "whole"
    for number, (name, call) in enumerate(BOUNDARIES):
        run = work / "runs" / f"killed-{number}"
        assert killed(partial(die_in, name, call), *words, f"name={run.name}"), name
        begun = (run / SETTINGS).exists()
        again = ("train", str(run), "--resume", "--quiet") if begun else (*words, f"name={run.name}")
        assert exit_code(start(command, again)) == 0
        assert_same_end(whole, run)
    return {"trainings killed between phases": len(BOUNDARIES), "weights that differ": 0}

"""Cross-validation: a training for each fold of a dataset, and what their test scores are together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atomizer_io.errors import ConfigError
from atomizer_io.texts import json_text, write_text
from atomizer_io.training import config, folder
from atomizer_io.training.run import train

FOLDS = "folds.json"


def cross_validate(
    path: Path, changes: Sequence[str], folds: int, *, resume: bool = False, progress: bool = True
) -> dict[str, Any]:
    """Train by the settings in ``path`` once for each fold, in the folders ``fold-0`` … of the run.

    Return the mean and the standard deviation over the folds of every score of the test split, as in ``folds.json``.
    With ``resume`` a fold goes on where it stopped.
    """
    if folds < 3:
        raise ConfigError(f"--folds is {folds}; training, validation and testing need at least 3")
    scores, runs = [], []
    for fold in range(folds):
        run = config.load(path, [*changes, f"data.options.folds={folds}", f"data.options.fold={fold}"])
        if run.data.test is None:
            raise ConfigError("data.test is empty: cross-validation scores the test split of each fold")
        whole = config.folder_of(run)
        run = dataclasses.replace(run, output=str(whole), name=f"fold-{fold}")
        there = (config.folder_of(run) / folder.SETTINGS).exists()
        if result := train(run, resume=resume and there, progress=progress):
            runs.append(result["folder"])
            scores.append(result["scores"]["test"])
    if not scores:  # of all processes the first has the results
        return {}
    summary = {"folds": folds, "runs": runs, "scores": summed_up(scores)}
    write_text(whole / FOLDS, json_text(summary, indent=2) + "\n")
    return summary


def summed_up(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean, standard deviation and the values of each score that is a number."""
    names = [name for name, value in scores[0].items() if isinstance(value, float)]
    summary = {}
    for name in names:
        values = [float(own[name]) for own in scores if not math.isnan(own[name])]
        mean = statistics.fmean(values) if values else math.nan
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        summary[name] = {"mean": mean, "std": deviation, "values": values}
    return summary

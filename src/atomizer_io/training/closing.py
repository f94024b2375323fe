"""The end of a run: κ is chosen, the best model scored, its curve read, and simple baselines are compared with it."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.options import Decoding
from atomizer_io.errors import AtomizerError, DataError
from atomizer_io.models.base import Cost
from atomizer_io.models.registry import load_model
from atomizer_io.texts import write_text
from atomizer_io.training.build import costs_of
from atomizer_io.training.config import Run
from atomizer_io.training.curve import describe, read_curve, sentence
from atomizer_io.training.evaluate import score
from atomizer_io.training.metrics import main_score, merit
from atomizer_io.training.plan import PATIENCE, Plan
from atomizer_io.training.splits import open_split
from atomizer_io.training.timing import BASELINES, CLOSING, Timing


@dataclass(frozen=True, slots=True)
class Trained:
    """A run whose steps are made, as far as there was time for them."""

    run: Run
    folder: Path
    task_spec: TaskSpec
    plan: Plan | None
    result: dict[str, Any]


def close(trained: Trained, timing: Timing, progress: bool) -> dict[str, Any]:
    """Score the best model of a run, compare it with baselines if all steps were made, and write what was found."""
    from atomizer_io.training.callbacks import BEST, HISTORY

    run, folder, result = trained.run, trained.folder, trained.result
    with timing.phase(CLOSING):
        score = finish if result["finished"] else so_far
        result["scores"] = score(run, folder / BEST, progress)
        result["curve"] = look_at_curve(run, folder / HISTORY, trained.task_spec, trained.plan)
        write_metrics(result, timing, folder)
    if result["finished"]:  # the file is there before: the baselines take their time, and may be interrupted
        with timing.phase(BASELINES):
            result["rivals"] = compare(run, trained.task_spec, result["scores"], lambda: timing.over(trained.plan))
        write_metrics(result, timing, folder)
    for path, cause in result["skipped"].items():
        print(f"skipped {path}: {cause}")
    print(timing.line())
    return result


def write_metrics(result: dict[str, Any], timing: Timing, folder: Path) -> None:
    """Write what a run found, and what it took so far."""
    result["seconds"] = round(time.monotonic() - timing.began_s, 1)
    result["phases"] = {name: round(took, 1) for name, took in timing.phases.items()}
    write_text(folder / "metrics.json", json.dumps(result, indent=2) + "\n")


def so_far(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Return the validation scores of a run that was stopped; nothing is chosen yet, nor tested."""
    if run.data.val is None:
        return {}
    model, validation = load_model(folder), open_split(run, "val").for_evaluation()
    limit = run.training.validation_samples
    return {"val": score(model, validation, workers=run.data.workers, limit=limit, progress=progress)}


def finish(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Choose κ of the best model on the validation data, store it with the model, and return its scores.

    Each κ of the training configurations is scored as the model will be used: with whole cells. The budget m is for
    training only, so it has no part in the choice.
    """
    model = load_model(folder)
    how: dict[str, Any] = {"workers": run.data.workers, "progress": progress}
    scores = {}
    if run.data.val is not None:
        validation, limit = open_split(run, "val").for_evaluation(), run.training.validation_samples
        ways = {cost.atoms_per_latent: Decoding(cost=Cost(cost.atoms_per_latent)) for cost in costs_of(run, model)}
        tried = {kappa: score(model, validation, decoding=way, limit=limit, **how) for kappa, way in ways.items()}
        chosen = max(tried, key=lambda kappa: merit(tried[kappa], model.task_spec))
        scores["val"] = tried[chosen]
        if chosen is not None:
            model.keep_cost(Cost(chosen))
            model.save_pretrained(folder)
    if run.data.test is not None:
        try:
            scores["test"] = score(model, open_split(run, "test").for_evaluation(), **how)
        except DataError as error:
            print(f"note: no test scores: {error}")
    return scores


def look_at_curve(run: Run, history: Path, task_spec: TaskSpec, plan: Plan | None) -> dict[str, Any] | None:
    """Say whether the score was still getting better, and return it as plain values; None where nothing was validated.

    What a cool-down adds says nothing about that, so an open run is judged by what came before.
    """
    name, higher = main_score(task_spec), not task_spec.regression
    points = read_curve(history, name)
    if not points:
        if run.data.val is not None:
            print("note: the run ended before its first validation: best/ is the model of its last step")
        return None
    until = None if plan is None else plan.begun
    exhausted = plan is not None and plan.reason == PATIENCE
    found = describe(points, higher=higher, tolerance=run.training.tolerance, until=until, exhausted=exhausted)
    print(sentence(found, name, higher, history))
    return found


def compare(
    run: Run, task_spec: TaskSpec, scores: dict[str, Any], over: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """Say what simple rivals get on the splits that were scored, and return it; None where there are no rivals.

    They are given up when the time for them is ``over``.
    """
    if not run.training.baselines or not scores:
        return None
    if importlib.util.find_spec("sklearn") is None:
        print("note: no baselines to compare with: pip install 'atomizer-io[rivals]', or training.baselines=false")
        return None
    from atomizer_io.training.simple_rivals import SimpleRivals

    limits = {"val": run.training.validation_samples, "test": None}
    try:
        rivals = SimpleRivals(task_spec, open_split(run, "train"), run.seed, over)
        found = {use: rivals.score(open_split(run, use).for_evaluation(), limits[use]) for use in scores}
    except AtomizerError as error:  # the run itself is complete
        print(f"note: no forest or regression to compare with: {error}")
        return None
    for use, by_name in found.items():
        print(line(use, scores[use], by_name, task_spec, rivals.fitted_on))
    if (text := lost(scores, found, task_spec)) is not None:
        print(text)
    return {"fitted_on": rivals.fitted_on, "seconds": rivals.seconds, "scores": found}


def line(use: str, own: dict[str, Any], rivals: dict[str, dict[str, Any]], task_spec: TaskSpec, fitted_on: int) -> str:
    """Return one sentence that holds the score of a run against those of the rivals."""
    name = main_score(task_spec)
    theirs = ", ".join(f"{scores[name]:.4g} {rival}" for rival, scores in rivals.items())
    what = "positions and what lies around them" if task_spec.dense else "means and standard deviations of scenes"
    return f"{use} {name}: {own[name]:.4g} this model; {theirs}, fitted on {what} ({fitted_on:,} of them)"


def lost(scores: dict[str, Any], baselines: dict[str, dict[str, dict[str, Any]]], task_spec: TaskSpec) -> str | None:
    """Return a sentence that says to which baseline the model lost, and what to do; None where it lost to none."""
    best = {use: max(each, key=lambda name: merit(each[name], task_spec)) for use, each in baselines.items()}
    behind = [
        use for use, name in best.items() if merit(baselines[use][name], task_spec) > merit(scores[use], task_spec)
    ]
    if not behind:
        return None
    name = main_score(task_spec)
    to = " and ".join(
        f"the {best[use]} on {use} ({baselines[use][best[use]][name]:.4g} against {scores[use][name]:.4g})"
        for use in behind
    )
    return (
        f"note: this model lost to {to}. Train longer if its score was still getting better (training.epochs, "
        "--max-time), label more data, or try other settings (docs/training.md); until it wins, the simple baseline is "
        "the better model for these data"
    )

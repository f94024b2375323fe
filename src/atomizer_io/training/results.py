"""The end of a run: κ is chosen, the best model scored, its curve judged, and baselines are compared with it."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.errors import AtomizerError, DataError
from atomizer_io.models import card
from atomizer_io.models.base import Cost
from atomizer_io.models.registry import load_model
from atomizer_io.texts import json_text, parse_json, write_text
from atomizer_io.training import surroundings
from atomizer_io.training.build import costs_of
from atomizer_io.training.config import Run
from atomizer_io.training.evaluate import score
from atomizer_io.training.folder import BEST, HISTORY
from atomizer_io.training.metrics import main_score, merit
from atomizer_io.training.schedule import PATIENCE, OpenSchedule
from atomizer_io.training.splits import open_split
from atomizer_io.training.stopping import BASELINES, CLOSING, Timing

FEW = 4  # validations: of fewer no trend is reported


def conclude(
    run: Run,
    task_spec: TaskSpec,
    result: dict[str, Any],
    schedule: OpenSchedule | None,
    timing: Timing,
    progress: bool,
) -> dict[str, Any]:
    """Score the best model of a run, compare it with baselines if all steps were made, and write the results.

    ``result`` has what is known of the steps; only a run with early stopping has a ``schedule``.
    """
    folder = Path(result["folder"])
    with timing.phase(CLOSING):
        result["scores"] = final_scores(run, folder / BEST, progress, finished=result["finished"])
        result["curve"] = judge_curve(run, folder / HISTORY, task_spec, schedule)
    write_metrics(result, timing, folder)
    if result["finished"]:  # the file is there before: the baselines take their time, and may be interrupted
        with timing.phase(BASELINES):
            result["surroundings"] = look_around(run, folder / BEST)
            over = timing.over if schedule is None else (lambda: timing.over(schedule.seconds))
            result["baselines"] = compare(run, task_spec, result["scores"], over)
        write_metrics(result, timing, folder)
    write_card(run, result, folder / BEST)
    for path, cause in result["skipped"].items():
        print(f"skipped {path}: {cause}")
    print(timing.line())
    return result


def write_card(run: Run, result: dict[str, Any], folder: Path) -> None:
    """Write the model card of the best model: with its training data, its scores, and the baselines it lost to."""
    model = load_model(folder)
    baselines = result.get("baselines") or {}
    known = {
        "data": run.data.name,
        "checkpoint": run.model.checkpoint,
        "steps": result["steps"],
        "seed": run.seed,
        "scores": result["scores"],
        "note": lost(result["scores"], baselines["scores"], model.task_spec) if baselines else None,
    }
    card.write(model, folder, known)


def write_metrics(result: dict[str, Any], timing: Timing, folder: Path) -> None:
    """Write the results of a run, and the time that it took so far."""
    phases = timing.shares()
    result["seconds"] = round(sum(phases.values()), 1)
    result["phases"] = {name: round(seconds, 1) for name, seconds in phases.items()}
    write_text(folder / "metrics.json", json_text(result, 2) + "\n")


def final_scores(run: Run, folder: Path, progress: bool, *, finished: bool) -> dict[str, Any]:
    """Choose κ of the best model on the validation data, store it with the model, and return its scores.

    Each κ of the training configurations is scored as the model will be used: with whole cells. The budget m is for
    training only, so it has no part in the choice. A run that was stopped only gets its validation scores.
    """
    model = load_model(folder)
    options: dict[str, Any] = {"workers": run.data.workers, "progress": progress}
    scores = {}
    if run.data.val is not None:
        validation, limit = open_split(run, "val").for_evaluation(), run.training.validation_samples
        if not finished:
            return {"val": score(model, validation, limit=limit, **options)}
        decodings = {cost.atoms_per_latent: Decoding(cost=Cost(cost.atoms_per_latent)) for cost in costs_of(run, model)}
        by_kappa = {k: score(model, validation, decoding=d, limit=limit, **options) for k, d in decodings.items()}
        kappa = max(by_kappa, key=lambda kappa: merit(by_kappa[kappa], model.task_spec))
        scores["val"] = by_kappa[kappa]
        if kappa is not None:
            model.keep_cost(Cost(kappa))
            model.save_pretrained(folder)
    if finished and run.data.test is not None:
        try:
            scores["test"] = score(model, open_split(run, "test").for_evaluation(), **options)
        except DataError as error:
            print(f"note: no test scores: {error}")
    return scores


def read_curve(history: Path, name: str) -> list[tuple[int, float]]:
    """Return step and score ``name`` of each validation in a ``history.jsonl``; none where there is no file."""
    if not history.is_file():
        return []
    points = []
    for text in history.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):  # of a line that was cut off
            line = parse_json(text)
            points.append((int(line["step"]), math.nan if line[name] is None else float(line[name])))
    return points


def judge_curve(run: Run, history: Path, task_spec: TaskSpec, schedule: OpenSchedule | None) -> dict[str, Any] | None:
    """Print and return whether the score was still getting better; None where nothing was validated.

    What a cool-down adds is no evidence for that, so a run with early stopping is judged by what came before.
    """
    name, higher = main_score(task_spec), not task_spec.regression
    points = read_curve(history, name)
    if not points:
        if run.data.val is not None:
            print("note: the run ended before its first validation: best/ is the model of its last step")
        return None
    until = None if schedule is None else schedule.begun
    exhausted = schedule is not None and schedule.reason == PATIENCE
    trend = trend_of(points, higher=higher, tolerance=run.training.tolerance, until=until, exhausted=exhausted)
    print(sentence(trend, name, higher, history))
    return trend


def trend_of(
    points: Sequence[tuple[int, float]],
    *,
    higher: bool,
    tolerance: float,
    until: int | None = None,
    exhausted: bool = False,
) -> dict[str, Any]:
    """Return ``rising``, the slope per 1 000 steps, and the step of the best of some validations (step, score).

    A score was still rising (one that is better when it is lower: falling) when training stopped, if the best one is of
    the last quarter of the steps and the line through the validations of the last half rises in a quarter of the steps
    by more than ``tolerance``, a share of the best. Validations after the step ``until``, of a cool-down, do not count.
    ``exhausted`` means that a run ended as its score no longer rose. With fewer than four validations ``rising`` is
    None, unless the run was exhausted.
    """
    sign = 1.0 if higher else -1.0
    known = [(step, sign * score) for step, score in points if not math.isnan(score)]
    judged = [(step, merit) for step, merit in known if until is None or step <= until]
    trend: dict[str, Any] = {"validations": len(points), "rising": False if exhausted else None}
    if known:
        trend["best_step"] = max(known, key=lambda point: point[1])[0]
    if len(judged) < FEW:
        return trend
    last, (best_step, best) = judged[-1][0], max(judged, key=lambda point: point[1])
    late = [point for point in judged if point[0] >= last / 2]
    late = late if len(late) >= FEW - 1 else judged[1 - FEW :]
    slope = float(np.polyfit([step for step, _ in late], [merit for _, merit in late], 1)[0])
    trend["slope_per_1000_steps"] = round(sign * slope * 1000, 6)
    if not exhausted:
        trend["rising"] = bool(best_step > 0.75 * last and slope * last / 4 > tolerance * abs(best))
    return trend


def sentence(trend: dict[str, Any], name: str, higher: bool, history: Path) -> str:
    """Return a :func:`trend_of` validations in words."""
    moved, way = ("rising", "rose") if higher else ("falling", "fell")
    where = f"scores of all {trend['validations']} validations: {history}"
    if trend["rising"] is None:
        return f"too few validations to tell whether {name} was still {moved}; {where}"
    if "slope_per_1000_steps" in trend:
        where = f"{trend['slope_per_1000_steps']:+.2g} per 1,000 steps in the second half; {where}"
    if trend["rising"]:
        return f"{name} was still {moved} when training stopped, so more training may help ({where})"
    best = f"best at step {trend['best_step']:,}; " if "best_step" in trend else ""
    return f"{name} {way} no more when training stopped ({best}{where})"


def compare(
    run: Run, task_spec: TaskSpec, scores: dict[str, Any], over: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """Print and return what tabular baselines score on the splits that were scored; None where there are none.

    They are given up when the time for them is ``over``.
    """
    if not run.training.baselines or not scores:
        return None
    if importlib.util.find_spec("sklearn") is None:
        print("note: no baselines to compare with: pip install 'atomizer-io[baselines]', or training.baselines=false")
        return None
    from atomizer_io.training.baselines import Baselines

    limits = {"val": run.training.validation_samples, "test": None}
    try:
        val = None if run.data.val is None else open_split(run, "val").for_evaluation()
        baselines = Baselines(task_spec, open_split(run, "train"), run.seed, over, val)
        by_use = {use: baselines.score(open_split(run, use).for_evaluation(), limits[use]) for use in scores}
    except AtomizerError as error:  # the run itself is complete
        print(f"note: no baselines to compare with: {error}")
        return None
    name = main_score(task_spec)
    fitted_on = "positions and what lies around them" if task_spec.dense else "means and standard deviations of scenes"
    for use, by_name in by_use.items():
        theirs = ", ".join(f"{baseline[name]:.4g} {kind}" for kind, baseline in by_name.items())
        print(
            f"{use} {name}: {scores[use][name]:.4g} this model; {theirs}, fitted on {fitted_on} "
            f"({baselines.fitted_on:,} of them)"
        )
    if (text := lost(scores, by_use, task_spec)) is not None:
        print(text)
    own = {"fitted_on": baselines.fitted_on, "seconds": baselines.seconds, "settings": baselines.settings}
    return {**own, "scores": by_use}


def look_around(run: Run, folder: Path) -> dict[str, Any] | None:
    """Print and return how much the predictions of the best model depend on what lies around them."""
    if run.data.val is None:
        return None
    model = load_model(folder)
    measured = surroundings.surroundings(model, open_split(run, "val").for_evaluation(), run.seed)
    print(surroundings.sentence(measured, model.task_spec))
    return measured


def lost(scores: dict[str, Any], baselines: dict[str, dict[str, dict[str, Any]]], task_spec: TaskSpec) -> str | None:
    """Return a sentence on the baselines to which the model lost, and what to do; None where it lost to none."""
    behind = {}
    for use, by_name in baselines.items():
        best = max(by_name, key=lambda name: merit(by_name[name], task_spec))
        if merit(by_name[best], task_spec) > merit(scores[use], task_spec):
            behind[use] = best
    if not behind:
        return None
    name = main_score(task_spec)
    to = " and ".join(
        f"the {best} on {use} ({baselines[use][best][name]:.4g} against {scores[use][name]:.4g})"
        for use, best in behind.items()
    )
    return (
        f"note: this model lost to {to}. Train longer if its score was still getting better (training.epochs, "
        "--max-time), label more data, or try other settings (docs/how-to/training.md); until it wins, the simple "
        "baseline is the better model for these data"
    )

"""Seven small tasks on real data, each with the one recipe, beside a forest and a regression; and missing channels.

Two questions: is a network that was trained for minutes better than simple baselines, and does one network serve every
set of channels or dates, where forests have to be fitted for each.
"""

from __future__ import annotations

import shutil
import statistics
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atomizer_io.data.sample import Sample
from atomizer_io.models.registry import load_model
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_io.training.config import Run, override, parse
from atomizer_io.training.evaluate import evaluate, score
from atomizer_io.training.run import train
from atomizer_io.training.splits import open_split
from atomizer_lab.matrix import Task, recorded, run_all
from atomizer_lab.small_data.baselines import forests_by_channels, forests_by_dates, tabular_baselines, then
from atomizer_lab.small_data.dates import OnlySteps, subsets, time_steps
from atomizer_lab.small_data.staging import staged
from atomizer_lab.small_data.tasks import FLOODS, RONDONIA, SETTINGS, TASKS, SmallTask, merged

CHANNELS, DATES = f"{FLOODS.name}-channels", f"{RONDONIA.name}-dates"
NAMES = (*TASKS, CHANNELS, DATES)
COUNTS, DRAWS = (6, 3, 1), 3  # dates at test, and how often they are drawn
DROPOUT: dict[str, dict[str, Any]] = {
    CHANNELS: {"training": {"channel_dropout": {"scheme": "groups", "alone": 0.3}}},
    DATES: {"training": {"channel_dropout": {"dates": 0.7, "alone": 0.3}}},
}
FOREST = "forest and regression"


def small_data(
    source: Path,
    output: Path,
    work: Path,
    *,
    training: Mapping[str, Any],
    seeds: Sequence[int] = (0,),
    jobs: int = 1,
    only: Sequence[str] = NAMES,
    changes: Sequence[str] = (),
) -> dict[str, Any]:
    """Run the tasks named in ``only`` on the data in ``source``; return the results by the names of runs.

    ``training`` is the length of a training: its ``max_time``, or its ``max_steps``. ``changes`` are settings
    (``key=value``) of all networks that differ from the recipe.
    """
    tasks = []
    changed: dict[str, Any] = {}
    override(changed, changes)
    own = merged({"training": training}, changed)
    for name in only:
        task = {CHANNELS: FLOODS, DATES: RONDONIA}.get(name) or TASKS[name]
        root = str(staged(task.name, task.stage, source, work))
        tasks += runs_of(name, task, {seed: merged(task.document(root, seed), own) for seed in seeds}, work)
    about = {
        "what": "scores on the test part of small tasks: one recipe for all, beside a forest and a regression",
        "command": " ".join(["atomizer reproduce small-data", *(["--set", *changes] if changes else [])]),
        "settings": merged(SETTINGS, own),
        "metrics": {task.name: task.metric for task in TASKS.values()},
    }
    return run_all(tasks, output, jobs=jobs, about=about)


def runs_of(name: str, task: SmallTask, documents: Mapping[int, dict[str, Any]], work: Path) -> list[Task]:
    """Return the runs of a line of the result: the network with each seed, and its baselines."""
    data = next(iter(documents.values()))["data"]
    fixed = {"document": {"data": data}, "metric": task.metric}  # baselines depend on no other settings
    dates = {"counts": COUNTS, "draws": DRAWS}
    network: Callable[..., dict[str, Any]]
    if name == CHANNELS:
        network, baseline, more = network_by_channels, Task(f"{name}, {FOREST}", forests_by_channels, fixed, 10.0), {}
    elif name == DATES:
        network, more = network_by_dates, dates
        baseline = Task(f"{name}, {FOREST}", forests_by_dates, {**fixed, **dates}, 30.0)
    else:
        network, more, baseline = network_alone, {}, Task(f"{name}, {FOREST}", tabular_baselines, fixed, 5.0)
    tasks = [baseline]
    for seed, plain in documents.items():
        document = merged(plain, DROPOUT.get(name, {}))
        mark = zlib.crc32(repr(recorded(document)).encode())  # other settings train in another folder
        folder = work / "runs" / f"{name}-{seed}-{mark:08x}"
        arguments = {"document": document, "folder": str(folder), "metric": task.metric, **more}
        tasks.append(Task(f"{name}, seed {seed}", network, arguments, 15.0))
    return tasks


def trained(document: Mapping[str, Any], folder: str) -> tuple[Run, dict[str, Any]]:
    """Return a run that was trained in ``folder`` and its result; an interrupted training goes on."""
    place = Path(folder)
    run = parse({**document, "output": str(place.parent), "name": place.name})
    resume = (place / "state.safetensors").exists()
    if not resume and place.exists():
        shutil.rmtree(place)  # it was stopped before anything was saved
    return run, train(run, resume=resume, progress=False)


def network_alone(document: Mapping[str, Any], folder: str, metric: str) -> dict[str, Any]:
    """Train on one task and return the test score."""
    _, result = trained(document, folder)
    return {**summary(result), metric: result["scores"]["test"][metric], "scores": result["scores"]}


def network_by_channels(document: Mapping[str, Any], folder: str, metric: str) -> dict[str, Any]:
    """Train once with channel dropout, and return the test score of each configuration of the paper's table."""
    run, result = trained(document, folder)
    by_channels = evaluate(run, Path(folder) / "best", channels=tuple(CONFIGURATIONS))["scores"]
    return {**summary(result), "scores": {name: scores[metric] for name, scores in by_channels.items()}}


def network_by_dates(
    document: Mapping[str, Any], folder: str, metric: str, counts: Sequence[int], draws: int
) -> dict[str, Any]:
    """Train once with dropout of dates; return the mean test score by the number of dates, drawn as for forests."""
    run, result = trained(document, folder)
    model, by_count = load_model(Path(folder) / "best"), {}
    whole = open_split(run, "test")[0]
    assert isinstance(whole, Sample)
    steps = sorted(set(time_steps(whole.atoms)))
    for count in counts:
        scores = []
        for kept in subsets(steps, count, draws):
            dataset = open_split(run, "test")
            dataset.transform = then(dataset.transform, OnlySteps(kept))
            scores.append(score(model, dataset, progress=False)[metric])
        by_count[str(count)] = statistics.mean(scores)
    return {**summary(result), "scores": by_count}


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a training beside its scores."""
    return {key: result[key] for key in ("best", "steps", "seconds", "ended_by", "curve")}


def table(results: Mapping[str, Any]) -> str:
    """Return the results as text: each task with its metric, the network (mean ± std of the seeds) and the baselines.

    Below are the networks and forests with fewer channels or dates.
    """
    lines = [f"{'task':18} {'metric':10} {'Atomizer-IO':>16} {'forest':>8} {'regression':>10} {'constant':>9}"]
    for name, task in TASKS.items():
        if (baseline := results.get(f"{name}, {FOREST}")) is None:
            continue
        own = mean_and_std([run[task.metric] for run in seeds_of(results, name)])
        simple = f"{baseline['forest'][task.metric]:8.3f} {baseline['regression'][task.metric]:10.3f}"
        lines.append(f"{name:18} {task.metric:10} {own:>16} {simple} {baseline['constant']:9.3f}")
    for name, title in ((CHANNELS, "channels at test"), (DATES, "dates at test")):
        if (baseline := results.get(f"{name}, {FOREST}")) is None:
            continue
        lines += ["", f"{name}: one network, forests fitted for each", f"{title:18} {'Atomizer-IO':>16} {'forest':>8}"]
        runs = [run["scores"] for run in seeds_of(results, name)]
        for kind, simple in baseline["scores"].items():
            lines.append(f"{kind:18} {mean_and_std([run[kind] for run in runs]):>16} {simple:8.3f}")
        means = [statistics.mean(run.values()) for run in runs]
        lines.append(f"{'mean':18} {mean_and_std(means):>16} {statistics.mean(baseline['scores'].values()):8.3f}")
    return "\n".join(lines)


def seeds_of(results: Mapping[str, Any], name: str) -> list[Any]:
    """Return the results of a task with all seeds."""
    return [result for run, result in results.items() if run.startswith(f"{name}, seed ")]


def mean_and_std(scores: Sequence[float]) -> str:
    """Return mean and standard deviation as text; one score stands alone."""
    mean = f"{statistics.mean(scores):.3f}"
    return f"{mean} ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else mean

"""Rows of tabular baselines: a forest, boosted trees, a regression and a constant, with features of the surroundings.

They have the splits of the networks: fitted on the training part, settings chosen on the validation part. Where a table
has columns with fewer channels, they are fitted anew for each.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.training.bands import configuration, with_channels
from atomizer_io.training.baselines import Baselines
from atomizer_io.training.config import Run, parse
from atomizer_io.training.splits import USES, open_split
from atomizer_lab.matrix import Task
from atomizer_lab.paper.columns import Column
from atomizer_lab.paper.item import Where
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.paper.networks import Runs, folders, root_of, shown

MINUTES = 10.0
FOREST = "random forest"


def opened(run: Run, channels: str) -> list[Dataset]:
    """Return the training, validation and test split of a run, with the channels of a configuration only."""
    splits = [open_split(run, use).for_evaluation() for use in USES]
    if channels != "all":
        keep = configuration(channels, splits[0].channels)
        for split in splits:
            before = split.transform or (lambda sample: sample)
            split.transform = lambda sample, before=before: with_channels(before(sample), keep)
    return splits


def fitted_and_scored(run: Run, channels: str) -> dict[str, dict[str, Any]]:
    """Return the test scores of each baseline by its name, with its setting and its score on the validation split."""
    train, val, test = opened(run, channels)
    info = train.info
    task_spec = TaskSpec(task=info.task, num_outputs=info.num_outputs, class_names=info.classes)
    baselines = Baselines(task_spec, train, run.seed, val=val)
    scores = baselines.score(test)
    return {
        baseline.name: {**scores[baseline.name], "setting": baseline.setting, "val": baseline.val}
        for baseline in baselines.models
    }


def fit_and_score(
    columns: Mapping[str, str],
    metric: str,
    key: str,
    document: Mapping[str, Any],
    data: str,
    work: str,
    results: str,
    average: str | None = None,
) -> dict[str, Any]:
    """Fit all baselines for each of ``columns``, which name configurations of channels, and return the test scores.

    ``average`` is the column of their mean.
    """
    root = root_of(key, document, data, work)
    run = parse({**document, "data": {**document["data"], **({"root": root} if root else {})}})
    scores = {title: fitted_and_scored(run, channels) for title, channels in columns.items()}
    names = next(iter(scores.values()))
    numbers = {name: {title: shown(metric, own[name][metric]) for title, own in scores.items()} for name in names}
    if average is not None:
        numbers = {name: {**cells, average: statistics.mean(cells.values())} for name, cells in numbers.items()}
    return {"numbers": numbers, "metric": metric, "scores": scores}


def runs_of(columns: Sequence[Column], titles: Mapping[str, str] | None = None, average: str | None = None) -> Runs:
    """Return what lists the runs of the baselines on columns, one for each whatever the seeds."""

    def task(where: Where, column: Column) -> Task:
        own = dict(titles or {column.title: "all"})
        document = {"data": column.document(ATOMIZER, 0, {}, {}, where.configs)["data"]}
        arguments = {"columns": own, "metric": column.metric, "key": column.key, "document": document}
        if average is not None:
            arguments["average"] = average
        name = f"tabular baselines, {column.label(own)}"
        return Task(name, fit_and_score, arguments, MINUTES * len(own), folders(where))

    return lambda where, seeds: [task(where, column) for column in columns]

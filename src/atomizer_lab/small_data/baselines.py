"""Tabular baselines of every small task, also fitted anew for fewer channels or dates.

They have the same splits as the network: fitted on the training part, settings chosen on the validation part.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.training.bands import CONFIGURATIONS, with_channels
from atomizer_io.training.baselines import Baselines
from atomizer_io.training.config import parse
from atomizer_io.training.splits import open_split
from atomizer_lab.small_data.dates import OnlySteps, subsets, time_steps

Change = Callable[[Sample], Sample]
FOREST = "random forest"
KEYS = {"forest": FOREST, "boosting": "gradient boosting", "regression": " regression"}  # in result files


@dataclass(frozen=True)
class OnlyChannels:
    """A change of samples: only the channels of a test configuration stay."""

    name: str

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample without the other channels."""
        return with_channels(sample, CONFIGURATIONS[self.name])


def opened(document: Mapping[str, Any], change: Change | None = None) -> list[Dataset]:
    """Return the training, validation and test split of a run, with a change of their samples."""
    run = parse(dict(document))
    splits = [open_split(run, use).for_evaluation() for use in ("train", "val", "test")]
    for split in splits:
        split.transform = split.transform if change is None else then(split.transform, change)
    return splits


def then(first: Change | None, second: Change) -> Change:
    """Return one change of samples after another."""
    return second if first is None else lambda sample: second(first(sample))


def fitted_and_scored(
    document: Mapping[str, Any], metric: str, change: Change | None = None, only: Collection[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the test score of each baseline by its name, with its setting and its score on the validation split."""
    train, val, test = opened(document, change)
    info = train.info
    task_spec = TaskSpec(task=info.task, num_outputs=info.num_outputs, class_names=info.classes)
    baselines = Baselines(task_spec, train, parse(dict(document)).seed, val=val, only=only)
    scores = baselines.score(test)
    return {
        baseline.name: {
            "setting": baseline.setting,
            "val": baseline.val,
            metric: scores[baseline.name][metric],
            "positions": baselines.fitted_on,
        }
        for baseline in baselines.models
    }


def tabular_baselines(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the scores of all baselines on the task of a training run, by their keys in result files."""
    scores = fitted_and_scored(document, metric)
    by_key = {key: scores[next(name for name in scores if name.endswith(end))] for key, end in KEYS.items()}
    return {**by_key, "constant": scores["constant"][metric]}


def forests_by_channels(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the scores of forests that are fitted for each configuration of channels of the paper's table."""
    return {"scores": {name: forest(document, metric, OnlyChannels(name)) for name in CONFIGURATIONS}}


def forests_by_dates(document: Mapping[str, Any], metric: str, counts: Sequence[int], draws: int) -> dict[str, Any]:
    """Return the mean scores of forests fitted for each of ``counts`` numbers of dates, drawn ``draws`` times."""
    steps = sorted({step for sample in opened(document)[0] for step in time_steps(sample.atoms)})
    scores = {
        str(count): statistics.mean(forest(document, metric, OnlySteps(kept)) for kept in subsets(steps, count, draws))
        for count in counts
    }
    return {"scores": scores}


def forest(document: Mapping[str, Any], metric: str, change: Change) -> float:
    """Return the test score of a forest that is fitted on changed samples."""
    return float(fitted_and_scored(document, metric, change, (FOREST,))[FOREST][metric])

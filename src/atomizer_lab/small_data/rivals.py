"""The simple rivals of every task: a random forest and a regression of what was observed at single pixels or places.

Both read the same split as the network. They are fitted on the training part; the size of leaves and the strength of
regularisation are those with the best score on the validation part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample, unknown
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.models.sites import seen_sites
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_io.training.config import parse
from atomizer_io.training.metrics import scores_of_confusion
from atomizer_io.training.splits import open_split
from atomizer_lab.small_data.dates import subsets, time_steps

POSITIONS = 60_000  # most positions that are fitted on, or validated on
LEAVES = (1, 5, 20, 50)
STRENGTHS = (1e-2, 1.0, 1e2, 1e4)  # of regularisation
TREES = 100
ITERATIONS = 300
Floats = NDArray[np.float32]


class Column(NamedTuple):
    """What a column of a table is: a channel at a time step; ``what`` tells several of these apart."""

    sensor: str
    channel: str
    step: int
    what: str = ""


Keep = Callable[[Column], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What was observed (M, C), NaN where absent, and what is true (M,) at positions or of scenes."""

    columns: tuple[Column, ...]
    x: Floats
    y: NDArray[Any]


def table(dataset: Dataset, most: int | None = None, seed: int = 0) -> Table:
    """Return what was observed at the known positions of a dataset, about ``most`` at most; or what of each scene."""
    draw = np.random.default_rng(seed)
    each = None if most is None else -(-most // len(dataset))
    parts = [row_of_scene(s) if s.queries is None else rows_at_positions(s, each, draw) for s in dataset]
    columns = tuple(dict.fromkeys(column for found, _ in parts for column in found))
    x = np.full((sum(len(y) for _, y in parts), len(columns)), np.nan, dtype=np.float32)
    first, places = 0, {column: number for number, column in enumerate(columns)}
    for found, y in parts:
        for column, values in found.items():
            x[first : first + len(y), places[column]] = values
        first += len(y)
    return Table(columns, x, np.concatenate([y for _, y in parts]))


def rows_at_positions(
    sample: Sample, most: int | None, draw: np.random.Generator
) -> tuple[dict[Column, Floats], NDArray[Any]]:
    """Return the columns at queries of a sample whose truth is known, and the truth."""
    queries = sample.queries
    assert queries is not None
    known = np.flatnonzero(~unknown(sample.target).numpy())
    if most is not None and len(known) > most:
        known = np.sort(draw.choice(known, most, replace=False))
    queries, found = queries.part(torch.from_numpy(known)), {}
    for number, (acquisition, step) in enumerate(zip(sample.atoms, time_steps(sample.atoms), strict=True)):
        site = seen_sites(acquisition, number, queries).numpy()
        values = acquisition.observed().numpy()[np.maximum(site, 0)].astype(np.float32)
        values[site < 0] = np.nan
        for channel, column in zip(acquisition.channels, values.T, strict=True):
            found[Column(channel.sensor, channel.name, step)] = column
    return found, sample.target.numpy()[known]


def row_of_scene(sample: Sample) -> tuple[dict[Column, Floats], NDArray[Any]]:
    """Return one row of a scene (all values, mean and spread of each channel and date, the days), and the truth."""
    found: dict[Column, Floats] = {}
    for acquisition, step in zip(sample.atoms, time_steps(sample.atoms), strict=True):
        values = acquisition.observed().numpy().astype(np.float32)
        for number, channel in enumerate(acquisition.channels):
            own = values[:, number]
            named = {f"site {site}": value for site, value in enumerate(own.tolist())}
            if len(own) > 1 and np.isfinite(own).any():
                named |= {"mean": float(np.nanmean(own)), "spread": float(np.nanstd(own))}
            for what, value in named.items():
                found[Column(channel.sensor, channel.name, step, what)] = np.array([value], np.float32)
        if acquisition.day_of_year is not None:
            found[Column("", "day", step)] = np.array([acquisition.day_of_year % 365.25], np.float32)
    return found, sample.target.numpy().reshape(1)


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Training, validation and test tables with the same columns, and how answers are scored."""

    train: Table
    val: Table
    test: Table
    metric: str
    classes: tuple[str, ...]  # none: a quantity
    seed: int = 0

    @classmethod
    def of(cls, document: Mapping[str, Any], metric: str) -> Fit:
        """Read the splits of a training run."""
        run = parse(dict(document))
        train = open_split(run, "train")
        val, test = open_split(run, "val"), open_split(run, "test")
        tables = (table(train, POSITIONS, run.seed), table(val, POSITIONS, run.seed), table(test))
        return cls(*tables, metric, train.info.classes, run.seed)

    def best(self, kind: Callable[[float], Any], settings: Sequence[float], keep: Keep | None = None) -> dict[str, Any]:
        """Return the test score of the setting that is best on the validation part, with the columns ``keep`` accepts.

        A column that does not vary in training is left out; an absent value is the mean of its column.
        """
        wanted = np.array([keep is None or keep(column) for column in self.train.columns])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
            mean, spread = np.nanmean(self.train.x, axis=0), np.nanstd(self.train.x, axis=0)
        wanted &= np.nan_to_num(spread) > 0
        parts = [filled(part, self.train.columns, mean)[:, wanted] for part in (self.train, self.val, self.test)]
        found: tuple[float, float, Any] | None = None  # score, setting and model of the best so far
        for setting in settings:
            fitted = kind(setting)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="lbfgs failed to converge")
                fitted.fit(parts[0], self.train.y)
            score = self.score(fitted.predict(parts[1]), self.val.y)
            if found is None or (score > found[0] if self.classes else score < found[0]):
                found = (score, setting, fitted)
        assert found is not None
        val, chosen, fitted = found
        score = self.score(fitted.predict(parts[2]), self.test.y)
        return {"setting": chosen, "val": val, self.metric: score, "positions": len(self.train.y)}

    def score(self, answers: NDArray[Any], truth: NDArray[Any]) -> float:
        """Return the score of answers."""
        if not self.classes:
            return float(np.sqrt(np.mean((answers - truth) ** 2)))
        confusion = np.zeros((len(self.classes), len(self.classes)), dtype=np.int64)
        np.add.at(confusion, (truth, answers), 1)
        return float(scores_of_confusion(torch.from_numpy(confusion), self.classes)[self.metric])

    def forest(self, keep: Keep | None = None) -> dict[str, Any]:
        """Return the test score of a random forest."""
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        kind = RandomForestClassifier if self.classes else RandomForestRegressor
        # a third of the columns at each split, as is usual for quantities; the square root for classes
        share: Any = "sqrt" if self.classes else 1 / 3

        def made(leaf: float) -> Any:
            return kind(TREES, min_samples_leaf=int(leaf), max_features=share, random_state=self.seed)

        return self.best(made, LEAVES, keep)

    def regression(self) -> dict[str, Any]:
        """Return the test score of a logistic or linear regression of standardised values."""
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        def made(strength: float) -> Any:
            last = LogisticRegression(C=1 / strength, max_iter=ITERATIONS) if self.classes else Ridge(strength)
            return make_pipeline(StandardScaler(), last)

        return self.best(made, STRENGTHS)

    def constant(self) -> float:
        """Return the test score of the mean of the training answers, or of their most frequent class."""
        if self.classes:
            answer = np.bincount(self.train.y, minlength=len(self.classes)).argmax()
        else:
            answer = self.train.y.mean()
        return self.score(np.full(len(self.test.y), answer), self.test.y)


def filled(part: Table, columns: Sequence[Column], mean: Floats) -> Floats:
    """Return the values of a table in these columns, ``mean`` where they are absent."""
    places = {column: number for number, column in enumerate(part.columns)}
    x = np.full((len(part.x), len(columns)), np.nan, dtype=np.float32)
    for number, column in enumerate(columns):
        if column in places:
            x[:, number] = part.x[:, places[column]]
    found: Floats = np.where(np.isfinite(x), x, mean)
    return found


def rivals(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the scores of forest, regression and a constant answer on the task that a training run has."""
    fit = Fit.of(document, metric)
    return {"forest": fit.forest(), "regression": fit.regression(), "constant": fit.constant()}


def forests_by_channels(document: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the scores of forests that are fitted for each configuration of channels of the paper's table."""
    fit = Fit.of(document, metric)

    def of(name: str) -> Keep:
        return lambda column: CONFIGURATIONS[name](Channel(column.sensor, column.channel))

    return {"scores": {name: fit.forest(of(name))[metric] for name in CONFIGURATIONS}}


def forests_by_dates(document: Mapping[str, Any], metric: str, counts: Sequence[int], draws: int) -> dict[str, Any]:
    """Return the mean scores of forests fitted for each of ``counts`` numbers of dates, drawn ``draws`` times."""
    fit = Fit.of(document, metric)
    steps = sorted({column.step for column in fit.train.columns})
    found = {}
    for count in counts:
        kept = subsets(steps, count, draws)
        scores = [fit.forest(lambda column, own=own: column.step in own)[metric] for own in kept]  # type: ignore[misc]
        found[str(count)] = float(np.mean(scores))
    return {"scores": found}

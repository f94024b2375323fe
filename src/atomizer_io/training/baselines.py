"""Tabular baselines: what a forest and a regression get on the data of a run, to compare its scores with.

A row of their table is what was observed at one position, every channel of every date and the fields of the site, with
what lies around it (:mod:`~atomizer_io.training.neighbourhoods`). About scenes it is the mean and the standard
deviation of every channel of every date. They are fitted on a bounded number of training positions, with scikit-learn,
and scored as models are.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.sample import Sample, unknown
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import AtomizerError
from atomizer_io.models.base import log_probabilities
from atomizer_io.models.sites import seen_sites
from atomizer_io.training.data import subsampled, unusable
from atomizer_io.training.draws import generator
from atomizer_io.training.metrics import Scores, Scoring
from atomizer_io.training.neighbourhoods import surroundings

FITTED, SCORED = 60_000, 5  # positions at most that are fitted on; times as many that are scored
NUMBERS = 30_000_000  # of the table that is fitted on at most: long series have many columns
SAMPLES, ATOMS = 200, 300_000_000  # that are read at most: so many samples, or more as long as their atoms are few
LOOKED_AT = 4  # samples that show how many atoms a sample has
TREES, TREE_ROWS = 100, 20_000  # of a forest; rows that a tree is grown on at most
TRIED = 12  # columns that a branch of a tree is chosen from at most
ITERATIONS = 300  # of a regression of classes

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One number for each of M positions (NaN: absent): what it is, and when, as a day and as the n-th of its kind."""

    name: tuple[str, str]
    day: float | None
    turn: int
    values: Floats


@dataclass(frozen=True, slots=True)
class Table:
    """The columns (name and number of the date) that a rival reads, with their means, which stand for what is absent.

    ``days`` has the days of a name where those of all samples are the same few: the number of a date is then that of
    the nearest day. Otherwise it counts the dates of each sample.
    """

    days: Mapping[tuple[str, str], NDArray[np.float64]]
    columns: tuple[tuple[tuple[str, str], int], ...]
    means: Floats

    @classmethod
    def over(cls, samples: Sequence[Sequence[Column]]) -> Table:
        """Return the table of all columns of some samples that have a number anywhere."""
        met: dict[tuple[str, str], set[float | None]] = {}
        most: dict[tuple[str, str], int] = {}
        for column in (column for found in samples for column in found):
            met.setdefault(column.name, set()).add(column.day)
            most[column.name] = max(most.get(column.name, 0), column.turn + 1)
        days = {
            name: np.array(sorted(day for day in found if day is not None))
            for name, found in met.items()
            if None not in found and 1 < len(found) <= most[name]
        }
        whole = cls(days, (), np.zeros(0, dtype=np.float32))
        columns = tuple(dict.fromkeys((c.name, whole.date_of(c)) for found in samples for c in found))
        whole = cls(days, columns, np.full(len(columns), np.nan, dtype=np.float32))
        rows = np.concatenate([whole.rows(found) for found in samples])
        seen = ~np.isnan(rows).all(axis=0)
        means = np.asarray(np.nanmean(rows[:, seen], axis=0, dtype=np.float64), dtype=np.float32)
        return cls(days, tuple(key for key, keep in zip(columns, seen, strict=True) if keep), means)

    def rows(self, found: Sequence[Column]) -> Floats:
        """Return one row per position; what no training sample had is left out."""
        table = np.full((len(found[0].values) if found else 0, len(self.columns)), np.nan, dtype=np.float32)
        places = {key: place for place, key in enumerate(self.columns)}
        for column in found:
            place = places.get((column.name, self.date_of(column)))
            if place is not None:  # of two swaths of one day the first counts where it saw something
                table[:, place] = np.where(np.isnan(table[:, place]), column.values, table[:, place])
        return np.where(np.isnan(table), self.means, table)

    def date_of(self, column: Column) -> int:
        """Return the number of the date of a column."""
        if column.name not in self.days or column.day is None:
            return column.turn
        return int(np.abs(self.days[column.name] - column.day).argmin())


def columns_of(sample: Sample) -> list[Column]:
    """Return what was observed at each query of a sample; about a scene, mean and spread of what was observed."""
    order = sorted(enumerate(sample.atoms), key=lambda pair: (pair[1].day_of_year is None, pair[1].day_of_year or 0.0))
    turns: dict[tuple[str, str], int] = {}
    found = []
    for number, acquisition in order:
        sensor = acquisition.sensor
        kinds = {
            (c.sensor, c.name): values for c, values in zip(acquisition.channels, acquisition.observed().T, strict=True)
        }
        kinds |= {(sensor, f"field {name}"): values for name, values in acquisition.site_fields.items()}
        if sample.queries is not None:
            site_M = seen_sites(acquisition, number, sample.queries)
            kinds = {name: looked_up(values, site_M) for name, values in kinds.items()}
            kinds |= {(sensor, name): values for name, values in around_sites(acquisition, site_M).items()}
        else:
            kinds = {key: value for name, values in kinds.items() for key, value in pooled(name, values).items()}
        for name, values in kinds.items():
            turn = turns.get(name, 0)
            turns[name] = turn + 1
            found.append(Column(name, acquisition.day_of_year, turn, values.to(torch.float32).cpu().numpy()))
    return found


def looked_up(values: Tensor, site_M: Tensor) -> Tensor:
    """Return the value at each site, NaN where the site is −1: nothing was seen."""
    if not len(values):
        return torch.full((len(site_M),), torch.nan)
    return torch.where(site_M >= 0, values[site_M.clamp(min=0)], torch.nan)


def around_sites(acquisition: Acquisition, site_M: Tensor) -> dict[str, Tensor]:
    """Return features of the neighbourhood of each site by name, NaN where the site is −1: nothing was seen."""
    seen_M = site_M >= 0
    features = surroundings(acquisition, site_M[seen_M].numpy()) if bool(seen_M.any()) else {}
    found = {name: torch.full((len(site_M),), torch.nan) for name in features}
    for name, values in features.items():
        found[name][seen_M] = torch.from_numpy(values).float()
    return found


def pooled(name: tuple[str, str], values: Tensor) -> dict[tuple[str, str], Tensor]:
    """Return mean and spread of the values of a scene, in one row each; NaN where there is none."""
    sensor, own = name
    known = values[values.isfinite()].double()
    spread = known.std(correction=0) if len(known) else known.mean()
    numbers = {f"{own} mean": known.mean(), f"{own} spread": spread}
    return {(sensor, kind): number.reshape(1) for kind, number in numbers.items()}


def some(dataset: Dataset, count: int, seed: int, limit: int | None = None) -> Iterator[Sample]:
    """Yield samples of a dataset in order, asked at known positions only, of all together about ``count`` at most."""
    length = len(dataset) if limit is None else min(limit, len(dataset))
    order = torch.randperm(length, generator=generator(seed, "rival samples"))
    most = min(count, most_samples(dataset, order[:LOOKED_AT].tolist()))
    chosen = order[:most].sort().values.tolist()
    for index in chosen:  # in order: windows of a tile follow each other
        sample = dataset[index]
        if isinstance(sample, Sample) and known_rows(sample):
            yield subsampled(sample, -(-count // len(chosen)), generator(seed, "rival positions", index))


def known_rows(sample: Sample) -> int:
    """Return how many positions (of a scene: one) have a known target and something that was observed."""
    return 0 if unusable(sample) is not None else int((~unknown(sample.target)).sum())


def most_samples(dataset: Dataset, numbers: Sequence[int]) -> int:
    """Return how many samples are read at most: many where they are small, down to one position each."""
    atoms = [sample.atoms.num_atoms for number in numbers if isinstance(sample := dataset[number], Sample)]
    return max(SAMPLES, ATOMS * len(atoms) // max(1, sum(atoms)))


class Baseline:
    """A model of scikit-learn that answers as our models do: logarithms of probabilities, or quantities."""

    def __init__(self, name: str, model: Any, task_spec: TaskSpec) -> None:
        self.name, self.model, self.task_spec = name, model, task_spec

    def fit(self, rows: Floats, target: NDArray[Any]) -> None:
        """Fit on a row and a target per position."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a regression that has not quite converged is good enough to compare with
            self.model.fit(rows, target)

    def outputs(self, rows: Floats) -> Tensor:
        """Return the answers (M, outputs)."""
        if self.task_spec.regression:
            return torch.from_numpy(np.asarray(self.model.predict(rows), dtype=np.float32)[:, None])
        found = torch.zeros(len(rows), max(2, self.task_spec.num_outputs))
        found[:, torch.from_numpy(self.model.classes_)] = torch.from_numpy(self.model.predict_proba(rows)).float()
        return log_probabilities(found)


def candidates(task_spec: TaskSpec, rows: int, columns: int, seed: int) -> list[Baseline]:
    """Return the rivals, not fitted yet; they use one thread."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    how: dict[str, Any] = {"n_jobs": 1, "random_state": seed, "max_samples": min(rows, TREE_ROWS)}
    usual = columns / 3 if task_spec.regression else columns**0.5
    how["max_features"] = max(1, min(TRIED, round(usual)))
    if task_spec.regression:
        forest, linear = RandomForestRegressor(TREES, min_samples_leaf=5, **how), Ridge()
    else:
        forest, linear = RandomForestClassifier(TREES, **how), LogisticRegression(max_iter=ITERATIONS)
    regression = make_pipeline(StandardScaler(), linear)
    name = "linear regression" if task_spec.regression else "logistic regression"
    return [Baseline("random forest", forest, task_spec), Baseline(name, regression, task_spec)]


class Baselines:
    """The rivals, fitted on the positions of a training split."""

    def __init__(
        self, task_spec: TaskSpec, train: Dataset, seed: int = 0, over: Callable[[], bool] = lambda: False
    ) -> None:
        """Fit them; an error says so if the time for that, or later for their scores, is ``over``."""
        began = time.monotonic()
        self.task_spec, self.seed, self.over = task_spec, seed, over
        columns = len(next(self._described(some(train, 1, seed)), (None, []))[1])
        self.most_rows = min(FITTED, NUMBERS // max(1, columns))
        samples = list(self._described(some(train, self.most_rows, seed)))
        if not samples:
            raise AtomizerError("no position of the training data has a known answer")
        self.table = Table.over([columns for _, columns in samples])
        rows = np.concatenate([self.table.rows(columns) for _, columns in samples])
        target = np.concatenate([sample.target.reshape(-1).numpy() for sample, _ in samples])
        if not task_spec.regression and len(np.unique(target)) < 2:
            raise AtomizerError("there is only one class in the training data")
        self.fitted_on = len(rows)
        self.models = candidates(task_spec, len(rows), rows.shape[1], seed)
        for baseline in self.models:
            self._check_time()
            baseline.fit(rows, target)
        self.seconds = round(time.monotonic() - began, 1)

    def score(self, dataset: Dataset, limit: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the scores of each rival by name, on at most ``limit`` samples of a dataset."""
        scores = {baseline.name: Scores(self.task_spec, everywhere=False) for baseline in self.models}
        adding = {name: Scoring(self.task_spec, own) for name, own in scores.items()}
        for sample, columns in self._described(some(dataset, SCORED * self.most_rows, self.seed, limit)):
            rows = self.table.rows(columns)
            for baseline in self.models:
                adding[baseline.name].add([sample], baseline.outputs(rows))
        for each in adding.values():
            each.finish()
        return {name: own.compute() for name, own in scores.items()}

    def _check_time(self) -> None:
        if self.over():
            raise AtomizerError("the time of --max-time that was left for them is over; --resume with more goes on")

    def _described(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, list[Column]]]:
        """Yield each sample without its atoms, which are no longer needed, with what was observed."""
        for sample in samples:
            self._check_time()
            columns = columns_of(sample)
            if columns:
                yield replace(sample, atoms=type(sample.atoms)(())), columns

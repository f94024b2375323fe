"""Tabular baselines: scores of a random forest, boosted trees, a regression and a constant on the data of a run.

A row of their table is what was observed at one position: every channel of every date in order, statistics over the
dates that do not depend on their order, the fields of the site, and features of the neighbourhood
(:mod:`~atomizer_io.training.neighbourhoods`). The row of a scene has the mean and the standard deviation of every
channel of every date. scikit-learn fits them on a bounded number of training positions; of a few settings of each the
best on the validation data is used. They are scored as models are.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.sample import Sample, unknown
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import AtomizerError
from atomizer_io.models.base import log_probabilities
from atomizer_io.models.sites import seen_sites
from atomizer_io.training.data import subsampled, unusable
from atomizer_io.training.draws import generator
from atomizer_io.training.metrics import Scores, main_score, merit
from atomizer_io.training.neighbourhoods import WINDOWS, surroundings

FITTED, SCORED = 60_000, 5  # most positions that are fitted on; times as many that are scored
NUMBERS = 30_000_000  # most numbers in the table that is fitted on: long series have many columns
SAMPLES, ATOMS = 200, 300_000_000  # most samples that are read, or more as long as their atoms are few
INSPECTED = 4  # samples that show how many atoms a sample has
FEW_DATES = 3  # acquisitions of a sample; of more only one window of pixels is described
TREES, TREE_ROWS = 100, 20_000  # of a forest; most rows that a tree is grown on
MOST_TRIED = 12  # most columns that a branch of a tree is chosen from
ROUNDS = 200  # trees of boosting, over all classes
ITERATIONS = 300  # of a logistic regression
LEAVES = (1, 20)  # smallest leaf of a forest; the first setting is used where there is no validation data
BOOSTED_LEAVES = (31, 8)  # leaves of a boosted tree
STRENGTHS = (1.0, 1e-2, 1e2)  # of the regularisation of a regression

Floats = NDArray[np.float32]
Rows = tuple[Floats, NDArray[Any]]  # what was observed, and the target


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One number for each of M positions (NaN: absent): its name, its day, and its index among those of its name."""

    name: tuple[str, str]
    day: float | None
    index: int
    values: Floats


class Table:
    """The columns (name and index of the date) of the baselines, with their means, which replace absent values.

    ``days`` has the days of a name where those of all samples are the same few: the index of a date is then that of
    the nearest day. Otherwise it counts the dates of each sample. A column without any number is left out.
    """

    def __init__(self, samples: Sequence[Sequence[Column]]) -> None:
        met: dict[tuple[str, str], set[float | None]] = {}
        most: dict[tuple[str, str], int] = {}
        columns = [column for sample in samples for column in sample]
        if not columns:
            raise AtomizerError("no training sample has an observation at a known position")
        for column in columns:
            met.setdefault(column.name, set()).add(column.day)
            most[column.name] = max(most.get(column.name, 0), column.index + 1)
        self.days = {
            name: np.array(sorted(day for day in dates if day is not None))
            for name, dates in met.items()
            if None not in dates and 1 < len(dates) <= most[name]
        }
        self.columns = tuple(dict.fromkeys((column.name, self.date_of(column)) for column in columns))
        self.means: Floats = np.full(len(self.columns), np.nan, dtype=np.float32)
        rows = np.concatenate([self.rows(sample) for sample in samples])
        known = ~np.isnan(rows).all(axis=0)
        self.columns = tuple(itertools.compress(self.columns, known))
        self.means = np.asarray(np.nanmean(rows[:, known], axis=0, dtype=np.float64), dtype=np.float32)

    def rows(self, columns: Sequence[Column]) -> Floats:
        """Return one row per position of a sample; columns that no training sample had are left out."""
        table = np.full((len(columns[0].values) if columns else 0, len(self.columns)), np.nan, dtype=np.float32)
        indices = {key: index for index, key in enumerate(self.columns)}
        for column in columns:
            index = indices.get((column.name, self.date_of(column)))
            if index is not None:  # of two swaths of one day the first counts where it has a value
                table[:, index] = np.where(np.isnan(table[:, index]), column.values, table[:, index])
        return np.where(np.isnan(table), self.means, table)

    def date_of(self, column: Column) -> int:
        """Return the index of the date of a column."""
        if column.name not in self.days or column.day is None:
            return column.index
        return int(np.abs(self.days[column.name] - column.day).argmin())


def columns_of(sample: Sample, windows: Sequence[int] = WINDOWS) -> list[Column]:
    """Return what was observed at each query of a sample; of a scene, mean and standard deviation of its values."""
    series: dict[tuple[str, str], list[Floats]] = {}  # the values of each name, date by date
    observed, columns = set[tuple[str, str]](), list[Column]()
    days = [math.inf if acquisition.day_of_year is None else acquisition.day_of_year for acquisition in sample.atoms]
    for number in np.argsort(days, kind="stable").tolist():
        acquisition = sample.atoms.acquisitions[number]
        sensor, channels = acquisition.sensor, [(channel.sensor, channel.name) for channel in acquisition.channels]
        values = dict(zip(channels, acquisition.observed().T, strict=True))
        values |= {(sensor, f"field {name}"): field for name, field in acquisition.site_fields.items()}
        kinds = {name: of_sites.cpu().numpy() for name, of_sites in values.items()}
        if sample.queries is not None:
            site_M = seen_sites(acquisition, number, sample.queries).numpy()
            known_M = site_M >= 0
            kinds = {name: of_sites[site_M[known_M]] for name, of_sites in kinds.items()}
            if known_M.any():
                near = surroundings(acquisition, site_M[known_M], windows)
                kinds |= {(sensor, name): of_known for name, of_known in near.items()}
            kinds = {name: placed(of_known, known_M) for name, of_known in kinds.items()}
            observed |= {*channels}
        else:
            kinds = {key: number for name, of_sites in kinds.items() for key, number in pooled(name, of_sites).items()}
            observed |= kinds.keys()
        for name, values_M in kinds.items():
            dates = series.setdefault(name, [])
            columns.append(Column(name, acquisition.day_of_year, len(dates), values_M))
            dates.append(values_M)
    for name, dates in series.items():
        if name in observed and len(dates) > 1:
            columns += order_free(name, np.stack(dates))
    return columns


def order_free(name: tuple[str, str], values_TM: Floats) -> list[Column]:
    """Return statistics of a series over its dates that do not depend on their order."""
    sensor, channel = name
    kinds: dict[str, Callable[..., Floats]] = {
        "mean": np.nanmean,
        "deviation": np.nanstd,
        "least": np.nanmin,
        "most": np.nanmax,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # positions without any value stay NaN
        statistics = {kind: of(values_TM, axis=0) for kind, of in kinds.items()}
    return [Column((sensor, f"{channel} {kind} of dates"), None, 0, values) for kind, values in statistics.items()]


def placed(values: NDArray[Any], known_M: NDArray[np.bool_]) -> Floats:
    """Return the values of known positions as those of all (M,), NaN where nothing was observed."""
    column = np.full(len(known_M), np.nan, dtype=np.float32)
    column[known_M] = values
    return column


def pooled(name: tuple[str, str], values: NDArray[Any]) -> dict[tuple[str, str], Floats]:
    """Return mean and standard deviation of the values of a scene, in one row each; NaN where there is none."""
    sensor, own = name
    known = values[np.isfinite(values)].astype(np.float64)
    numbers = (known.mean(), known.std()) if len(known) else (np.nan, np.nan)
    kinds = (f"{own} mean", f"{own} deviation")
    return {(sensor, kind): np.array([number], np.float32) for kind, number in zip(kinds, numbers, strict=True)}


def known_samples(dataset: Dataset, count: int, seed: int, limit: int | None = None) -> Iterator[Sample]:
    """Yield samples of a dataset in order with known queries only, of all together about ``count`` at most.

    Many samples are read where they are small, down to one position (or scene) each, fewer where they are large.
    """
    length = len(dataset) if limit is None else min(limit, len(dataset))
    order = torch.randperm(length, generator=generator(seed, "rival samples")).tolist()
    atoms = [item.atoms.num_atoms for number in order[:INSPECTED] if isinstance(item := dataset[number], Sample)]
    most = max(SAMPLES, ATOMS * len(atoms) // max(1, sum(atoms)))
    chosen = sorted(order[: min(count, most)])
    for index in chosen:  # in order: windows of a tile follow each other
        sample = dataset[index]
        if isinstance(sample, Sample) and unusable(sample) is None and bool((~unknown(sample.target)).any()):
            yield subsampled(sample, -(-count // len(chosen)), generator(seed, "rival positions", index))


class Baseline:
    """A model of scikit-learn that outputs logarithms of probabilities or values, as our models do.

    ``make`` returns an unfitted model for one of ``settings``; ``setting`` is the one that was chosen.
    """

    def __init__(self, name: str, make: Callable[[float], Any], settings: Sequence[float], task_spec: TaskSpec) -> None:
        self.name, self.make, self.settings, self.task_spec = name, make, settings, task_spec
        self.model: Any = None
        self.setting = settings[0]
        self.val: float | None = None

    def fit(self, rows: Floats, target: NDArray[Any], validation: Rows | None, check: Callable[[], None]) -> None:
        """Fit each setting and take the best on the validation rows; without these fit the first setting."""
        best = -math.inf
        for setting in self.settings if validation is not None else self.settings[:1]:
            check()
            before, self.model = self.model, self.make(setting)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a regression that has not quite converged is good enough to compare
                self.model.fit(rows, target)
            if validation is None:
                continue
            scores = self.scores(*validation)
            if before is not None and not merit(scores, self.task_spec) > best:
                self.model = before
                continue
            best, self.setting = merit(scores, self.task_spec), setting
            self.val = float(scores[main_score(self.task_spec)])

    def outputs(self, rows: Floats) -> Tensor:
        """Return the outputs (M, outputs) of the model: values, or logarithms of probabilities."""
        if self.task_spec.regression:
            return torch.from_numpy(np.asarray(self.model.predict(rows), dtype=np.float32)[:, None])
        shares = torch.zeros(len(rows), max(2, self.task_spec.num_outputs))
        shares[:, torch.from_numpy(self.model.classes_)] = torch.from_numpy(self.model.predict_proba(rows)).float()
        return log_probabilities(shares)

    def scores(self, rows: Floats, target: NDArray[Any]) -> dict[str, Any]:
        """Return the scores of the model on these rows."""
        scores = Scores(self.task_spec, everywhere=False)
        scores.update(self.outputs(rows), torch.from_numpy(target))
        return scores.compute()


def candidates(task_spec: TaskSpec, rows: int, columns: int, seed: int) -> list[Baseline]:
    """Return the baselines, not fitted yet."""
    from sklearn import dummy, ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    tried = max(1, min(MOST_TRIED, round(columns / 3 if task_spec.regression else columns**0.5)))
    forest = {"n_jobs": 1, "max_samples": min(rows, TREE_ROWS), "max_features": tried, "random_state": seed}
    rounds = max(20, ROUNDS // max(2, task_spec.num_outputs))
    boosting = {"max_iter": rounds, "early_stopping": False, "random_state": seed}
    if task_spec.regression:
        forest_of, boosting_of = ensemble.RandomForestRegressor, ensemble.HistGradientBoostingRegressor
        linear, linear_of, constant = "linear", linear_model.Ridge, dummy.DummyRegressor()
    else:
        forest_of, boosting_of = ensemble.RandomForestClassifier, ensemble.HistGradientBoostingClassifier
        linear, constant = "logistic", dummy.DummyClassifier(strategy="prior")

        def linear_of(strength: float) -> Any:
            return linear_model.LogisticRegression(C=1 / strength, max_iter=ITERATIONS)

    makers: dict[str, tuple[Callable[[Any], Any], Sequence[float]]] = {
        "random forest": (lambda leaf: forest_of(TREES, min_samples_leaf=leaf, **forest), LEAVES),
        "gradient boosting": (lambda leaves: boosting_of(max_leaf_nodes=leaves, **boosting), BOOSTED_LEAVES),
        f"{linear} regression": (lambda strength: make_pipeline(StandardScaler(), linear_of(strength)), STRENGTHS),
        "constant": (lambda _: constant, (0.0,)),
    }
    return [Baseline(name, make, settings, task_spec) for name, (make, settings) in makers.items()]


class Baselines:
    """The baselines, fitted on positions of a training split; ``val`` chooses their settings, ``only`` names some."""

    def __init__(
        self,
        task_spec: TaskSpec,
        train: Dataset,
        seed: int = 0,
        over: Callable[[], bool] = lambda: False,
        val: Dataset | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """Fit them; an error is raised if the time for that, or later for their scores, is ``over``."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        began = time.monotonic()
        self.task_spec, self.seed, self.over = task_spec, seed, over
        first = next(known_samples(train, 1, seed), None)
        if first is None:
            raise AtomizerError("no position of the training data has a known target")
        self.windows = WINDOWS if len(first.atoms) <= FEW_DATES else WINDOWS[1:2]
        self.most_rows = min(FITTED, NUMBERS // max(1, len(columns_of(first, self.windows))))
        samples = list(self._described(known_samples(train, self.most_rows, seed)))
        self.table = Table([columns for _, columns in samples])
        rows, target = self._rows(samples)
        if not task_spec.regression and len(np.unique(target)) < 2:
            raise AtomizerError("there is only one class in the training data")
        self.fitted_on = len(rows)
        held_out = [] if val is None else list(self._described(known_samples(val, self.most_rows, seed)))
        validation = self._rows(held_out) if held_out else None
        models = candidates(task_spec, len(rows), rows.shape[1], seed)
        self.models = [baseline for baseline in models if only is None or baseline.name in only]
        with threadpool_limits(1):
            for baseline in self.models:
                baseline.fit(rows, target, validation, self._check_time)
        self.settings = {baseline.name: baseline.setting for baseline in self.models}
        self.seconds = round(time.monotonic() - began, 1)

    def score(self, dataset: Dataset, limit: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the scores of each baseline by name, on at most ``limit`` samples of a dataset."""
        scores = {baseline.name: Scores(self.task_spec, everywhere=False) for baseline in self.models}
        for sample, columns in self._described(known_samples(dataset, SCORED * self.most_rows, self.seed, limit)):
            rows = self.table.rows(columns)
            for baseline in self.models:
                scores[baseline.name].add([sample], baseline.outputs(rows))
        return {name: own.compute() for name, own in scores.items()}

    def _rows(self, samples: Sequence[tuple[Sample, list[Column]]]) -> Rows:
        rows = np.concatenate([self.table.rows(columns) for _, columns in samples])
        return rows, np.concatenate([sample.target.reshape(-1).numpy() for sample, _ in samples])

    def _check_time(self) -> None:
        if self.over():
            raise AtomizerError("the time of --max-time that was left for them is over; --resume with more goes on")

    def _described(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, list[Column]]]:
        """Yield each sample without its atoms, which are no longer needed, with what was observed."""
        for sample in samples:
            self._check_time()
            columns = columns_of(sample, self.windows)
            if columns:
                yield replace(sample, atoms=type(sample.atoms)(())), columns

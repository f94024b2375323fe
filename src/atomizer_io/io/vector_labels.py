"""Labels in vector files: points, lines and polygons become positions with a target, a weight, a date and a split.

All positions are in one coordinate system, that of the images.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.inputs import LARGEST
from atomizer_io.data.task_spec import LARGEST_CODE
from atomizer_io.errors import ConfigError, DataError, listed
from atomizer_io.io.crs import crs_text, nearest_turn, parsed_crs, turn_of
from atomizer_io.io.dates import as_day
from atomizer_io.io.vector_files import Features, VectorFile, numbers_of
from atomizer_io.io.vector_sampling import LINES, POINTS, POLYGONS, Corners, Geometries, Sampling, sampled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_POSITIONS = 50_000_000  # of a file: beyond, it is no set of labels
RETURN_M, EARTH_M = 100.0, 40e6  # how near coordinates come back from another CRS; once around the Earth
MOST_NAMED = 1000  # features that are listed as skipped; further ones are counted


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """Which columns of a vector file are read; ``target`` None: the only one that is left.

    ``classes`` are pairs of a value of the target and its name; values without a name are left out. None: all values.
    """

    target: str | None = None
    date: str | None = None
    split: str | None = None
    weight: str | None = None
    classes: tuple[tuple[str, str], ...] | None = None
    regression: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class VectorLabels:
    """The M labelled positions of a file, in units of ``crs``.

    ``target`` (M,) are classes 0 … C−1 or values, ``weight`` (M,) counts in the loss, ``feature`` (M,) is the number of
    the feature in the file, ``day`` (M,) its date (NaT: none), ``split`` (M,) its index in ``splits``, −1 without one.
    ``classes`` and ``codes`` are names and numbers of the classes. ``skipped`` are features that cannot be used, by
    number, with the cause, ``more_skipped`` counts those that are not listed; ``narrow`` (K,) are polygons with no
    position inside their margin, ``unlabelled`` counts features without a target, ``left_out`` those of values that are
    no class.
    """

    path: Path
    crs: str | None
    column: str
    xy: Floats
    target: NDArray[Any]
    weight: NDArray[np.float32]
    feature: Ints
    day: NDArray[np.datetime64]
    split: NDArray[np.int16]
    splits: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    skipped: tuple[tuple[int, str], ...] = ()
    more_skipped: int = 0
    narrow: tuple[int, ...] = ()
    unlabelled: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.xy)


def read_labels(
    path: Path,
    columns: LabelColumns = LabelColumns(),
    sampling: Sampling = Sampling(),
    *,
    crs: str | None = None,
    own_crs: str | None = None,
    layer: str | None = None,
    skip_broken: bool = False,
) -> VectorLabels:
    """Read the labels of a vector file as positions in ``crs``, some ten thousand features at once.

    ``own_crs`` is the coordinate system of a file that names none. A feature that cannot be used is an error that
    names it, or with ``skip_broken`` left out and listed.
    """
    file = VectorFile.open(path, layer)
    source_crs = source_system(file, own_crs, crs)
    target = target_column(file, columns)
    features = Reader(file, columns, target, skip_broken)
    move = mover(source_crs, crs)
    parts = []
    total = 0
    for batch in file.batches([name for name in (target, columns.date, columns.split, columns.weight) if name]):
        part = features.positions(batch, move, source_crs, crs, sampling)
        total += len(part[0])
        if total > MOST_POSITIONS:
            raise DataError(path, f"has more than {MOST_POSITIONS:,} labelled positions")
        parts.append(part)
    return features.labels(parts, crs)


def source_system(file: VectorFile, own: str | None, target: str | None) -> str | None:
    """Return the coordinate system of a file: its own, or the user's where it names none."""
    from pyproj import CRS

    named = None if own is None else parsed_crs(own)
    if file.crs is not None and named is not None and CRS.from_user_input(file.crs) != named:
        raise DataError(file.path, f"is in {file.crs[:40]} by itself, not in {own}: leave the CRS of the labels out")
    known = file.crs or (None if named is None else crs_text(named))
    if known is None and file.kind == "CSV":
        return target  # x and y are those of the images
    if (known is None) != (target is None):
        has, lacks = ("the images have", "the labels have") if known is None else ("the labels have", "the images have")
        raise DataError(file.path, f"{lacks} no coordinate system, but {has} one: name it (crs=EPSG:...)")
    return known


def target_column(file: VectorFile, columns: LabelColumns) -> str:
    """Return the column of the target: the one that is named, else the only one that is left."""
    if columns.target is not None:
        return columns.target
    taken = {columns.date, columns.split, columns.weight, *file.positions}
    rest = [name for name in file.fields if name not in taken and name.casefold() not in ("id", "fid", "ogc_fid")]
    if len(rest) != 1:
        raise ConfigError(
            f"{file.path}: name the column of the labels (column=...): it has {listed(file.fields) or 'no columns'}"
        )
    return rest[0]


@functools.lru_cache(maxsize=64)
def mover(source: str | None, target: str | None) -> Callable[[Floats], Floats]:
    """Return what converts coordinates (N, 2) from one CRS to another; what cannot be converted becomes infinite.

    Far outside of their domain some projections give any number, so what does not come back counts as such, too.
    """
    if source is None or source == target:
        return lambda xy: xy
    from pyproj import Transformer

    there = Transformer.from_crs(source, target, always_xy=True)
    back = Transformer.from_crs(target, source, always_xy=True)
    turn = turn_of(source)
    near = RETURN_M if turn is None else RETURN_M * turn / EARTH_M

    def move(xy: Floats) -> Floats:
        moved = np.stack(there.transform(xy[:, 0], xy[:, 1], errcheck=False), axis=1)
        x, y = back.transform(moved[:, 0], moved[:, 1], errcheck=False)
        returned = (np.abs(nearest_turn(x, xy[:, 0], turn) - xy[:, 0]) < near) & (np.abs(y - xy[:, 1]) < near)
        moved[~returned] = np.inf
        return moved

    return move


class Reader:
    """Collects what the features of a file say beside their geometry, and what is wrong with some of them."""

    def __init__(self, file: VectorFile, columns: LabelColumns, target: str, skip_broken: bool) -> None:
        self.file, self.columns, self.target, self.skip_broken = file, columns, target, skip_broken
        self.values: dict[Any, int] = {}  # of the target, in the order in which they came
        self.split_names: dict[str, int] = {}
        self.skipped: list[tuple[int, str]] = []
        self.more_skipped, self.unlabelled = 0, 0
        self.narrow: list[int] = []
        self.counts: dict[int, int] = {}  # features by index of their value

    def refuse(self, feature: int, cause: str) -> None:
        """Raise an error about a feature, or take it into the list."""
        if not self.skip_broken:
            advice = "repair it, delete it, or set on_error to skip"
            raise DataError(self.file.path, f"feature {feature} {cause}: {advice}")
        if len(self.skipped) < MOST_NAMED:
            self.skipped.append((feature, cause))
        else:
            self.more_skipped += 1

    def keep(self, batch: Features, good: NDArray[np.bool_], cause: str, known: NDArray[np.bool_]) -> None:
        """Take features that are not ``good`` out of those that are ``known``, by their cause."""
        for number in np.flatnonzero(known & ~good).tolist():
            self.refuse(int(batch.ids[number]), cause)
        known &= good

    def positions(
        self,
        batch: Features,
        move: Callable[[Floats], Floats],
        source_crs: str | None,
        crs: str | None,
        sampling: Sampling,
    ) -> tuple[Any, ...]:
        """Return the positions of a batch, and for each: target, weight, number, day and split of its feature."""
        target, labelled = self.targets(batch)
        self.unlabelled += int((~labelled).sum())
        known = labelled.copy()
        day, split, weight = self.days(batch, known), self.splits(batch), self.weights(batch, known)
        known &= weight > 0
        geometry = self.geometries(batch, known, source_crs, sampling)
        corners = Corners.of(geometry, move, turn_of(crs))
        beyond = f"lies where {crs} cannot express it (are its coordinates in {source_crs}?)"
        self.keep(batch, corners.finite(len(geometry)), beyond, known)
        xy, index, share, gone = sampled(geometry, corners, known, crs, sampling)
        self.narrow += batch.ids[gone].tolist()
        return (
            xy,
            target[index],
            (share * weight[index]).astype(np.float32),
            batch.ids[index],
            day[index],
            split[index],
        )

    def geometries(
        self, batch: Features, known: NDArray[np.bool_], source_crs: str | None, sampling: Sampling
    ) -> Geometries:
        """Return the geometries, of which those that cannot be used are no longer ``known``."""
        import shapely

        geometry = batch.geometry
        self.keep(batch, ~(shapely.is_missing(geometry) | shapely.is_empty(geometry)), "has no geometry", known)
        kind = shapely.get_type_id(geometry)
        self.keep(batch, np.isin(kind, (*POINTS, *LINES, *POLYGONS)), "mixes points, lines and polygons", known)
        if sampling.line_width_m is None and (known & np.isin(kind, LINES)).any():
            raise ConfigError(f"{self.file.path} has lines: give their width in metres (line_width_m=...)")
        box = shapely.bounds(geometry)
        self.keep(batch, np.isfinite(box).all(axis=1), "has coordinates that are no numbers", known)
        if source_crs is not None and is_geographic(source_crs):
            off = (np.abs(box[:, 1::2]) > 90).any(axis=1) | (np.abs(box[:, ::2]) > 540).any(axis=1)
            cause = "has a latitude beyond 90 degrees: are longitude and latitude swapped, or are these metres?"
            self.keep(batch, ~off, cause, known)
        valid = shapely.is_valid(geometry)
        for number in np.flatnonzero(known & ~valid).tolist():
            self.refuse(
                int(batch.ids[number]), f"has an invalid geometry ({shapely.is_valid_reason(geometry[number])})"
            )
        known &= valid
        return geometry

    def targets(self, batch: Features) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the target of each feature, for classes the index of its value, and which have one."""
        column = batch.columns[self.target]
        if self.columns.regression:
            values = numbers_of(column)
            known = np.isfinite(values) & (np.abs(values) < LARGEST)
            self.check_numbers(batch, column, known)
            return values.astype(np.float32), known
        index = self.indexed(column, self.values, plain)
        for value, count in zip(*np.unique(index, return_counts=True), strict=True):
            self.counts[int(value)] = self.counts.get(int(value), 0) + int(count)
        return index, index >= 0

    def check_numbers(self, batch: Features, column: Any, known: NDArray[np.bool_]) -> None:
        """Refuse a regression target that is a text; one that is absent is no label."""
        for number in np.flatnonzero(~known & column.is_valid().to_numpy(zero_copy_only=False)).tolist():
            value = column[number].as_py()
            if not isinstance(value, float) or not math.isnan(value):
                self.refuse(int(batch.ids[number]), f"has {value!r} in column {self.target!r}, which is no number")
                self.unlabelled -= 1

    def days(self, batch: Features, known: NDArray[np.bool_]) -> NDArray[np.datetime64]:
        """Return the date of each feature, NaT where it has none; one that is no date is refused."""
        none = np.datetime64("NaT", "D")
        if self.columns.date is None:
            return np.full(len(batch.ids), none)
        values: dict[Any, int] = {}
        index = self.indexed(batch.columns[self.columns.date], values, str)
        days = [as_day(text) for text in values]
        unclear = np.array([*(day is None for day in days), False])
        self.keep(batch, ~unclear[index], f"has no date such as 2021-07-04 in column {self.columns.date!r}", known)
        table = np.array([*(none if day is None else np.datetime64(day, "D") for day in days), none])
        return table[index]

    def splits(self, batch: Features) -> NDArray[np.int16]:
        """Return the index of the split of each feature, −1 where it has none."""
        if self.columns.split is None:
            return np.full(len(batch.ids), -1, dtype=np.int16)
        return self.indexed(batch.columns[self.columns.split], self.split_names, str).astype(np.int16)

    def weights(self, batch: Features, known: NDArray[np.bool_]) -> Floats:
        """Return the weight of each feature, 1 without a column of weights."""
        if self.columns.weight is None:
            return np.ones(len(batch.ids))
        weights = numbers_of(batch.columns[self.columns.weight])
        cause = f"has no weight of 0 or more in column {self.columns.weight!r}"
        self.keep(batch, np.isfinite(weights) & (weights >= 0), cause, known)
        return weights

    def indexed(self, column: Any, values: dict[Any, int], as_value: Callable[[Any], Any]) -> Ints:
        """Return the index of each value in ``values``, to which new ones are added; −1 where there is none."""
        encoded = column.dictionary_encode()
        table = [values.setdefault(as_value(v), len(values)) for v in encoded.dictionary.to_pylist()]
        index = encoded.indices.fill_null(len(table)).to_numpy(zero_copy_only=False)
        return np.array([*table, -1], dtype=np.int64)[index]

    def labels(self, parts: Sequence[tuple[Any, ...]], crs: str | None) -> VectorLabels:
        """Return the labels of all batches."""
        none = np.datetime64("NaT", "D")
        empty = (np.empty((0, 2)), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int64))
        xy, target, weight, feature, day, split = (
            np.concatenate(arrays)
            for arrays in zip(*(parts or [(*empty, np.full(0, none), np.empty(0, np.int16))]), strict=True)
        )
        names, codes, left_out = tuple[str, ...](), tuple[int, ...](), dict[str, int]()
        if not self.columns.regression:
            names, codes, table = class_table(self.file.path, self.target, self.values, self.columns.classes)
            left_out = {str(value): self.counts[index] for value, index in self.values.items() if table[index] < 0}
            target = np.array([*table, -1], dtype=np.int64)[target]
            kept = target >= 0
            if not kept.all():
                xy, target, weight, feature, day, split = (a[kept] for a in (xy, target, weight, feature, day, split))
        return VectorLabels(
            self.file.path,
            crs,
            self.target,
            xy,
            target,
            weight,
            feature,
            day,
            split,
            tuple(self.split_names),
            names,
            codes,
            tuple(self.skipped),
            self.more_skipped,
            tuple(self.narrow),
            self.unlabelled,
            left_out,
        )


def plain(value: Any) -> Any:
    """Return a class as it is compared: a whole number where it is one, also as a text; else a text."""
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, datetime.date):
        return value.isoformat()
    text = str(value).strip()
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 12 and text == str(int(text)) else text


def class_table(
    path: Path, column: str, values: Iterable[Any], classes: tuple[tuple[str, str], ...] | None
) -> tuple[tuple[str, ...], tuple[int, ...], list[int]]:
    """Return names and codes of the classes, and the class of each value, −1 where it is none.

    Whole numbers are codes themselves; texts are numbered in their order. Values with one name are one class, whose
    code is that of the first of them.
    """
    values = list(values)
    if any(isinstance(value, float) for value in values):
        number = next(value for value in values if isinstance(value, float))
        raise ConfigError(
            f"{path}: column {column!r} has numbers such as {number:g}, which are no classes: for a regression target "
            "set task=regression"
        )
    if classes is None:
        numbered = all(isinstance(value, int) for value in values)
        named = [(value, str(value)) for value in sorted(values, key=None if numbered else str)]
    else:
        named = [(plain(value), name) for value, name in classes]
        if absent := [str(value) for value, _ in named if value not in set(values)]:
            raise ConfigError(
                f"{path}: no feature has {listed(absent)} in column {column!r}, which classes= names; it has "
                f"{listed(sorted(map(str, values)))}"
            )
    names = tuple(dict.fromkeys(name for _, name in named))
    first = {name: value for value, name in reversed(named)}
    numbers = [first[name] for name in names]
    coded = all(isinstance(value, int) and abs(value) <= LARGEST_CODE for value in numbers)
    codes = tuple(numbers) if coded else tuple(range(len(names)))
    table = {value: names.index(name) for value, name in named}
    return names, codes, [table.get(value, -1) for value in values]


def is_geographic(crs: str) -> bool:
    """Return whether the units of a CRS are degrees."""
    from pyproj import CRS

    return bool(CRS.from_user_input(crs).is_geographic)

"""Labels that are set on the page: classes and points, as the page sends them and as GeoPackage."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, shown
from atomizer_io.io.vector_files import write_points
from atomizer_io.io.vector_labels import LabelColumns, read_labels

COLUMN = "class"
LONGEST, MOST_CLASSES, MOST = 200, 60, 20_000  # characters of a name, classes, labels
FORMATS = (".gpkg", ".geojson", ".json", ".fgb", ".csv", ".parquet")


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Labelled points: coordinates (N, 2) in the CRS of the map, and the number of their class in ``names``."""

    names: tuple[str, ...]
    xy_N2: NDArray[np.float64]
    class_N: NDArray[np.int64]

    @classmethod
    def of(cls, values: Any) -> Labels:
        """Return the labels of a request: ``{"classes": [name, …], "points": [[x, y, class], …]}``."""
        try:
            names = tuple(" ".join(shown(str(name)).split()) for name in values["classes"])
            table = np.array([[float(x), float(y), int(c)] for x, y, c in values["points"]]).reshape(-1, 3)
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError("the labels are not a list of points with a class: load the page again") from error
        if not all(0 < len(name) <= LONGEST for name in names) or len({*names}) < len(names):
            raise ConfigError(f"every class needs a name of its own, of at most {LONGEST} characters")
        if len(names) > MOST_CLASSES or len(table) > MOST:
            raise ConfigError(f"the page takes {MOST_CLASSES} classes and {MOST:,} labels at most: use `atomizer map`")
        numbers = table[:, 2].astype(np.int64)
        if not np.isfinite(table).all() or not ((numbers >= 0) & (numbers < len(names))).all():
            raise ConfigError("a label has no class or no position")
        return cls(names, table[:, :2], numbers)

    def write(self, path: Path, crs: str | None) -> None:
        """Write them as points of a vector file."""
        write_points(path, self.xy_N2, COLUMN, [self.names[number] for number in self.class_N], crs)

    def content(self, crs: str | None) -> bytes:
        """Return them as the bytes of a GeoPackage."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "labels.gpkg"
            self.write(path, crs)
            return path.read_bytes()

    def used(self) -> tuple[str, ...]:
        """Return the names of classes that have labels."""
        return tuple(name for number, name in enumerate(self.names) if (self.class_N == number).any())


def imported(content: bytes, suffix: str, crs: str | None, column: str | None = None) -> dict[str, Any]:
    """Return the labels in the bytes of a vector file as the page keeps them."""
    if suffix not in FORMATS:
        raise ConfigError(f"labels come as {', '.join(FORMATS)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"labels{suffix}"
        path.write_bytes(content)
        return read(path, crs, column)


def read(path: Path, crs: str | None, column: str | None = None) -> dict[str, Any]:
    """Return the labels of a vector file as the page keeps them: names of classes, and points in ``crs``."""
    labels = read_labels(path, LabelColumns(target=column), crs=crs, skip_broken=True)
    if len(labels) > MOST:
        raise ConfigError(
            f"the file holds {len(labels):,} labelled positions, the page takes {MOST:,}: use `atomizer map`"
        )
    points = [[x, y, int(c)] for (x, y), c in zip(labels.xy.tolist(), labels.target, strict=True)]
    return {"classes": [shown(name)[:LONGEST] for name in labels.classes], "points": points}


def classes_of(spec: TaskSpec, labels: Labels) -> tuple[str, ...]:
    """Return the classes of a refitted layer: those of the labels, with the model's own if any label has one."""
    own: Sequence[str] = spec.names if not spec.regression else ()
    used = labels.used()
    if len(used) < 2 and not any(name in own for name in used):
        raise ConfigError("it takes labels of two classes")
    return (*own, *(name for name in used if name not in own)) if any(name in own for name in used) else used

"""A map from labels: what was asked for, what was made, and its report: a page in which every name is escaped."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy import int64
from numpy.typing import NDArray

from atomizer_io import __version__
from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour
from atomizer_io.prediction.products import RasterProduct
from atomizer_io.training.area_accuracy import Accuracy
from atomizer_io.training.conformal import PredictionSets

TEMPLATES = Environment(
    loader=PackageLoader("atomizer_io.mapping"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["byte"] = lambda share: round(255 * share)  # of a colour


@dataclass(frozen=True, slots=True)
class MapRequest:
    """What is to be mapped, from what, and how it is tested.

    ``rasters`` are those of :class:`~atomizer_io.io.raster_sources.RasterInput` as plain values. ``coverage`` is what
    the prediction sets promise. ``random_sample`` says that the labels are a random sample of the mapped area, so that
    accuracy and areas are adjusted. With ``folds`` there is a cross-validation: a model for each of so many; otherwise
    one model, for which the dataset holds out one fold. ``max_time_s`` is the limit of all training; ``settings`` are
    further ``key=value`` of a run.
    """

    rasters: Sequence[dict[str, Any]]
    labels: Path
    column: str | None
    output: Path
    coverage: float = 0.9
    random_sample: bool = False
    folds: int | None = None
    max_time_s: float | None = None
    settings: Sequence[str] = ()

    def beside(self, ending: str) -> Path:
        """Return the name of a file beside the map: ``map.tif`` → ``map.sets.tif``."""
        return self.output.with_name(f"{self.output.stem}.{ending}")


@dataclass(frozen=True, slots=True, eq=False)
class LabelMap:
    """What was made: the map, the ``files`` beside it, and what the held-out labels say of it.

    ``tested_on`` says which labels those are. ``confusion`` counts labels by map class (row) and label (column); the
    areas of ``accuracy`` are empty unless they are adjusted, and ``unadjusted`` says why not. ``sizes`` counts the
    pixels by the size of their set, from 0 on.
    """

    request: MapRequest
    product: RasterProduct
    files: Mapping[str, Path]
    legend: Mapping[int, tuple[str, Colour]]  # name and colour of each class by its code
    labels: Sequence[int]  # of each class inside the rasters
    tested_on: str
    confusion: NDArray[int64]
    accuracy: Accuracy
    unadjusted: str | None
    sets: PredictionSets
    sizes: Sequence[int]
    scores: Mapping[str, Any] = field(default_factory=dict)  # of the first run
    notes: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their codes in ``legend``."""
        return tuple(name for name, _ in self.legend.values())

    @property
    def hectares(self) -> float:
        """The area of all classes together."""
        return sum(self.product.hectares.values())

    def summary(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        names, total = self.names, self.hectares
        accuracy, areas = self.accuracy, self.accuracy.areas
        hectares = {name: {"mapped": self.product.hectares[name]} for name in names}
        for name, area in zip(names, areas, strict=False):
            hectares[name] |= {key: round(value * total, 6) for key, value in dataclasses.asdict(area).items()}
        return {
            "classes": dict(zip(names, self.legend, strict=True)),
            "labels": dict(zip(names, self.labels, strict=True)),
            "tested_on": self.tested_on,
            "confusion": {"rows": "map", "columns": "labels", "counts": self.confusion.tolist()},
            "area_adjusted": bool(areas),
            "overall_accuracy": dataclasses.asdict(accuracy.overall),
            "users_accuracy": {n: dataclasses.asdict(e) for n, e in zip(names, accuracy.users, strict=True)},
            "producers_accuracy": {n: dataclasses.asdict(e) for n, e in zip(names, accuracy.producers, strict=True)},
            "hectares": hectares,
            "prediction_sets": {
                "coverage": self.sets.coverage,
                "least_probability": max(0.0, self.sets.least),
                "labels": self.sets.labels,
                "pixels_by_size": list(self.sizes),
            },
            "notes": list(self.notes),
        }


def report(made: LabelMap) -> str:
    """Return the page."""
    own = (made.scores.get("scores") or {}).get("test") or {}
    baselines = ((made.scores.get("baselines") or {}).get("scores") or {}).get("test") or {}
    page = TEMPLATES.get_template("report.html").render(
        made=made,
        preview=base64.b64encode(made.product.files["preview.png"].read_bytes()).decode(),
        sizes=[(size, count) for size, count in enumerate(made.sizes) if count],
        pixels=max(1, sum(made.sizes)),
        scores=[("this model", own), *baselines.items()] if own and baselines else [],
        version=__version__,
        today=datetime.date.today().isoformat(),
    )
    return printable(page)

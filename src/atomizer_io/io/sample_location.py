"""Where and when a sample of another library is: its bounds, transform and coordinate system."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from atomizer_io.errors import AtomsError
from atomizer_io.io.crs import Transform, crs_text, metres_per_degree, metres_per_unit
from atomizer_io.io.dates import single_day

SINGLE = 2.4e-7  # relative error of a difference of two numbers in single precision


@dataclass(frozen=True, slots=True)
class SampleLocation:
    """Where and when a sample was observed: edges and pixel size in units of the CRS, and metres per unit."""

    west: float = 0.0
    south: float = 0.0
    east: float = 0.0
    north: float = 0.0
    step: tuple[float, float] | None = None
    metres: tuple[float, float] | None = None  # None: the sample has no location
    name: str | None = None
    day: datetime.date | None = None

    @classmethod
    def of(cls, sample: Mapping[str, Any], crs: Any) -> SampleLocation:
        """Read ``bounds`` (slices, nine numbers, or an object with minx …), ``transform`` and ``crs``."""
        bounds = sample.get("bounds")
        if bounds is None and hasattr(sample.get("bbox"), "minx"):
            bounds = sample["bbox"]  # TorchGeo before 0.6; elsewhere boxes of objects
        if bounds is None:
            return cls()
        if hasattr(bounds, "minx"):
            edges = (bounds.minx, bounds.maxx, None, bounds.miny, bounds.maxy, None)
            day = single_day(getattr(bounds, "mint", None), getattr(bounds, "maxt", None), local=True)
        else:
            numbers = flat(bounds)
            if len(numbers) not in (6, 9):
                raise AtomsError(f"bounds are not x, y and t with start, stop and step: {bounds!r}")
            edges, day = tuple(numbers[:6]), single_day(*numbers[6:8]) if numbers[6:] else None
        west, east, step_x, south, north, step_y = (None if n is None else float(n) for n in edges)
        if west is None or east is None or south is None or north is None or not (west < east and south < north):
            raise AtomsError(f"bounds have no area: x from {west} to {east}, y from {south} to {north}")
        steps = (step_x, step_y) if step_x and step_y else None
        if sample.get("transform") is not None:
            a, b, _, d, e, *_ = (float(n) for n in flat(sample["transform"]))
            if b or d:
                raise AtomsError("the image is rotated against north (transform): warp it to a north-up grid first")
            steps = (abs(a), abs(e))
        system = sample.get("crs") if crs is None else crs
        metres, name = in_metres(system, (west, east), (south, north))
        return cls(west, south, east, north, steps, metres, name, day)

    @property
    def origin(self) -> tuple[float, float] | None:
        """The centre in the CRS; None where the CRS is not known."""
        return None if self.name is None else ((self.west + self.east) / 2, (self.south + self.north) / 2)

    def pixel(self, shape: Sequence[int]) -> tuple[float, float]:
        """Return the pixel size in units of the CRS of (height, width) pixels over the bounds, or the sample's own.

        The sample's own is taken if it fits, as it has more digits: single precision is good to half a metre.
        """
        width, height = self.east - self.west, self.north - self.south
        if self.step is not None:
            rounding = max(map(abs, (self.west, self.south, self.east, self.north))) * SINGLE
            off = abs(self.step[0] * shape[1] / width - 1), abs(self.step[1] * shape[0] / height - 1)
            if off[0] < 0.02 + rounding / width and off[1] < 0.02 + rounding / height:
                return self.step
        return width / shape[1], height / shape[0]

    def transform(self, shape: Sequence[int]) -> Transform | None:
        """Return the transform of a grid of (height, width) over the bounds; None if the CRS is not known."""
        across, down = self.pixel(shape) if self.name else (0.0, 0.0)
        return (across, 0.0, self.west, 0.0, -down, self.north) if self.name else None


def flat(numbers: Any) -> list[Any]:
    """Return slices, nested lists or a tensor as one list of numbers."""
    if isinstance(numbers, Tensor):
        return list(numbers.flatten().tolist())
    if isinstance(numbers, slice):
        return [numbers.start, numbers.stop, numbers.step]
    if isinstance(numbers, Iterable) and not isinstance(numbers, str):
        return [number for part in numbers for number in flat(part)]
    return [numbers]


def in_metres(crs: Any, x: tuple[float, float], y: tuple[float, float]) -> tuple[tuple[float, float], str | None]:
    """Return the metres per unit along x and y in the middle of the bounds, and the name of the CRS."""
    middle = (y[0] + y[1]) / 2
    if crs is None:
        degrees = max(map(abs, x)) <= 360 and max(map(abs, y)) <= 90
        return metres_per_degree(middle) if degrees else (1.0, 1.0), None
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        known = CRS.from_user_input(crs.to_wkt() if hasattr(crs, "to_wkt") else crs)
    except CRSError as error:
        raise AtomsError(f"{crs!r} is not a coordinate system: pass crs='EPSG:32632'") from error
    return metres_per_unit(known, middle), crs_text(known)

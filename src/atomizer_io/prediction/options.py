"""The options of a prediction, in small groups: how to decode, how windows are cut, where to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.errors import ConfigError
from atomizer_io.prediction.engines import Execution

__all__ = ["Decoding", "Execution", "PointCloudClasses", "PointCloudWindows", "Windows"]

MOST_OVERLAP = 0.9


@dataclass(frozen=True, slots=True)
class Windows:
    """How rasters are cut: into windows of ``side_m`` metres a side (None: by the model) that overlap by this share."""

    side_m: float | None = None
    overlap: float = 0.25

    def __post_init__(self) -> None:
        if self.side_m is not None:
            check_side(self.side_m)
        if not 0 <= self.overlap <= MOST_OVERLAP:
            raise ConfigError(f"overlap must be a share of a window from 0 to {MOST_OVERLAP}, got {self.overlap}")


@dataclass(frozen=True, slots=True)
class PointCloudWindows:
    """How point clouds are split: windows of ``side_m`` metres a side, every ``stride_m`` metres (None: half the side).

    All points of a window are observations; at most ``Cost.max_points`` of them become context. Every point is decoded;
    in a very dense point cloud, one in each cube of ``decode_every_m`` metres will do, and the others get the mean of
    the predictions nearest to them.
    """

    side_m: float = 50.0
    stride_m: float | None = None
    decode_every_m: float | None = None

    def __post_init__(self) -> None:
        check_side(self.side_m)
        if self.stride_m is None:
            object.__setattr__(self, "stride_m", self.side_m / 2)
        elif not 0 < self.stride_m <= self.side_m:
            raise ConfigError(f"stride_m must be metres up to the side of a window, {self.side_m}, got {self.stride_m}")
        if self.decode_every_m is not None and not 0 < self.decode_every_m < math.inf:
            raise ConfigError(f"decode_every_m must be a positive number of metres, got {self.decode_every_m}")

    @property
    def step_m(self) -> float:
        """The stride in metres: half the side where none was chosen."""
        return self.side_m / 2 if self.stride_m is None else self.stride_m


@dataclass(frozen=True, slots=True)
class PointCloudClasses:
    """How the classes of points are written.

    ``codes`` are LAS codes by class name, to be used instead of those of
    :func:`~atomizer_io.prediction.las_classes.las_codes`. ``replace`` puts them into ``classification`` instead of a
    new dimension ``PredictedClassification``. ``probabilities`` adds the probability of each class and the entropy.
    Points whose class in the file is among ``leave_out`` (FRACTAL: 65 and 66, noise) keep it, and the model does not
    see them.
    ``preview`` also draws the points from above and as a cross-section, beside the output (``classified.png``).
    """

    codes: Mapping[str, int] | None = None
    replace: bool = False
    probabilities: bool = True
    leave_out: tuple[int, ...] = ()
    preview: bool = False


def check_side(side_m: float) -> None:
    """Refuse a side of a window that is not a positive length."""
    if not 0 < side_m < math.inf:
        raise ConfigError(f"the side of a window must be a positive number of metres, got {side_m}")

"""The task specification: what is predicted, independent of the model and shared by all parts of the library."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atomizer_io.data.acquisition import FIELD_SOURCES
from atomizer_io.data.channels import Channel, channel_tuple
from atomizer_io.errors import ConfigError, check_numbers, listed

IGNORE = -1  # the class, in memory, of a position without a target
OTHER_CODES = -1  # stands for all codes of labels that are not named
SCENE_TASKS = ("classification", "scene_regression")
DENSE_TASKS = ("segmentation", "regression")
LARGEST_CODE = 2**31 - 1  # of a class, so that a map can hold it


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What is predicted (task, outputs, target) and what was measured (channels, site fields, dates).

    ``task`` is ``classification`` or ``scene_regression`` (one prediction per scene), ``segmentation`` or
    ``regression`` (one prediction per position). ``class_codes`` are the numbers that the classes have in the labels on
    disk, which products are written in; without any they are 0 … C−1, as targets and outputs always are in memory.
    ``label_codes`` is the class of each code of the labels on disk, −1 where it is ignored, for data in which several
    codes may be one class; −1 as a code is all others. ``las_standard`` is whether the classes of point clouds are
    those of the LAS standard, of which some are noise, which is not ground. The target of a regression has a name, a
    physical unit and the statistics of the training data. ``channels`` are the channels of the training data with their
    statistics in raw units; they take precedence over the statistics that a sample brings along; ``complete`` is true
    where each inspected training sample had all of them, so that the model cannot have learned to do without any.
    ``fields`` are mean and standard deviation of site fields such as intensity (of its log1p); ``complete_fields`` are
    those that each of these samples had, as ``complete`` for channels. ``point_density`` is mean and standard deviation
    of the points per m² of point clouds, of which training kept at least the share ``thinning``. ``dates`` is whether
    the day of an acquisition may be used, which is wrong for a model that was trained on one day only. ``extent_m`` is
    the usual width of a scene and ``pixel_m`` that of the smallest pixels, in metres. ``timesteps`` are the numbers of
    the time steps of the training data in their order, where acquisitions name them (months, or before and after).
    """

    task: str = "segmentation"
    num_outputs: int = 2
    class_names: tuple[str, ...] = ()
    class_codes: tuple[int, ...] = ()
    label_codes: Mapping[int, int] = field(default_factory=dict)
    las_standard: bool = True
    target_name: str | None = None
    target_unit: str | None = None
    target_mean: float = 0.0
    target_std: float = 1.0
    channels: tuple[Channel, ...] = ()
    complete: bool = False
    fields: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    complete_fields: tuple[str, ...] = ()
    point_density: tuple[float, float] | None = None
    thinning: float = 1.0
    dates: bool = True
    extent_m: float | None = None
    pixel_m: float | None = None
    timesteps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        tasks = SCENE_TASKS + DENSE_TASKS
        check_numbers(self)
        if self.task not in tasks:
            raise ConfigError(f"task {self.task!r} is not known; choose one of {', '.join(tasks)}")
        if not isinstance(self.num_outputs, int) or self.num_outputs < 1:
            raise ConfigError(f"num_outputs must be a whole number of at least 1, got {self.num_outputs}")
        if self.class_names and len(self.class_names) != self.num_outputs:
            raise ConfigError(f"{len(self.class_names)} class names for num_outputs={self.num_outputs}")
        _check_codes(self.class_codes, self.num_outputs)
        if not self.target_std > 0:
            raise ConfigError(f"target_std must be positive, got {self.target_std}")
        for name in ("extent_m", "pixel_m"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        object.__setattr__(self, "channels", channel_tuple(self.channels))
        for channel in self.channels:
            check_numbers(channel, f" of the channel {channel.sensor} {channel.name}")
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "class_codes", tuple(self.class_codes))
        object.__setattr__(self, "complete_fields", tuple(self.complete_fields))
        object.__setattr__(self, "timesteps", tuple(self.timesteps))

    @property
    def dense(self) -> bool:
        """Whether predictions are made at positions rather than for the scene."""
        return self.task in DENSE_TASKS

    @property
    def regression(self) -> bool:
        """Whether a physical quantity is predicted rather than a class."""
        return self.task in ("regression", "scene_regression")

    @property
    def names(self) -> tuple[str, ...]:
        """The class names, numbered where the data have none."""
        return self.class_names or tuple(f"class {code}" for code in self.codes)

    @property
    def codes(self) -> tuple[int, ...]:
        """The number of each class in products: that of the labels on disk, else 0 … C−1."""
        return self.class_codes or tuple(range(self.num_outputs))

    def statistics(self) -> dict[tuple[str, str], Channel]:
        """The channels of the training data by (sensor, name)."""
        return {(channel.sensor, channel.name): channel for channel in self.channels}

    def lacking(self, present: Iterable[Channel]) -> str | None:
        """Return a warning about channels that each training sample had but that are not ``present``, or None."""
        here = {(channel.sensor, channel.name) for channel in present}
        gone = [f"{sensor} {name}" for sensor, name in self.statistics() if (sensor, name) not in here]
        if not self.complete or not gone:
            return None
        return (
            f"{len(gone)} of the {len(self.channels)} channels that each training sample had are missing: "
            f"{listed(gone)}; the model never learned to do without them, so its predictions may be far off (a model "
            "trained with training.channel_dropout learns that)"
        )

    def lacking_fields(self, present: Iterable[str]) -> str | None:
        """Return a warning about site fields that each training sample had but that are not ``present``, or None.

        Fields that files hold as one, such as the two of an echo, are present together.
        """
        here = {FIELD_SOURCES.get(name, name) for name in present}
        gone = dict.fromkeys(FIELD_SOURCES.get(name, name) for name in self.complete_fields)
        lost = [name for name in gone if name not in here]
        if not lost:
            return None
        are, them = ("are", "them") if len(lost) > 1 else ("is", "it")
        return (
            f"{' and '.join(lost)} of points {are} missing or the same in all points, but each training sample had "
            f"{them}; the model never learned to do without {them}, so its predictions may be far off: use a file that "
            f"has {them}, or a model that was trained with training.point_augmentation.field_dropout"
        )

    def replace(self, **changes: Any) -> TaskSpec:
        """Return a copy with some values changed; an unknown name is an error that suggests the nearest one."""
        for name in changes:
            if name not in FIELDS:
                near = difflib.get_close_matches(name, FIELDS, n=1)
                raise ConfigError(f"unknown setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaskSpec:
        """Return the task specification that :meth:`to_dict` wrote."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        if "channels" in plain:
            plain["channels"] = tuple(
                Channel(**{**channel, "aliases": tuple(channel.get("aliases", ()))}) for channel in plain["channels"]
            )
        if "label_codes" in plain:
            plain["label_codes"] = {int(code): int(number) for code, number in plain["label_codes"].items()}
        if "fields" in plain:
            plain["fields"] = {str(name): (float(mean), float(std)) for name, (mean, std) in plain["fields"].items()}
        return cls().replace(**plain)


def _check_codes(codes: Iterable[Any], outputs: int) -> None:
    """Refuse codes that do not give each class a whole number of its own."""
    codes = list(codes)
    if codes and len(codes) != outputs:
        raise ConfigError(f"{len(codes)} class codes for num_outputs={outputs}")
    if wrong := [code for code in codes if not isinstance(code, int) or not -LARGEST_CODE <= code <= LARGEST_CODE]:
        raise ConfigError(f"class code {wrong[0]!r} is not a whole number of 32 bits")
    if double := [code for number, code in enumerate(codes) if code in codes[:number]]:
        raise ConfigError(f"class code {double[0]} stands for two classes: each needs a code of its own")


FIELDS = tuple(item.name for item in dataclasses.fields(TaskSpec))

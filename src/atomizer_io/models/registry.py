"""Which models there are: Atomizer-IO, and those that installed packages add.

A package adds a model by an entry point of the group ``atomizer_io.models`` that names its class, a subclass of
``Model``. The baselines of ``atomizer_lab`` come in this way.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from atomizer_io.data import sensors
from atomizer_io.data.channels import Channel
from atomizer_io.data.sensors import Sensor
from atomizer_io.data.task_spec import FIELDS, TaskSpec
from atomizer_io.errors import CheckpointError, ConfigError
from atomizer_io.models.base import Model, Preset

FAMILIES = {"atomizer_io": "atomizer_io.models.atomizer.atomizer:AtomizerIO"}
_added: dict[str, type[Model]] = {}


def register_model(model: type[Model]) -> type[Model]:
    """Make a class known by its ``family`` and its presets; can be used as a decorator."""
    taken = {name for name, known, _ in _presets() if known != model.family}
    for name in model.presets:
        if name in taken:
            raise ConfigError(f"there is a model called {name!r} already: rename the preset of {model.__name__}")
    _added[model.family] = model
    return model


def family(name: str) -> type[Model]:
    """Return the class of a family, imported at its first use."""
    if name in _added:
        return _added[name]
    if name in FAMILIES:
        module, _, attribute = FAMILIES[name].partition(":")
        kind: type[Model] = getattr(importlib.import_module(module), attribute)
        return kind
    for point in _installed():
        if point.name == name:
            _added[name] = point.load()
            return _added[name]
    raise CheckpointError(
        f"{name!r} is no kind of model that is known here; known are {', '.join(_families())}. Your own needs an "
        "entry point of the group atomizer_io.models, or register_model before it is used (docs/reference/models.md)"
    )


def list_models() -> list[str]:
    """Return the names that :func:`create_model` knows."""
    return sorted(name for name, _, _ in _presets())


def preset(name: str) -> tuple[type[Model], Preset]:
    """Return the class and the settings of the model called ``name``."""
    known = {preset_name: (model, settings) for preset_name, model, settings in _presets()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? Known: " if near else "known: "
        raise ConfigError(f"unknown model {name!r}; {hint}{', '.join(sorted(known))}")
    model, settings = known[name]
    return family(model), settings


def create_model(
    name: str,
    *,
    task_spec: TaskSpec | None = None,
    num_classes: int | None = None,
    sensor: str | Sensor | None = None,
    bands: Sequence[str] | None = None,
    pretrained: bool = False,
    **settings: Any,
) -> Any:
    """Return the model called ``name`` with fresh weights.

    Keywords that are fields of :class:`~atomizer_io.data.task_spec.TaskSpec` (``task``, ``num_outputs``,
    ``class_names``, ``channels``, ``extent_m``, …) say what is predicted; all others are settings of the architecture.
    ``num_classes`` is another name of ``num_outputs``; ``bands`` of a ``sensor`` (all of them if none are named) stand
    for ``channels``.
    """
    model, usual = preset(name)
    if pretrained:
        raise ConfigError(
            f"there are no pretrained weights of {name} yet: leave pretrained out for fresh ones, or take those of a "
            "saved model (aio.load_model, or the setting model.checkpoint of a training)"
        )
    for known, short, value in (
        ("num_outputs", "num_classes", num_classes),
        ("channels", "sensor= and bands", _channels(sensor, bands)),
    ):
        if value is not None and known in settings:
            raise ConfigError(f"{known}= and {short}= are given, which stand for the same: leave one out")
        settings |= {} if value is None else {known: value}
    changes = {key: settings.pop(key) for key in FIELDS if key in settings}
    whole = (TaskSpec(**usual.task_spec) if task_spec is None else task_spec).replace(**changes)
    return model.build(whole, {**usual.settings, **model.adapted(whole, settings)}, preset=name)


def _channels(sensor: str | Sensor | None, bands: Sequence[str] | None) -> tuple[Channel, ...] | None:
    """Return the channels of these bands of a sensor, all of them where none are named."""
    if sensor is None:
        if bands is not None:
            raise ConfigError("bands= are bands of a sensor: say which with sensor=, such as sensor='sentinel2'")
        return None
    chosen = sensors.get(sensor) if isinstance(sensor, str) else sensor
    return chosen.channels if bands is None else chosen.pick(*bands)


def load_model(source: str | Path, *, revision: str | None = None) -> Any:
    """Return the model of any kind that was saved in a folder, or under a name on the Hugging Face hub."""
    from atomizer_io.models.storage import load

    return load(source, revision=revision)


def _families() -> list[str]:
    return list(dict.fromkeys([*FAMILIES, *_added, *(point.name for point in _installed())]))


def _presets() -> Iterator[tuple[str, str, Preset]]:
    for name in _families():
        try:
            presets = family(name).presets
        except Exception as error:
            if name in FAMILIES:
                raise
            warnings.warn(f"the installed model {name!r} cannot be used: {error}", stacklevel=4)
            continue
        for preset_name, settings in presets.items():
            yield preset_name, name, settings


@functools.cache
def _installed() -> tuple[Any, ...]:
    return tuple(entry_points(group="atomizer_io.models"))

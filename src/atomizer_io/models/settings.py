"""Settings of an architecture as a frozen dataclass, made from plain values with every name checked."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from atomizer_io.errors import ConfigError, check_numbers

Settings = TypeVar("Settings")


def settings_from(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Return ``kind(**values)``, lists as tuples; an unknown name is an error that suggests the nearest one."""
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
            raise ConfigError(f"unknown setting {name!r}; {hint}")
    settings = kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    check_numbers(settings)
    return settings

"""A plan states what a prediction computes from what, so that only the same prediction continues with its parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atomizer_io.errors import ConfigError
from atomizer_io.texts import parse_json, read_text

LONGEST = 60  # characters of a value in a message


@dataclass(frozen=True)
class Plan:
    """A prediction as plain values: ``inputs`` are files and model, ``resolved`` is what follows from the options.

    ``options`` are those options in the user's words. They only explain a difference: two choices that come to the same
    may use each other's parts.
    """

    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    resolved: Mapping[str, Any]


def stored_plan(path: Path) -> dict[str, Any] | None:
    """Return the plan in a file as plain values, or None if it cannot be read."""
    try:
        regular = path.is_file() and not path.is_symlink()
        plan = parse_json(read_text(path)) if regular else None
    except (OSError, ValueError):
        return None
    if isinstance(plan, dict) and "settled" in plan:  # old name
        plan["resolved"] = plan.pop("settled")  # old name
    parts = ("inputs", "options", "resolved")
    whole = isinstance(plan, dict) and all(isinstance(plan.get(name), dict) for name in parts)
    return plan if whole else None


def check_same(stored: Mapping[str, Any], plan: Plan, folder: Path) -> None:
    """Refuse to continue with the parts of another plan, and name what differs."""
    now = json.loads(json.dumps(asdict(plan)))
    differences = list(_differences(stored["inputs"], now["inputs"]))[:1]
    resolved = list(_differences(stored["resolved"], now["resolved"]))
    if resolved:
        differences += list(_differences(stored["options"], now["options"])) or resolved[:1]
    if differences:
        text = "; ".join(f"{key} was {_short(was)}, now it is {_short(value)}" for key, was, value in differences)
        raise ConfigError(f"cannot continue with {folder}: {text}; --overwrite starts again")


def _differences(stored: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two plans differ: the path to the value, and both values."""
    if isinstance(stored, dict) and isinstance(new, dict):
        pairs = {name: (stored.get(name), new.get(name)) for name in {**stored, **new}}
    elif isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        pairs = {str(number): pair for number, pair in enumerate(zip(stored, new, strict=True))}
    elif stored == new:
        return
    else:
        yield key, stored, new
        return
    for name, (before, now) in pairs.items():
        yield from _differences(before, now, f"{key} {name}".lstrip())


def _short(value: Any) -> str:
    text = {None: "not given", True: "on", False: "off"}.get(value) if isinstance(value, bool | None) else None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ",".join(value) or "none"
    text = str(value) if text is None else text
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"

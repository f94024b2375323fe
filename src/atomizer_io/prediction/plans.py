"""A plan states what a prediction computes from what, so that only the same prediction continues with its parts."""

from __future__ import annotations

import hashlib
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
    """A prediction as plain values: ``inputs`` are files and model, ``settled`` is what follows from the options.

    ``options`` are those options in the user's words. They only explain a difference: two choices that come to the same
    may use each other's parts.
    """

    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    settled: Mapping[str, Any]

    def text(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def mark(self) -> bytes:
        """The digest that identifies this plan."""
        return hashlib.blake2b(json.dumps([self.inputs, self.settled]).encode(), digest_size=16).digest()


def stored_plan(path: Path) -> dict[str, Any] | None:
    """Return the plan in a file as plain values, or None if it cannot be read."""
    try:
        regular = path.is_file() and not path.is_symlink()
        found = parse_json(read_text(path)) if regular else None
    except (OSError, ValueError):
        return None
    parts = ("inputs", "options", "settled")
    whole = isinstance(found, dict) and all(isinstance(found.get(name), dict) for name in parts)
    return found if whole else None


def check_same(stored: Mapping[str, Any], plan: Plan, folder: Path) -> None:
    """Refuse to continue with the parts of another plan, and say what differs."""
    wanted = json.loads(plan.text())
    found = list(_differences(stored["inputs"], wanted["inputs"]))[:1]
    different = list(_differences(stored["settled"], wanted["settled"]))
    if different:
        found += list(_differences(stored["options"], wanted["options"])) or different[:1]
    if found:
        text = "; ".join(f"{key} was {_short(before)}, now it is {_short(now)}" for key, before, now in found)
        raise ConfigError(f"cannot continue with {folder}: {text}; --overwrite starts again")


def _differences(stored: Any, wanted: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two plans differ: the path to the value, and both values."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        pairs = {name: (stored.get(name), wanted.get(name)) for name in {**stored, **wanted}}
    elif isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        pairs = {str(number): pair for number, pair in enumerate(zip(stored, wanted, strict=True))}
    elif stored == wanted:
        return
    else:
        yield key, stored, wanted
        return
    for name, (before, now) in pairs.items():
        yield from _differences(before, now, f"{key} {name}".lstrip())


def _short(value: Any) -> str:
    text = {None: "not given", True: "on", False: "off"}.get(value) if isinstance(value, bool | None) else None
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ",".join(value) or "none"
    text = str(value) if text is None else text
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"

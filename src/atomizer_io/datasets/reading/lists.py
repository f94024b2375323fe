"""Lists that come with datasets: names of a split, tables, JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atomizer_io.errors import DataError


def first_existing(folder: Path, names: Sequence[str], what: str) -> Path:
    """The first of ``names`` that is in ``folder``; releases of one dataset differ."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        folder / names[0], f"no such file: {what}" + (f" (also tried {', '.join(names[1:])})" if names[1:] else "")
    )


def lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty."""
    return [line.strip() for line in _text(path).splitlines() if line.strip()]


def rows(path: Path, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """The rows of a csv file with a header that has at least ``columns``."""
    reader = csv.DictReader(_text(path).splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise DataError(
            path, f"has no column {', '.join(missing)}; it has {', '.join(reader.fieldnames or ['nothing'])}"
        )
    return list(reader)


def from_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise DataError(path, f"is not JSON: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(path, "no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, f"cannot be read: {error}") from error

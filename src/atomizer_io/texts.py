"""Texts that users and programs leave in files: read whole, within limits, and never as code; written whole or not.

Whatever is wrong with a text is a ValueError, and with a file an OSError, so that callers can name the file.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from atomizer_io.durable import make_folder, publish
from atomizer_io.errors import printable
from atomizer_io.locks import alone

MOST_BYTES = 256 << 20  # of a text
MOST_VALUES = 1 << 20  # of a YAML document, with repeated parts counted as often as they are repeated
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # how cells begin that spreadsheets run
TOO_DEEP = "its brackets are nested too deeply"


def check_regular(path: Path) -> None:
    """Refuse what is no ordinary file: reading a pipe or a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        code = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(code, "this is not an ordinary file", str(path))


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text in an ordinary file."""
    check_regular(path)
    if path.stat().st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"this text has more than {MOST_BYTES >> 20} MB", str(path))
    return path.read_text(encoding=encoding)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file of this name, which holds all of it or is as before, whenever the power fails.

    A link of this name is replaced, not followed. Of several processes that write, the last one wins.
    """
    with alone(path.parent):
        replace_text(path, text)


def replace_text(path: Path, text: str) -> None:
    """Do what :func:`write_text` does, for a caller who is :func:`~atomizer_io.locks.alone` in the folder."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # of a process that was killed
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        publish({beside: path})
    except OSError as error:
        error.filename = error.filename or str(path)  # the error of a full disk does not name the file
        beside.unlink(missing_ok=True)
        raise


def write_output(path: Path, text: str) -> None:
    """Write a text to where the user wants it: a file as by :func:`write_text`, or a pipe, a device or a link."""
    make_folder(path.parent)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
    else:
        write_text(path, text)


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as the text of a CSV file that commands no spreadsheet and no terminal; numbers stay as they are."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_inert(cell) for cell in row] for row in rows)
    return text.getvalue()


def _inert(cell: Any) -> Any:
    """Return a cell without control characters, and a quote before what a spreadsheet would run, as OWASP advises."""
    if not isinstance(cell, str):
        return cell
    cell = printable(cell)
    if not cell.lstrip(" ").startswith(FORMULAS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def json_text(values: Any, indent: int | None = None) -> str:
    """Return values as JSON, which has neither NaN nor infinity: they become ``null``, as where a class is absent."""
    return json.dumps(_finite(values), indent=indent, allow_nan=False)


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def parse_json(text: str | bytes) -> Any:
    """Return the values in a text of JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


class Loader(yaml.SafeLoader):
    """YAML as it is usually written: ``1e-4`` is a number, which YAML 1.1 reads as a text."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """Return the plain values in a text of YAML; tags that would make objects are refused."""
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise ValueError("it repeats its own parts without end")
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (yaml.YAMLError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a document has, repeated parts counted each time; a part of itself is endless."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # until it is known: only a part of itself is met before
        inner = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_values(part, known) for part in inner)
    return known[id(node)]

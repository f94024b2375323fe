"""What can go wrong, in the user's words: every error names the offender and what to do about it."""

import dataclasses
import os
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any
from unicodedata import category

SHOWN = 12  # names in a message
LONGEST = 2000  # characters of a message
LARGEST = 3.4e38  # number in settings


def listed(names: Iterable[str]) -> str:
    """Return names for a message: the first dozen and how many more there are (a sensor can have hundreds of bands)."""
    every = list(names)
    more = len(every) - SHOWN
    return ", ".join(every) if more <= 1 else f"{', '.join(every[:SHOWN])}, … and {more} more"


def size_text(count: float) -> str:
    """Return a number of bytes as text for people."""
    factor, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if count >= pair[0]), (1e3, "kB"))
    return f"{count / factor:.1f} {unit}"


def printable(text: str) -> str:
    """Return a text without what commands a terminal: control characters, changes of direction, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else "\ufffd" for c in text)


def shown(text: str) -> str:
    """Return a text as it can be shown on a terminal: not too long, without control characters and lone surrogates."""
    kept = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 4 :]}"
    return printable(kept)


def first_line(error: Exception) -> str:
    """Return the first line of an error message of a library, without trailing punctuation."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def is_utf8(name: str) -> bool:
    """Return whether the name of a file can be written as UTF-8, which not every name on a disk can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class AtomizerError(ValueError):
    """Base of all errors this package raises on purpose; a ``ValueError`` for callers who do not care which.

    Messages may quote files: they are cut at a length that can be read, and hold no control characters.
    """

    def __str__(self) -> str:
        return shown(super().__str__())


class AtomsError(AtomizerError):
    """Observations that cannot be used as given: their shapes, positions or dates are wrong, or nothing is valid."""


class UnknownChannelError(AtomizerError):
    """A channel name that no sensor knows, or a channel that the model cannot describe."""


class QueryError(AtomizerError):
    """A query position that makes no sense for the scene."""


class ConfigError(AtomizerError):
    """An unknown preset or a setting outside its range."""


class CheckpointError(AtomizerError):
    """A saved model that is not there, not complete, or not of this version or size."""


class DataError(AtomizerError):
    """A file of a dataset that is missing, broken or not what its name promises; ``path`` is the file."""

    def __init__(self, path: str | os.PathLike[str], cause: str) -> None:
        super().__init__(os.fspath(path), cause)
        self.path, self.cause = os.fspath(path), cause

    def __str__(self) -> str:
        return shown(f"{self.path}: {self.cause}")


class KernelError(AtomizerError):
    """A call that a compiled kernel cannot work on: a mistake in this package, not in the data."""


class NoSampleError(DataError):
    """A split of a dataset that has no sample in the folder ``path``."""


def check_count(name: str, value: object) -> None:
    """Refuse what is not a whole number of at least one; ``name`` is what the user calls it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value}")


def check_numbers(settings: Any, of: str = "") -> None:
    """Refuse a dataclass in which a field of type float holds anything but a number that float32 can hold."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.type not in ("float", "float | None") or (value is None and field.type != "float"):
            continue
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        too_long = isinstance(value, int) and abs(value) > 2**53  # tensors take no such integer beside their numbers
        if not is_number or too_long or not -LARGEST < value < LARGEST:
            raise ConfigError(f"{field.name}{of} must be a number, got {value!r}")

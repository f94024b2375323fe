"""Types of options: whether a value is of one, and what it has to be in words, as ``a list of numbers, or null``."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = {  # one, and several
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("a text", "texts"),
    bool: ("true or false", "values true or false"),
    Path: ("a path", "paths"),
}
LISTS = (list, tuple, set, frozenset, Sequence, Iterable, Collection)
NUMBERS: dict[Any, Any] = {float: int | float | np.number, int: int | np.integer}


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a kind that an annotation allows, as far as annotations of options go."""
    origin, inner = _parts(hint)
    if origin is typing.Union:
        return any(fits(value, part) for part in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is Callable:
        return callable(value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if origin in LISTS:
        return isinstance(value, list | tuple | range) and all(fits(item, inner[0]) for item in value if inner)
    if origin in NUMBERS:
        return isinstance(value, NUMBERS[origin]) and not isinstance(value, bool)
    if origin is Path:
        return isinstance(value, str | os.PathLike)
    return origin is Any or not isinstance(origin, type) or isinstance(value, origin)


def in_words(hint: Any) -> str:
    """Return what an annotation allows; null comes last."""
    origin, inner = _parts(hint)
    if origin is types.NoneType:
        return "null"
    if origin is typing.Union:
        parts = sorted(inner, key=lambda part: part is types.NoneType)
        return ", or ".join(dict.fromkeys(in_words(part) for part in parts))
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin in (dict, Mapping):
        return f"a mapping from {_several(inner[0])} to {_several(inner[1])}" if inner else "a mapping (name: value)"
    if origin in LISTS:
        number = (
            "" if len(inner) < 2 or inner[-1] is ... else f"{len(inner)} "
        )  # a tuple without ... has a fixed length
        return f"a list of {number}{_several(inner[0])}" if inner else "a list"
    if origin is Callable:
        return "a function"
    return WORDS[origin][0] if origin in WORDS else f"a {origin.__name__}" if isinstance(origin, type) else "any value"


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what an annotation is of, a union in one way of the two, and what is in its brackets."""
    origin = typing.get_origin(hint) or (types.NoneType if hint is None else hint)
    return typing.Union if origin is types.UnionType else origin, typing.get_args(hint)


def _several(hint: Any) -> str:
    """Return the same of more than one."""
    origin, inner = _parts(hint)
    if origin is typing.Union:
        return " or ".join(dict.fromkeys(_several(part) for part in inner))
    if origin in WORDS:
        return WORDS[origin][1]
    words = in_words(hint)
    if words.startswith(("a list of", "a mapping")):
        return words.replace("a list", "lists", 1).replace("a mapping", "mappings", 1)
    return "values" if hint is Any else f"values that are {words}"

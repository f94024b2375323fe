"""Whether a value fits an annotation, and what it has to be in words: ``a list of numbers, or null``."""

from __future__ import annotations

import collections.abc
import os
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

ONE = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", Path: "a path"}
MANY = {float: "numbers", int: "whole numbers", str: "texts", bool: "values true or false", Path: "paths"}
LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping)


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a kind that an annotation allows, as far as annotations of options go."""
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if is_union(hint):
        return any(fits(value, part) for part in parts)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in MAPPINGS:
        return isinstance(value, collections.abc.Mapping)
    if origin in LISTS:
        return isinstance(value, list | tuple | range) and all(fits(item, parts[0]) for item in value if parts)
    if origin is typing.Literal:
        return value in parts
    if hint in (float, int):
        number = int | np.integer if hint is int else int | float | np.number
        return isinstance(value, number) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str | os.PathLike)
    if hint is None or hint is type(None):
        return value is None
    return isinstance(value, hint) if isinstance(hint, type) else True


def in_words(hint: Any) -> str:
    """Return what an annotation allows; null comes last."""
    if hint is None or hint is type(None):
        return "null"
    if is_union(hint):
        parts = sorted(typing.get_args(hint), key=lambda part: part is type(None))
        return ", or ".join(dict.fromkeys(in_words(part) for part in parts))
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(str(value) for value in inner)
    if origin in MAPPINGS:
        return f"a mapping from {several(inner[0])} to {several(inner[1])}" if inner else "a mapping (name: value)"
    if origin in LISTS:
        return f"a list of {several_of(inner)}" if inner else "a list"
    if origin is collections.abc.Callable:
        return "a function"
    return ONE.get(hint, f"a {getattr(hint, '__name__', 'value')}" if isinstance(hint, type) else "any value")


def several(hint: Any) -> str:
    """Return the same of more than one."""
    if is_union(hint):
        return " or ".join(dict.fromkeys(several(part) for part in typing.get_args(hint)))
    if hint in MANY:
        return MANY[hint]
    words = in_words(hint)
    if words.startswith(("a list of", "a mapping")):
        return words.replace("a list", "lists", 1).replace("a mapping", "mappings", 1)
    return "values" if hint is Any else f"values that are {words}"


def several_of(inner: tuple[Any, ...]) -> str:
    """Return what a list holds; a tuple without ``...`` has a fixed length."""
    if len(inner) == 1 or inner[-1] is ...:
        return several(inner[0])
    return f"{len(inner)} {several(inner[0])}"


def is_union(hint: Any) -> bool:
    """Whether an annotation allows one of several kinds."""
    return typing.get_origin(hint) in (types.UnionType, typing.Union)

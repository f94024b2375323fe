"""What an option has to be, in the words of a user: ``a list of numbers, or null`` for ``Sequence[float] | None``."""

from __future__ import annotations

import collections.abc
import types
import typing
from pathlib import Path
from typing import Any

ONE = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", Path: "a path"}
MANY = {float: "numbers", int: "whole numbers", str: "texts", bool: "values true or false", Path: "paths"}
LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping)


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

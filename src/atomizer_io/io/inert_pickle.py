"""Reads what a pickle describes without running it.

Unpickling runs whatever code a file names. Here plain values are built, what names a class or a function becomes an
:class:`Inert` note of it, nothing is imported or called, and what has no harmless reading is refused. The unpickler is
Python's own, written in Python, with the steps replaced that reach for objects from outside the file (the registry of
``copyreg``, persistent objects, buffers), size memory by numbers in the file, or hash nested keys for ever.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

PLAIN = (str, bytes, int, float, type(None))  # keys that can be hashed in no time
OUTSIDE = "EXT1 EXT2 EXT4 PERSID BINPERSID NEXT_BUFFER READONLY_BUFFER BYTEARRAY8"


class Refused(ValueError):
    """A pickle that is broken, or that needs something which has no harmless reading."""


@dataclass(slots=True, eq=False)
class Inert:
    """A note that a pickle names ``module.name``, would call it with ``args`` and would give the result ``state``."""

    module: str
    name: str
    args: tuple[Any, ...] = ()
    state: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"

    def __call__(self, *args: Any) -> Inert:
        """Note the arguments of a call."""
        return Inert(self.module, self.name, args)


def decode(data: bytes) -> Any:
    """Return what a pickle describes as plain values and :class:`Inert` notes, or raise :class:`Refused`."""
    try:
        return _Reader(io.BytesIO(data), encoding="latin1").load()
    except Refused:
        raise
    except Exception as error:  # a broken pickle can trip the unpickler anywhere
        raise Refused(f"is broken ({type(error).__name__}: {str(error)[:100]})") from error


def _refuse(opcode: str, reader: Any) -> None:
    raise Refused(f"uses the opcode {opcode}, which needs an object from outside the file")


_Unpickler: Any = pickle._Unpickler


class _Reader(_Unpickler):
    """Python's unpickler, which finds no class and calls nothing."""

    def find_class(self, module: str, name: str) -> Inert:
        return Inert(module, name)

    def call(self) -> None:
        """REDUCE and NEWOBJ: a new note with the arguments, where a pickle would call a class or a function."""
        args, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, Inert) or not isinstance(args, tuple):
            raise Refused("is broken (calls what is no class)")
        self.append(called(*args))

    def call_named(self) -> None:
        """NEWOBJ_EX: the same; arguments by name are left out."""
        self.stack.pop()
        self.call()

    def call_marked(self) -> None:
        """OBJ: the same, with the arguments after a mark."""
        called, *args = self.pop_mark()
        self.stack += [called, tuple(args)]
        self.call()

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (gives a state to what is no object)")
        self.stack[-1].state = state

    def extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)
        elif not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (adds items to what is no list)")

    def update(self, values: list[Any]) -> None:
        """Add keys and values in turn; keys that are not plain are left out."""
        if isinstance(self.stack[-1], dict):
            pairs = zip(values[::2], values[1::2], strict=True)
            self.stack[-1].update({key: value for key, value in pairs if isinstance(key, PLAIN)})
        elif not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (sets keys of what is no dict)")

    def new_dict(self) -> None:
        values = self.pop_mark()
        self.append({})
        self.update(values)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.update([key, value])

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **_Unpickler.dispatch,
        **{vars(pickle)[opcode][0]: partial(_refuse, opcode) for opcode in OUTSIDE.split()},
        **{
            code[0]: step
            for codes, step in (
                ("REDUCE NEWOBJ", call),
                ("NEWOBJ_EX", call_named),
                ("OBJ", call_marked),
                ("BUILD", build),
                ("EMPTY_SET", lambda reader: reader.append([])),
                ("FROZENSET", lambda reader: reader.append(reader.pop_mark())),
                ("APPEND", lambda reader: reader.extend([reader.stack.pop()])),
                ("APPENDS ADDITEMS", lambda reader: reader.extend(reader.pop_mark())),
                ("DICT", new_dict),
                ("SETITEM", set_item),
                ("SETITEMS", lambda reader: reader.update(reader.pop_mark())),
            )
            for code in map(vars(pickle).__getitem__, codes.split())
        },
    }

"""Reading what a pickle says without doing what it says.

Unpickling runs whatever a file asks for. Here its opcodes are walked instead: plain values are built, what names a
class or a function becomes an :class:`Inert` note of it, nothing is imported or called, and what has no harmless
reading is refused. ``pickle.Unpickler`` with a ``find_class`` that resolves nothing would come close, but still serves
objects from the registry of ``copyreg``, sizes its memory by numbers in the file, and hashes nested keys for ever.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Refused(ValueError):
    """A pickle that is broken, or that asks for something which has no harmless reading."""


@dataclass(slots=True, eq=False)
class Inert:
    """A note that a pickle names ``module.name``, would call it with ``args`` and would give the result ``state``."""

    module: str
    name: str
    args: tuple[Any, ...] = ()
    state: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"


_MARK = object()
_PLAIN = (str, bytes, int, float, type(None))


def decode(data: bytes) -> Any:
    """Return what a pickle describes as plain values and :class:`Inert` notes, or raise :class:`Refused`."""
    try:
        return _Walk().result(data)
    except Refused:
        raise
    except Exception as error:  # a broken pickle can trip pickletools anywhere
        raise Refused(f"is broken ({type(error).__name__}: {str(error)[:100]})") from error


class _Walk:
    """The stack machine that reads a pickle, of which only the bookkeeping is left."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def result(self, data: bytes) -> Any:
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.pop()
            if opcode.name in _CONSTANTS:
                self.stack.append(arg)
            elif opcode.name in _STEPS:
                _STEPS[opcode.name](self, arg)
            else:  # EXT1, EXT2, EXT4: the registry of copyreg; PERSID, BINPERSID, buffers: objects from elsewhere
                raise Refused(f"uses the opcode {opcode.name}, which asks for an object from outside the file")
        raise Refused("has no end")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise Refused("is broken (a mark where a value should be)")
        return value

    def popped(self, count: int) -> tuple[Any, ...]:
        return tuple(self.pop() for _ in range(count))[::-1]

    def marked(self) -> list[Any]:
        """Remove and return what lies above the last mark, and remove the mark."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)
        elif not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (adds items to what is no list)")

    def update(self, values: list[Any]) -> None:
        """Add keys and values in turn; leave out keys that are not plain (hashing nested ones may take for ever)."""
        if isinstance(self.stack[-1], dict):
            pairs = zip(values[::2], values[1::2], strict=True)
            self.stack[-1].update({key: value for key, value in pairs if isinstance(key, _PLAIN)})
        elif not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (sets keys of what is no dict)")

    def new_dict(self) -> None:
        values = self.marked()
        self.stack.append({})
        self.update(values)

    def new_object(self) -> None:
        of, *args = self.marked()
        self.called(of, tuple(args))

    def new_instance(self, dotted: str) -> None:
        args = tuple(self.marked())
        self.named(*dotted.split(" ", 1))
        self.called(self.pop(), args)

    def named(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("is broken (the name of a class is no text)")
        self.stack.append(Inert(module, name))

    def called(self, of: Any, args: Any) -> None:
        """Return a new note with the arguments, where a pickle would call ``of``."""
        if not isinstance(of, Inert) or not isinstance(args, tuple):
            raise Refused("is broken (calls what is no class)")
        self.stack.append(Inert(of.module, of.name, args))

    def build(self) -> None:
        state = self.pop()
        if not isinstance(self.stack[-1], Inert):
            raise Refused("is broken (gives a state to what is no object)")
        self.stack[-1].state = state

    def keep(self, index: int | None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]


_CONSTANTS = frozenset(  # opcodes that bring their value along
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE "  # noqa: SIM905
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8".split()
)
_STEPS: dict[str, Callable[[_Walk, Any], Any]] = {
    "PROTO": lambda walk, arg: None,
    "FRAME": lambda walk, arg: None,
    "NONE": lambda walk, arg: walk.stack.append(None),
    "NEWTRUE": lambda walk, arg: walk.stack.append(True),
    "NEWFALSE": lambda walk, arg: walk.stack.append(False),
    "EMPTY_LIST": lambda walk, arg: walk.stack.append([]),
    "EMPTY_DICT": lambda walk, arg: walk.stack.append({}),
    "EMPTY_TUPLE": lambda walk, arg: walk.stack.append(()),
    "EMPTY_SET": lambda walk, arg: walk.stack.append([]),
    "MARK": lambda walk, arg: walk.stack.append(_MARK),
    "POP": lambda walk, arg: walk.stack.pop(),
    "POP_MARK": lambda walk, arg: walk.marked(),
    "DUP": lambda walk, arg: walk.stack.append(walk.stack[-1]),
    "PUT": _Walk.keep,
    "BINPUT": _Walk.keep,
    "LONG_BINPUT": _Walk.keep,
    "MEMOIZE": lambda walk, arg: walk.keep(None),
    "GET": lambda walk, arg: walk.stack.append(walk.memo[arg]),
    "BINGET": lambda walk, arg: walk.stack.append(walk.memo[arg]),
    "LONG_BINGET": lambda walk, arg: walk.stack.append(walk.memo[arg]),
    "LIST": lambda walk, arg: walk.stack.append(walk.marked()),
    "FROZENSET": lambda walk, arg: walk.stack.append(walk.marked()),
    "TUPLE": lambda walk, arg: walk.stack.append(tuple(walk.marked())),
    "TUPLE1": lambda walk, arg: walk.stack.append(walk.popped(1)),
    "TUPLE2": lambda walk, arg: walk.stack.append(walk.popped(2)),
    "TUPLE3": lambda walk, arg: walk.stack.append(walk.popped(3)),
    "APPEND": lambda walk, arg: walk.extend([walk.pop()]),
    "APPENDS": lambda walk, arg: walk.extend(walk.marked()),
    "ADDITEMS": lambda walk, arg: walk.extend(walk.marked()),
    "DICT": lambda walk, arg: walk.new_dict(),
    "SETITEM": lambda walk, arg: walk.update(list(walk.popped(2))),
    "SETITEMS": lambda walk, arg: walk.update(walk.marked()),
    "GLOBAL": lambda walk, arg: walk.named(*arg.split(" ", 1)),
    "STACK_GLOBAL": lambda walk, arg: walk.named(*walk.popped(2)),
    "INST": _Walk.new_instance,
    "OBJ": lambda walk, arg: walk.new_object(),
    "NEWOBJ": lambda walk, arg: walk.called(*walk.popped(2)),
    "NEWOBJ_EX": lambda walk, arg: walk.called(*walk.popped(3)[:2]),
    "REDUCE": lambda walk, arg: walk.called(*walk.popped(2)),
    "BUILD": lambda walk, arg: walk.build(),
}

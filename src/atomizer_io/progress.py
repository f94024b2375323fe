"""Progress of long work: one moving line on a terminal; in a pipe or a file, a line every few seconds."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TextIO, TypeVar

from tqdm import tqdm

T = TypeVar("T")

_UP = "\x1b[A"  # a terminal's step to the line above
EVERY_S = 5.0  # between two lines where no terminal shows them
_COUNTS = "{n_fmt} of {total_fmt}{unit}"
_MOVING = "{desc}{percentage:3.0f} % |{bar}| " + _COUNTS + ", {remaining} left{postfix}"
_OPEN = "{desc}{n_fmt}{unit}, {elapsed} so far{postfix}"  # without a known total
_LINE = "{desc}{percentage:.0f} % (" + _COUNTS + "), {elapsed} so far, {remaining} left{postfix}"


class _Lines(io.TextIOBase):
    """A stream that writes each state of a moving line as a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write one state, without the carriage returns, blanks and steps up (of bars inside bars) around it."""
        line = text.replace(_UP, "").strip()
        if line:
            self.stream.write(line + "\n")
            self.stream.flush()
        return len(text)


def progress_bar(
    total: int | None,
    *,
    initial: int = 0,
    title: str = "",
    unit: str = "",
    large: bool = False,
    show: bool = True,
    stay: bool = True,
    over: bool = False,
) -> tqdm[NoReturn]:
    """Return a bar that counts by its ``update(n)``, up to ``total`` if that is known; use it in a ``with``.

    ``initial`` is what was done before, ``large`` writes 1.2M for 1 200 000, ``stay`` leaves the last state on the
    terminal, ``over`` takes the line of another bar, which waits meanwhile. Work that takes less than ``EVERY_S``
    writes nothing unless to a terminal.
    """
    terminal = sys.stderr.isatty()
    size = shutil.get_terminal_size()  # tqdm itself shows nothing on terminals that do not know their size
    return tqdm(
        total=total,
        initial=initial,
        desc=f"{title}: " if title else "",
        unit=unit,
        unit_scale=large,
        disable=not show,
        leave=stay or not terminal,
        bar_format=_OPEN if total is None else _MOVING if terminal else _LINE,
        position=0 if over else None,
        ncols=size.columns if terminal else None,
        nrows=size.lines if terminal else None,
        file=sys.stderr if terminal else _Lines(sys.stderr),
        mininterval=0.1 if terminal else EVERY_S,
        miniters=None if terminal else 1,
        delay=0.0 if terminal else EVERY_S,
    )


def aim(bar: tqdm[NoReturn], total: int) -> None:
    """Tell a bar that began without a ``total`` what it is, so that it shows the time left."""
    if bar.total != total:
        bar.total, bar.bar_format = total, _MOVING if sys.stderr.isatty() else _LINE


def watched(
    items: Iterable[T],
    total: int | None,
    *,
    title: str = "",
    unit: str = "",
    show: bool = True,
    stay: bool = True,
    count: Callable[[T], int] | None = None,
) -> Iterator[T]:
    """Yield the ``items`` one by one and show progress after each; the options are those of :func:`progress_bar`.

    ``count`` returns how many of the total an item stands for, one if it is left out.
    """
    with progress_bar(total, title=title, unit=unit, show=show, stay=stay) as bar:
        for item in items:
            yield item
            bar.update(1 if count is None else count(item))

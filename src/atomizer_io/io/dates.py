"""Dates as they are written in practice: in names of files, tags, tables, and in the samples of other libraries."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atomizer_io.data.inputs import as_date
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.raster_pixels import opened

# 2021-07-04 or 20210704 with no further digit beside it; seven digits (2021185) may as well be the number of a tile
DATE = re.compile(r"(?<!\d)((?:19|20)\d\d(?:-[01]\d-[0-3]\d|[01]\d[0-3]\d))(?!\d)")
DATE_TAG = "start_time"  # EnMAP's; TIFFTAG_DATETIME is no date of observation, but often the time of processing
DAY_S = 86400.0


def as_day(text: str) -> datetime.date | None:
    """Return the date in a text: 2021-07-04, 2021:07:04 …, 20210704 or 2021185 (day of the year); else None."""
    digits = re.sub(r"\D", "", text.strip()[:10])
    try:
        day = datetime.datetime.strptime(digits, {8: "%Y%m%d", 7: "%Y%j"}[len(digits)]).date()
    except (KeyError, ValueError):
        return None
    return day if day.year == int(digits[:4]) else None  # strptime lets day 366 of a common year run over


def date_of_file(path: Path, allow_vrt: bool = False) -> datetime.date | None:
    """Return the first date in the name of a raster, else the date of its tag ``start_time``, else None."""
    return date_in(path.stem) or next((day for day in map(as_day, _tagged(path, allow_vrt)) if day is not None), None)


def date_in(name: str) -> datetime.date | None:
    """Return the first date in the name of a file or a folder, None if there is none."""
    return next((day for match in DATE.finditer(name) if (day := as_day(match[1])) is not None), None)


def _tagged(path: Path, allow_vrt: bool) -> Iterator[str]:
    """Yield the date in the tags of a file, which is opened only when the date is needed."""
    with opened(path, allow_vrt=allow_vrt) as source:
        tags = source.tags()
    if DATE_TAG in tags:
        yield tags[DATE_TAG]


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """Return the option ``date_pattern`` of a user as an expression for :func:`date_by_pattern`."""
    try:
        expression = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"date_pattern {pattern!r} is not a regular expression: {error}") from error
    if expression is not None and not expression.groups:
        raise ConfigError(f"date_pattern {pattern!r} has no group: put the date into brackets, as in '_(\\d{{8}})_'")
    return expression


def date_by_pattern(path: Path, pattern: re.Pattern[str]) -> datetime.date:
    """Return the date that the first group of ``pattern`` finds in the name of a file."""
    match = pattern.search(path.stem)
    day = None if match is None else as_day(match[1] or "")
    if day is None:
        raise DataError(path, f"has no date in its name where {pattern.pattern!r} looks for it")
    return day


def listed_date(day: Any) -> Any:
    """Return an entry of a list of dates as ``inputs.as_date`` does; numbers like 20210704 are dates, too."""
    if isinstance(day, int | float) and 19000101 <= day <= 21001231:
        day = f"{int(day)}"
    return as_date(day)


def single_day(start: Any, stop: Any, *, local: bool = False) -> datetime.date | None:
    """Return the day of an interval of dates or of seconds since 1970; None if it is longer, or unknown."""
    if start is None or stop is None or start != start or stop != stop:  # NaN and NaT are not themselves
        return None
    first, last = as_date(start), as_date(stop)
    if isinstance(first, datetime.date):
        return first if first == last else None
    # single precision rounds seconds of our time to 128, so the end of a day may be the next midnight
    if not 0 <= float(stop) - float(start) <= DAY_S or abs(float(start)) > 4e9:
        return None
    return datetime.datetime.fromtimestamp(float(start), None if local else datetime.UTC).date()

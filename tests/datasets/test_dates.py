"""Dates as they are written, and days of intervals."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from atomizer_io.datasets.reading.dates import as_day, listed_date, single_day

JULY = datetime.date(2021, 7, 4)


@pytest.mark.parametrize(
    "text", ["2021-07-04", "2021:07:04 11:12:13", " 2021/07/04", "20210704", "2021185", "2021-07-04T09Z"]
)
def test_ways_to_write_a_date(text: str) -> None:
    assert as_day(text) == JULY


@pytest.mark.parametrize("text", ["", "May", "20211304", "2021366", "2021-7-4", "None"])
def test_what_is_no_date(text: str) -> None:
    assert as_day(text) is None


def test_entries_of_a_list() -> None:
    for day in (20210704, 20210704.0, "20210704", "2021-07-04T10:30", np.datetime64("2021-07-04T10:30"), JULY):
        assert listed_date(day) == JULY
    assert listed_date(185) == 185 and listed_date("May") == "May" and listed_date(None) is None


def test_the_day_of_an_interval() -> None:
    start = datetime.datetime(2021, 7, 4, 3, tzinfo=datetime.UTC)
    assert single_day(start, start + datetime.timedelta(hours=20)) == JULY
    assert single_day(start, start + datetime.timedelta(hours=22)) is None
    assert single_day(np.datetime64("2021-07-04T01"), np.datetime64("2021-07-04T05")) == JULY
    assert single_day(start.timestamp(), start.timestamp() + 3600) == JULY
    assert single_day(start.timestamp(), start.timestamp() + 90000) is None
    assert single_day(None, start) is None and single_day(float("nan"), 0.0) is None

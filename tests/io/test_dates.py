"""Dates as they are written, and days of intervals."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import numpy as np
import pytest
import rasterio

from atomizer_io.io.dates import (
    as_day,
    compiled,
    date_by_pattern,
    date_of_file,
    listed_date,
    single_day,
)
from atomizer_lab.synthetic.rasters import write_raster

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")  # where the tests write

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


@pytest.mark.parametrize("stem", ["Spain_1987365", "HLS.2021185.v2", "chip_2021001"])
def test_seven_digits_in_a_name_are_a_date_only_by_a_pattern(tmp_path: Path, stem: str) -> None:
    path = tmp_path / f"{stem}.tif"
    write_raster(path, np.ones((1, 2, 2), np.uint8))
    assert date_of_file(path) is None
    pattern = compiled(r"(\d{7})")
    assert pattern is not None and date_by_pattern(path, pattern).year == int(re.search(r"\d{4}", stem)[0])


def test_the_time_of_processing_is_no_date(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_raster(path, np.ones((1, 2, 2), np.uint8))
    with rasterio.open(path, "r+") as target:
        target.update_tags(TIFFTAG_DATETIME="2019:02:03 11:12:13")
    assert date_of_file(path) is None
    with rasterio.open(path, "r+") as target:
        target.update_tags(start_time="2021-07-04T10:00:00Z")
    assert date_of_file(path) == JULY

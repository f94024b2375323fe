"""The table of figures in the documentation is that of the run whose figures are kept."""

from __future__ import annotations

import json

from faults.__main__ import PARTS, RESULTS
from faults.figures import shown, table


def test_the_documentation_shows_the_figures_that_are_kept() -> None:
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert kept["good"] and [*kept["figures"]] == ["bad files", *PARTS, "all"]
    assert shown() == table(kept["figures"])


def test_the_figures_are_those_that_are_promised() -> None:
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    assert figures["bad files"]["cases"] >= 5000 and figures["bad files"]["defects"] == 0
    assert figures["bad files"]["longest s"] <= 10 and figures["bad files"]["most memory MB"] <= 2 * 1024
    assert figures["many predictions"]["predictions in one process"] >= 1000
    assert figures["Dask worker killed"]["Dask workers"] == 8
    assert figures["all"]["minutes"] <= 40  # with other work beside it

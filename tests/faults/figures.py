"""Figures of a run of ``./run faults``: as a table, in the documentation, and those of the tests in this folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "lab" / "faults.md"
BEGIN, END = "<!-- figures of ./run faults -->", "<!-- end of figures -->"
TESTS = ("test_numbers.py", "test_no_code.py", "test_small_ones.py", "test_fixed_defects.py")


def table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the figures as a table for a terminal and for the documentation."""
    lines = ["| part | figure | value |", "|---|---|---:|"]
    lines += [f"| {part} | {name} | {value:,} |" for part, values in figures.items() for name, value in values.items()]
    return "\n".join(lines)


def shown() -> str:
    """Return the table in the documentation."""
    return DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def keep_table(figures: Mapping[str, Mapping[str, float]]) -> None:
    """Put the table into the documentation, instead of the one that is there."""
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCS.write_text(f"{before}{BEGIN}\n\n{table(figures)}\n\n{END}{after}", encoding="utf-8")


def run_tests(work: Path) -> dict[str, float]:
    """Run the tests of odd numbers, of code in data and of defects that were fixed; return how many passed."""
    line = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={work / 'tests'}"]
    process = subprocess.run([*line, *(str(HERE / name) for name in TESTS)], stdout=subprocess.PIPE, text=True)
    passed = re.search(r"(\d+) passed", process.stdout)
    assert process.returncode == 0 and passed, process.stdout[-3000:]
    return {"tests passed": int(passed[1]), "tests failed": 0}

"""``./run faults``: bad files, kills and load, a table of figures, and ``results/faults.json``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from faults import kills, load
from faults.fuzz import WHOLE, fuzzed, run_cases, summary

RESULTS = Path(__file__).parents[2] / "results" / "faults.json"
PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "prediction killed": kills.kill_prediction,
    "training killed": kills.kill_training,
    "trainings side by side": kills.train_together,
    "calibration killed": kills.kill_calibration,
    "disk full": kills.fill_disk,
    "output that cannot be written": kills.write_nowhere,
    "three processes, one output": kills.write_together,
    "many predictions": load.predict_often,
    "many files": load.list_files,
    "large raster": load.map_large_raster,
}


def attempt(part: Callable[[Path], dict[str, float]]) -> tuple[dict[str, float], bool]:
    """Run a part in a folder of its own; return its figures and whether all was well."""
    try:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            return part(Path(folder)), True
    except Exception:
        traceback.print_exc()
        return {}, False


def table(figures: dict[str, dict[str, float]]) -> str:
    """Return the figures as a table for a terminal and for the documentation."""
    lines = ["| part | figure | value |", "|---|---|---:|"]
    lines += [f"| {part} | {name} | {value:,} |" for part, found in figures.items() for name, value in found.items()]
    return "\n".join(lines)


def main() -> int:
    """Run all parts, or the cases of bad files that the command line names."""
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--case", type=int, action="append", default=[], help="one case of a bad file, by its number")
    parser.add_argument("--cases", default="", help="cases of bad files, such as 0-500; without other parts")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part, without bad files")
    args = parser.parse_args()
    if args.case:
        found = run_cases(args.case)
        print(*found, sep="\n")
        return int(not all(outcome.good for outcome in found))
    began, figures, good = time.monotonic(), dict[str, dict[str, float]](), True
    if not args.part:
        first, _, last = args.cases.partition("-")
        found = fuzzed(int(first or 0), int(last or WHOLE))
        figures["bad files"] = summary(found)
        good = all(outcome.good for outcome in found)
    for name in () if args.cases else args.part or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures[name], well = attempt(PARTS[name])
        good &= well
    figures["all"] = {"minutes": round((time.monotonic() - began) / 60, 1)}
    print(table(figures))
    if not args.part and not args.cases:
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

"""``./run faults``: bad files, kills and load, a table of figures, and ``results/faults.json``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from atomizer_io.machine import machine
from faults import clock, disks, kills, load, phases, watched, workers, writes
from faults.figures import keep_table, run_tests, table
from faults.fuzz import WHOLE, fuzzed, run_cases, summary

RESULTS = Path(__file__).parents[2] / "results" / "faults.json"
PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "odd numbers, hostile files": run_tests,
    "GDAL's own input and output": watched.watch_gdal,
    "prediction killed": kills.kill_prediction,
    "training killed": kills.kill_training,
    "training killed between phases": phases.kill_between_phases,
    "checkpoint writes killed": writes.kill_checkpoints,
    "calibration killed": kills.kill_calibration,
    "calibration writes killed": writes.write_calibrations,
    "report killed": writes.kill_report,
    "loader worker killed": workers.kill_loader_worker,
    "Dask worker killed": workers.use_dask_cluster,
    "Dask scheduler restarted": workers.restart_dask_scheduler,
    "clock that goes back": clock.turn_clock_back,
    "files that end early": kills.fill_disk,
    "small disks": disks.use_small_disks,
    "output that cannot be written": kills.write_nowhere,
    "one output, three predictions": kills.write_together,
    "one run, two trainings": writes.train_at_once,
    "trainings side by side": kills.train_together,
    "many predictions": load.predict_often,
    "many files": load.list_files,
    "large raster": load.map_large_raster,
}


def attempt(part: Callable[[Path], dict[str, float]]) -> tuple[dict[str, float], bool]:
    """Run a part in a folder of its own; return its figures and whether all was well."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            return {**part(Path(folder)), "seconds": round(time.monotonic() - began)}, True
    except Exception:
        traceback.print_exc()
        return {}, False


def main() -> int:
    """Run all parts, or the cases of bad files that the command line names."""
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--case", type=int, action="append", default=[], help="one case of a bad file, by its number")
    parser.add_argument("--cases", default="", help="cases of bad files, such as 0-500; without other parts")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part, without bad files")
    args = parser.parse_args()
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # commands print to standard error: the table stands alone
    if args.case:
        outcomes = run_cases(args.case)
        print(*outcomes, sep="\n", file=output, flush=True)
        return int(not all(outcome.good for outcome in outcomes))
    began, figures, good = time.monotonic(), dict[str, dict[str, float]](), True
    if not args.part:
        first, _, last = args.cases.partition("-")
        outcomes = fuzzed(int(first or 0), int(last or WHOLE))
        figures["bad files"] = {**summary(outcomes), "seconds": round(time.monotonic() - began)}
        good = all(outcome.good for outcome in outcomes)
    for name in () if args.cases else args.part or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures[name], well = attempt(PARTS[name])
        good &= well
    figures["all"] = {"minutes": round((time.monotonic() - began) / 60, 1)}
    print(table(figures), file=output, flush=True)
    if not args.part and not args.cases:
        document = {"command": "./run faults", "machine": machine(), "good": good, "figures": figures}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        keep_table(figures)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

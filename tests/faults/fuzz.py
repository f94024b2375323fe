"""Run cases of bad files by their numbers: ``./run faults --case 1234`` or ``./run faults --cases 0-500``."""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from faults.runner import ANSWER, CLEAN, Bench, Outcome

WHOLE = 6000  # cases


def run_cases(numbers: Iterable[int], *, tell: bool = False) -> list[Outcome]:
    """Run cases in a temporary folder; ``tell`` prints each that did not end as promised."""
    torch.set_num_threads(1)
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        bench = Bench(Path(folder))
        for number in numbers:
            found.append(bench.run(number))
            if tell and not found[-1].good:
                print(found[-1], flush=True)
    return found


def summary(found: Iterable[Outcome]) -> dict[str, float]:
    """Return how many cases ended how, and the most time and memory that one took."""
    every = list(found)
    ends = collections.Counter(outcome.end for outcome in every)
    return {
        "cases": len(every),
        "clean errors": ends[CLEAN],
        "answers": ends[ANSWER],
        "defects": sum(not outcome.good for outcome in every),
        "longest s": round(max(outcome.seconds for outcome in every), 2),
        "most memory MB": round(max(outcome.peak_bytes for outcome in every) / 1e6),
    }


def main() -> int:
    """Run the cases that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int, action="append", default=[])
    parser.add_argument("--cases", default="", help="a range, such as 0-500")
    args = parser.parse_args()
    first, _, last = args.cases.partition("-")
    numbers = [*args.case, *(range(int(first), int(last)) if args.cases else ())] or range(WHOLE)
    began = time.monotonic()
    found = run_cases(numbers, tell=True)
    if len(found) < 20:
        print(*found, sep="\n")
    for outcome in sorted(found, key=lambda outcome: -outcome.seconds)[:5]:
        print(f"{outcome.seconds:.1f} s: case {outcome.number} ({outcome.target}, {outcome.changed}): {outcome.end}")
    print(summary(found), f"{time.monotonic() - began:.0f} s")
    return 1 if any(not outcome.good for outcome in found) else 0


if __name__ == "__main__":
    sys.exit(main())

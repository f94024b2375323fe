"""Cases of bad files, run by their numbers, and what they came to."""

from __future__ import annotations

import collections
import multiprocessing
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from faults.runner import CLEAN, RESULT, Bench, Outcome

WHOLE = 8500  # cases


def run_cases(numbers: Iterable[int], *, report: bool = False) -> list[Outcome]:
    """Run cases in a temporary folder; ``report`` prints each that did not end as promised."""
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        bench = Bench(Path(folder))
        for number in numbers:
            outcomes.append(bench.run(number))
            if report and not outcomes[-1].good:
                print(outcomes[-1], flush=True)
    return outcomes


def fuzzed(first: int, last: int, processes: int = 2) -> list[Outcome]:
    """Run cases in several processes, each of which has its own files to begin with."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:  # unlike Pool it notices when one of them dies
        shares = list(pool.map(_share, [range(first + number, last, processes) for number in range(processes)]))
    return sorted((outcome for share in shares for outcome in share), key=lambda outcome: outcome.number)


def _share(numbers: range) -> list[Outcome]:
    return run_cases(numbers, report=True)


def summary(cases: Iterable[Outcome]) -> dict[str, float]:
    """Return how many cases ended how, and the most time and memory that one took."""
    outcomes = list(cases)
    ends = collections.Counter(outcome.end for outcome in outcomes)
    return {
        "cases": len(outcomes),
        "clean errors": ends[CLEAN],
        "answers": ends[RESULT],  # old name
        "defects": sum(not outcome.good for outcome in outcomes),
        "longest s": round(max(outcome.seconds for outcome in outcomes), 2),
        "most memory MB": round(max(outcome.peak_bytes for outcome in outcomes) / 1e6),
    }

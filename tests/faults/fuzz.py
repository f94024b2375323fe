"""Cases of bad files, run by their numbers, and what they came to."""

from __future__ import annotations

import collections
import multiprocessing
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from faults.runner import ANSWER, CLEAN, Bench, Outcome

WHOLE = 8500  # cases


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


def fuzzed(first: int, last: int, processes: int = 2) -> list[Outcome]:
    """Run cases in several processes, each of which has its own files to begin with."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:  # unlike Pool it notices when one of them dies
        every = list(pool.map(_share, [range(first + number, last, processes) for number in range(processes)]))
    return sorted((outcome for found in every for outcome in found), key=lambda outcome: outcome.number)


def _share(numbers: range) -> list[Outcome]:
    return run_cases(numbers, tell=True)


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

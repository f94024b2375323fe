"""A few cases of the fuzzer, one of each reader that is quick to set up; ``./run faults`` has all of them."""

from __future__ import annotations

from faults.cases import DAMAGED, HOSTILE_ORDER, ORDER
from faults.fuzz import WHOLE, run_cases
from faults.hostile_targets import HOSTILE_TARGETS
from faults.targets import TARGETS

QUICK = [target.name for target in TARGETS if target.make.__module__ == "faults.targets"]


def test_bad_files_end_in_a_clean_error_or_a_right_result() -> None:
    numbers = [ORDER.index(target) for target in TARGETS if target.name in QUICK]
    wrong = [str(outcome) for outcome in run_cases(numbers) if not outcome.good]
    assert len(numbers) >= 10 and not wrong, "\n".join(wrong)


def test_hostile_files_end_in_a_clean_error_or_a_right_result() -> None:
    first = -(-DAMAGED // len(HOSTILE_ORDER)) * len(HOSTILE_ORDER)
    numbers = [first + HOSTILE_ORDER.index(target) for target in HOSTILE_TARGETS]
    wrong = [str(outcome) for outcome in run_cases(numbers) if not outcome.good]
    assert WHOLE >= 8000 and not wrong, "\n".join(wrong)


def test_a_case_is_the_same_whenever_it_is_run() -> None:
    number = ORDER.index(next(target for target in TARGETS if target.name == "yaml config"))
    first, second = (run_cases([number])[0] for _ in range(2))
    assert (first.changed, first.end) == (second.changed, second.end)


def test_cases_that_once_went_wrong() -> None:
    """The type of the points of a cut tile was changed in its header, which no checksum noticed."""
    wrong = [str(outcome) for outcome in run_cases([5806]) if not outcome.good]
    assert not wrong, "\n".join(wrong)

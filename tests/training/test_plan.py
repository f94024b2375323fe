"""Early stopping: when a run cools down, when it ends, and what its learning rate is meanwhile."""

from __future__ import annotations

import math
from typing import Any

import pytest

from atomizer_io.training import schedule as planning
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.schedule import OpenSchedule


class Clock:
    """A clock that stands still unless it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(planning, "time", clock)
    return clock


def make(every: int = 10, higher: bool = True, max_seconds: float | None = None, **settings: Any) -> OpenSchedule:
    training = TrainingSettings(**{"patience": 2, "tolerance": 0.01, "warmup_steps": 4, "cooldown": 0.2, **settings})
    return OpenSchedule(training, every, higher, max_seconds)


def run(plan: OpenSchedule, scores: list[float], clock: Clock, step_s: float = 1.0, validation_s: float = 0.0) -> int:
    """Train with these validation scores, the last of them again and again; returns the steps that it took."""
    step, left = 0, list(scores)
    plan.start(0)
    while not plan.ended:
        step += 1
        clock.now += step_s
        plan.stepped(step, plan.nearly_over(step))
        if step % plan.every == 0:
            clock.now += validation_s
            plan.validated(step, left.pop(0) if len(left) > 1 else left[0], validation_s)
        assert step < 10_000
    return step


def test_it_cools_down_when_patience_is_over(clock: Clock) -> None:
    plan = make()
    # best at step 30; 40 and 50 rise by less than one per cent
    assert run(plan, [0.5, 0.6, 0.7, 0.701, 0.702], clock) == 60
    assert (plan.begun, plan.length, plan.reason) == (50, 10, "patience")
    rates = [plan.rate(step) for step in (0, 3, 20, 50, 55, 59)]
    assert rates == pytest.approx([0.25, 1.0, 1.0, 1.0, 0.5, 0.1])


def test_small_rises_add_up(clock: Clock) -> None:
    plan = make()
    run(plan, [0.5, 0.503, 0.506, 0.509, 0.512, 0.512], clock)
    assert plan.best == pytest.approx(0.512) and plan.begun == 70


def test_lower_can_be_better_and_no_number_never_is(clock: Clock) -> None:
    plan = make(higher=False)
    run(plan, [3.0, math.nan, 2.0, math.nan, 1.0, 1.5, 1.5], clock)
    assert plan.best == 1.0 and plan.begun == 70


def test_it_ends_when_the_time_is_over(clock: Clock) -> None:
    plan = make(max_seconds=240.0, patience=100)
    steps = run(plan, [0.1], clock, validation_s=5.0)
    assert plan.reason == "time" and steps == plan.begun + plan.length
    assert 0.9 * 240 <= clock.now <= 240 + 10  # 1.5 s a step with its share of validations


def test_no_time_is_one_step_and_a_cool_down_of_one(clock: Clock) -> None:
    assert run(make(max_seconds=0.0), [0.1], clock) == 2


def again(plan: OpenSchedule, max_seconds: float | None) -> OpenSchedule:
    resumed = make(max_seconds=max_seconds)
    resumed.load_state_dict(plan.state_dict())
    return resumed


def test_one_that_ended_goes_on_only_with_more_time(clock: Clock) -> None:
    plan = make(max_seconds=100.0, patience=100)
    run(plan, [0.1], clock)
    assert not again(plan, 100.0).resume()
    longer = again(plan, 200.0)
    assert longer.resume() and longer.begun is None and longer.rate(1000) == 1.0
    assert longer.seconds == pytest.approx(plan.seconds)  # of all sessions
    tired = make(max_seconds=100.0)
    run(tired, [0.1], clock)
    assert tired.reason == "patience" and not again(tired, 1000.0).resume()


def test_a_stored_plan_goes_on_where_it_was(clock: Clock) -> None:
    plan = make()
    plan.start(0)
    for step, score in ((10, 0.5), (20, 0.5)):
        plan.stepped(step, False)
        plan.validated(step, score, 1.0)
    assert again(plan, None).waited == 1 and again(plan, None).best == 0.5
    plan.validated(30, 0.5, 1.0)
    resumed = again(plan, None)
    assert resumed.resume() and [resumed.rate(step) for step in (30, 33)] == [1.0, 0.5]

"""The trend of validation scores at the end of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from atomizer_io.training.results import read_curve, sentence, trend_of

RISING = [(100 * i, 1 - math.exp(-i / 10)) for i in range(1, 11)]
FLAT = [(100 * i, min(0.7, 0.3 * i)) for i in range(1, 11)]


def test_a_score_that_still_rises_is_reported() -> None:
    trend = trend_of(RISING, higher=True, tolerance=1e-3)
    assert trend["rising"] is True and trend["best_step"] == 1000 and trend["slope_per_1000_steps"] > 0.3
    assert "miou was still rising" in sentence(trend, "miou", True, Path("history.jsonl"))


def test_a_score_that_has_stopped_is_reported() -> None:
    trend = trend_of(FLAT, higher=True, tolerance=1e-3)
    assert trend["rising"] is False and trend["best_step"] == 300
    text = sentence(trend, "miou", True, Path("runs/x/history.jsonl"))
    assert "rose no more" in text and "best at step 300" in text and "runs/x/history.jsonl" in text


def test_an_error_that_falls_is_a_score_that_rises() -> None:
    trend = trend_of([(step, 2 - score) for step, score in RISING], higher=False, tolerance=1e-3)
    assert trend["rising"] is True and trend["slope_per_1000_steps"] < -0.3
    assert "rmse was still falling" in sentence(trend, "rmse", False, Path("history.jsonl"))


def test_a_cool_down_does_not_count_and_patience_ends_the_rise() -> None:
    cooled = [*FLAT, (1100, 0.75), (1200, 0.8)]
    assert trend_of(cooled, higher=True, tolerance=1e-3)["rising"] is True
    trend = trend_of(cooled, higher=True, tolerance=1e-3, until=1000)
    assert trend["rising"] is False and trend["best_step"] == 1200
    assert trend_of(RISING, higher=True, tolerance=1e-3, exhausted=True)["rising"] is False


@pytest.mark.parametrize("points", [RISING[:3], [(100, math.nan)] * 6])
def test_too_few_validations_are_reported(points: list[tuple[int, float]]) -> None:
    trend = trend_of(points, higher=True, tolerance=1e-3)
    assert trend["rising"] is None and "too few" in sentence(trend, "miou", True, Path("history.jsonl"))


def test_the_curve_is_read_from_the_history(tmp_path: Path) -> None:
    assert read_curve(tmp_path / "history.jsonl", "miou") == []
    lines = [json.dumps({"step": step, "miou": score, "loss": 1.0}) for step, score in FLAT]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    assert read_curve(tmp_path / "history.jsonl", "miou") == FLAT

"""What the curve of validation scores says at the end of a run: whether the score was still getting better."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.texts import parse_json

FEW = 4  # validations: with fewer nothing is said


def read_curve(history: Path, name: str) -> list[tuple[int, float]]:
    """Return step and score ``name`` of each validation in a ``history.jsonl``; none where there is no file."""
    if not history.is_file():
        return []
    found = []
    for text in history.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):  # of a line that was cut off
            line = parse_json(text)
            found.append((int(line["step"]), float(line[name])))
    return found


def describe(
    points: Sequence[tuple[int, float]],
    *,
    higher: bool,
    tolerance: float,
    until: int | None = None,
    exhausted: bool = False,
) -> dict[str, Any]:
    """Return ``rising``, the slope per 1 000 steps, and the step of the best of some validations (step, score).

    A score was still rising (one that is better when it is lower: falling) when training stopped, if the best one is of
    the last quarter of the steps and the line through the validations of the last half rises in a quarter of the steps
    by more than ``tolerance``, a share of the best. Validations after the step ``until``, of a cool-down, say nothing
    about that. ``exhausted`` says that a run ended as its score no longer rose. With fewer than four validations
    ``rising`` is None, unless the run was exhausted.
    """
    sign = 1.0 if higher else -1.0
    known = [(step, sign * score) for step, score in points if not math.isnan(score)]
    judged = [(step, merit) for step, merit in known if until is None or step <= until]
    found: dict[str, Any] = {"validations": len(points), "rising": False if exhausted else None}
    if known:
        found["best_step"] = max(known, key=lambda point: point[1])[0]
    if len(judged) < FEW:
        return found
    last, (best_step, best) = judged[-1][0], max(judged, key=lambda point: point[1])
    late = [point for point in judged if point[0] >= last / 2]
    late = late if len(late) >= FEW - 1 else judged[1 - FEW :]
    slope = float(np.polyfit([step for step, _ in late], [merit for _, merit in late], 1)[0])
    found["slope_per_1000_steps"] = round(sign * slope * 1000, 6)
    if not exhausted:
        found["rising"] = bool(best_step > 0.75 * last and slope * last / 4 > tolerance * abs(best))
    return found


def sentence(found: dict[str, Any], name: str, higher: bool, history: Path) -> str:
    """Return what :func:`describe` found, in words."""
    moved, way = ("rising", "rose") if higher else ("falling", "fell")
    where = f"scores of all {found['validations']} validations: {history}"
    if found["rising"] is None:
        return f"too few validations to tell whether {name} was still {moved}; {where}"
    if "slope_per_1000_steps" in found:
        where = f"{found['slope_per_1000_steps']:+.2g} per 1,000 steps in the second half; {where}"
    if found["rising"]:
        return f"{name} was still {moved} when training stopped, so more training may help ({where})"
    best = f"best at step {found['best_step']:,}; " if "best_step" in found else ""
    return f"{name} {way} no more when training stopped ({best}{where})"

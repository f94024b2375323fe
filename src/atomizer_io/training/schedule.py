"""The paper's learning rate: a linear warm-up over the first 5 % of the steps, then a cosine down to zero."""

from __future__ import annotations

import math


def factor(step: int, steps: int, warmup: float = 0.05) -> float:
    """Return the factor of the learning rate at ``step`` (from 0) of ``steps``."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise))))

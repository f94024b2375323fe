"""How a network of single images reads several dates: features of each date on its own, then merged level by level.

Shapes: B scenes, T dates, D features of a level, H × W pixels of a level.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from atomizer_io.errors import ConfigError, check_count, listed
from atomizer_lab.baselines.ltae import LTAE, LinearOverDates

MEAN, LINEAR, L_TAE = "mean", "linear", "ltae"


def check_dates(temporal: str, dates: int | None, known: Sequence[str]) -> None:
    """Refuse a way to merge dates that is not ``known``, and a number of dates where it is not wanted or missing."""
    if temporal not in known:
        raise ConfigError(f"temporal {temporal!r} is not known; choose one of {listed(known)}")
    if (temporal == LINEAR) != (dates is not None):
        wants = "needs num_dates" if temporal == LINEAR else "takes any number of dates: leave out num_dates"
        raise ConfigError(f"temporal {temporal!r} {wants}")
    if dates is not None:
        check_count("num_dates", dates)


def dates_read(temporal: str, dates: int | None) -> int | None:
    """Return how many dates the network reads: their mean, exactly so many, or (None) as many as there are."""
    return 1 if temporal == MEAN else dates


class MergedDates(nn.Module):
    """Merges the levels of T dates by one linear map over dates for all levels, or by one L-TAE per level.

    With ``temporal`` mean, dates were averaged before the network, and levels pass as they are.
    """

    def __init__(self, temporal: str, widths: Sequence[int], dates: int | None) -> None:
        super().__init__()
        self.linear = LinearOverDates(dates) if temporal == LINEAR and dates is not None else None
        self.attention = nn.ModuleList(LTAE(width) for width in widths) if temporal == L_TAE else None

    def forward(self, levels: Sequence[Tensor], batch: int) -> list[Tensor]:
        """Levels (B·T, D, h, w) of ``batch`` scenes → (B, D, h, w)."""
        if self.linear is not None:
            return [self.linear(level.unflatten(0, (batch, -1))) for level in levels]
        if self.attention is not None:
            dated = [level.unflatten(0, (batch, -1)) for level in levels]
            return [merge(level) for merge, level in zip(self.attention, dated, strict=True)]
        return list(levels)

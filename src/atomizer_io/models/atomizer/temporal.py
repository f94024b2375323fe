"""Time steps, and the small transformer that merges the latents of each anchor over them (paper, §3.4).

Shapes: L latents, T time steps, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.errors import AtomsError
from atomizer_io.models.atomizer.layers import FeedForward, RotaryAngles, SelfAttention

HEADS = 8
UNDATED_STEP_DAYS = 30.0


def time_steps(atoms: AtomSet) -> tuple[list[tuple[int, ...]], Tensor]:
    """Return the acquisitions of each time step in order of time, and the days (T,) of the steps from the middle one.

    A step is a ``timestep`` number where acquisitions name one, else a date, else a day of year; what has none of
    them is one step. A step without a date stands in the middle of the series; where no step is dated, they stand 30
    days apart in the order of their numbers. Acquisitions without a valid atom are no observations.
    """
    observed = {i: acquisition for i, acquisition in enumerate(atoms) if acquisition.num_atoms}
    _check_alike(observed, "timestep", list(observed))
    _check_alike(observed, "date", [i for i, acquisition in observed.items() if acquisition.day_of_year is not None])
    steps: dict[float, list[int]] = {}
    for i, acquisition in observed.items():
        key = acquisition.timestep if acquisition.timestep is not None else _day(acquisition)
        steps.setdefault(-math.inf if key is None else float(key), []).append(i)
    ordered = [tuple(steps[key]) for key in sorted(steps)]
    days = [_mean([day for i in step if (day := _day(observed[i])) is not None]) for step in ordered]
    known = [day for day in days if day is not None]
    if not known:
        days = [UNDATED_STEP_DAYS * i for i in range(len(ordered))]
        known = [0.0, UNDATED_STEP_DAYS * (len(ordered) - 1)]
    middle = (min(known) + max(known)) / 2
    days_T = torch.tensor([0.0 if day is None else day - middle for day in days], dtype=torch.float64)
    return ordered, days_T


def _check_alike(observed: Mapping[int, Acquisition], name: str, among: Sequence[int]) -> None:
    """Refuse a series in which some acquisitions name a ``timestep`` (or a full date) and others do not."""
    missing = [i for i in among if getattr(observed[i], name) is None]
    if missing and len(missing) < len(among):
        raise AtomsError(
            f"acquisition {missing[0]} ({observed[missing[0]].sensor}) has no {name} while others have: give all "
            f"a {name}, or none"
        )


def _mean(days: Sequence[float]) -> float | None:
    return sum(days) / len(days) if days else None


def _day(acquisition: Acquisition) -> float | None:
    """Return the day on a scale that runs through New Year where the date is known, else the day of year."""
    if acquisition.date is not None:
        return float(acquisition.date.toordinal())
    return None if acquisition.day_of_year is None else float(acquisition.day_of_year)


class TemporalAggregator(nn.Module):
    """One pre-norm block over the T latents of an anchor and a learned token, whose output is the aggregate.

    As the paper writes it, the aggregate is the token and what it attends to, so that little of what differs between
    anchors passes. With ``residual`` the mean over the time steps is added.
    """

    def __init__(
        self,
        width: int,
        scale_days: float,
        min_cycles: float,
        max_cycles: float,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.residual = residual
        head_dim = max(2, width // HEADS // 2 * 2)
        self.token = nn.Parameter(torch.empty(width))
        nn.init.trunc_normal_(self.token, std=0.02)
        self.angles = RotaryAngles(1, head_dim, scale_days, min_cycles, max_cycles)
        self.attention = SelfAttention(width, HEADS, head_dim, attention_dropout)
        self.feedforward = FeedForward(width, 0.5, dropout)

    def forward(self, h_TLD: Tensor, days: Tensor) -> Tensor:
        """Return aggregated latents (L, D); the learned token stands outside time.

        ``days`` (T,) are those of all latents, or (T, L) those of each.
        """
        x_LTD, angles_LTe = self._sequence(h_TLD, days)
        token_LD = self.token + self.attention(x_LTD, angles_LTe)[:, -1]
        if self.residual:
            token_LD = token_LD + h_TLD.mean(dim=0)
        aggregate_LD: Tensor = token_LD + self.feedforward(token_LD)
        return aggregate_LD

    def step_shares(self, h_TLD: Tensor, days_T: Tensor) -> Tensor:
        """Return how the aggregate of each anchor divides its attention among the steps: (T, L), one in sum over T."""
        weights_LHTT = self.attention.weights(*self._sequence(h_TLD, days_T))
        weights_TL = weights_LHTT[:, :, -1, :-1].mean(dim=1).T
        return weights_TL / weights_TL.sum(dim=0)

    def _sequence(self, h_TLD: Tensor, days: Tensor) -> tuple[Tensor, Tensor]:
        steps, latents, _ = h_TLD.shape
        x_LTD = torch.cat([h_TLD.transpose(0, 1), self.token.expand(latents, 1, -1)], dim=1)
        if days.ndim == 1:
            return x_LTD, self.angles(days[:, None]).expand(latents, steps, -1)
        return x_LTD, self.angles(days.T[..., None])

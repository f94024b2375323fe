"""Time steps, and the small transformer that merges the latents of each anchor over them (paper, §3.4).

Shapes: L latents, T time steps, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import AtomsError
from atomizer_io.model.config import AtomizerConfig
from atomizer_io.model.layers import FeedForward, RotaryAngles, SelfAttention

HEADS = 8
UNDATED_STEP_DAYS = 30.0


def time_steps(atoms: AtomSet) -> tuple[list[tuple[int, ...]], Tensor]:
    """Acquisitions of each time step in order of time, and the days (T,) of the steps around the middle of the series.

    A step is a ``timestep`` number where acquisitions name one, else a day of year. Where a step has no date, all
    steps are put 30 days apart in the order of their numbers. Acquisitions without a valid atom are no observations.
    """
    observed = [i for i, acquisition in enumerate(atoms) if acquisition.num_atoms]
    numbered = [atoms.acquisitions[i].timestep is not None for i in observed]
    if any(numbered) and not all(numbered):
        raise AtomsError("some acquisitions name a timestep and others do not: number all of them, or none")
    keys: dict[float, list[int]] = {}
    for i in observed:
        acquisition = atoms.acquisitions[i]
        key = acquisition.timestep if acquisition.timestep is not None else acquisition.day_of_year
        keys.setdefault(-torch.inf if key is None else float(key), []).append(i)
    steps = [tuple(keys[key]) for key in sorted(keys)]
    dated = [[a.day_of_year for i in step if (a := atoms.acquisitions[i]).day_of_year is not None] for step in steps]
    if all(dated):
        days = [sum(step) / len(step) for step in dated]
    else:
        days = [UNDATED_STEP_DAYS * i for i in range(len(steps))]
    days_T = torch.tensor(days, dtype=torch.float64)
    return steps, days_T - (days_T.min() + days_T.max()) / 2


class TemporalAggregator(nn.Module):
    """One pre-norm block over the T latents of an anchor and a learned token, whose output is the aggregate."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        head_dim = max(2, config.width // HEADS // 2 * 2)
        self.token = nn.Parameter(torch.empty(config.width))
        nn.init.trunc_normal_(self.token, std=0.02)
        self.angles = RotaryAngles(
            1, head_dim, config.temporal_scale_days, config.rope_min_cycles, config.rope_max_cycles
        )
        self.attention = SelfAttention(config.width, HEADS, head_dim, config.attention_dropout)
        self.feedforward = FeedForward(config.width, 0.5, config.feedforward_dropout)

    def forward(self, h_TLD: Tensor, days_T: Tensor) -> Tensor:
        """Aggregated latents (L, D); the learned token stands outside time."""
        x_LTD, angles_LTe = self._sequence(h_TLD, days_T)
        token_LD = self.token + self.attention(x_LTD, angles_LTe)[:, -1]
        aggregate_LD: Tensor = token_LD + self.feedforward(token_LD)
        return aggregate_LD

    def step_shares(self, h_TLD: Tensor, days_T: Tensor) -> Tensor:
        """How the aggregate of each anchor divides its attention among the steps: (T, L), summing to one over T."""
        weights_LHTT = self.attention.weights(*self._sequence(h_TLD, days_T))
        weights_TL = weights_LHTT[:, :, -1, :-1].mean(dim=1).T
        return weights_TL / weights_TL.sum(dim=0)

    def _sequence(self, h_TLD: Tensor, days_T: Tensor) -> tuple[Tensor, Tensor]:
        steps, latents, _ = h_TLD.shape
        x_LTD = torch.cat([h_TLD.transpose(0, 1), self.token.expand(latents, 1, -1)], dim=1)
        return x_LTD, self.angles(days_T[:, None]).expand(latents, steps, -1)

"""The order of a LiDAR return within its pulse, as two numbers that a network can read."""

from __future__ import annotations

import torch
from torch import Tensor

from atomizer_io.data.inputs import Array, tensor
from atomizer_io.errors import AtomsError


def encode_echo(return_number: Array, number_of_returns: Array) -> tuple[Tensor, Tensor]:
    """Return (a, b) = ((r − 1)/R, (R − r)/R): the share of a pulse's returns before and after this one (paper, C.1).

    Pairs outside 1 ≤ r ≤ R carry no information and give NaN.
    """
    r, total = (
        tensor(return_number, "return_number").to(torch.float64),
        tensor(number_of_returns, "number_of_returns").to(torch.float64),
    )
    if r.shape != total.shape:
        raise AtomsError(f"return_number has shape {tuple(r.shape)}, number_of_returns {tuple(total.shape)}")
    nan = torch.full_like(r, torch.nan)
    known = (r >= 1) & (r <= total)
    before = torch.where(known, (r - 1) / total, nan)
    after = torch.where(known, (total - r) / total, nan)
    return before.to(torch.float32), after.to(torch.float32)

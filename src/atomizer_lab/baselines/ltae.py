"""Maps of several dates made one: L-TAE (Garnot and Landrieu 2020), or a linear map over a fixed number of dates.

Shapes: B scenes, T dates, D features, H × W pixels, N = B·H·W, A heads, K features of a key, V = D/A.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_io.errors import ConfigError
from atomizer_lab.baselines.batch_norm import BatchNorm1d

LAST_DAY = 367  # the longest period of the encoding of days of the year


class LTAE(nn.Module):
    """Lightweight temporal attention: at each pixel, every head looks at the dates with one learned query.

    Values are the features themselves, split among the heads. ``project`` adds a linear map of the features before
    attention, ``hidden`` are widths between the joined heads and the output (each layer: linear, batch normalisation,
    ReLU), ``norm_out`` normalises the output in groups, ``days`` adds an encoding of the day of the year.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 16,
        key_width: int = 4,
        hidden: Sequence[int] = (),
        dropout: float = 0.2,
        attention_dropout: float = 0.1,
        project: bool = True,
        norm_out: bool = True,
        days: bool = False,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"{width} features cannot be split among {heads} heads of an L-TAE: take a multiple")
        self.heads, self.key_width, self.days = heads, key_width, days
        self.norm_in = nn.GroupNorm(heads, width)
        self.project = nn.Linear(width, width) if project else nn.Identity()
        self.query_AK = nn.Parameter(torch.empty(heads, key_width))
        self.key = nn.Linear(width, heads * key_width)
        nn.init.normal_(self.query_AK, std=(2.0 / key_width) ** 0.5)
        nn.init.normal_(self.key.weight, std=(2.0 / key_width) ** 0.5)
        self.attention_dropout = nn.Dropout(attention_dropout)
        layers: list[nn.Module] = []
        for inputs, outputs in zip((width, *hidden), (*hidden, width), strict=True):
            layers += [nn.Linear(inputs, outputs), BatchNorm1d(outputs), nn.ReLU(True)]
        self.mlp = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.norm_out = nn.GroupNorm(heads, width) if norm_out else nn.Identity()

    def forward(self, x_BTDHW: Tensor, day_BT: Tensor | None = None) -> Tensor:
        """Maps of T dates (B, T, D, H, W), and their days where these count → (B, D, H, W)."""
        batch, dates, width, rows, columns = x_BTDHW.shape
        x_NDT = x_BTDHW.permute(0, 3, 4, 2, 1).reshape(-1, width, dates)
        x_NTD = self.project(self.norm_in(x_NDT).transpose(1, 2))
        if self.days:
            if day_BT is None:
                raise ConfigError("this L-TAE encodes the day of the year of each date, but was given none")
            code_BTD = day_code(day_BT, width // self.heads).repeat(1, 1, self.heads)
            x_NTD = x_NTD + code_BTD.to(x_NTD).repeat_interleave(rows * columns, dim=0)
        found_ND = self.mlp(self.attended(x_NTD))
        out_ND = self.norm_out(self.dropout(found_ND))
        return out_ND.reshape(batch, rows, columns, width).permute(0, 3, 1, 2)

    def attended(self, x_NTD: Tensor) -> Tensor:
        """Return the means (N, D) over dates that the heads choose.

        The score of head a is ⟨query_a, key_a(x)⟩ / √K: linear in x, so query and key are folded into one vector. The
        bias of the keys adds the same to all dates, which a softmax does not see.
        """
        weight_AKD = self.key.weight.unflatten(0, (self.heads, self.key_width))
        look_AD = torch.einsum("ak,akd->ad", self.query_AK, weight_AKD) / self.key_width**0.5
        share_NTA = self.attention_dropout(F.linear(x_NTD, look_AD).softmax(dim=1))
        x_NTAV = x_NTD.unflatten(2, (self.heads, -1))
        return (share_NTA[..., None] * x_NTAV).sum(dim=1).flatten(1)


def day_code(day_BT: Tensor, width: int) -> Tensor:
    """Return the encoding (B, T, width) of days of the year: sine and cosine in turn; zeros where a day is NaN.

    The angle of features 2i and 2i + 1 is day / 367^(2i / width).
    """
    number = torch.arange(width, device=day_BT.device, dtype=torch.float32)
    angle = day_BT[..., None].float() / LAST_DAY ** (2 * (number // 2) / width)
    return torch.where(number % 2 == 0, angle.sin(), angle.cos()).nan_to_num(0.0)


class LinearOverDates(nn.Module):
    """One weight per date and a bias, shared by all features and pixels: a convolution over all of a fixed time."""

    def __init__(self, dates: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dates, 1)
        nn.init.constant_(self.linear.weight, 1.0 / dates)  # begins as the mean
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_BTDHW: Tensor) -> Tensor:
        """Maps of T dates (B, T, D, H, W) → (B, D, H, W)."""
        return (self.linear.weight @ x_BTDHW.flatten(2)).reshape(-1, *x_BTDHW.shape[2:]) + self.linear.bias

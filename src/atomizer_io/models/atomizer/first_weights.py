"""First weights for layers that read tokens, and for those that read what attention pooled of them.

Torch's usual weights suit inputs of equal size. Those of a token are not: the Fourier features of its value are ten
times as large as those by which broad bands differ, and a hundred times as those of narrow ones. So at first all bands
look the same, and a small network spends hundreds of steps on telling them apart.

- A layer that reads tokens gets weights by what a column stands for: waves count less than the number itself, and what
  the kinds that occur differ by counts as much as a value does (:func:`draw_first`).
- What attention pooled differs between places by little, and mostly by how bright they are. The layers that read it
  are set so that all that differs between places comes out with mean 0 and spread 1 (:func:`spread`). That takes both
  the value layer and the one after it: values drawn at random and undone by the layer after them would be so sensitive
  that the first step of training loses everything. At queries a constant is added (:func:`steady`), or the norms that
  follow would make a place that is like most others as large as one that is not.

Nothing here tracks gradients: callers turn them off.

Shapes: K kinds, B bands, F features, N rows, H heads, E and D features before and after a layer, R directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim, spectral
from atomizer_io.models.atomizer.ops.attention import CellAttention

# Spreads of first weights.
NUMBER, WAVE = 1.0, 0.1  # of a number itself, and of the slowest wave of an offset; faster ones count for less
PLAIN, GSD, SPECTRAL, TIME = 0.5, 0.3, 2.0, 0.3
BIAS = 0.5
KIND_FLOOR = 0.03  # of the largest variance of kinds: what is below is not made as large as the rest
UNSEEN = 1.0  # of what other bands would differ by, to what the bands that occur differ by
NOTHING = 1e-8  # a direction in which nothing differs
CONSTANT = 2.0  # what is added at queries, in units of the spread of what differs between them

Kinds = list[Tensor]  # features (K, F) of the kinds of each sample


def draw_first(attention: CellAttention, kinds: Kinds, value: float) -> None:
    """Draw the weights of the layer per atom; ``value`` is the spread for measured values."""
    config = attention.encodings
    resolution = fourier_dim(config.gsd_frequencies)
    begin(attention.first, token_sizes(config, value, offsets=attention.offset_dim > 0))
    tell_apart(attention.first, attention.parts.value, slice(resolution, resolution + SPECTRAL_DIM), kinds)


def fourier_sizes(frequencies: int, max_frequency: float) -> Tensor:
    """Return the spread of first weights for the features of a number: the faster a wave, the smaller."""
    nu = torch.linspace(1.0, max_frequency, frequencies)
    return torch.cat([torch.tensor([NUMBER]), (WAVE / nu).repeat_interleave(2)])


def token_sizes(config: Encodings, value: float, offsets: bool) -> Tensor:
    """Return the spread of first weights for each feature of a token, and of its offset if ``offsets``.

    ``value`` is the spread for the measured value itself.
    """
    field_sizes = fourier_sizes(config.value_frequencies, config.value_max_frequency)
    size = torch.zeros_like(field_sizes)  # waves of a value would drown what matters
    size[0] = value
    parts = [
        size,
        torch.full((fourier_dim(config.gsd_frequencies),), GSD),
        torch.full((SPECTRAL_DIM,), SPECTRAL),
        (TIME / torch.arange(1, config.time_frequencies + 1)).repeat_interleave(2),
        *(field_sizes if field.fourier else torch.full((2,), PLAIN) for field in config.site_fields),
    ]
    if offsets:
        parts += [fourier_sizes(config.offset_frequencies, config.offset_max_frequency)] * 2
    return torch.cat(parts)


def begin(first: nn.Linear, sizes_F: Tensor) -> None:
    """Draw the weights of a layer that reads tokens, with these spreads."""
    first.weight.normal_().mul_(sizes_F.to(first.weight))
    first.bias.uniform_(-BIAS, BIAS)


def clear(layer: nn.Linear) -> None:
    """Make a layer give zero."""
    layer.weight.zero_()
    if layer.bias is not None:
        layer.bias.zero_()


def any_band() -> Tensor:
    """Return the spectral features (B, 17) of bands of all wavelengths and some widths: what other sensors have."""
    centre_um, width_um = torch.linspace(0.4, 2.4, 201, dtype=torch.float64), torch.tensor([0.02, 0.04, 0.08]).double()
    return spectral(centre_um.repeat_interleave(3), width_um.repeat(201))


def tell_apart(first: nn.Linear, features: int, columns: slice, kinds: Sequence[Tensor]) -> None:
    """Draw weights for what tells the kinds (K, F) of a sample apart, in columns from ``features`` on, of spread 1.

    What differs between samples only, as the day of a single date, begins without weight: it would cover what differs
    between places. So does everything where there is a single kind.
    """
    mean_F = torch.cat(list(kinds)).to("cpu", torch.float64).mean(dim=0)
    apart_KF = torch.cat([(kinds_KF - kinds_KF.mean(dim=0)).to("cpu", torch.float64) for kinds_KF in kinds])
    square_FF = apart_KF.T @ apart_KF / len(apart_KF)
    if bool((square_FF.diagonal()[columns] > NOTHING).any()):
        square_FF[columns, columns] += UNSEEN * torch.cov(any_band().T, correction=0)
    variance_R, axes_FR = torch.linalg.eigh(square_FF)
    apart = variance_R > NOTHING
    if not bool(apart.any()):
        first.weight[:, features : features + len(mean_F)] = 0.0
        return
    variance_R, axes_FR = variance_R[apart], axes_FR[:, apart]
    draws_DR = torch.randn(first.out_features, len(variance_R), dtype=torch.float64)
    weight_DF = draws_DR * (variance_R + KIND_FLOOR * variance_R[-1]).rsqrt() @ axes_FR.T
    spread_D1 = (apart_KF @ weight_DF.T).square().mean(dim=0).sqrt()[:, None]
    weight_DF = weight_DF / spread_D1.clamp(min=NOTHING)
    first.weight[:, features : features + len(mean_F)] = weight_DF.to(first.weight)
    first.bias.uniform_(-BIAS, BIAS).sub_((weight_DF @ mean_F).to(first.bias))


def principal(rows_NE: Tensor, count: int, floor: float) -> tuple[Tensor, Tensor] | None:
    """Return the mean (E,) of rows and weights (R, E) for their ``count`` main directions, of spread 1 each.

    A direction whose variance is below ``floor``, a share of the largest, is mostly noise, and comes out smaller. None
    where nothing differs.
    """
    if not len(rows_NE):
        return None
    x_NE = rows_NE.to("cpu", torch.float64)
    mean_E = x_NE.mean(dim=0)
    variance_E, axes_EE = torch.linalg.eigh((x_NE - mean_E).T @ (x_NE - mean_E) / len(x_NE))
    if variance_E[-1] <= NOTHING:
        return None
    variance_R, axes_RE = variance_E.flip(0)[:count], axes_EE.T.flip(0)[:count]
    return mean_E, axes_RE * (variance_R.clamp(min=0) + floor * variance_R[0]).rsqrt()[:, None]


def spread(value: nn.Linear, out: nn.Linear, pooled_NHE: Tensor, floor: float) -> None:
    """Set the value layer of an attention, and the layer after it, so that all that differs comes out alike.

    ``pooled_NHE`` is what the value layer reads. It has no bias, so it gets the main directions in which the mean is
    zero, and each head other ones.
    """
    heads, size = pooled_NHE.shape[1], value.out_features // pooled_NHE.shape[1]
    x_NE = pooled_NHE.mean(dim=1).to("cpu", torch.float64)
    mean_E = torch.nn.functional.normalize(x_NE.mean(dim=0), dim=0)
    found = principal(x_NE - (x_NE @ mean_E)[:, None] * mean_E, value.out_features, floor)
    nn.init.normal_(value.weight, std=value.in_features**-0.5)
    if found is not None:
        weight_RE = found[1].to(value.weight)
        row_R = torch.arange(len(weight_RE))
        value.weight[(row_R % heads) * size + row_R // heads] = weight_RE
    whiten(out, torch.einsum("nhe,hde->nhd", pooled_NHE, value.weight.unflatten(0, (heads, size))).flatten(1), floor)


@torch.no_grad()
def whiten(layer: nn.Linear, rows_NE: Tensor, floor: float) -> None:
    """Set a layer so that what it makes of these rows has mean 0 and spread 1 in all directions that matter.

    If there are none, or all are the same, it stays as it is.
    """
    kept = min(layer.in_features, layer.out_features)
    if (found := principal(rows_NE, kept, floor)) is not None:
        mean_E, weight_RE = found
        turn_DR, _ = torch.linalg.qr(torch.randn(layer.out_features, kept, dtype=torch.float64))
        layer.weight.copy_(turn_DR @ weight_RE)
        layer.bias.copy_(-(turn_DR @ weight_RE) @ mean_E)


def steady(layer: nn.Linear, norms: Sequence[nn.LayerNorm]) -> None:
    """Let ``layer`` give a constant besides what differs, and ``norms`` that come after it take it away again."""
    constant_D = CONSTANT * (-1.0) ** torch.arange(layer.out_features).to(layer.bias)
    layer.bias.add_(constant_D)
    for norm in norms:
        norm.weight.fill_((1 + CONSTANT**2) ** 0.5)
        norm.bias.copy_(-constant_D)

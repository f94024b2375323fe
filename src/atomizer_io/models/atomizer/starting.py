"""Weights before the first step, so that every part of a token counts from there on.

Torch's usual weights suit inputs of equal size. Those of a token are not: the Fourier features of its value are ten
times as large as those by which broad bands differ, and a hundred times as those of narrow ones. So at first all bands
look the same, and a small network spends hundreds of steps on nothing but telling them apart. Three things are done
about it; none changes what can be learned.

- A layer that reads tokens begins with weights by what a column stands for (:func:`begin`).
- When there are data, its weights for kinds are drawn anew, so that what the kinds that occur differ by counts as much
  as a value does (:func:`tell_apart`).
- What attention pooled differs between places by little, and mostly by how bright they are. A layer that reads it is
  set so that all that differs between the places of some samples comes out with mean 0 and spread 1 (:func:`whiten`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim

NUMBER, WAVE = 1.0, 0.5  # of a number itself, and of its slowest wave; faster ones count for less
PLAIN, GSD, TIME = 0.5, 0.3, 0.3
SPECTRAL = 2.0  # a band reaches into few of the functions, and seldom fills one
LEARNED = 0.25  # of the vectors of channels without a wavelength: together about as long as a band's
BIAS = 0.5
FLOOR, KIND_FLOOR = 1e-3, 1e-2  # of the largest variance: what is below is not made as large as the rest
NOTHING = 1e-8  # of the largest variance: a direction in which nothing differs


def fourier_sizes(frequencies: int, max_frequency: float) -> Tensor:
    """Return the spread of first weights for the features of a number: the faster a wave, the smaller."""
    nu = torch.linspace(1.0, max_frequency, frequencies)
    return torch.cat([torch.tensor([NUMBER]), (WAVE / nu).repeat_interleave(2)])


def token_sizes(config: AtomizerConfig, offsets: bool) -> Tensor:
    """Return the spread of first weights for each feature of a token, and of its offset if ``offsets``."""
    value = fourier_sizes(config.value_frequencies, config.value_max_frequency)
    parts = [
        value,
        torch.full((fourier_dim(config.gsd_frequencies),), GSD),
        torch.full((SPECTRAL_DIM,), SPECTRAL),
        (TIME / torch.arange(1, config.time_frequencies + 1)).repeat_interleave(2),
        *(value if field.fourier else torch.full((2,), PLAIN) for field in config.site_fields),
    ]
    if offsets and config.offset_encoding:
        parts += [fourier_sizes(config.offset_frequencies, config.offset_max_frequency)] * config.dimensions
    return torch.cat(parts)


@torch.no_grad()
def begin(first: nn.Linear, config: AtomizerConfig, offsets: bool) -> None:
    """Draw the weights of a layer that reads tokens."""
    first.weight.normal_().mul_(token_sizes(config, offsets))
    first.bias.uniform_(-BIAS, BIAS)


@torch.no_grad()
def tell_apart(first: nn.Linear, features: int, kinds_KF: Tensor) -> None:
    """Draw weights for what tells kinds apart, in columns from ``features`` on, with a spread of 1 over these kinds.

    A single kind needs none.
    """
    kinds_KF = kinds_KF.to("cpu", torch.float64)
    mean_F = kinds_KF.mean(dim=0)
    variance_R, axes_FR = torch.linalg.eigh((kinds_KF - mean_F).T @ (kinds_KF - mean_F) / len(kinds_KF))
    apart = variance_R > NOTHING * max(1.0, float(variance_R[-1]))
    if not bool(apart.any()):
        return
    variance_R, axes_FR = variance_R[apart], axes_FR[:, apart]
    draws_DR = torch.randn(first.out_features, len(variance_R), dtype=torch.float64)
    weight_DF = draws_DR * (variance_R + KIND_FLOOR * variance_R[-1]).rsqrt() @ axes_FR.T
    spread_D1 = ((kinds_KF - mean_F) @ weight_DF.T).std(dim=0, correction=0)[:, None]
    weight_DF = weight_DF / spread_D1.clamp(min=NOTHING)
    first.weight[:, features : features + len(mean_F)] = weight_DF.to(first.weight)
    first.bias.uniform_(-BIAS, BIAS).sub_((weight_DF @ mean_F).to(first.bias))


@torch.no_grad()
def whiten(layers: Sequence[nn.Linear], run: Callable[[], object]) -> None:
    """Set ``layers`` so that what they give while ``run`` runs has mean 0 and spread 1 in all directions that matter.

    A layer that is given less than two rows stays as it is.
    """
    given: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers}

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        given[layer].append(inputs[0].flatten(0, -2).to("cpu", torch.float64))

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    for layer in layers:
        x_NE = torch.cat(given[layer]) if given[layer] else torch.zeros(0, layer.in_features)
        mean_E = x_NE.mean(dim=0)
        variance_E, axes_EE = torch.linalg.eigh((x_NE - mean_E).T @ (x_NE - mean_E) / max(1, len(x_NE)))
        if len(x_NE) < 2 or not variance_E[-1] > 0:
            continue
        kept = min(layer.in_features, layer.out_features)
        scale_R = (variance_E[-kept:].clamp(min=0) + FLOOR * variance_E[-1]).rsqrt()
        turn_DR, _ = torch.linalg.qr(torch.randn(layer.out_features, kept, dtype=torch.float64))
        weight_DE = (turn_DR * scale_R) @ axes_EE[:, -kept:].T
        layer.weight.copy_(weight_DE)
        layer.bias.copy_(-weight_DE @ mean_E)

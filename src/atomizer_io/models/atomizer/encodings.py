"""How a number becomes features: Fourier, compression, spectral support, time of year (paper, appendix B.4–B.6)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Centres and widths of the Gaussian basis in nanometres. Seventeen functions leave no gap in 350–2500 nm.
SPECTRAL_CENTRES_NM = (
    *(380.0, 424.0, 468.0, 513.0, 557.0, 602.0, 646.0, 691.0, 735.0, 780.0),
    *(850.0, 940.0, 1030.0, 1200.0, 1400.0, 1600.0, 2100.0),
)
SPECTRAL_WIDTHS_NM = (*(15.0,) * 10, 30.0, 40.0, 50.0, 70.0, 80.0, 100.0, 120.0)
SPECTRAL_DIM = len(SPECTRAL_CENTRES_NM)
SPECTRAL_RANGE_UM = (0.35, 2.5)  # a band with its centre in here is described by its spectral support

DAYS_PER_YEAR = 365.0


def compress(w: Tensor, scale: float | Tensor) -> Tensor:
    """Map a physical quantity to (−1, 1), reaching one half at ``|w| == scale`` (paper, B.6)."""
    return w / (scale + w.abs())


def fourier_dim(frequencies: int) -> int:
    """Return how many features :func:`fourier` makes of one number."""
    return 2 * frequencies + 1


def frequency_step(frequencies: int, max_frequency: float) -> float:
    """Return the distance between neighbouring frequencies of :func:`fourier`."""
    return (max_frequency - 1.0) / (frequencies - 1) if frequencies > 1 else 0.0


def fourier(w: Tensor, frequencies: int, max_frequency: float) -> Tensor:
    """Return [w, sin πν₁w, cos πν₁w, …, sin πν_Fw, cos πν_Fw], ν linear from 1 to ``max_frequency`` (paper, B.4)."""
    nu = torch.linspace(1.0, float(max_frequency), frequencies, dtype=torch.float64, device="cpu").to(w)
    angle = math.pi * w[..., None] * nu
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)
    return torch.cat([w[..., None], waves], dim=-1)


def spectral(wavelength_um: Tensor, bandwidth_um: Tensor) -> Tensor:
    """Return ∫ N(λ; μᵢ, σᵢ) over each band in closed form, (…,) and (…,) micrometres → (…, 17) (paper, B.4)."""
    mu = torch.tensor(SPECTRAL_CENTRES_NM, dtype=wavelength_um.dtype, device=wavelength_um.device)
    sigma = torch.tensor(SPECTRAL_WIDTHS_NM, dtype=wavelength_um.dtype, device=wavelength_um.device)
    centre, half = wavelength_um[..., None] * 1000.0, bandwidth_um[..., None] * 500.0
    upper = torch.erf((centre + half - mu) / (sigma * math.sqrt(2.0)))
    lower = torch.erf((centre - half - mu) / (sigma * math.sqrt(2.0)))
    return (upper - lower) / 2


def time_of_year(day: Tensor, frequencies: int) -> Tensor:
    """Return [sin 2πkt/365, cos 2πkt/365] for k = 1…K_t: (…,) days of the year → (…, 2 K_t) (paper, B.4)."""
    k = torch.arange(1, frequencies + 1, dtype=day.dtype, device=day.device)
    angle = 2 * math.pi / DAYS_PER_YEAR * day[..., None] * k
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

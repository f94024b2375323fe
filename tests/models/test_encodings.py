"""Encodings against the paper's formulas, written out (appendix B.4-B.6)."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from atomizer_io.data.sensors import LANDSAT8, SENTINEL2
from atomizer_io.models.atomizer.encodings import (
    SPECTRAL_CENTRES_NM,
    SPECTRAL_DIM,
    SPECTRAL_WIDTHS_NM,
    compress,
    fourier,
    fourier_dim,
    spectral,
    time_of_year,
)
from atomizer_io.models.atomizer.tokens import BLIND

steady = settings(deadline=None, derandomize=True)
finite = st.floats(-1e6, 1e6)
scales = st.floats(1e-3, 1e4)


def f64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


# --- Fourier features ---


@steady
@given(w=st.floats(-3, 3), frequencies=st.integers(1, 20), max_frequency=st.floats(1, 32))
def test_fourier_is_the_formula(w: float, frequencies: int, max_frequency: float) -> None:
    expected = [w]
    for i in range(frequencies):
        nu = 1.0 if frequencies == 1 else 1.0 + i * (max_frequency - 1.0) / (frequencies - 1)
        expected += [math.sin(math.pi * nu * w), math.cos(math.pi * nu * w)]
    features = fourier(torch.tensor(w, dtype=torch.float64), frequencies, max_frequency)
    assert features.shape == (fourier_dim(frequencies),) == (2 * frequencies + 1,)
    torch.testing.assert_close(features, f64(*expected), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fourier_keeps_shape_and_dtype(dtype: torch.dtype) -> None:
    features = fourier(torch.linspace(-1, 1, 6, dtype=dtype).reshape(2, 3), 4, 4.0)
    assert (features.shape, features.dtype) == ((2, 3, 9), dtype)
    torch.testing.assert_close(features[1, 2], fourier(torch.ones((), dtype=dtype), 4, 4.0))


# --- compression ---


@steady
@given(w=finite, scale=scales)
def test_compress_is_odd_and_within_one(w: float, scale: float) -> None:
    squeezed = compress(f64(w), scale).item()
    assert -1 < squeezed < 1
    assert compress(f64(-w), scale).item() == -squeezed
    assert squeezed == pytest.approx(w / (scale + abs(w)))


@steady
@given(scale=scales)
def test_compress_reaches_half_at_its_scale(scale: float) -> None:
    assert compress(f64(scale, -scale), scale).tolist() == pytest.approx([0.5, -0.5])


@steady
@given(scale=scales, low=st.floats(-1e3, 1e3), step=st.floats(1e-2, 1e3))
def test_compress_rises(scale: float, low: float, step: float) -> None:
    below, above = compress(f64(low, low + step), scale).tolist()
    assert below < above


def test_compress_is_linear_near_zero_and_takes_a_tensor_as_scale() -> None:
    assert compress(f64(1e-6), 10.0).item() == pytest.approx(1e-7, rel=1e-5)
    assert compress(f64(10.0), f64(30.0)).item() == 0.25


# --- spectral support ---


@pytest.mark.parametrize(
    ("wavelength_um", "bandwidth_um"),
    [(0.4924, 0.066), (0.865, 0.021), (1.6137, 0.091), (2.2024, 0.175), (0.59, 0.17), (1.1, 0.02), (0.38, 0.006)],
)
def test_spectral_is_the_integral_over_the_band(wavelength_um: float, bandwidth_um: float) -> None:
    features = spectral(torch.tensor(wavelength_um).double(), torch.tensor(bandwidth_um).double())
    assert features.shape == (SPECTRAL_DIM,) == (17,)
    centre, half = wavelength_um * 1000, bandwidth_um * 500
    for i, (mu, sigma) in enumerate(zip(SPECTRAL_CENTRES_NM, SPECTRAL_WIDTHS_NM, strict=True)):

        def density(nm: float, mu: float = mu, sigma: float = sigma) -> float:
            return math.exp(-(((nm - mu) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))

        inside = [mu] if centre - half < mu < centre + half else None  # the peak, where quad should look
        expected, _ = quad(density, centre - half, centre + half, points=inside)
        assert features[i].item() == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_spectral_is_the_basis_of_the_design() -> None:
    assert (
        *(380, 424, 468, 513, 557, 602, 646, 691, 735, 780, 850, 940, 1030, 1200, 1400, 1600, 2100),
    ) == SPECTRAL_CENTRES_NM
    assert SPECTRAL_WIDTHS_NM == (15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 30, 40, 50, 70, 80, 100, 120)


def test_a_band_over_everything_holds_every_gaussian() -> None:
    torch.testing.assert_close(spectral(f64(5.0), f64(10.0)), torch.ones(1, 17, dtype=torch.float64))


def test_spectral_takes_many_bands_at_once() -> None:
    centres, widths = f64(0.5, 0.8, 1.6).reshape(3, 1), f64(0.02, 0.05, 0.1).reshape(3, 1)
    together = spectral(centres, widths)
    assert together.shape == (3, 1, 17)
    torch.testing.assert_close(together[2, 0], spectral(centres[2, 0], widths[2, 0]))


def test_optical_bands_of_the_catalogue_differ_pairwise() -> None:
    bands = [c for c in (*SENTINEL2, *LANDSAT8) if c.wavelength_um is not None and c.wavelength_um < 2.5]
    assert len(bands) >= 13 + 9
    features = {
        (c.sensor, c.name): spectral(f64(c.wavelength_um or 0), f64(c.bandwidth_um or 0)).flatten() for c in bands
    }
    for (a, one), (b, second) in itertools.combinations(features.items(), 2):
        assert float((one - second).abs().max()) > 1e-3, (a, b)
    for name, feature in features.items():
        assert float(feature.max()) > 100 * BLIND, name


def test_no_narrow_band_is_invisible() -> None:
    centres = torch.arange(0.400, 2.3001, 0.001, dtype=torch.float64)
    strongest = spectral(centres, torch.full_like(centres, 0.02)).max(dim=1).values
    weakest = int(strongest.argmin())
    assert float(strongest[weakest]) > 50 * BLIND, f"{float(centres[weakest]):.3f} µm"


def test_neighbouring_narrow_bands_differ() -> None:
    centres = torch.arange(0.400, 2.3001, 0.02, dtype=torch.float64)
    features = spectral(centres, torch.full_like(centres, 0.02))
    steps = features.diff(dim=0).abs().max(dim=1).values
    assert float(steps.min()) > 5 * BLIND


# --- time of year ---


@steady
@given(day=st.floats(0, 365), years=st.integers(-2, 3))
def test_time_of_year_repeats_every_year(day: float, years: int) -> None:
    torch.testing.assert_close(
        time_of_year(f64(day), 12), time_of_year(f64(day + 365.0 * years), 12), atol=1e-9, rtol=0
    )


@steady
@given(day=st.floats(0, 800), frequencies=st.integers(1, 12))
def test_time_of_year_is_the_formula(day: float, frequencies: int) -> None:
    expected: list[float] = []
    for k in range(1, frequencies + 1):
        expected += [math.sin(2 * math.pi * k * day / 365), math.cos(2 * math.pi * k * day / 365)]
    torch.testing.assert_close(time_of_year(f64(day), frequencies), f64(*expected)[None], atol=1e-10, rtol=0)


def test_days_of_a_year_differ() -> None:
    year = time_of_year(torch.arange(365, dtype=torch.float64), 12)
    distance = torch.cdist(year, year) + torch.eye(365, dtype=torch.float64) * 9
    assert float(distance.min()) > 0.1

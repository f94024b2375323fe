"""Tokens: what an atom is, apart from where it is (paper, §3.1).

A token is ``f = [φ_v(v) | φ_g, φ_λ, φ_t | site fields]``. Only the first part differs from atom to atom; the second
is the same for all atoms of a *kind* (one channel of one acquisition), the third for all atoms of a site. The network
keeps the three apart and never writes a token out.

Shapes: N atoms, K kinds, S sites, P sites and C channels of one acquisition, F features,
2 = (x, y) in metres.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import UnknownChannelError, listed
from atomizer_io.models.atomizer.config import CLOUD_FIELDS, LEARNED_CHANNELS, Encodings, SiteField
from atomizer_io.models.atomizer.encodings import (
    SPECTRAL_DIM,
    SPECTRAL_RANGE_UM,
    compress,
    fourier,
    fourier_dim,
    spectral,
    time_of_year,
)

NOMINAL_BANDWIDTH_UM = 0.02  # assumed where an optical channel names no bandwidth: a narrow band
BLIND = 1e-4  # a band beyond the basis whose every spectral feature is below this does not reach into it


class TokenParts(NamedTuple):
    """How many features the value, the kind and the site contribute to a token."""

    value: int
    kind: int
    site: int

    @classmethod
    def of(cls, encodings: Encodings) -> TokenParts:
        """Return the numbers of features under these settings."""
        value = fourier_dim(encodings.value_frequencies)
        kind = fourier_dim(encodings.gsd_frequencies) + SPECTRAL_DIM + 2 * encodings.time_frequencies
        return cls(value, kind, sum(value if field.fourier else 2 for field in encodings.site_fields))


def value_features(standard: Tensor, encodings: Encodings) -> Tensor:
    """Return φ_v of standardised values: (…,) → (…, F)."""
    return fourier(standard, encodings.value_frequencies, encodings.value_max_frequency)


def offset_dim(encodings: Encodings) -> int:
    """Return the length of φ_δ under these settings; 0 where relative positions are not encoded."""
    return 2 * fourier_dim(encodings.offset_frequencies) if encodings.offset_encoding else 0


def offset_features(delta_m: Tensor, encodings: Encodings) -> Tensor:
    """Return φ_δ, Fourier features of the compressed components of an offset: (…, 2) metres → (…, O) (paper, B.5).

    Like :func:`value_features`, to be computed in float32 or better and rounded afterwards.
    """
    squeezed = compress(delta_m, encodings.offset_scale_m)
    return fourier(squeezed, encodings.offset_frequencies, encodings.offset_max_frequency).flatten(-2)


def gsd_features(gsd_m: Tensor, encodings: Encodings) -> Tensor:
    """Return φ_g of ground sampling distances, (…,) metres → (…, F); zero where one is unknown (NaN)."""
    squeezed = compress(gsd_m, encodings.gsd_scale_m)
    return zero_unless(~gsd_m.isnan(), fourier(squeezed, encodings.gsd_frequencies, encodings.gsd_max_frequency))


def time_features(day_of_year: Tensor, encodings: Encodings) -> Tensor:
    """Return φ_t of days of the year, (…,) → (…, F); zero where one is unknown (NaN)."""
    return zero_unless(~day_of_year.isnan(), time_of_year(day_of_year, encodings.time_frequencies))


def field_features(raw_P: Tensor, field: SiteField, encodings: Encodings) -> Tensor:
    """Return the features (P, F) of one site field; zero where its value is unknown (not finite)."""
    known_P = raw_P.isfinite()
    number_P = torch.where(known_P, raw_P, 0.0)
    if field.fourier:
        number_P = number_P.clamp(min=0).log1p() if field.log else number_P
        features_PF = value_features((number_P - field.mean) / (field.std * encodings.value_divisor), encodings)
    else:
        features_PF = torch.stack([number_P, torch.ones_like(number_P)], dim=-1)
    return zero_unless(known_P, features_PF)


def zero_unless(known: Tensor, features: Tensor) -> Tensor:
    """Return ``features`` (…, F) where ``known`` (…,), and zero elsewhere."""
    return torch.where(known[..., None], features, 0.0)


def numbers(values: Sequence[float | None]) -> Tensor:
    """Return the numbers in float64, NaN where one is None."""
    return torch.tensor(
        [math.nan if number is None else number for number in values], dtype=torch.float64, device="cpu"
    )


def band_features(channel: Channel) -> Tensor | None:
    """Return φ_λ of a channel whose band reaches into the spectral basis, or None: such a channel goes by its name."""
    if channel.wavelength_um is None:
        return None
    features = _band(channel.wavelength_um, channel.bandwidth_um or NOMINAL_BANDWIDTH_UM)
    inside = SPECTRAL_RANGE_UM[0] <= channel.wavelength_um <= SPECTRAL_RANGE_UM[1]
    return features if inside or features.max() > BLIND else None


def learned_names(channel: Channel) -> tuple[str, str]:
    """Return the names under which a model may have learned a channel without φ_λ, the more exact one first."""
    return f"{channel.sensor} {channel.name}", channel.name


def learned_channels(channels: Sequence[Channel], known: Sequence[str], *, extend: bool) -> tuple[str, ...]:
    """Return the names that a model learns: those ``known``, and those its channels need beside them if ``extend``.

    A channel without a wavelength is known by its name, whatever the sensor; one outside the spectral basis with its
    sensor, as Sentinel-2 has a B10 like Landsat's thermal one. Without ``extend``, one that is not known is an error.
    """
    names = list(known)
    for channel in channels:
        full, short = learned_names(channel)
        if band_features(channel) is None and full not in names and short not in names:
            if not extend:
                raise indescribable(channel, names)
            names.append(short if channel.wavelength_um is None else full)
    return tuple(names)


def describing(task_spec: TaskSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with the learned channels and site fields that tokens need for a task specification."""
    known, extend = settings.get("learned_channels", LEARNED_CHANNELS), "learned_channels" not in settings
    fields: dict[str, Any] = {"site_fields": CLOUD_FIELDS} if CLOUD_FIELDS[-1].name in task_spec.fields else {}
    return {**fields, **settings, "learned_channels": learned_channels(task_spec.channels, known, extend=extend)}


def unreadable(channels: Iterable[Channel], task_spec: TaskSpec, learned: Sequence[str]) -> list[Channel]:
    """Return the channels that have neither been ``learned`` nor a wavelength inside the spectral basis."""
    known = task_spec.statistics()
    names = set() if known else set(learned)  # what training never met has learned nothing
    new = [channel for channel in channels if (channel.sensor, channel.name) not in known]
    return [c for c in new if band_features(c) is None and not names & set(learned_names(c))]


def indescribable(channel: Channel, learned: Sequence[str]) -> UnknownChannelError:
    """Return the error for a model that cannot describe a channel, and the ways out."""
    if channel.wavelength_um is None:
        lacks, advice = "has neither a wavelength nor", "give it wavelength_um and bandwidth_um in micrometres, or "
    else:
        low, high = SPECTRAL_RANGE_UM
        lacks = (
            f"lies at {channel.wavelength_um:g} µm, outside the spectral basis of {low}–{high} µm, and does not have"
        )
        advice = ""
    return UnknownChannelError(
        f"channel {channel.name!r} of {channel.sensor} {lacks} a name that this model has learned "
        f"({listed(learned)}): {advice}build the model with channels= that include it, or with "
        f"learned_channels=(*LEARNED_CHANNELS, '{channel.sensor} {channel.name}'); a trained model can only be used "
        f"without it: atoms.drop('{channel.name}', sensor='{channel.sensor}')"
    )


@functools.lru_cache(maxsize=4096)
def _band(wavelength_um: float, bandwidth_um: float) -> Tensor:
    """Return φ_λ of one band in float64; it is kept, as the same few bands come with every sample."""
    numbers = torch.tensor([wavelength_um, bandwidth_um], dtype=torch.float64, device="cpu")
    return spectral(numbers[0], numbers[1])

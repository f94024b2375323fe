"""Tokens: what an atom is, apart from where it is (paper, §3.1).

A token is ``f = [φ_v(v) | φ_g, φ_λ, φ_t | site fields]``. Only the first part differs from atom to atom; the second
is the same for all atoms of a *kind* (one channel of one acquisition), the third for all atoms of a site. The network
keeps the three apart and never writes a token out.

Shapes: N atoms, K kinds, S sites, P sites and C channels of one acquisition, F features, X axes: x, y
and in three dimensions the height.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import AtomsError, UnknownChannelError, listed
from atomizer_io.models.atomizer.config import CLOUD_FIELDS, LEARNED_CHANNELS, AtomizerConfig, SiteField
from atomizer_io.models.atomizer.encodings import (
    SPECTRAL_DIM,
    SPECTRAL_RANGE_UM,
    compress,
    fourier,
    fourier_dim,
    spectral,
    time_of_year,
)
from atomizer_io.models.atomizer.geometry import Geometry, site_positions
from atomizer_io.problem import Problem

NOMINAL_BANDWIDTH_UM = 0.02  # assumed where an optical channel names no bandwidth: a narrow band
BLIND = 1e-4  # a band beyond the basis whose every spectral feature is below this does not reach into it
KEPT_KINDS = 4096  # acquisitions whose kinds are kept
RAW_LIMIT = 50.0  # largest value believed to be standardised already


class TokenParts(NamedTuple):
    """How many features the value, the kind and the site contribute to a token."""

    value: int
    kind: int
    site: int

    @classmethod
    def of(cls, config: AtomizerConfig) -> TokenParts:
        """Return the numbers of features under these settings."""
        value = fourier_dim(config.value_frequencies)
        kind = fourier_dim(config.gsd_frequencies) + SPECTRAL_DIM + 2 * config.time_frequencies
        return cls(value, kind, sum(value if field.fourier else 2 for field in config.site_fields))


def value_features(standard: Tensor, config: AtomizerConfig) -> Tensor:
    """Return φ_v of standardised values: (…,) → (…, F)."""
    return fourier(standard, config.value_frequencies, config.value_max_frequency)


def offset_dim(config: AtomizerConfig) -> int:
    """Return the length of φ_δ under these settings; 0 where relative positions are not encoded."""
    return config.dimensions * fourier_dim(config.offset_frequencies) if config.offset_encoding else 0


def offset_features(delta_m: Tensor, config: AtomizerConfig) -> Tensor:
    """Return φ_δ, Fourier features of the compressed components of an offset: (…, X) metres → (…, O) (paper, B.5).

    Like :func:`value_features`, to be computed in float32 or better and rounded afterwards.
    """
    squeezed = compress(delta_m, config.offset_scale_m)
    return fourier(squeezed, config.offset_frequencies, config.offset_max_frequency).flatten(-2)


def gsd_features(gsd_m: Tensor, config: AtomizerConfig) -> Tensor:
    """Return φ_g of ground sampling distances, (…,) metres → (…, F); zero where one is unknown (NaN)."""
    squeezed = compress(gsd_m, config.gsd_scale_m)
    return zero_unless(~gsd_m.isnan(), fourier(squeezed, config.gsd_frequencies, config.gsd_max_frequency))


def time_features(day_of_year: Tensor, config: AtomizerConfig) -> Tensor:
    """Return φ_t of days of the year, (…,) → (…, F); zero where one is unknown (NaN)."""
    return zero_unless(~day_of_year.isnan(), time_of_year(day_of_year, config.time_frequencies))


def field_features(raw_P: Tensor, field: SiteField, config: AtomizerConfig) -> Tensor:
    """Return the features (P, F) of one site field; zero where its value is unknown (not finite)."""
    known_P = raw_P.isfinite()
    number_P = torch.where(known_P, raw_P, 0.0)
    if field.fourier:
        number_P = number_P.clamp(min=0).log1p() if field.log else number_P
        features_PF = value_features((number_P - field.mean) / (field.std * config.value_divisor), config)
    else:
        features_PF = torch.stack([number_P, torch.ones_like(number_P)], dim=-1)
    return zero_unless(known_P, features_PF)


def zero_unless(known: Tensor, features: Tensor) -> Tensor:
    """Return ``features`` (…, F) where ``known`` (…,), and zero elsewhere."""
    return torch.where(known[..., None], features, 0.0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The atoms of a batch in the natural order (sample, acquisition, site, channel), in their three parts."""

    value_N: Tensor  # standardised
    kind_KF: Tensor
    site_SF: Tensor | None  # None where no site has any field
    position_SX: Tensor  # metres from the centre of the sample's scene, float64
    first_atom: list[int]  # where each sample begins
    first_site: list[int]
    first_kind: list[int]


class Tokenizer(nn.Module):
    """Builds the parts of tokens from acquisitions; learns one vector per channel that has no spectral support."""

    def __init__(self, config: AtomizerConfig, problem: Problem) -> None:
        super().__init__()
        self.config = config
        self.fields = tuple(field.measured(problem.fields) for field in config.site_fields)
        self.parts = TokenParts.of(config)
        self.learned = nn.Parameter(torch.empty(len(config.learned_channels), SPECTRAL_DIM))
        nn.init.trunc_normal_(self.learned, std=0.02)
        self._learned_index = {name: i for i, name in enumerate(config.learned_channels)}
        self._statistics, self.dates = problem.statistics(), problem.dates
        self._kept_kinds: dict[object, tuple[Tensor, tuple[int | None, ...]]] = {}

    def forward(self, batch: Sequence[AtomSet], geometries: Sequence[Geometry]) -> Tokens:
        """Return the parts of all tokens of a batch."""
        values, kinds, sites, positions = [], [], [], []
        firsts: tuple[list[int], list[int], list[int]] = ([], [], [])
        counts = [0, 0, 0]
        for atoms, geometry in zip(batch, geometries, strict=True):
            for first, count in zip(firsts, counts, strict=True):
                first.append(count)
            positions.append(site_positions(atoms, geometry.center_2, self.config.dimensions))
            for acquisition in atoms:
                standard_PC = self.standardise(acquisition)
                values.append(standard_PC.flatten() if acquisition.valid is None else standard_PC[acquisition.valid])
                kinds.append(self.kind_features(acquisition))
                sites.append(self.site_features(acquisition))
                counts[0] += values[-1].numel()
                counts[1] += standard_PC.shape[0]
                counts[2] += standard_PC.shape[1]
        position_SX = torch.cat(positions)
        site_SF = None
        if any(features is not None for features in sites):
            lengths = [acquisition.values.shape[0] for atoms in batch for acquisition in atoms]
            zeros = [self.learned.new_zeros(length, self.parts.site) for length in lengths]
            site_SF = torch.cat([zero if f is None else f for f, zero in zip(sites, zeros, strict=True)])
        return Tokens(torch.cat(values), torch.cat(kinds), site_SF, position_SX, *firsts)

    def standardise(self, acquisition: Acquisition) -> Tensor:
        """Return values (P, C) as the network reads them, (v − mean) / std / divisor; invalid places hold anything."""
        mean, std = self.statistics(acquisition)
        scale = [1.0 / (spread * self.config.value_divisor) for spread in std]
        values_PC = acquisition.values.to(self.learned.device, self.exact).contiguous()
        return (values_PC - values_PC.new_tensor(mean)) * values_PC.new_tensor(scale)

    def statistics(self, acquisition: Acquisition) -> tuple[list[float], list[float]]:
        """Return mean and standard deviation of each channel: the problem's, else the channel's own, else 0 and 1."""
        mean, std = [], []
        for i, channel in enumerate(acquisition.channels):
            known = self._statistics.get((channel.sensor, channel.name), channel)
            if known.mean is None or known.std is None:
                self._check_standardised(acquisition, i)
            mean.append(known.mean or 0.0)
            std.append(1.0 if known.std is None else known.std)
        return mean, std

    @property
    def exact(self) -> torch.dtype:
        """Return the precision in which physical numbers are kept until they are features: float32 or better."""
        return torch.promote_types(self.learned.dtype, torch.float32)

    def kind_features(self, acquisition: Acquisition) -> Tensor:
        """Return [φ_g | φ_λ | φ_t] of each channel (C, F); zero for a GSD or date that is unknown or not used."""
        seen = tuple(acquisition.observed_channels().tolist())
        day = acquisition.day_of_year if self.dates else None
        constant_CF, learned = self._kinds(acquisition.channels, seen, day)
        constant_CF = constant_CF.to(self.learned)
        before = fourier_dim(self.config.gsd_frequencies)
        # one table of computed and learned rows, so that the learned ones always take part in the graph
        table = torch.cat([constant_CF[:, before : before + SPECTRAL_DIM], self.learned])
        rows = [i if row is None else len(learned) + row for i, row in enumerate(learned)]
        spectra_CF = table[torch.tensor(rows, device=table.device)]
        return torch.cat([constant_CF[:, :before], spectra_CF, constant_CF[:, before + SPECTRAL_DIM :]], dim=-1)

    def _kinds(
        self, channels: tuple[Channel, ...], seen: tuple[bool, ...], day: float | None
    ) -> tuple[Tensor, tuple[int | None, ...]]:
        """Return what is not learned of the kinds (C, F), in float64, and the number of each learned vector or None.

        Kept, as the same few acquisitions come with every sample; φ_λ of a channel without an atom is zero.
        """
        key = (channels, seen, day)
        if key not in self._kept_kinds:
            gsd = gsd_features(numbers([channel.gsd_m for channel in channels]), self.config)
            time = time_features(numbers([day]), self.config).expand(len(channels), -1)
            described = [self.describe(c) if here else (None, None) for c, here in zip(channels, seen, strict=True)]
            nothing = torch.zeros(SPECTRAL_DIM, dtype=torch.float64, device="cpu")
            spectra = torch.stack([nothing if band is None else band for band, _ in described])
            if len(self._kept_kinds) >= KEPT_KINDS:
                self._kept_kinds.clear()
            features = torch.cat([gsd, spectra, time], dim=-1)
            self._kept_kinds[key] = features, tuple(number for _, number in described)
        return self._kept_kinds[key]

    def describe(self, channel: Channel) -> tuple[Tensor | None, int | None]:
        """Return the spectral features of a channel and None, or None and the number of its learned vector."""
        features = band_features(channel)
        if features is not None:
            return features, None
        for name in learned_names(channel):
            if name in self._learned_index:
                return None, self._learned_index[name]
        raise indescribable(channel, self.config.learned_channels)

    def site_features(self, acquisition: Acquisition) -> Tensor | None:
        """Return the features (P, F) of the site fields, or None where the acquisition has none."""
        unknown = set(acquisition.site_fields) - {field.name for field in self.config.site_fields}
        if unknown:
            raise AtomsError(
                f"{acquisition.sensor}: the model has no place for site field {sorted(unknown)[0]!r}; it knows "
                f"{', '.join(field.name for field in self.config.site_fields) or 'none'} (setting site_fields)"
            )
        if not acquisition.site_fields:
            return None
        return torch.cat([self._field(acquisition, field) for field in self.fields], dim=-1)

    def _field(self, acquisition: Acquisition, field: SiteField) -> Tensor:
        if field.name not in acquisition.site_fields:
            width = self.parts.value if field.fourier else 2
            return self.learned.new_zeros(acquisition.values.shape[0], width)
        raw_P = acquisition.site_fields[field.name].to(self.learned.device, self.exact)
        return field_features(raw_P, field, self.config).to(self.learned)

    def _check_standardised(self, acquisition: Acquisition, index: int) -> None:
        """Refuse a channel without statistics whose values are too large to be standardised already."""
        column_P = acquisition.values[:, index].to(self.exact)
        valid_P = acquisition.valid_mask()[:, index]
        largest = float(column_P[valid_P].abs().max()) if bool(valid_P.any()) else 0.0
        if largest > RAW_LIMIT:
            channel = acquisition.channels[index]
            raise AtomsError(
                f"channel {channel.name!r} of {channel.sensor} has no mean and std, and its values reach {largest:g}: "
                "give the channel its statistics (Sensor.with_statistics), or standardise the values yourself"
            )


def numbers(given: Sequence[float | None]) -> Tensor:
    """Return the numbers in float64, NaN where one is None."""
    return torch.tensor([math.nan if number is None else number for number in given], dtype=torch.float64, device="cpu")


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


def describing(problem: Problem, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with the learned channels and site fields that tokens need for a problem."""
    known, extend = settings.get("learned_channels", LEARNED_CHANNELS), "learned_channels" not in settings
    found: dict[str, Any] = {"site_fields": CLOUD_FIELDS} if CLOUD_FIELDS[-1].name in problem.fields else {}
    return {**found, **settings, "learned_channels": learned_channels(problem.channels, known, extend=extend)}


def unreadable(channels: Iterable[Channel], problem: Problem, learned: Sequence[str]) -> list[Channel]:
    """Return the channels that have neither been ``learned`` nor a wavelength inside the spectral basis."""
    known = problem.statistics()
    names = set() if known else set(learned)  # what training never met has learned nothing
    new = [channel for channel in channels if (channel.sensor, channel.name) not in known]
    return [c for c in new if band_features(c) is None and not names & set(learned_names(c))]


def indescribable(channel: Channel, learned: Sequence[str]) -> UnknownChannelError:
    """Return the error that says why a model cannot describe a channel, and the ways out."""
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
        f"learned_channels=(*LEARNED_CHANNELS, '{channel.sensor} {channel.name}'); a trained model can only be asked "
        f"without it: atoms.drop('{channel.name}', sensor='{channel.sensor}')"
    )


@functools.lru_cache(maxsize=4096)
def _band(wavelength_um: float, bandwidth_um: float) -> Tensor:
    """Return φ_λ of one band in float64; it is kept, as the same few bands come with every sample."""
    numbers = torch.tensor([wavelength_um, bandwidth_um], dtype=torch.float64, device="cpu")
    return spectral(numbers[0], numbers[1])

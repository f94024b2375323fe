"""From acquisitions to the tokens of a batch: values standardised, channels described, site fields encoded.

Shapes: N atoms, K kinds, S sites, P sites and C channels of one acquisition, M queries, A acquisitions, F features,
2 = (x, y) in metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.inputs import FARTHEST
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomsError
from atomizer_io.models.atomizer.config import Encodings, SiteField
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim
from atomizer_io.models.atomizer.geometry.partition import Geometry, site_positions
from atomizer_io.models.atomizer.tokens import (
    TokenParts,
    band_features,
    field_features,
    gsd_features,
    indescribable,
    learned_names,
    numbers,
    time_features,
)

KEPT_KINDS = 4096  # sets of channels, and days of each, of which is kept what tokens say of them
FEW_SITES = 64  # acquisitions with so many or fewer are standardised together
RAW_LIMIT = 50.0  # largest value believed to be standardised already
COMPUTED = -1  # the number of the learned vector of a channel that needs none


@dataclass(frozen=True, slots=True)
class Observations:
    """The tokens of a scene, ready to be looked up by site."""

    standard: list[Tensor]  # (P, C) of each acquisition
    valid: list[Tensor | None]  # None: everything
    site_PF: list[Tensor | None]
    kind_KF: Tensor

    def at(self, sites_MA: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and validity (M, K) of every kind at the sites that each query sees (−1: none)."""
        values, valid = [], []
        for a, (standard_PC, valid_PC) in enumerate(zip(self.standard, self.valid, strict=True)):
            site_M = sites_MA[:, a]
            present_MC = (site_M >= 0)[:, None].expand(-1, standard_PC.shape[1])
            if valid_PC is not None:
                present_MC = present_MC & valid_PC.index_select(0, site_M.clamp(min=0))
            values.append(torch.where(present_MC, standard_PC.index_select(0, site_M.clamp(min=0)), 0.0))
            valid.append(present_MC)
        return torch.cat(values, dim=1), torch.cat(valid, dim=1)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The atoms of a batch in the natural order (sample, acquisition, site, channel), in their three parts."""

    value_N: Tensor  # standardised
    kind_KF: Tensor
    site_SF: Tensor | None  # None where no site has any field
    position_S2: Tensor  # metres from the centre of the sample's scene, float64
    first_atom: list[int]  # where each sample begins
    first_site: list[int]
    first_kind: list[int]
    seen: list[Observations] = field(default_factory=list)  # the same of each sample, by site


@dataclass(slots=True)
class _Described:
    """What tokens say of some channels: statistics, and kinds by which channels have an atom and by the day."""

    mean: list[float]
    std: list[float]
    bare: list[int]  # channels without statistics
    scales: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = field(default_factory=dict)
    kinds: dict[tuple[tuple[bool, ...], float | None], tuple[Tensor, Tensor]] = field(default_factory=dict)


class Tokenizer(nn.Module):
    """Builds the parts of tokens from acquisitions; learns one vector per channel that has no spectral support."""

    def __init__(self, encodings: Encodings, learned_channels: Sequence[str], task_spec: TaskSpec) -> None:
        super().__init__()
        self.encodings, self.learned_channels = encodings, tuple(learned_channels)
        self.fields = tuple(field.measured(task_spec.fields) for field in encodings.site_fields)
        self.parts = TokenParts.of(encodings)
        self.learned = nn.Parameter(torch.empty(len(self.learned_channels), SPECTRAL_DIM))
        nn.init.trunc_normal_(self.learned, std=0.02)
        self._learned_index = {name: i for i, name in enumerate(self.learned_channels)}
        self._statistics, self.dates = task_spec.statistics(), task_spec.dates
        self._kept: dict[tuple[Channel, ...], _Described] = {}

    def forward(self, batch: Sequence[AtomSet], geometries: Sequence[Geometry]) -> Tokens:
        """Return the parts of all tokens of a batch."""
        seen = self.observe(batch)
        firsts: tuple[list[int], list[int], list[int]] = ([], [], [])
        values, counts = [], [0, 0, 0]
        for sample in seen:
            for first, count in zip(firsts, counts, strict=True):
                first.append(count)
            for standard_PC, valid_PC in zip(sample.standard, sample.valid, strict=True):
                values.append(standard_PC.flatten() if valid_PC is None else standard_PC[valid_PC])
                counts[0] += values[-1].numel()
                counts[1] += standard_PC.shape[0]
                counts[2] += standard_PC.shape[1]
        positions = (
            site_positions(atoms, geometry.center_2) for atoms, geometry in zip(batch, geometries, strict=True)
        )
        site_SF = None
        if any(features is not None for sample in seen for features in sample.site_PF):
            pairs = [pair for sample in seen for pair in zip(sample.site_PF, sample.standard, strict=True)]
            zeros = (self.learned.new_zeros(len(standard_PC), self.parts.site) for _, standard_PC in pairs)
            site_SF = torch.cat([zero if f is None else f for (f, _), zero in zip(pairs, zeros, strict=True)])
        kind_KF = torch.cat([sample.kind_KF for sample in seen])
        return Tokens(torch.cat(values), kind_KF, site_SF, torch.cat(list(positions)), *firsts, seen)

    def observe(self, batch: Sequence[AtomSet]) -> list[Observations]:
        """Return the tokens of each scene by site."""
        every = [(acquisition, self._described(acquisition.channels)) for atoms in batch for acquisition in atoms]
        kinds = [self._kinds(acquisition, known) for acquisition, known in every]
        lengths = [sum(len(acquisition.channels) for acquisition in atoms) for atoms in batch]
        standard = iter(self._all_standardised(every))
        return [
            Observations(
                standard=[next(standard) for _ in atoms],
                valid=[acquisition.valid for acquisition in atoms],
                site_PF=[self.site_features(acquisition) for acquisition in atoms],
                kind_KF=kind_KF,
            )
            for atoms, kind_KF in zip(batch, self._joined(kinds).split(lengths), strict=True)
        ]

    def standardise(self, acquisition: Acquisition) -> Tensor:
        """Return values (P, C) as the network reads them, (v − mean) / std / divisor; invalid entries hold anything."""
        return self._all_standardised([(acquisition, self._described(acquisition.channels))])[0]

    def statistics(self, acquisition: Acquisition) -> tuple[list[float], list[float]]:
        """Return mean and standard deviation of each channel: of the task, else the channel's own, else 0 and 1."""
        known = self._described(acquisition.channels)
        for i in known.bare:
            self._check_standardised(acquisition, i)
        return known.mean, known.std

    @property
    def exact(self) -> torch.dtype:
        """Return the precision in which physical numbers are kept until they are features: float32 or better."""
        return torch.promote_types(self.learned.dtype, torch.float32)

    def kind_features(self, acquisition: Acquisition) -> Tensor:
        """Return [φ_g | φ_λ | φ_t] of each channel (C, F); zero for a GSD or date that is unknown or not used."""
        return self._joined([self._kinds(acquisition, self._described(acquisition.channels))])

    def _described(self, channels: tuple[Channel, ...]) -> _Described:
        """Return what is known of some channels; it is kept, as the same few come with every sample."""
        described = self._kept.get(channels)
        if described is None:
            known = [self._statistics.get((channel.sensor, channel.name), channel) for channel in channels]
            described = _Described(
                mean=[channel.mean or 0.0 for channel in known],
                std=[1.0 if channel.std is None else channel.std for channel in known],
                bare=[i for i, channel in enumerate(known) if channel.mean is None or channel.std is None],
            )
            if len(self._kept) >= KEPT_KINDS:
                self._kept.clear()
            self._kept[channels] = described
        return described

    def _all_standardised(self, every: Sequence[tuple[Acquisition, _Described]]) -> list[Tensor]:
        """Return the standardised values of all acquisitions; small ones of the same channels are joined for that."""
        groups: dict[int, list[int]] = {}
        for number, (acquisition, known) in enumerate(every):
            for i in known.bare:
                self._check_standardised(acquisition, i)
            small = len(acquisition.values) <= FEW_SITES
            groups.setdefault(id(known) if small else -1 - number, []).append(number)
        like, standard = (self.exact, self.learned.device), dict[int, Tensor]()
        for group in groups.values():
            values = [every[number][0].values.to(like[1], like[0]) for number in group]
            joined_PC = values[0] if len(values) == 1 else torch.cat(values)
            parts = self._standardised(joined_PC, every[group[0]][1], like).split([len(part) for part in values])
            standard.update(zip(group, parts, strict=True))
        return [standard[number] for number in range(len(every))]

    def _standardised(self, values_PC: Tensor, known: _Described, like: tuple[torch.dtype, torch.device]) -> Tensor:
        if like not in known.scales:
            scale = [1.0 / (std * self.encodings.value_divisor) for std in known.std]
            mean_C, scale_C = (torch.tensor(row, dtype=like[0], device=like[1]) for row in (known.mean, scale))
            known.scales[like] = mean_C, scale_C
        mean_C, scale_C = known.scales[like]
        return values_PC.sub(mean_C).mul_(scale_C).clamp_(-FARTHEST, FARTHEST).contiguous()

    def _kinds(self, acquisition: Acquisition, known: _Described) -> tuple[Tensor, Tensor]:
        """Return what is not learned of the kinds (C, F), in float64, and the number (C,) of each learned vector.

        The number is :data:`COMPUTED` where there is none. φ_λ of a channel without an atom is zero.
        """
        channels, day = acquisition.channels, acquisition.day_of_year if self.dates else None
        seen = (True,) * len(channels)
        if acquisition.valid is not None:
            seen = tuple(acquisition.observed_channels().tolist())
        kinds = known.kinds.get((seen, day))
        if kinds is None:
            gsd = gsd_features(numbers([channel.gsd_m for channel in channels]), self.encodings)
            time = time_features(numbers([day]), self.encodings).expand(len(channels), -1)
            described = [self.describe(c) if here else (None, None) for c, here in zip(channels, seen, strict=True)]
            nothing = torch.zeros(SPECTRAL_DIM, dtype=torch.float64, device="cpu")
            spectra = torch.stack([nothing if band is None else band for band, _ in described])
            learned = torch.tensor([COMPUTED if number is None else number for _, number in described], device="cpu")
            if len(known.kinds) >= KEPT_KINDS:
                known.kinds.clear()
            kinds = known.kinds[seen, day] = torch.cat([gsd, spectra, time], dim=-1), learned
        return kinds

    def _joined(self, kinds: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the features (K, F) of the kinds of all acquisitions, the learned ones among them."""
        constant_KF = torch.cat([constant_CF for constant_CF, _ in kinds]).to(self.learned)
        learned_K = torch.cat([learned_C for _, learned_C in kinds])
        before = fourier_dim(self.encodings.gsd_frequencies)
        # one table of computed and learned rows, so that the learned ones always take part in the graph
        table = torch.cat([constant_KF[:, before : before + SPECTRAL_DIM], self.learned])
        count = len(learned_K)
        rows_K = torch.where(learned_K == COMPUTED, torch.arange(count, device="cpu"), count + learned_K)
        spectra_KF = table[rows_K.to(table.device)]
        return torch.cat([constant_KF[:, :before], spectra_KF, constant_KF[:, before + SPECTRAL_DIM :]], dim=-1)

    def describe(self, channel: Channel) -> tuple[Tensor | None, int | None]:
        """Return the spectral features of a channel and None, or None and the number of its learned vector."""
        features = band_features(channel)
        if features is not None:
            return features, None
        for name in learned_names(channel):
            if name in self._learned_index:
                return None, self._learned_index[name]
        raise indescribable(channel, self.learned_channels)

    def site_features(self, acquisition: Acquisition) -> Tensor | None:
        """Return the features (P, F) of the site fields, or None where the acquisition has none."""
        unknown = set(acquisition.site_fields) - {field.name for field in self.encodings.site_fields}
        if unknown:
            raise AtomsError(
                f"{acquisition.sensor}: the model does not know site field {sorted(unknown)[0]!r}; it knows "
                f"{', '.join(field.name for field in self.encodings.site_fields) or 'none'} (setting site_fields)"
            )
        if not acquisition.site_fields:
            return None
        return torch.cat([self._field(acquisition, field) for field in self.fields], dim=-1)

    def _field(self, acquisition: Acquisition, field: SiteField) -> Tensor:
        if field.name not in acquisition.site_fields:
            width = self.parts.value if field.fourier else 2
            return self.learned.new_zeros(acquisition.values.shape[0], width)
        raw_P = acquisition.site_fields[field.name].to(self.learned.device, self.exact)
        return field_features(raw_P, field, self.encodings).to(self.learned)

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

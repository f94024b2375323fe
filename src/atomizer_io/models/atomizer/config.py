"""Every setting of the architecture, as plain values in one frozen dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atomizer_io.errors import ConfigError, check_count, check_numbers
from atomizer_io.models.settings import settings_from

LAYOUTS = ("hexagonal", "sites")
# Settings that did neither good nor harm and are gone, with the one value that is left; saved models still name them,
# so that fingerprints and older versions of this library go on working.
REMOVED = {"dimensions": 2, "query_height": False}

_POLARISATIONS = ("VV", "VH", "HH", "HV")
LEARNED_CHANNELS = (
    *_POLARISATIONS,
    *(f"ASC_{name}" for name in _POLARISATIONS),
    *(f"DSC_{name}" for name in _POLARISATIONS),
    "VV-VH",
    "elevation",
    "height",  # above the ground, of a LiDAR return
    "landsat8 B10",  # thermal bands lie outside the spectral basis; with the sensor, as Sentinel-2 has a B10 too
    "landsat8 B11",
)


@dataclass(frozen=True, slots=True)
class SiteField:
    """Metadata that each site carries, such as the position of a LiDAR return within its pulse.

    ``fourier=False`` feeds the number and a 1 that marks it as known; ``fourier=True`` feeds Fourier features of the
    standardised number (of its log1p if ``log``). A site that lacks the field gets zeros.
    """

    name: str
    fourier: bool = False
    log: bool = False
    mean: float = 0.0
    std: float = 1.0

    def measured(self, statistics: Mapping[str, tuple[float, float]]) -> SiteField:
        """Return the field with the mean and standard deviation of the training data, where they were measured."""
        if self.name not in statistics or not self.fourier:
            return self
        mean, std = statistics[self.name]
        return dataclasses.replace(self, mean=mean, std=std or 1.0)


# Intensity: log1p of 16-bit return intensities; tiles of IGN's LiDAR HD have means of 6.6–7.7 and spreads of 0.3–0.9.
SITE_FIELDS = (
    SiteField("echo_before"),
    SiteField("echo_after"),
    SiteField("intensity", fourier=True, log=True, mean=7.0, std=0.7),
)
# A whole point cloud also has the rank of an intensity among its returns, 0 to 1, which no scale of a sensor changes.
CLOUD_FIELDS = (*SITE_FIELDS, SiteField("intensity_rank", fourier=True, mean=0.5, std=0.29))


@dataclass(frozen=True, slots=True)
class Encodings:
    """How numbers become features of tokens: numbers of frequencies, highest frequencies and scales; site fields."""

    site_fields: tuple[SiteField, ...] = SITE_FIELDS
    value_frequencies: int = 8
    value_max_frequency: float = 8.0
    value_divisor: float = 3.0  # standardised values are divided by this, so that most fit one period
    gsd_frequencies: int = 2
    gsd_max_frequency: float = 2.0
    gsd_scale_m: float = 10.0  # s_g
    offset_encoding: bool = True
    offset_frequencies: int = 16
    offset_max_frequency: float = 16.0
    offset_scale_m: float = 100.0  # s_0
    time_frequencies: int = 12


@dataclass(frozen=True, slots=True)
class AtomizerConfig(Encodings):
    """Settings of an :class:`~atomizer_io.AtomizerIO`; symbols in brackets are the paper's."""

    learned_channels: tuple[str, ...] = LEARNED_CHANNELS

    # Sizes
    width: int = 512  # D
    global_latents: int = 128  # G
    depth: int = 7  # B
    cross_heads: int = 8
    cross_head_dim: int = 64
    self_heads: int = 8
    self_head_dim: int = 64
    encoder_expansion: float = 2.0
    processor_expansion: float = 4.0
    decoder_expansion: float = 1.0
    attention_dropout: float = 0.0  # in the processor
    feedforward_dropout: float = 0.0

    # Spatial and temporal rotary encoding
    rope: bool = True
    rope_scale_m: float = 2560.0  # s_p before training: half the extent of a scene
    rope_min_cycles: float = 0.25
    rope_max_cycles: float = 16.0
    temporal: bool = False
    temporal_scale_days: float = 180.0
    temporal_residual: bool = False  # κ counts the atoms of all time steps, and the mean over steps is a residual
    temporal_depth: int | None = None  # blocks of the processor that run on each time step, the others on the aggregate

    # Geometry and budgets
    layout: str = "hexagonal"
    atoms_per_latent: int = 2000  # κ
    least_latents: int = 1  # of a scene, if it has as many positions: κ alone would leave a small one a single latent
    budget: int | None = None  # m, sampled anew at each training step; None: whole cells
    max_points: int | None = None  # points of a point cloud that enter the cells, sampled likewise; None: all
    neighbors: int = 9  # k
    observation_conditioning: bool = True
    observation_mlp: bool = False  # a layer per atom before a query attends to what it sees
    observation_expansion: float = 1.0  # width of that layer, as a multiple of D

    def __post_init__(self) -> None:
        check_numbers(self)
        for site_field in self.site_fields:
            check_numbers(site_field, f" of {site_field.name}")
        if self.layout == "balanced":
            raise ConfigError("layout 'balanced' was removed, as it changed no score (docs/lab/point-clouds.md)")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout {self.layout!r} is not known; choose one of {', '.join(LAYOUTS)}")
        counts = ("width", "depth", "cross_heads", "cross_head_dim", "self_heads", "self_head_dim")
        frequencies = ("value_frequencies", "gsd_frequencies", "offset_frequencies", "time_frequencies")
        for name in (*counts, *frequencies, "atoms_per_latent", "least_latents", "neighbors"):
            check_count(name, getattr(self, name))
        if self.global_latents < 0:
            raise ConfigError(f"global_latents must not be negative, got {self.global_latents}")
        for name in ("budget", "max_points"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.temporal_depth is not None and not 0 <= self.temporal_depth <= self.depth:
            raise ConfigError(f"temporal_depth must be from 0 to depth ({self.depth}), got {self.temporal_depth}")
        if self.rope and self.self_head_dim % 4:
            raise ConfigError(f"self_head_dim must be a multiple of 4 for two-axis RoPE, got {self.self_head_dim}")
        for field in dataclasses.fields(self):
            positive = field.type == "float" and not field.name.endswith("_dropout")
            if positive and not getattr(self, field.name) > 0:
                raise ConfigError(f"{field.name} must be positive, got {getattr(self, field.name)}")

    @property
    def step_depth(self) -> int:
        """Return how many blocks of the processor run before the time steps are merged."""
        return self.depth if self.temporal_depth is None or not self.temporal else self.temporal_depth

    def replace(self, **changes: Any) -> AtomizerConfig:
        """Return a copy with other settings; an unknown one is an error that names the nearest."""
        for name in REMOVED.keys() & changes.keys():
            if (value := changes.pop(name)) != REMOVED[name]:
                raise ConfigError(
                    f"the setting {name} was removed, as it changed no score (docs/lab/point-clouds.md): only "
                    f"{REMOVED[name]!r} is left, got {value!r}"
                )
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return settings_from(AtomizerConfig, own | changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, ready for JSON."""
        return {**dataclasses.asdict(self), **REMOVED}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AtomizerConfig:
        """Return the settings that :meth:`to_dict` made plain; lists become tuples, and site fields are rebuilt."""
        plain = dict(values.items())
        if "site_fields" in plain:
            fields = (field if isinstance(field, SiteField) else SiteField(**field) for field in plain["site_fields"])
            plain["site_fields"] = tuple(fields)
        return cls().replace(**plain)

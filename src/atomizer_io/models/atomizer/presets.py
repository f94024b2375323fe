"""Named sizes. Parameter counts stay within 2 % of the paper's table (its appendix on model capacity)."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.config import AtomizerConfig

if TYPE_CHECKING:
    from atomizer_io.models.atomizer.atomizer import AtomizerIO

PRESETS: dict[str, AtomizerConfig] = {
    # 19.2 M in the paper: scene classification
    "atomizer_io_cls": AtomizerConfig(task="classification", depth=4, atoms_per_latent=1000, budget=1000),
    # 33.5 M: dense prediction
    "atomizer_io_seg": AtomizerConfig(budget=2000),
    # 34.8 M: dense prediction from a time series
    "atomizer_io_seg_temporal": AtomizerConfig(temporal=True, atoms_per_latent=250, budget=250, rope_scale_m=640.0),
    # 7.40 M: MNIST, one latent per pixel, coordinates in pixels
    "atomizer_io_mnist": AtomizerConfig(
        task="classification",
        num_outputs=10,
        width=256,
        global_latents=4,
        depth=4,
        cross_heads=4,
        cross_head_dim=128,
        self_head_dim=128,
        processor_expansion=3.0,
        attention_dropout=0.05,
        feedforward_dropout=0.1,
        offset_encoding=False,
        rope_scale_m=14.0,
        layout="sites",
    ),
    # point clouds and points with images, 50 m windows
    "atomizer_io_3d": AtomizerConfig(
        width=768, depth=6, cross_head_dim=96, self_head_dim=96, atoms_per_latent=1000, budget=1000, rope_scale_m=25.0
    ),
    # below 1 M: demonstrations, tests, laptops
    "atomizer_io_tiny": AtomizerConfig(
        width=96,
        global_latents=8,
        depth=3,
        cross_heads=4,
        cross_head_dim=24,
        self_heads=4,
        self_head_dim=24,
        atoms_per_latent=256,
        rope_scale_m=320.0,
    ),
}


def list_models() -> list[str]:
    """Names that :func:`create_model` knows."""
    return sorted(PRESETS)


def preset(name: str) -> AtomizerConfig:
    """Settings of the preset ``name``."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? Known: " if near else "known: "
        raise ConfigError(f"unknown preset {name!r}; {hint}{', '.join(list_models())}")
    return PRESETS[name]


def create_model(name: str, *, extent_m: float | None = None, **settings: Any) -> AtomizerIO:
    """A model of preset ``name`` with fresh weights; any field of :class:`AtomizerConfig` can be set by keyword.

    ``extent_m`` is the width of the scenes it will see: half of it is where the learned scale of positions starts.
    Those of ``channels`` that have no place in the spectral basis (thermal, radar, heights) are learned by name; with
    ``learned_channels`` of your own, one that is not among them is an error.
    """
    from atomizer_io.models.atomizer.atomizer import AtomizerIO

    if extent_m is not None:
        settings = {"rope_scale_m": extent_m / 2, **settings}
    config = preset(name).replace(**settings)
    learned = learned_channels(config, extend="learned_channels" not in settings)
    return AtomizerIO(config.replace(learned_channels=learned), preset=name)


def learned_channels(config: AtomizerConfig, *, extend: bool) -> tuple[str, ...]:
    """The names that a model learns: those of ``config``, and those its channels need beside them if ``extend``.

    A channel without a wavelength is known by its name, whatever the sensor; one outside the spectral basis with its
    sensor, as Sentinel-2 has a B10 like Landsat's thermal one.
    """
    from atomizer_io.models.atomizer.tokens import band_features, indescribable, learned_names

    names = list(config.learned_channels)
    for channel in config.channels:
        full, short = learned_names(channel)
        if band_features(channel) is None and full not in names and short not in names:
            if not extend:
                raise indescribable(channel, names)
            names.append(short if channel.wavelength_um is None else full)
    return tuple(names)

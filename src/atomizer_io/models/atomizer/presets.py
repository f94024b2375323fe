"""Named sizes. Parameter counts stay within 2 % of the paper's table (its appendix on model capacity)."""

from __future__ import annotations

from atomizer_io.models.atomizer.config import CLOUD_FIELDS
from atomizer_io.models.base import Preset

PRESETS: dict[str, Preset] = {
    # 19.2 M in the paper: scene classification
    "atomizer_io_cls": Preset(
        {"depth": 4, "atoms_per_latent": 1000, "budget": 1000},
        {"task": "classification"},
    ),
    # 33.5 M: dense prediction
    "atomizer_io_seg": Preset({"budget": 2000}),
    # 34.8 M: dense prediction from a time series
    "atomizer_io_seg_temporal": Preset(
        {"temporal": True, "atoms_per_latent": 250, "budget": 250, "rope_scale_m": 640.0}
    ),
    # 7.40 M: MNIST, one latent per pixel, coordinates in pixels
    "atomizer_io_mnist": Preset(
        {
            "width": 256,
            "global_latents": 4,
            "depth": 4,
            "cross_heads": 4,
            "cross_head_dim": 128,
            "self_head_dim": 128,
            "processor_expansion": 3.0,
            "attention_dropout": 0.05,
            "feedforward_dropout": 0.1,
            "offset_encoding": False,
            "rope_scale_m": 14.0,
            "layout": "sites",
        },
        {"task": "classification", "num_outputs": 10},
    ),
    # point clouds and points with images, 50 m windows
    "atomizer_io_3d": Preset(
        {
            "site_fields": CLOUD_FIELDS,
            "width": 768,
            "depth": 6,
            "cross_head_dim": 96,
            "self_head_dim": 96,
            "atoms_per_latent": 1000,
            "budget": 1000,
            "rope_scale_m": 25.0,
        }
    ),
    # below 1 M: demonstrations, tests, laptops
    "atomizer_io_tiny": Preset(
        {
            "site_fields": CLOUD_FIELDS,
            "width": 96,
            "global_latents": 8,
            "depth": 2,
            "cross_heads": 4,
            "cross_head_dim": 24,
            "self_heads": 4,
            "self_head_dim": 24,
            "processor_expansion": 2.0,
            "atoms_per_latent": 128,
            "least_latents": 64,
            "observation_mlp": True,
            "observation_expansion": 3.0,
            "decoder_expansion": 4.0,
            "rope_scale_m": 320.0,
        }
    ),
}

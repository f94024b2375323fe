"""The models of the paper's tables by the names of their rows, in the paper's sizes and in small ones."""

from __future__ import annotations

from typing import Any

ATOMIZER, RESNET, VIT, UNET = "Atomizer-IO", "ResNet", "ViT", "UNet"
PERCEIVER, RAMEN, UNIVERSAT = "Perceiver-IO", "RAMEN", "UniverSat"
BASELINES = (RESNET, VIT, PERCEIVER, RAMEN, UNIVERSAT)  # of the paper; beside them a UNet where that is affordable
MODELS = (*BASELINES, ATOMIZER)
# the presets of the paper's sizes
SCENES = {
    RESNET: "resnet50",
    VIT: "vit_small",
    PERCEIVER: "perceiver_io_cls",
    RAMEN: "ramen",
    UNIVERSAT: "universat",
    ATOMIZER: "atomizer_io_cls",
}
SMALL_SCENES = {**SCENES, VIT: "vit_small_patch8"}  # of 64 × 64 pixels
MAPS = {**SCENES, PERCEIVER: "perceiver_io_seg", ATOMIZER: "atomizer_io_seg"}
SERIES = {**MAPS, RESNET: "resnet50_temporal", VIT: "vit_small_temporal", ATOMIZER: "atomizer_io_seg_temporal"}
# about one million parameters each, for a CPU
SMALL: dict[str, str] = {
    RESNET: "resnet_small",
    VIT: "vit_tiny",
    UNET: "unet_small",
    PERCEIVER: "perceiver_io_small",
    RAMEN: "ramen_small",
    UNIVERSAT: "universat_small",
}
# what baselines change of the recipe beside the learning rate, which is chosen for each on validation data
SUITED: dict[str, dict[str, Any]] = {
    PERCEIVER: {"batch_size": 16},  # of windows of 8 × 8 pixels
    UNIVERSAT: {"warmup_steps": 20},  # it has time for about a thousand steps
}


def percent(score: Any) -> float:
    """Return a share as percent."""
    return 100 * float(score)

"""Named models: their sizes are the paper's, and every setting can be changed by keyword."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import atomizer_io as aio
from atomizer_io.errors import ConfigError

PAPER_MILLIONS = {
    "atomizer_io_cls": 19.2,
    "atomizer_io_seg": 33.5,
    "atomizer_io_seg_temporal": 34.8,
    "atomizer_io_mnist": 7.40,
}


def on_meta(name: str, **settings) -> aio.AtomizerIO:
    """The model without its memory: enough to count and to look at shapes."""
    with torch.device("meta"):
        return aio.create_model(name, **settings)


@pytest.mark.parametrize(("name", "millions"), PAPER_MILLIONS.items())
def test_sizes_are_the_papers(name: str, millions: float) -> None:
    model = on_meta(name)
    assert model.num_parameters == pytest.approx(millions * 1e6, rel=0.02)
    assert model.num_parameters == sum(tensor.numel() for tensor in model.state_dict().values())


def test_tiny_stays_below_a_million() -> None:
    model = aio.create_model("atomizer_io_tiny")
    assert 100_000 < model.num_parameters < 1_000_000
    assert model.num_parameters == on_meta("atomizer_io_tiny").num_parameters


def test_the_3d_preset_builds() -> None:
    model = on_meta("atomizer_io_3d", num_outputs=7)
    assert model.encoder.h_init.shape == (768,)
    assert model.head.linear.out_features == 7
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_list_models_names_what_create_model_knows() -> None:
    names = aio.list_models()
    assert names == sorted(names)
    assert set(names) >= {*PAPER_MILLIONS, "atomizer_io_3d", "atomizer_io_tiny", "pixels", "unet", "unet_small"}
    for name in names:
        assert on_meta(name).preset == name


def test_create_model_takes_any_setting() -> None:
    model = aio.create_model(
        "atomizer_io_tiny", num_outputs=3, class_names=("water", "soil", "forest"), width=32, depth=1, neighbors=4
    )
    assert (model.config.width, model.config.depth, model.config.neighbors) == (32, 1, 4)
    assert model.head.linear.weight.shape == (3, 32) and len(model.processor.blocks) == 1
    assert model.config.global_latents == 8  # the rest is the preset's
    assert aio.create_model("atomizer_io_tiny").task_spec.num_outputs == 2  # which itself is unchanged


def test_tasks_and_switches_choose_the_parts() -> None:
    assert on_meta("atomizer_io_tiny").decoder is not None
    assert on_meta("atomizer_io_tiny", task="classification").decoder is None
    assert on_meta("atomizer_io_seg_temporal").temporal is not None
    assert on_meta("atomizer_io_seg").temporal is None
    assert on_meta("atomizer_io_tiny", observation_conditioning=False).decoder.observation is None
    assert on_meta("atomizer_io_tiny", rope=False).processor.angles is None


def test_an_unknown_preset_names_its_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'atomizer_io_segm'.*did you mean 'atomizer_io_seg'"):
        aio.create_model("atomizer_io_segm")
    with pytest.raises(ConfigError, match=r"'swin'.*atomizer_io_cls"):
        aio.create_model("swin")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widht": 32}, "unknown setting 'widht'; did you mean 'width'"),
        ({"width": 0}, "^width must be a whole number of at least 1, got 0$"),
        ({"task": "detection"}, "task 'detection' is not known; choose one of classification"),
        ({"layout": "square"}, "layout 'square' is not known"),
        ({"budget": 0}, "^budget must be a whole number of at least 1, got 0$"),
        ({"self_head_dim": 10}, "self_head_dim must be a multiple of 4"),
        ({"rope_scale_m": 0.0}, "rope_scale_m must be positive"),
        ({"class_names": ("water",)}, "1 class names for num_outputs=2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_setting_out_of_range_is_named(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        aio.create_model("atomizer_io_tiny", **settings)


@pytest.mark.parametrize("removed", [{"layout": "balanced"}, {"dimensions": 3}, {"query_height": True}])
def test_settings_that_did_nothing_are_gone(removed: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(removed))}.* was removed"):
        aio.create_model("atomizer_io_tiny", **removed)
    model = aio.create_model("atomizer_io_tiny", dimensions=2, query_height=False, layout="hexagonal")
    assert model.settings() == aio.create_model("atomizer_io_tiny").settings()
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["config"]["dimensions"], saved["config"]["query_height"]) == (2, False)  # as before they were gone
    assert aio.load_model(tmp_path).config == model.config


def test_other_names_of_outputs_and_channels() -> None:
    model = aio.create_model("atomizer_io_tiny", num_classes=7, sensor="sentinel2", bands=["B04", "nir_narrow"])
    assert model.task_spec.num_outputs == 7
    assert model.task_spec.channels == aio.sensors.SENTINEL2.pick("B04", "B8A")
    assert len(aio.create_model("atomizer_io_tiny", sensor=aio.sensors.SENTINEL2).task_spec.channels) == 13
    for wrong, message in (
        ({"num_classes": 3, "num_outputs": 3}, "num_outputs= and num_classes= are given"),
        ({"bands": ["B04"]}, "say which with sensor="),
        ({"sensor": "sentinel2", "channels": ()}, "channels= and sensor= and bands= are given"),
        ({"pretrained": True}, "no pretrained weights of atomizer_io_tiny yet"),
    ):
        with pytest.raises(ConfigError, match=message):
            aio.create_model("atomizer_io_tiny", **wrong)

"""What holds for all baselines: the paper's sizes, every kind of task from training to a file, named mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import LIDAR
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_io.models.base import Cost, Model
from atomizer_lab.baselines.batch_norm import BatchNorm1d, BatchNorm2d
from atomizer_lab.baselines.upernet import DeconvolvedLevels, ResizedLevels, UPerNet
from atomizer_lab.paper.models import SMALL
from scenes import points, raster

IMAGES = ("resnet_small", "vit_tiny")
TINY: dict[str, dict[str, Any]] = {
    "ramen": {"width": 48, "depth": 4, "heads": 2, "decoder_width": 16},
    "universat": {"width": 64, "depth": 1, "heads": 2},
    "perceiver_io_small": {"depth": 2, "latents": 32},
}
NAMES = (*IMAGES, *TINY)
SERIES = {"resnet_small": {"temporal": "linear", "num_dates": 9}, "vit_tiny": {"temporal": "ltae"}}
TASKS = {"eurosat": {}, "sen1floods11": {}, "biomassters": {"dates": 2}, "pastis-r": {"dates": 3}}


def channels(count: int) -> tuple[Channel, ...]:
    return tuple(Channel("synthetic", f"B{i}", 0.4 + 0.01 * i, 0.02, mean=0.0, std=1.0) for i in range(count))


def made(name: str, dataset: Any, **settings: Any) -> Model:
    torch.manual_seed(0)
    info = dataset.info
    options = {"task": info.task, "num_outputs": info.num_outputs, "channels": dataset.channels, "extent_m": 160.0}
    if info.task == "regression":
        options |= {"target_mean": 100.0, "target_std": 80.0}
    model: Model = aio.create_model(name, **{**options, **TINY.get(name, {}), **settings})
    return model.train()


def synthetic(like: str, count: int, size: int = 16, **options: Any) -> tuple[Any, list[Sample]]:
    dataset = aio.datasets.create("synthetic", like=like, split="train", size=size, **options)
    return dataset, [dataset[number] for number in range(count)]


@pytest.mark.parametrize(
    ("name", "task", "outputs", "of", "millions"),
    [
        ("resnet50", "classification", 10, channels(13), 23.6),  # EuroSAT
        ("resnet50", "segmentation", 2, channels(15), 37.3),  # Sen1Floods11
        ("resnet50_temporal", "segmentation", 19, channels(10), 37.3),  # PASTIS
        ("vit_small_patch8", "classification", 10, channels(13), 21.7),  # EuroSAT
        ("vit_small", "segmentation", 2, channels(6), 30.3),  # BurnScars; a channel adds 0.1 M of patch embedding
        ("vit_small_temporal", "segmentation", 19, channels(10), 31.5),  # PASTIS
        ("vit_mnist", "classification", 10, channels(1), 7.44),
        ("perceiver_io_seg", "segmentation", 2, (), 34.5),
        ("perceiver_io_cls", "classification", 10, (), 19.7),
        ("perceiver_io_seg", "segmentation", 9, LIDAR.channels, 34.5),
        ("ramen", "classification", 10, (), 23.1),
        *(("ramen", "segmentation", outputs, (), 33.7) for outputs in (2, 19)),
        *(("universat", task, outputs, (), 36.1) for task, outputs in (("classification", 10), ("segmentation", 2))),
    ],
)
def test_sizes_are_the_papers(name: str, task: str, outputs: int, of: tuple[Channel, ...], millions: float) -> None:
    with torch.device("meta"):
        model = aio.create_model(name, task=task, num_outputs=outputs, channels=of)
    assert model.num_parameters == pytest.approx(millions * 1e6, rel=0.02)


@pytest.mark.parametrize("name", [*SMALL.values(), "vit_mnist_small"])
def test_small_ones_are_small(name: str) -> None:
    with torch.device("meta"):
        assert aio.create_model(name, channels=channels(15)).num_parameters < 2e6


@pytest.mark.parametrize(
    ("name", "like", "steps", "rate"),
    [
        *((name, like, 60, 2e-3) for name in IMAGES for like in ("sen1floods11", "eurosat", "biomassters")),
        ("perceiver_io_small", "sen1floods11", 60, 2e-3),
        ("ramen", "sen1floods11", 60, 3e-3),
        ("universat", "sen1floods11", 90, 1e-2),
    ],
)
def test_eight_samples_are_learned_by_heart(name: str, like: str, steps: int, rate: float) -> None:
    dataset, samples = synthetic(like, 8, size=24 if name in IMAGES else 16, **TASKS[like])
    model = made(name, dataset, **(SERIES.get(name, {}) if like == "biomassters" else {}))
    cost = Cost(budget=100) if name == "perceiver_io_small" else Cost()
    inputs = [model.preparer()(sample.atoms, sample.queries, cost) for sample in samples]
    target = torch.cat([sample.target.reshape(-1) for sample in samples])
    known = target.isfinite() & (target != -1)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=rate), list[float]()
    for _ in range(steps):
        outputs = (torch.cat if model.task_spec.dense else torch.stack)(model.predict(inputs))[known]
        if model.task_spec.regression:
            loss = F.mse_loss(outputs[:, 0], target[known]) / 80.0**2
        else:
            loss = F.cross_entropy(outputs, target[known])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if losses[-1] < 0.4 * losses[0]:
            return
    pytest.fail(f"the loss fell too little: {losses[::10]}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("like", TASKS)
def test_every_kind_of_task_is_trained_saved_and_loaded(name: str, like: str, tmp_path: Path) -> None:
    """Also on several dates and sensors; predictions alone are those in a batch."""
    dataset, samples = synthetic(like, 2, **TASKS[like])
    model = made(name, dataset, **(SERIES.get(name, {}) if dataset.info.temporal else {}))
    inputs = [model.preparer()(sample.atoms, sample.queries) for sample in samples]
    outputs = model.predict(inputs)
    for output, sample in zip(outputs, samples, strict=True):
        queried = () if sample.queries is None else (len(sample.queries),)
        assert output.shape == (*queried, dataset.info.num_outputs) and output.isfinite().all()
    sum(output.square().mean() for output in outputs).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    model.eval().save_pretrained(tmp_path)
    loaded = aio.load_model(tmp_path)
    assert loaded.settings() == model.settings() and loaded.task_spec == model.task_spec
    with torch.no_grad():
        again = loaded.predict(inputs)
        for one, two, single in zip(model.predict(inputs), again, inputs, strict=True):
            assert torch.equal(one, two)
            torch.testing.assert_close(model.predict([single])[0], one, rtol=1e-3, atol=1e-3)
            if dataset.info.task == "regression":
                assert 50 < float(one.mean()) < 150, "it begins at the mean of the target"


@pytest.mark.parametrize("name", [*IMAGES, "unet_small", "ramen", "universat"])
def test_points_are_refused(name: str) -> None:
    cloud = points(0)
    both = raster(0, size=(8, 8)) + cloud
    model = aio.create_model(name, num_outputs=2, channels=both.channels, extent_m=50.0, **TINY.get(name, {}))
    for scene in (cloud, both):
        with pytest.raises(AtomsError, match="reads rasters only, but the sites of lidar are points"):
            model([scene], [torch.zeros(3, 2)])


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("resnet50", {"blocks": (3, 4)}, "blocks must be four whole numbers"),
        ("resnet50", {"temporal": "ltae"}, "temporal 'ltae' is not known; choose one of mean, linear"),
        ("resnet50", {"temporal": "linear"}, "temporal 'linear' needs num_dates"),
        ("resnet50", {"num_dates": 3}, "takes any number of dates: leave out"),
        ("resnet50", {"gsd_m": 0.0}, "gsd_m must be a positive number of metres"),
        ("vit_small", {"image_px": 500}, "image_px=500 is no multiple of patch_px=16"),
        ("vit_small", {"heads": 5}, "384 features cannot be split among 5 heads"),
        ("vit_small", {"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ("vit_mnist", {"temporal": "ltae"}, "omit reads one image per scene"),
        ("vit_mnist", {"task": "segmentation"}, "a map needs every patch"),
        ("vit_small", {"depht": 3}, "unknown setting 'depht'; did you mean 'depth'"),
        ("ramen", {"width": 40}, "width must be a multiple of the 16 heads of the L-TAE, got 40"),
        ("ramen", {"encoding_m": 0.0}, "encoding_m must be a positive number of metres"),
        *(
            ("universat", {"width": w, "heads": h}, f"width {w} does not divide into {h} heads")
            for w, h in ((36, 2), (72, 6))
        ),
        ("universat", {"patch_m": -1.0}, "patch_m must be a positive number of metres"),
        ("perceiver_io_small", {"latents": 0}, "latents must be a whole number of at least 1"),
        ("perceiver_io_small", {"position_scale_m": 0.0}, "position_scale_m must be positive"),
        ("perceiver_io_small", {"budget": 0}, "budget must be"),
        ("perceiver_io_small", {"latent": 3}, "did you mean 'latents'"),
    ],
)
def test_a_wrong_setting_is_named(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words), torch.device("meta"):
        aio.create_model(name, **settings)


def test_a_batch_of_one_can_be_trained() -> None:
    decoder = UPerNet((4, 4, 4, 4), 2, width=8).train()  # pooling leaves one value per channel
    out = decoder([torch.randn(1, 4, side, side) for side in (8, 4, 2, 1)], (16, 16))
    out.sum().backward()
    assert out.isfinite().all()


def test_one_value_is_normalised_by_running_statistics() -> None:
    norm = BatchNorm2d(3)
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0 - norm.eps)
    x = torch.tensor([1.0, 3.0, 5.0]).reshape(1, 3, 1, 1)
    torch.testing.assert_close(norm.train()(x).flatten(), torch.tensor([0.0, 1.0, 2.0]))
    torch.testing.assert_close(norm.running_mean, torch.ones(3))  # nothing was learned of one value
    several = torch.randn(4, 3)
    torch.testing.assert_close(BatchNorm1d(3).train()(several), torch.nn.BatchNorm1d(3).train()(several))


def test_levels_of_a_plain_transformer() -> None:
    maps = [torch.randn(1, 5, 6, 4) for _ in range(4)]
    for levels in (ResizedLevels()(maps), DeconvolvedLevels(5)(maps)):
        assert [tuple(level.shape[-2:]) for level in levels] == [(24, 16), (12, 8), (6, 4), (3, 2)]
        assert levels[2] is maps[2]
        torch.testing.assert_close(levels[3], F.max_pool2d(maps[3], 2))
    assert not list(ResizedLevels().parameters())
    assert ResizedLevels()([torch.randn(1, 5, 1, 1)] * 4)[3].shape[-2:] == (1, 1)

"""ResNet and the vision transformer behind the contract: sizes, tasks, dates, absent values, FLOPs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import atomizer_io as aio
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import GRAYSCALE
from atomizer_io.datasets.mnist import sparsify
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Model
from atomizer_lab.baselines.images import Image
from scenes import raster

SMALL = ("resnet_small", "vit_tiny")
DIGITS: dict[str, Any] = {"width": 32, "depth": 2, "heads": 2, "image_px": 8}


def channels(count: int) -> tuple[Channel, ...]:
    return tuple(Channel("synthetic", f"B{i}", 0.4 + 0.01 * i, 0.02, mean=0.0, std=1.0) for i in range(count))


# --- dates ---


@pytest.mark.parametrize("name", SMALL)
def test_dates_are_averaged_by_default(name: str) -> None:
    first, second = raster(1, size=(16, 16), day=10), raster(2, size=(16, 16), day=200)
    model = aio.create_model(name, channels=first.channels).eval()
    where = [torch.zeros(1, 2)]
    mean = aio.AtomSet(
        (replace(first.acquisitions[0], values=(first.acquisitions[0].values + second.acquisitions[0].values) / 2),)
    )
    with torch.no_grad():
        torch.testing.assert_close(model([first + second], where), model([mean], where))


@pytest.mark.parametrize("task", ["segmentation", "classification"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet_small", {"temporal": "linear", "num_dates": 3}),
        ("vit_tiny", {"temporal": "linear", "num_dates": 3}),
        ("vit_tiny", {"temporal": "ltae"}),
    ],
)
def test_several_dates(name: str, settings: dict[str, Any], task: str) -> None:
    dates = [raster(seed, size=(16, 16), day=day) for seed, day in ((1, 10), (2, 100), (3, 200), (4, 300))]
    torch.manual_seed(0)
    model = aio.create_model(name, task=task, channels=dates[0].channels, **settings).eval()
    where = [torch.tensor([[5.0, 5.0], [-30.0, 20.0]])] if task == "segmentation" else None
    with torch.no_grad():
        result = [model([sum(dates[:count])], where)[0] for count in (2, 3)]
        again = model([sum(dates[:2]), sum(dates[:3])], where and where * 2)
    assert not torch.allclose(*result)
    for one, both in zip(result, again, strict=True):
        torch.testing.assert_close(one, both)
    if "num_dates" in settings:
        with pytest.raises(ConfigError, match=r"a scene has 4 dates, but the model was made for 3.*num_dates=4"):
            model([sum(dates)], where)
    else:
        assert model([sum(dates)], where)[0].isfinite().all()


@pytest.mark.parametrize("name", SMALL)
def test_a_numbered_date_keeps_its_place(name: str) -> None:
    months = {step: numbered(raster(step, size=(8, 8), day=30 * step), step) for step in (1, 7, 10)}
    bands = months[1].channels
    options = {"channels": bands, "timesteps": (1, 7, 10), "temporal": "linear", "num_dates": 3}
    model = aio.create_model(name, **options)
    whole = model.preparer()(sum(months.values()), None).values_TCHW
    for gone, place in ((1, 0), (7, 1), (10, 2)):
        few = model.preparer()(sum(atoms for step, atoms in months.items() if step != gone), None).values_TCHW
        expected = whole.clone()
        expected[place] = 0
        assert torch.equal(few, expected)
    stranger = numbered(raster(4, size=(8, 8), day=120), 4)
    with pytest.raises(ConfigError, match="a scene has time step 4, but the model was trained on 1, 7, 10"):
        model.preparer()(months[1] + stranger, None)
    unnumbered = model.preparer()(raster(1, size=(8, 8)) + raster(2, size=(8, 8), day=300), None).values_TCHW
    assert (unnumbered[2] == 0).all() and (unnumbered[:2] != 0).any(dim=(1, 2, 3)).all()
    longer = aio.create_model(name, **{**options, "num_dates": 4}).preparer()  # not the dates of the training data
    assert (longer(months[7] + months[10], None).values_TCHW[2:] == 0).all()


def numbered(atoms: aio.AtomSet, step: int) -> aio.AtomSet:
    return aio.AtomSet(tuple(replace(acquisition, timestep=step) for acquisition in atoms))


# --- what is absent ---


@pytest.mark.parametrize("name", SMALL)
def test_an_absent_channel_is_its_mean(name: str) -> None:
    atoms = raster(3, size=(16, 16))
    model = aio.create_model(name, channels=atoms.channels).eval()
    (whole,) = atoms
    values = whole.values.clone()
    values[:, 1] = whole.channels[1].mean
    where = [torch.zeros(1, 2)]
    with torch.no_grad():
        without, filled = (
            model([atoms.drop("B03")], where),
            model([aio.AtomSet((replace(whole, values=values),))], where),
        )
        assert not torch.allclose(without[0], model([atoms], where)[0])
    torch.testing.assert_close(without, filled)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (33, 20)])
def test_any_size_is_predicted_and_trained(name: str, shape: tuple[int, int]) -> None:
    atoms = raster(4, size=shape)
    model = aio.create_model(name, channels=atoms.channels).train()
    (result,) = model([atoms], [aio.Grid(*shape, 10.0).positions()])
    result.sum().backward()
    assert result.shape == (shape[0] * shape[1], 2) and result.isfinite().all()


# --- pixels as patches ---


def digits(count: int) -> list[Sample]:
    torch.manual_seed(3)
    images = torch.randint(0, 256, (count, 8, 8))
    return [
        Sample.of_scene(aio.AtomSet.from_raster(image[None], GRAYSCALE, 1.0), n % 3, Meta(f"{n}"))
        for n, image in enumerate(images)
    ]


def digit_model(**settings: Any) -> Model:
    torch.manual_seed(0)
    arguments = {"num_outputs": 3, "channels": GRAYSCALE.channels, "extent_m": 8.0}
    model: Model = aio.create_model("vit_mnist", **arguments, **DIGITS, **settings)
    return model


def test_removed_pixels_are_no_tokens_and_others_keep_their_place() -> None:
    model, sample = digit_model().eval(), digits(1)[0]
    sparse = sparsify(sample, 0.7, torch.Generator().manual_seed(0))
    image = model.preparer()(sparse.atoms, None)
    (acquisition,) = sparse.atoms
    assert 0 < len(image.kept_K) < 64
    torch.testing.assert_close(image.kept_K, acquisition.valid_mask()[:, 0].nonzero()[:, 0])
    vit = model.network().trunk
    with torch.no_grad():
        whole = vit.tokens(model.preparer()(sample.atoms, None).values_TCHW)
        kept = vit.tokens(image.values_TCHW, image.kept_K[None])
        torch.testing.assert_close(kept[:, 1:], whole[:, 1:][:, image.kept_K])
        expected = model.network().head(vit.blocks(kept)[:, 0])
        torch.testing.assert_close(model([sparse.atoms]), expected)


# --- FLOPs ---


def convolutions(network: nn.Module, *arguments: torch.Tensor) -> float:
    """Twice the multiply-adds of all convolutions, by hand from their shapes."""
    total = 0.0

    def count(conv: nn.Conv2d, _: Any, out: torch.Tensor) -> None:
        nonlocal total
        total += 2.0 * out.numel() * conv.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        network(*arguments)
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize(("name", "expected"), [("resnet50", 158.0), ("vit_small", 175.0)])
def test_flops_on_the_input_of_sen1floods11(name: str, expected: float) -> None:
    with torch.device("meta"):
        model = aio.create_model(name, channels=channels(15))
        image = Image(torch.empty(1, 15, 512, 512))
    assert model.flops([image]) / 1e9 == pytest.approx(expected, rel=0.01)

"""The analytic count of FLOPs against what torch counts while the network runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.atomizer.ops.kernels import cells as kernel_cells
from atomizer_io.models.atomizer.ops.kernels import queries as kernel_queries
from atomizer_io.models.atomizer.reference import Reference


def scene() -> aio.AtomSet:
    generator = torch.Generator().manual_seed(0)
    optical = torch.rand(13, 32, 32, generator=generator) * 3000
    radar = torch.rand(2, 32, 32, generator=generator) * 10 - 20
    return aio.AtomSet.from_raster(optical, SENTINEL2, 10.0, 100) + aio.AtomSet.from_raster(
        radar, SENTINEL1.pick("VV", "VH"), 10.0, 103
    )


def counted(call) -> float:
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.fixture
def torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiled kernels: torch counts its own functions only."""
    for kernels in (kernel_cells, kernel_queries):
        monkeypatch.setattr(kernels, "usable", lambda *_: False)


@pytest.mark.usefixtures("torch_only")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temporal": True},
        {"observation_mlp": True},
    ],
)
def test_folded_count_is_what_torch_counts(settings: dict[str, object]) -> None:
    model = aio.create_model("atomizer_io_tiny", **settings).eval()
    atoms, grid = scene(), aio.Grid(32, 32, 10.0).positions()
    geometry = [model.geometry(atoms)]
    size = InputSize.of(model, atoms, len(grid), geometry[0])
    by_name = {stage.name: stage.flops for stage in stages(model, size)}
    with torch.no_grad():
        latents = model.encode([atoms], geometry=geometry)

    encode = counted(lambda: model.encode([atoms], geometry=geometry))
    expected = by_name["encoder"] + by_name["processor"] + by_name.get("temporal", 0.0)
    assert expected <= encode <= 1.15 * expected  # cells of a block are padded to the longest

    decode = counted(lambda: model.decode(latents, [grid]))
    assert decode == pytest.approx(by_name["decoder"] + by_name["head"], rel=0.01)


@pytest.mark.usefixtures("torch_only")
def test_folded_encoder_without_padding() -> None:
    model = aio.create_model("atomizer_io_tiny", atoms_per_latent=15 * 1024).eval()  # one cell
    atoms = scene()
    geometry = model.geometry(atoms)
    by_name = {stage.name: stage.flops for stage in stages(model, InputSize.of(model, atoms, 0, geometry))}
    result = counted(lambda: model.encode([atoms], geometry=[geometry]))
    assert result == pytest.approx(by_name["encoder"] + by_name["processor"], rel=0.01)


@pytest.mark.parametrize("preset", ["atomizer_io_tiny", "atomizer_io_seg", "atomizer_io_cls", "atomizer_io_3d"])
def test_processor_on_the_meta_device(preset: str) -> None:
    """Without numbers, torch counts fused attention too."""
    with torch.device("meta"):
        model = aio.create_model(preset).eval()
    size = InputSize(atoms=0, sites=0, kinds=0, latents=700, steps=3)
    expected = next(stage.flops for stage in stages(model, size) if stage.name == "processor")
    h_BLD = torch.empty(3, 700, model.config.width, device="meta")
    with FlopCounterMode(display=False) as counter:
        model.processor(h_BLD, torch.empty(3, 700, 2, dtype=torch.float64, device="meta"))
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("mlp", [False, True], ids=["raw observations", "a layer before observations"])
def test_literal_count_is_what_the_reference_takes(mlp: bool) -> None:
    one_cell = {"atoms_per_latent": 15 * 1024}  # nothing is padded
    model = aio.create_model("atomizer_io_tiny", **one_cell, observation_mlp=mlp).eval()
    model.requires_grad_(False)
    atoms, grid = scene(), aio.Grid(32, 32, 10.0).positions()
    geometry = model.geometry(atoms)
    size = InputSize.of(model, atoms, len(grid), geometry)
    assert size.latents == 1
    by_name = {stage.name: stage.literal_flops for stage in stages(model, size)}
    reference = Reference(model)
    with torch.no_grad():
        h_LD = reference.encode(atoms, geometry)
    encode = counted(lambda: reference.encode(atoms, geometry))
    assert encode == pytest.approx(by_name["encoder"] + by_name["processor"], rel=0.01)
    decode = counted(lambda: reference.decode(h_LD, geometry, atoms, grid))
    with_nothing_seen = replace(size, kinds=size.kinds + 1)  # a token beside those of the atoms
    by_name = {stage.name: stage.literal_flops for stage in stages(model, with_nothing_seen)}
    layer = 2 * len(grid) * model.decoder.observation.first.weight.numel() if mlp else 0  # which that token skips
    assert decode == pytest.approx(by_name["decoder"] + by_name["head"] - layer, rel=0.01)


def test_folding_saves_as_much_as_designed() -> None:
    model = aio.create_model("atomizer_io_seg")
    size = InputSize(atoms=15 * 512**2, sites=2 * 512**2, kinds=15, latents=1968, queries=512**2)
    by_name = {stage.name: stage for stage in stages(model, size)}
    assert by_name["encoder"].literal_flops / by_name["encoder"].flops > 30
    assert by_name["decoder"].literal_flops / by_name["decoder"].flops > 3
    assert sum(stage.parameters for stage in by_name.values()) == model.num_parameters

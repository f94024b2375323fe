"""On another device: no GPU is needed to see that everything meets there and that no block waits for the host.

Tensors on ``meta`` have shapes, types and a device but no numbers, so a tensor left on the CPU, or a number that is
read back, is an error. What a GPU computes was not tried.
"""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.models.atomizer.decoder import Piece
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.observations import Look
from atomizer_io.models.atomizer.ops import attention

TASKS: dict[str, dict[str, Any]] = {
    "classification": {},
    "scene_regression": {"num_outputs": 1},
    "segmentation": {},
    "regression": {"num_outputs": 1},
    "temporal": {"task": "segmentation", "temporal": True},
}


def scene(temporal: bool) -> aio.AtomSet:
    values = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(1)) * 500 + 1500
    bands = SENTINEL2.pick("B02", "B03", "B04")
    atoms = aio.AtomSet.from_raster(values, bands, 10.0, 183)
    return atoms + aio.AtomSet.from_raster(values, bands, 10.0, 213) if temporal else atoms


def on_device(thing: Any, device: str) -> Any:
    """The same with every tensor on ``device``, without its numbers."""
    if isinstance(thing, torch.Tensor):
        return torch.empty_like(thing, device=device)
    if is_dataclass(thing):
        return type(thing)(*(on_device(getattr(thing, item.name), device) for item in fields(thing)))
    return [on_device(part, device) for part in thing] if isinstance(thing, list) else thing


@pytest.mark.parametrize("name", TASKS)
def test_what_follows_the_geometry_stays_on_the_device_and_never_reads_it(name: str) -> None:
    device = "meta"
    settings = {"task": name, "atoms_per_latent": 50, "observation_mlp": False, **TASKS[name]}
    plain, atoms = aio.create_model("atomizer_io_tiny", **settings), scene(temporal=name == "temporal")
    geometry = plain.geometry(atoms)
    anchors_L2, steps = geometry.anchors_L2, len(geometry.cells)
    near = plain.locate(atoms, geometry, torch.zeros(20, 2)) if plain.task_spec.dense else None
    with torch.no_grad():
        tokens = plain.tokenizer([atoms], [geometry])
        (seen,) = plain.tokenizer.observe([atoms])
    segments = [cells.segments(64) for cells in geometry.cells]
    plans = [attention.plan(s, c, tokens, anchors_L2, 128) for s, c in zip(segments, geometry.cells, strict=True)]
    offsets = None if near is None else near.offsets().float()
    model = plain  # its numbers are not needed any more
    for module in model.modules():
        for key, weight in module.named_parameters(recurse=False):
            setattr(module, key, torch.nn.Parameter(on_device(weight, device)))
    layer, encoder, moved = model.encoder.attention, model.encoder, on_device(tokens, device)
    folded, h = layer.fold(encoder.norm(encoder.h_init), moved.kind_KF), []
    for order_G, blocks in plans:
        result = [layer.attend(folded, moved.value_N, moved.site_SF, on_device(block, device)) for block in blocks]
        lse_GH, out_GHE = (torch.cat(column) for column in zip(*result, strict=True))
        cell_G = on_device(order_G, device)  # as many, and of the same type, as the cells of the segments
        empty_HE = layer.value(layer.empty).unflatten(0, (layer.heads, layer.head_dim))
        merged = attention.merge(lse_GH, out_GHE, cell_G, len(anchors_L2), empty_HE).flatten(1)
        h_LD = encoder.h_init + encoder.out(merged)
        h.append(h_LD + encoder.feedforward(h_LD))
    h_TLD = model.processor(torch.stack(h), anchors_L2.expand(steps, -1, -1))
    h_LD = h_TLD[0] if model.temporal is None else model.temporal(h_TLD, torch.zeros(steps).double())
    if near is None:
        predictions = model.head(h_LD.mean(dim=0))
    else:
        assert model.decoder is not None
        located = LocatedQueries(
            on_device(near.latents_Mk, device),
            near.queries_M2,
            near.anchors_L2,
            delta_Mk2=on_device(offsets, device),
        )
        piece = Piece(
            located,
            model.decoder.project([h_LD])[0],
            Look(on_device(seen, device), on_device(near.sites_MA, device)),
        )
        predictions = model.decoder(model.head, [piece])
    assert predictions.device.type == device
    predictions.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.device.type == device, parameter_name


@torch.no_grad()
def test_a_block_is_one_graph() -> None:
    torch.manual_seed(0)
    model, atoms = aio.create_model("atomizer_io_tiny", atoms_per_latent=50), scene(temporal=False)
    geometry, layer = model.geometry(atoms), model.encoder.attention
    tokens = model.tokenizer([atoms], [geometry])
    folded = layer.fold(model.encoder.norm(model.encoder.h_init), tokens.kind_KF)
    cells = geometry.cells[0]
    _, (block, *_) = attention.plan(cells.segments(4096), cells, tokens, geometry.anchors_L2, 1 << 20)
    compiled = torch.compile(copy.copy(layer).attend, backend="eager", fullgraph=True)
    for ours, traced in zip(
        layer.attend(folded, tokens.value_N, None, block), compiled(folded, tokens.value_N, None, block), strict=True
    ):
        torch.testing.assert_close(traced, ours)

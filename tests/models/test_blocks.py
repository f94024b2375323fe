"""Work is cut into blocks by bytes, and what does not fit is computed again: neither changes a prediction."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.models.atomizer.decoder import Piece
from atomizer_io.models.atomizer.observations import Look
from atomizer_io.models.atomizer.ops import memory


def scene(side: int = 16) -> aio.AtomSet:
    values = torch.randn(4, side, side, generator=torch.Generator().manual_seed(1)) * 500 + 1500
    return aio.AtomSet.from_raster(values, SENTINEL2.pick("B02", "B03", "B04", "B08"), 10.0, 183)


def gradients(model: aio.AtomizerIO, atoms: aio.AtomSet) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    predictions = model([atoms, atoms], [atoms.acquisitions[0].positions] * 2)
    total = torch.cat(list(predictions))
    total.square().sum().backward()
    return total.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kernels", ["on", "off"])
@pytest.mark.parametrize("kept", [0, 300_000, memory.KEPT_BYTES])
def test_small_blocks_and_recomputed_ones_predict_and_learn_alike(
    kernels: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == "off":
        monkeypatch.setattr("atomizer_io.models.atomizer.ops.kernels.cells.library", lambda *_: None)
        monkeypatch.setattr("atomizer_io.models.atomizer.ops.kernels.queries.library", lambda *_: None)
    torch.manual_seed(0)
    model, atoms = aio.create_model("atomizer_io_tiny", atoms_per_latent=64, budget=None).double(), scene()
    predictions, slopes = gradients(model, atoms)
    monkeypatch.setattr(memory, "CPU_BLOCK_BYTES", 500_000)
    monkeypatch.setattr(memory, "KEPT_BYTES", kept)
    again, others = gradients(model, atoms)
    torch.testing.assert_close(again, predictions, rtol=1e-10, atol=1e-12)
    assert slopes.keys() == others.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(others[name], slope, rtol=1e-9, atol=1e-10, msg=name)


def chunk_sizes(preset: str, queries: int) -> list[int]:
    model, atoms = aio.create_model(preset).eval(), scene()
    latents = model.encode([atoms])
    where = model.locate(atoms, latents.geometries[0], torch.zeros(queries, 2))
    assert model.decoder is not None
    seen = latents.observations(0, model.tokenizer)
    piece = Piece(where, model.decoder.project(latents.features)[0], Look(seen, where.sites_MA))
    return [sum(map(len, chunk)) for chunk in model.decoder.chunks([piece])]


@torch.no_grad()
def test_a_narrow_model_is_queried_at_more_positions_at_once() -> None:
    wide, narrow = chunk_sizes("atomizer_io_seg", 8000), chunk_sizes("atomizer_io_tiny", 8000)
    assert sum(wide) == sum(narrow) == 8000
    assert narrow[0] >= 1.5 * wide[0]

"""The fast path equals the paper's equations: outputs to 1e-9 and gradients to 1e-7, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer.ops import attention, memory
from atomizer_io.models.atomizer.ops.kernels import cells
from atomizer_io.models.atomizer.ops.kernels import queries as kernel_queries
from atomizer_io.models.atomizer.ops.kernels.build import available
from atomizer_io.models.atomizer.reference import Reference
from scenes import SMALL, far_anchors, points, queries, raster


@dataclass
class Case:
    batch: list[aio.AtomSet]
    positions: list[Tensor] | None
    settings: dict[str, object]
    options: dict[str, object]


def cases() -> dict[str, Case]:
    two_resolutions = raster(1) + raster(2, SENTINEL1, ("VV", "VH"), (5, 4), 20.0, day=107)
    series = sum((raster(s, day=30 * s, holes=0.1) for s in range(1, 4)), aio.AtomSet())
    point_cloud = points(3)
    stacked = aio.AtomSet.from_points(
        torch.tensor([[0.0, 0.0, z] for z in (1.0, 5.0, 9.0)] + [[3.0, 1.0, 2.0]], dtype=torch.float64)
    )
    image = raster(4, aio.sensors.AERIAL, ("R", "G", "B", "NIR"), (12, 12), 4.0, day=None)
    one = aio.AtomSet.from_raster(torch.full((1, 1, 1), 900.0, dtype=torch.float64), SENTINEL2.pick("B04"), 10.0)
    grid = aio.Grid(9, 7, 10.0).positions()
    mixed = [two_resolutions, point_cloud, point_cloud + image, raster(5, size=(4, 12), holes=0.4), one]
    return {
        "points sampled": Case([point_cloud + image], [queries(3, extent=45.0)], {}, {"max_points": 30}),
        "raster": Case([raster(1)], [grid], {}, {}),
        "dates not used": Case([series], [grid], {"dates": False}, {}),
        "raster with holes": Case([raster(1, holes=0.5)], [grid], {}, {}),
        "several GSDs": Case([two_resolutions], [queries(1)], {}, {}),
        "point cloud": Case([point_cloud], [queries(2, extent=40.0)], {}, {}),
        "point cloud, queried at its points": Case([point_cloud], [point_cloud.acquisitions[0].positions[:40]], {}, {}),
        "returns that share a position": Case(
            [stacked], [torch.zeros(3, 2, dtype=torch.float64)], {}, {"sites": [{0: torch.tensor([0, 1, 2])}]}
        ),
        "points and image": Case([point_cloud + image], [queries(3, extent=45.0)], {}, {}),
        "series, joint": Case([series], [grid], {}, {}),
        "series, temporal": Case([series], [grid], {"temporal": True}, {}),
        "series, mean as a residual": Case([series], [grid], {"temporal": True, "temporal_residual": True}, {}),
        "series, merged before the last block": Case(
            [series, raster(7, day=200)],
            [grid, grid],
            {"temporal": True, "temporal_residual": True, "temporal_depth": 1, "depth": 2},
            {},
        ),
        "series, merged before all blocks": Case([series], [grid], {"temporal": True, "temporal_depth": 0}, {}),
        "temporal, steps missing": Case(
            [series, raster(7, day=200), raster(8, day=None, timestep=0) + raster(9, day=None, timestep=1)],
            [grid, grid, grid],
            {"temporal": True},
            {},
        ),
        "empty cells": Case([raster(1)], [grid], {}, {"anchors": [far_anchors()]}),
        "single atom": Case([one], [torch.zeros(1, 2, dtype=torch.float64)], {}, {}),
        "budget below the cell": Case([two_resolutions], [queries(1)], {}, {"budget": 11}),
        "one latent for all": Case([two_resolutions], [queries(1)], {}, {"atoms_per_latent": 10**6}),
        "mixed batch": Case(mixed, [queries(i, 9, 15.0) if i != 4 else queries(i, 9, 8.0) for i in range(5)], {}, {}),
        "no RoPE": Case([raster(1)], [grid], {"rope": False}, {}),
        "no observation conditioning": Case([raster(1)], [grid], {"observation_conditioning": False}, {}),
        "a layer before observations": Case(
            [two_resolutions, raster(1, holes=0.5), point_cloud + image],
            [queries(1), grid, point_cloud.acquisitions[0].positions[:40]],
            {"observation_mlp": True, "observation_expansion": 2.0},
            {},
        ),
        "a layer before observations, returns that share a position": Case(
            [stacked],
            [torch.zeros(3, 2, dtype=torch.float64)],
            {"observation_mlp": True},
            {"sites": [{0: torch.tensor([0, 1, -1])}]},
        ),
        "a layer before observations, temporal": Case(
            [series], [grid], {"observation_mlp": True, "temporal": True}, {}
        ),
        "no offsets, one latent per site": Case(
            [raster(1, names=("B02",))],
            None,
            {"offset_encoding": False, "layout": "sites", "task": "classification"},
            {},
        ),
        "classification": Case([two_resolutions, point_cloud], None, {"task": "classification"}, {}),
        "regression": Case(
            [two_resolutions], [queries(1)], {"task": "regression", "target_mean": 60.0, "target_std": 70.0}, {}
        ),
    }


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", cases())
def test_fast_path_equals_reference(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled and not available():
        pytest.skip("no C compiler here")
    if not compiled:
        monkeypatch.setattr(cells, "usable", lambda *_: False)
        monkeypatch.setattr(kernel_queries, "usable", lambda *_: False)
    monkeypatch.setattr(memory, "CPU_BLOCK_BYTES", 100_000)  # many blocks, and cells cut into segments
    monkeypatch.setattr(attention, "LONGEST_SEGMENT", 16)
    case = cases()[name]
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | case.settings)).double().eval()
    for parameter in model.parameters():  # biases and norms away from their neutral start
        parameter.data += 0.1 * torch.randn_like(parameter)
    options = dict(case.options)
    sites, budget = options.pop("sites", None), options.pop("budget", None)
    anchors = options.pop("anchors", [None] * len(case.batch))
    geometry = [
        model.geometry(atoms, anchors=a, **options).sample(
            budget, torch.Generator().manual_seed(5), options.get("max_points")
        )
        for atoms, a in zip(case.batch, anchors, strict=True)
    ]
    if name == "empty cells":
        assert (geometry[0].cells[0].counts_L == 0).any()

    def flat(predictions: Tensor | list[Tensor]) -> Tensor:
        return torch.cat([a.flatten() for a in predictions])

    fast = flat(model(case.batch, case.positions, geometry=geometry, sites=sites))
    slow = flat(
        Reference(model, cells_at_once=3, queries_at_once=13)(
            case.batch, case.positions, geometry=geometry, sites=sites
        )
    )
    assert fast.isfinite().all() and fast.std() > 1e-3
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)

    pull = torch.randn(fast.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    parameters = dict(model.named_parameters())
    fast_gradients = torch.autograd.grad((fast * pull).sum(), parameters.values(), allow_unused=True)
    slow_gradients = torch.autograd.grad((slow * pull).sum(), parameters.values(), allow_unused=True)
    moved = 0
    for key, a, b in zip(parameters, fast_gradients, slow_gradients, strict=True):
        zero = torch.zeros_like(parameters[key])
        a, b = zero if a is None else a, zero if b is None else b
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7, msg=lambda text, key=key: f"{key}: {text}")
        moved += bool(a.abs().max() > 1e-6)
    assert moved > 0.7 * len(parameters)

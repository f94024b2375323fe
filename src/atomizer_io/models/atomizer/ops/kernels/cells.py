"""The attention pooling of ``cells.c`` as a torch operation with a gradient.

Shapes: N atoms, G segments, S sites, L cells, K kinds, H heads, D width, F features,
2 = (x, y).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atomizer_io.models.atomizer.ops.kernels.build import library
from atomizer_io.models.atomizer.ops.kernels.calls import addresses, kernels_of, run, table
from atomizer_io.models.atomizer.ops.kernels.layout import CELL_WEIGHTS, MAX_FEATURES, MAX_HEADS, Cells

_NUMBERS = ("value_frequencies", "value_step", "offset_frequencies", "offset_step", "offset_scale")


@dataclass(frozen=True, slots=True)
class CellAtoms:
    """What is fixed in the operation: the atoms by cell, the segments, and the settings of the encodings."""

    value: Tensor  # (N,), natural order
    order: Tensor  # (N,), by cell
    site: Tensor
    kind: Tensor
    cell: Tensor  # (G,)
    begin: Tensor
    length: Tensor
    position: Tensor  # (S, 2) float64
    anchor: Tensor  # (L, 2) float64
    site_field: Tensor | None  # (S, F)
    value_frequencies: int
    value_step: float
    offset_frequencies: int
    offset_step: float
    offset_scale: float


def usable(dtype: torch.dtype, device: torch.device, width: int, heads: int, features: int) -> bool:
    """Whether the kernel covers this case on this machine."""
    if (
        device.type != "cpu"
        or heads > MAX_HEADS
        or features > MAX_FEATURES
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    ):
        return False
    kernels = library("cells", dtype)
    return kernels is not None and width % kernels.lanes == 0


def pool_cells(
    atoms: CellAtoms,
    value_weight_FD: Tensor,
    kind_weight_KD: Tensor,
    site_weight_FD: Tensor,
    offset_weight_FD: Tensor | None,
    logit_weight_HD: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """Log-sum-exp (G, H) of each segment's logits, and the g pooled by each head (G, D)."""
    lse_GH, *pooled = _PoolCells.apply(
        atoms, value_weight_FD, kind_weight_KD, site_weight_FD, offset_weight_FD, logit_weight_HD
    )  # type: ignore[no-untyped-call]
    return lse_GH, pooled


class _PoolCells(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, atoms: CellAtoms, *weights: Tensor | None) -> tuple[Tensor, ...]:
        weights = tuple(None if weight is None else weight.contiguous() for weight in weights)
        logit = weights[-1]
        assert logit is not None
        segments, (heads, width) = len(atoms.cell), logit.shape
        lse, pooled = logit.new_empty(segments, heads), logit.new_empty(heads, segments, width)
        _run("cells_forward", atoms, weights, {"lse": lse, "pooled": pooled}, {})
        ctx.atoms = atoms
        ctx.save_for_backward(*weights, lse, pooled)
        return lse, *pooled  # one tensor a head, so that their gradients need not be joined

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, lse_grad: Tensor, *pooled_grad: Tensor) -> tuple[Tensor | None, ...]:
        *weights, lse, pooled = ctx.saved_tensors
        results = {"lse": lse, "pooled": pooled, "lse_grad": lse_grad.contiguous()}
        like = {
            f"{name}_grad": weight for name, weight in zip(CELL_WEIGHTS, weights, strict=True) if weight is not None
        }
        sums = _run("cells_backward", ctx.atoms, weights, results, like, [grad.contiguous() for grad in pooled_grad])
        return (None, *(sums.get(f"{name}_grad") for name in CELL_WEIGHTS))


def _run(
    function: str,
    atoms: CellAtoms,
    weights: Any,
    results: dict[str, Tensor],
    like: dict[str, Tensor],
    pooled_grad: Sequence[Tensor] = (),
) -> dict[str, Tensor]:
    """Run a kernel over all segments; returns the sums that it accumulates in tensors ``like`` these."""
    (heads, width), real = weights[-1].shape, weights[-1].dtype
    kernels = kernels_of("cells", real)
    fixed = {name: getattr(atoms, name) for name in CellAtoms.__slots__ if name not in _NUMBERS}
    fixed = {name: None if tensor is None else tensor.contiguous() for name, tensor in fixed.items()}
    arrays = fixed | dict(zip(CELL_WEIGHTS, weights, strict=True)) | results
    sizes = {"V": 2 * atoms.value_frequencies + 1}
    if weights[3] is not None:
        sizes["O"] = atoms.position.shape[1] * (2 * atoms.offset_frequencies + 1)
    settings: dict[str, int | float] = {name: getattr(atoms, name) for name in _NUMBERS}
    settings |= addresses(Cells, kernels, real, arrays | like, sizes, absent=("site_field", "offset_weight"))
    settings |= {"heads": heads, "width": width, "site_features": len(weights[2]), "kinds": len(weights[1])}
    settings |= {"atoms": len(fixed["value"]), "ordered": len(fixed["order"])}
    settings |= {"sites": len(fixed["position"]), "cells": len(fixed["anchor"]), "segments": len(fixed["cell"])}
    by_head = table("pooled_grad", pooled_grad, real, [(len(fixed["cell"]), width)] * len(pooled_grad))
    settings |= {"axes": fixed["anchor"].shape[1], "pooled_grad": ctypes.addressof(by_head)}
    return run(function, kernels, Cells, settings, like, fixed["length"].numpy())

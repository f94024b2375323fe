"""The attentions of ``queries.c`` as torch functions with gradients.

Shapes: M queries, k neighbours, L latents, A acquisitions, K kinds, H heads, E head dim, F token features, O offset
features.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.errors import KernelError
from atomizer_io.models.atomizer.ops.kernels.build import library
from atomizer_io.models.atomizer.ops.kernels.calls import addresses, kernels_of, run, table
from atomizer_io.models.atomizer.ops.kernels.layout import (
    ATTENDED,
    MAX_FEATURES,
    MAX_HEADS,
    MAX_NEIGHBORS,
    OBSERVED,
    Attending,
    Observing,
)


@dataclass(frozen=True, slots=True)
class SeenTokens:
    """What is fixed when observing: the values of each acquisition, and the site (M, A) that each query sees."""

    standard: Sequence[Tensor]
    valid: Sequence[Tensor | None]
    site_field: Sequence[Tensor | None]
    site_MA: Tensor
    frequencies: int
    step: float


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """What is fixed when attending to latents: the neighbours (M, k), and positions of queries and anchors (metres)."""

    neighbor_Mk: Tensor
    position_M2: Tensor
    anchor_L2: Tensor
    frequencies: int
    step: float
    scale: float


def usable(
    dtype: torch.dtype, device: torch.device, heads: int, features: int, neighbors: int = 1, head_dim: int = 0
) -> bool:
    """Whether the kernels cover this case on this machine."""
    small = heads <= MAX_HEADS and features <= MAX_FEATURES and neighbors <= MAX_NEIGHBORS
    here = device.type == "cpu" and not (torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
    kernels = library("queries", dtype) if small and here else None
    return kernels is not None and head_dim % kernels.lanes == 0


def pool_observations(
    seen: SeenTokens,
    kind_KF: Tensor,
    kind_logit_KH: Tensor,
    value_logit_FH: Tensor,
    site_logit_FH: Tensor,
    nothing_F: Tensor,
) -> Tensor:
    """Tokens pooled by attention at each query, (H, M, F); ``nothing_F`` where there are none."""
    weights = (kind_KF, kind_logit_KH, value_logit_FH, site_logit_FH, nothing_F)
    pooled: Tensor = _Observe.apply(seen, *weights)  # type: ignore[no-untyped-call]
    return pooled


def attend_latents(
    near: Neighborhood, query_MHE: Tensor, folded_HMO: Tensor | None, key_LHE: Tensor, value_LHE: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Values (M, H, E) and offset features (H, M, O) pooled by attention to the neighbours."""
    tensors = (query_MHE, folded_HMO, key_LHE, value_LHE)
    result: tuple[Tensor, Tensor | None] = _Attend.apply(near, *tensors)  # type: ignore[no-untyped-call]
    return result


class _Observe(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, seen: SeenTokens, *weights: Tensor) -> Tensor:
        weights = tuple(weight.contiguous() for weight in weights)
        heads, features = weights[1].shape[1], weights[4].shape[0]
        pooled = weights[0].new_empty(heads, len(seen.site_MA), features)
        _observe("observe_forward", seen, weights, {"pooled": pooled}, {})
        ctx.seen = seen
        ctx.save_for_backward(*weights)
        return pooled

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, pooled_grad: Tensor) -> tuple[Tensor | None, ...]:
        weights = ctx.saved_tensors
        like = {f"{name}_grad": weight for name, weight in zip(OBSERVED, weights, strict=True)}
        sums = _observe("observe_backward", ctx.seen, weights, {"pooled_grad": pooled_grad.contiguous()}, like)
        return (None, *(sums[f"{name}_grad"] for name in OBSERVED))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, near: Neighborhood, *tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        tensors = tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)
        query, turned = tensors[:2]
        assert query is not None
        attended, pooled = torch.empty_like(query), None if turned is None else torch.empty_like(turned)
        _attend("attend_forward", near, tensors, {"attended": attended, "pooled": pooled}, {})
        ctx.near = near
        ctx.save_for_backward(*tensors)
        return attended, pooled

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, attended_grad: Tensor, pooled_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        query, turned, key, value = ctx.saved_tensors
        query_grad, turned_grad = torch.empty_like(query), None if turned is None else torch.empty_like(turned)
        results = {
            "attended_grad": attended_grad.contiguous(),
            "pooled_grad": None if turned is None or pooled_grad is None else pooled_grad.contiguous(),
            "query_grad": query_grad,
            "turned_grad": turned_grad,
        }
        like = {"key_grad": key, "value_grad": value}
        sums = _attend("attend_backward", ctx.near, (query, turned, key, value), results, like)
        return None, query_grad, turned_grad, sums["key_grad"], sums["value_grad"]


def _observe(
    function: str, seen: SeenTokens, weights: Any, results: dict[str, Tensor], like: dict[str, Tensor]
) -> dict[str, Tensor]:
    kind, kind_logit, value_logit, site_logit, _ = weights
    real, site_MA = kind.dtype, seen.site_MA.contiguous()
    kernels = kernels_of("queries", real)
    arrays = {"site": site_MA} | dict(zip(OBSERVED, weights, strict=True)) | results
    values, fields = 2 * seen.frequencies + 1, len(site_logit)
    sizes = {"A": len(seen.standard), "V": values, "T": values + kind.shape[1] + fields}
    settings: dict[str, int | float] = {
        "acquisitions": len(seen.standard),
        "kinds": len(kind),
        "heads": kind_logit.shape[1],
        "frequencies": seen.frequencies,
        "value_features": len(value_logit),
        "kind_features": kind.shape[1],
        "site_features": fields,
        "step": seen.step,
        "queries": len(site_MA),
    }
    settings |= addresses(Observing, kernels, real, arrays | like, sizes)
    columns = _Columns(seen, real, len(kind), fields)
    settings |= columns.addresses
    return run(function, kernels, Observing, settings, like, np.ones(len(site_MA), dtype=np.int64))


class _Columns:
    """The arrays of each acquisition as C reads them: ``addresses`` holds while this object does."""

    def __init__(self, seen: SeenTokens, real: torch.dtype, kinds: int, fields: int) -> None:
        standard = [values.contiguous() for values in seen.standard]
        valid = [None if mask is None else mask.contiguous() for mask in seen.valid]
        field = [None if features is None else features.contiguous() for features in seen.site_field]
        sizes = [(values.shape[0], values.shape[1]) for values in standard]
        if len(valid) != len(sizes) or len(field) != len(sizes) or sum(channels for _, channels in sizes) != kinds:
            raise KernelError(f"{len(sizes)} acquisitions do not have {kinds} kinds of values, masks and fields")
        of_fields = [(sites, fields) for sites, _ in sizes]
        self.tensors = (standard, valid, field)
        self.tables: dict[str, ctypes.Array[Any]] = {
            "values": table("values", standard, real, sizes),
            "valid": table("valid", valid, torch.bool, sizes),
            "site_field": table("site_field", field, real, of_fields),
            "channels": (ctypes.c_int32 * len(sizes))(*(channels for _, channels in sizes)),
            "sites": (ctypes.c_int64 * len(sizes))(*(sites for sites, _ in sizes)),
        }
        self.addresses = {name: ctypes.addressof(table) for name, table in self.tables.items()}


def _attend(
    function: str, near: Neighborhood, tensors: Any, results: dict[str, Tensor | None], like: dict[str, Tensor]
) -> dict[str, Tensor]:
    query, turned, key, _ = tensors
    queries, heads, dim = query.shape
    kernels = kernels_of("queries", query.dtype)
    arrays = dict(zip(ATTENDED, tensors, strict=True)) | results
    arrays |= {
        "neighbor": near.neighbor_Mk.contiguous(),
        "position": near.position_M2.contiguous(),
        "anchor": near.anchor_L2.contiguous(),
    }
    without = ("turned", "pooled", "pooled_grad", "turned_grad") if turned is None else ()
    sizes = {"O": near.anchor_L2.shape[1] * (2 * near.frequencies + 1)} if turned is not None else {}
    settings: dict[str, int | float] = {
        "queries": queries,
        "latents": len(key),
        "neighbors": near.neighbor_Mk.shape[1],
        "heads": heads,
        "dim": dim,
        "frequencies": near.frequencies,
        "axes": near.anchor_L2.shape[1],
        "step": near.step,
        "scale": near.scale,
    }
    settings |= addresses(Attending, kernels, query.dtype, arrays | like, sizes, absent=without)
    return run(function, kernels, Attending, settings, like, np.ones(queries, dtype=np.int64))

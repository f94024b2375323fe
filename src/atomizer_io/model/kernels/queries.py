"""The attentions of ``queries.c`` as torch operations with gradients.

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

from atomizer_io.model.kernels.build import library, run

MAX_HEADS, MAX_FEATURES, MAX_NEIGHBORS = 32, 256, 64  # as in queries.c
_OBSERVED = ("kind", "kind_logit", "value_logit", "site_logit", "unseen")
_ASKED = ("query", "turned", "key", "value")


class _Observing(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "valid", "site_field", "channels")),
        *((name, ctypes.c_int32) for name in ("acquisitions", "kinds", "heads", "frequencies", "value_features")),
        *((name, ctypes.c_int32) for name in ("kind_features", "site_features")),
        ("step", ctypes.c_double),
        ("queries", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("site", *_OBSERVED, "pooled", "pooled_grad")),
        *((f"{name}_grad", ctypes.c_void_p) for name in _OBSERVED),
    ]


class _Asking(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in (*_ASKED, "neighbor", "position", "anchor")),
        ("queries", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("neighbors", "heads", "dim", "frequencies")),
        *((name, ctypes.c_double) for name in ("step", "scale")),
        *((name, ctypes.c_void_p) for name in ("attended", "pooled", "attended_grad", "pooled_grad")),
        *((f"{name}_grad", ctypes.c_void_p) for name in _ASKED),
    ]


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
    """What is fixed when asking latents: who is near (M, k), and where queries and anchors are (metres, float64)."""

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
    return kernels is not None and head_dim % kernels.lanes() == 0


def pool_observations(
    seen: SeenTokens,
    kind_KF: Tensor,
    kind_logit_KH: Tensor,
    value_logit_FH: Tensor,
    site_logit_FH: Tensor,
    unseen_F: Tensor,
) -> Tensor:
    """Tokens pooled by attention at each query, (H, M, F); ``unseen_F`` where there are none."""
    weights = (kind_KF, kind_logit_KH, value_logit_FH, site_logit_FH, unseen_F)
    pooled: Tensor = _Observe.apply(seen, *weights)  # type: ignore[no-untyped-call]
    return pooled


def attend_latents(
    near: Neighborhood, query_MHE: Tensor, turned_HMO: Tensor | None, key_LHE: Tensor, value_LHE: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Values (M, H, E) and offset features (H, M, O) pooled by attention to the neighbours."""
    tensors = (query_MHE, turned_HMO, key_LHE, value_LHE)
    result: tuple[Tensor, Tensor | None] = _Ask.apply(near, *tensors)  # type: ignore[no-untyped-call]
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
        like = {f"{name}_grad": weight for name, weight in zip(_OBSERVED, weights, strict=True)}
        sums = _observe("observe_backward", ctx.seen, weights, {"pooled_grad": pooled_grad.contiguous()}, like)
        return (None, *(sums[f"{name}_grad"] for name in _OBSERVED))


class _Ask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, near: Neighborhood, *tensors: Tensor | None) -> tuple[Tensor, Tensor | None]:
        tensors = tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)
        query, turned = tensors[:2]
        assert query is not None
        attended, pooled = torch.empty_like(query), None if turned is None else torch.empty_like(turned)
        _ask("ask_forward", near, tensors, {"attended": attended, "pooled": pooled}, {})
        ctx.near = near
        ctx.save_for_backward(*tensors)
        return attended, pooled

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, attended_grad: Tensor, pooled_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        query, turned, key, value = ctx.saved_tensors
        query_grad, turned_grad = torch.empty_like(query), None if turned is None else torch.empty_like(turned)
        given = {
            "attended_grad": attended_grad.contiguous(),
            "pooled_grad": None if turned is None or pooled_grad is None else pooled_grad.contiguous(),
            "query_grad": query_grad,
            "turned_grad": turned_grad,
        }
        like = {"key_grad": key, "value_grad": value}
        sums = _ask("ask_backward", ctx.near, (query, turned, key, value), given, like)
        return None, query_grad, turned_grad, sums["key_grad"], sums["value_grad"]


def _observe(
    function: str, seen: SeenTokens, weights: Any, given: dict[str, Tensor | None], like: dict[str, Tensor]
) -> dict[str, Tensor]:
    standard = [values.contiguous() for values in seen.standard]
    valid = [None if mask is None else mask.contiguous().view(torch.uint8) for mask in seen.valid]
    fields = [None if field is None else field.contiguous() for field in seen.site_field]
    arrays = [
        (ctypes.c_void_p * len(standard))(*(None if t is None else t.data_ptr() for t in column))
        for column in (standard, valid, fields)
    ]
    channels = (ctypes.c_int32 * len(standard))(*(values.shape[1] for values in standard))
    kind, kind_logit, value_logit, site_logit, _ = weights
    pointers = ("values", "valid", "site_field")
    settings: dict[str, Any] = dict(zip(pointers, map(ctypes.addressof, arrays), strict=True))
    settings |= {
        "channels": ctypes.addressof(channels),
        "acquisitions": len(standard),
        "kinds": kind.shape[0],
        "heads": kind_logit.shape[1],
        "frequencies": seen.frequencies,
        "value_features": value_logit.shape[0],
        "kind_features": kind.shape[1],
        "site_features": site_logit.shape[0],
        "step": seen.step,
        "queries": len(seen.site_MA),
        "site": seen.site_MA.contiguous(),
    }
    settings |= dict(zip(_OBSERVED, weights, strict=True))
    kernel = getattr(library("queries", kind.dtype), function)
    return run(kernel, _Observing, settings | given, like, np.ones(len(seen.site_MA), dtype=np.int64))


def _ask(
    function: str, near: Neighborhood, tensors: Any, given: dict[str, Tensor | None], like: dict[str, Tensor]
) -> dict[str, Tensor]:
    query = tensors[0]
    queries, heads, dim = query.shape
    settings = dict(zip(_ASKED, tensors, strict=True))
    settings |= {
        "neighbor": near.neighbor_Mk.contiguous(),
        "position": near.position_M2.contiguous(),
        "anchor": near.anchor_L2.contiguous(),
        "queries": queries,
        "neighbors": near.neighbor_Mk.shape[1],
        "heads": heads,
        "dim": dim,
        "frequencies": near.frequencies,
        "step": near.step,
        "scale": near.scale,
    }
    kernel = getattr(library("queries", query.dtype), function)
    return run(kernel, _Asking, settings | given, like, np.ones(queries, dtype=np.int64))

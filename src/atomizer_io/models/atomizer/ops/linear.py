"""Linear layers and matrix products in float32 where torch's own library of linear algebra is slow.

On processors with AVX-512 of other makers than Intel, MKL reaches half of what they can do (118 of 272 GFLOP/s on an
EPYC 9005), and oneDNN, which torch has for convolutions, nearly all (250). There, products call the operator that
compiled models call (``torch.compile``); everywhere else they are those of torch.

Shapes: H heads, R rows, D and E features.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from atomizer_io.models.atomizer.ops.kernels.build import wanted


class Linear(nn.Linear):
    """As ``nn.Linear``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (…, D) times the weight, plus the bias: (…, E)."""
        if not _usable(x, self.weight):
            return super().forward(x)
        out: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)


def product(x_RD: Tensor, weight_DE: Tensor) -> Tensor:
    """Return ``x_RD @ weight_DE``."""
    if not _usable(x_RD, weight_DE):
        return x_RD @ weight_DE
    out: Tensor = _Linear.apply(x_RD, weight_DE.T, None)  # type: ignore[no-untyped-call]
    return out


def product_by_head(x: Sequence[Tensor], weight_HDE: Tensor) -> Tensor:
    """Return ``x @ weight_HDE`` (H, R, E) of one matrix (R, D) per head."""
    if not _usable(x[0], weight_HDE):
        return torch.cat(
            [torch.bmm(x_RD[None], weight_DE[None]) for x_RD, weight_DE in zip(x, weight_HDE, strict=True)]
        )
    out: Tensor = _ByHead.apply(weight_HDE, *x)  # type: ignore[no-untyped-call]
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_RD, weight_ED)
        return _times(x_RD, weight_ED, bias_E)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_RE: Tensor) -> tuple[Tensor | None, ...]:
        x_RD, weight_ED = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _times(grad_RE, weight_ED.T) if of_x else None,
            _of_weight(x_RD, grad_RE).T if of_weight else None,
            grad_RE.sum(dim=0) if of_bias else None,
        )


class _ByHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight_HDE: Tensor, *x: Tensor) -> Tensor:
        ctx.save_for_backward(weight_HDE, *x)
        return torch.stack([_times(x_RD, weight_DE.T) for x_RD, weight_DE in zip(x, weight_HDE, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_HRE: Tensor) -> tuple[Tensor | None, ...]:
        weight_HDE, *x = ctx.saved_tensors
        of_weight, *of_x = ctx.needs_input_grad
        grads = [grad_RE.contiguous() for grad_RE in grad_HRE]
        weights = [_of_weight(x_RD, grad_RE) for x_RD, grad_RE in zip(x, grads, strict=True)] if of_weight else []
        parts = zip(grads, weight_HDE, of_x, strict=True)
        return (
            torch.stack(weights) if of_weight else None,
            *(_times(grad_RE, weight_DE) if needed else None for grad_RE, weight_DE, needed in parts),
        )


def _of_weight(x_RD: Tensor, grad_RE: Tensor) -> Tensor:
    """Return xᵀ g (D, E). oneDNN copies the left matrix, so that is the smaller one."""
    if x_RD.shape[1] <= grad_RE.shape[1]:
        return _times(x_RD.T, grad_RE.T)
    return _times(grad_RE.T, x_RD.T).T


def _times(x_RD: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b. Parts of larger matrices are copied, for which oneDNN would be a thousand times slower."""
    x_RD, weight_ED = (m if m.is_contiguous() or m.T.is_contiguous() else m.contiguous() for m in (x_RD, weight_ED))
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_RD, weight_ED, bias_E, "none", [], "")
    return out


def _usable(x: Tensor, weight: Tensor) -> bool:
    return (
        x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not is_in_torch_dispatch_mode()  # such as one that counts the FLOPs of functions it knows
        and wanted()
        and faster_here()  # tries the operator the first time, which must not become part of a graph
    )


@functools.cache
def faster_here() -> bool:
    """Whether this is a processor with AVX-512 that Intel did not make, and torch has the operator."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    try:
        maker = re.search(r"^vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        one = torch.ones(2, 2)
        return maker is not None and maker[1] != "GenuineIntel" and torch.equal(_times(one, one, one[0]), 3 * one)
    except (OSError, AttributeError, RuntimeError):  # another version of torch may have another operator
        return False

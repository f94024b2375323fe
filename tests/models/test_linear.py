"""Products by oneDNN give the results and gradients of torch's own, and step aside where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from atomizer_io.models.atomizer.ops import linear
from atomizer_io.models.atomizer.ops.kernels.build import without_kernels
from atomizer_io.models.atomizer.ops.linear import Linear, product, product_by_head

pytestmark = pytest.mark.skipif(not linear.faster_here(), reason="torch's own products are used on this processor")

Sizes = tuple[int, ...]
CASES: dict[str, tuple[Sizes, Sizes, Callable[[Tensor, Tensor], Tensor]]] = {
    "whole": ((50, 96), (96, 24), product),
    "transposed": ((32, 50), (24, 32), lambda x, w: product(x.T, w.T)),
    "parts of larger ones": ((50, 96), (64, 90), lambda x, w: product(x[:, 8:40], w[10:42, 3:30])),
    "one row repeated": ((1, 32), (32, 8), lambda x, w: product(x.expand(40, 32), w)),
    "no row": ((0, 32), (32, 8), product),
    "by head": ((4, 50, 32), (4, 32, 24), lambda x, w: product_by_head(x.unbind(), w)),
    "heads inside": ((50, 4, 24), (4, 90, 24), lambda x, w: product_by_head(x.unbind(1), w.mT[..., 24:])),
    "a layer": ((2, 7, 32), (24, 32), lambda x, w: torch.func.functional_call(LAYER, {"weight": w}, x)),
    "a layer of one row": ((32,), (24, 32), lambda x, w: torch.func.functional_call(LAYER, {"weight": w}, x)),
}
LAYER = Linear(32, 24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_torch(case: str, dtype: torch.dtype) -> None:
    sizes, of_weight, function = CASES[case]
    LAYER.to(dtype).zero_grad(set_to_none=True)
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(s, generator=draw, dtype=dtype).requires_grad_() for s in (sizes, of_weight)]
    inputs += [LAYER.bias] if "layer" in case else []

    def evaluate() -> tuple[Tensor, ...]:
        out = function(*inputs[:2])
        pull = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
        return out.detach(), *torch.autograd.grad((out * pull).sum(), inputs)

    fast = evaluate()
    with without_kernels():
        plain = evaluate()
    for one, expected in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=2e-5)

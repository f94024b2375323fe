"""The matrix products of a training step, as torch calls them, and how long each takes alone.

What is recorded is a forward and backward pass without compiled kernels: there every product is a call of torch. Each
is then repeated on tensors of the same shapes and strides, in the same process and with as many threads. Attention
over whole sequences is one call, and counts with its softmax.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
PRODUCTS = (
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN.baddbmm.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
)
SHORT_S = 5e-4  # calls are repeated for so long at least


@dataclass(frozen=True)
class Strided:
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self) -> Tensor:
        """Return such a tensor of random numbers."""
        room = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return torch.randn(max(1, room)).to(self.dtype).as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class Product:
    """A call of torch that multiplies matrices."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def by_vector(self) -> bool:
        """Whether it multiplies many small matrices by a vector each, or vectors with each other."""
        if self.call not in (_ATEN.bmm.default, _ATEN.baddbmm.default):
            return False
        left, right = (argument for argument in self.arguments if isinstance(argument, Strided) and argument.shape)
        return min(*left.shape[1:], right.shape[-1]) == 1

    def seconds(self, repeats: int) -> float:
        """Return the shortest CPU time of some repeats, after a first one that does not count."""
        arguments = [each.made() if isinstance(each, Strided) else each for each in self.arguments]
        options = {name: each.made() if isinstance(each, Strided) else each for name, each in self.options}
        self.call(*arguments, **options)
        found, count = [], 1
        for _ in range(repeats):
            start = time.process_time()
            for _ in range(count):
                self.call(*arguments, **options)
            found.append((time.process_time() - start) / count)
            count = max(1, round(SHORT_S / max(found[-1], 1e-6)))
        return min(found)


@dataclass
class Products:
    """How often each product was called."""

    found: Counter[Product] = field(default_factory=Counter)

    @torch.no_grad()
    def seconds(self, repeats: int = 3) -> tuple[float, float]:
        """Return how long all of them take, and how long those of the kind matrix times vector take of that."""
        total, by_vector = 0.0, 0.0
        for product, count in self.found.items():
            taken = count * product.seconds(repeats)
            total += taken
            by_vector += taken if product.by_vector else 0.0
        return total, by_vector


class Recorder(TorchDispatchMode):
    """Notes the products of everything that is computed while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.products = Products()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call ``func``, and note it if it is a product."""
        if func in PRODUCTS:
            options = tuple((name, _plain(value)) for name, value in (kwargs or {}).items())
            self.products.found[Product(func, tuple(map(_plain, args)), options)] += 1
        return func(*args, **(kwargs or {}))


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Strided(tuple(value.shape), tuple(value.stride()), value.dtype)
    return value

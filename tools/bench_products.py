"""Measure how long the matrix products of a training step take alone, beside the whole step.

    .venv/bin/python tools/bench_products.py [NAME ...] [--steps 10] [--repeats 3]

What is recorded is a forward and backward pass without compiled kernels: there every product is a call of torch. Each
is then repeated on tensors of the same shapes and strides, in the same process and with as many threads. Attention
over whole sequences is one call, and counts with its softmax.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from bench_step import INPUTS, Bench
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from atomizer_io.models.atomizer.ops.kernels.build import without_kernels
from atomizer_io.training.losses import loss_sum

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
        arguments = [entry.made() if isinstance(entry, Strided) else entry for entry in self.arguments]
        options = {name: entry.made() if isinstance(entry, Strided) else entry for name, entry in self.options}
        self.call(*arguments, **options)
        times, count = [], 1
        for _ in range(repeats):
            start = time.process_time()
            for _ in range(count):
                self.call(*arguments, **options)
            times.append((time.process_time() - start) / count)
            count = max(1, round(SHORT_S / max(times[-1], 1e-6)))
        return min(times)


@dataclass
class Products:
    """How often each product was called."""

    counts: Counter[Product] = field(default_factory=Counter)

    @torch.no_grad()
    def seconds(self, repeats: int = 3) -> tuple[float, float]:
        """Return how long all of them take, and how long those of the kind matrix times vector take of that."""
        total, by_vector = 0.0, 0.0
        for product, count in self.counts.items():
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
            self.products.counts[Product(func, tuple(map(_plain, args)), options)] += 1
        return func(*args, **(kwargs or {}))


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Strided(tuple(value.shape), tuple(value.stride()), value.dtype)
    return value


def main() -> None:
    """Train for some steps on each input, and print the ratio of a step to its products."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="*", choices=[*INPUTS, []], metavar="NAME", help="(default: all)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="of each product; the shortest counts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.inputs or INPUTS:
        bench = Bench(INPUTS[name], observation_mlp=False, steps=args.steps)
        with tempfile.TemporaryDirectory() as folder:
            batch, _, _ = bench.run(Path(folder))
        step_ms = 1000 * sum(bench.clock.seconds.values()) / args.steps
        with without_kernels(), Recorder() as recorder:
            outputs = batch.outputs(bench.model.train())
            total, weight = loss_sum(outputs, batch.target(outputs.device), bench.model.task_spec)
            (total / weight).backward()
        taken, by_vector = (1000 * seconds for seconds in recorder.products.seconds(args.repeats))
        print(
            f"{name}: step {step_ms:.2f} ms, products {taken:.2f} ms ({by_vector:.2f} of them with vectors), "
            f"ratio {step_ms / taken:.2f}, without vectors {step_ms / (taken - by_vector):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Hand tensors to a compiled kernel: everything is checked before C sees an address."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.errors import KernelError
from atomizer_io.models.atomizer.ops.kernels.build import Loaded, loaded
from atomizer_io.models.atomizer.ops.kernels.layout import Task

NO_MEMORY, BAD_INDEX = 1, 2  # as in vectors.h


def kernels_of(source: str, dtype: torch.dtype) -> Loaded:
    """The kernels of ``source``.c, for callers who found them usable; torch may have got other threads since."""
    kernels = loaded(source, dtype)
    if kernels.functions is None:
        raise KernelError(f"there are no compiled kernels of {source}.c for {dtype} here")
    return kernels


def address(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> int:
    """Where the numbers of a tensor begin; raises KernelError if it is not as C takes it to be."""
    if (
        tensor.dtype != dtype
        or tensor.shape != torch.Size(shape)
        or not tensor.is_cpu
        or tensor.layout != torch.strided
        or not tensor.is_contiguous()
    ):
        about = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise KernelError(
            f"{name} of a compiled kernel must be contiguous {dtype} {tuple(shape)} on cpu, not {about}; "
            "this is a mistake in atomizer_io, please report it (ATOMIZER_KERNELS=off runs without the kernels)"
        )
    return tensor.data_ptr()


def addresses(
    task: type[Task],
    kernels: Loaded,
    real: torch.dtype,
    tensors: Mapping[str, Tensor | None],
    sizes: Mapping[str, int],
    absent: Collection[str] = (),
) -> dict[str, int]:
    """The addresses of all arrays of a task. Sides not in ``sizes`` have that of the first array with them.

    Those in ``absent`` may be None, and are left out. The tensors must outlive the call of the kernel.
    """
    known, pointers = dict(sizes), {}
    for name, tensor in tensors.items():
        if tensor is None:
            if name not in absent:
                raise KernelError(f"{name} of a compiled kernel is missing")
            continue
        array = task.arrays[name]
        if tensor.dim() == len(array.sides):
            for side, size in zip(array.sides, tensor.shape, strict=True):
                known.setdefault(side, size)
        shape = [known.get(side, -1) for side in array.sides]
        pointers[name] = address(name, tensor, array.dtype or real, shape)
    for side, most in task.limits.items():
        if known.get(side, 0) > most:
            raise KernelError(f"a compiled kernel takes at most {most} along {side} of {task.__name__}")
    if task.whole is not None and known[task.whole] % kernels.lanes:
        raise KernelError(f"a compiled kernel takes whole vectors along {task.whole} of {task.__name__}")
    return pointers


def table(
    name: str, tensors: Sequence[Tensor | None], dtype: torch.dtype, shapes: Sequence[tuple[int, int]]
) -> ctypes.Array[ctypes.c_void_p]:
    """Where each of some tensors begins, null for None; the tensors must outlive the call of the kernel."""
    pairs = zip(tensors, shapes, strict=True)
    pointers = [None if tensor is None else address(name, tensor, dtype, shape) for tensor, shape in pairs]
    return (ctypes.c_void_p * len(pointers))(*pointers)


def run(
    function: str,
    kernels: Loaded,
    kind: type[Task],
    settings: Mapping[str, int | float],
    sums: Mapping[str, Tensor],
    work: NDArray[np.integer[Any]],
) -> dict[str, Tensor]:
    """Call a kernel on all items, a thread each for shares of about equal ``work``.

    The kernel adds to tensors shaped like ``sums``; each thread has its own, and their totals are returned.
    """
    bounds = _shares(work, kernels.openmp)
    count = len(bounds) - 1
    tasks, partial = (kind * count)(), []
    for task in tasks:
        own = {name: torch.zeros_like(tensor) for name, tensor in sums.items()}
        for name, value in settings.items():
            setattr(task, name, value)
        for name, tensor in own.items():
            setattr(task, name, tensor.data_ptr())
        partial.append(own)
    call = getattr(kernels.functions, function)
    failed = call(ctypes.byref(tasks), (ctypes.c_int64 * (count + 1))(*bounds), ctypes.c_int(count))
    if failed & BAD_INDEX:
        raise KernelError(f"{function} was given the index of something that is not there")
    if failed & NO_MEMORY:
        raise MemoryError("no memory for the working space of a kernel")
    if count == 1:
        return partial[0]
    return {name: torch.stack([own[name] for own in partial]).sum(dim=0) for name in sums}


def _shares(work: NDArray[np.integer[Any]], openmp: bool) -> list[int]:
    """Where the items divide into ranges of about equal work, one per thread: first, …, last."""
    done = np.cumsum(work)
    threads = max(1, min(torch.get_num_threads() if openmp else 1, len(done)))
    inner = np.searchsorted(done, done[-1] * np.arange(1, threads) / threads).tolist() if len(done) else []
    return [0, *inner, len(done)]

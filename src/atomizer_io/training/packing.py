"""A batch on its way from a loader worker, as one block of memory.

A loader hands over every tensor of a batch by itself, which takes longer than a training step of a small model does.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data
from torch import Tensor
from torch.utils.data import DataLoader

from atomizer_io.errors import AtomizerError

ALIGNMENT = 64  # bytes: what vector instructions like
SMALL = 64 << 10  # bytes: sooner copied than kept as an open file
NUMPY_LACKS = (torch.bfloat16, torch.complex32)


@dataclass(frozen=True, slots=True)
class Packed:
    """Any object: a pickle without the numbers, and all numbers in one tensor, cut at ``ends``."""

    pickled: bytes
    numbers: Tensor
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def unpack(self) -> Any:
        """Return the object; its tensors share the memory of the one tensor, or of a copy where it is small.

        Memory from a worker is an open file, of which a process may have about a thousand: small objects are kept by
        the hundred.
        """
        numbers = self.numbers.clone() if self.numbers.nbytes <= SMALL else self.numbers
        memory = numbers.numpy().data
        return pickle.loads(self.pickled, buffers=[memory[a:b] for a, b in zip(self.starts, self.ends, strict=True)])


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays, whose numbers pickle can keep apart."""

    def reducer_override(self, thing: Any) -> Any:
        """Say how a tensor is pickled; leave all else to pickle."""
        if type(thing) is Tensor and thing.device.type == "cpu" and thing.dtype not in NUMPY_LACKS:
            return torch.from_numpy, (thing.detach().numpy(),)
        return NotImplemented


def pack(thing: Any) -> Packed:
    """Pack an object with tensors inside."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(thing)
    starts, ends, at = [], [], 0
    for buffer in buffers:
        starts.append(at)
        ends.append(at + buffer.raw().nbytes)
        at = -(-ends[-1] // ALIGNMENT) * ALIGNMENT
    numbers = torch.empty(at, dtype=torch.uint8)
    memory = numbers.numpy().data
    for buffer, start, end in zip(buffers, starts, ends, strict=True):
        memory[start:end] = buffer.raw()
    return Packed(stream.getvalue(), numbers, tuple(starts), tuple(ends))


class _PackInWorker:
    """A collate function whose results are packed where another process will receive them."""

    def __init__(self, collate: Callable[[Sequence[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[Any]) -> Any:
        """Collate, and pack if this is a worker."""
        batch = self.collate(items)
        return batch if torch.utils.data.get_worker_info() is None else pack(batch)


@contextlib.contextmanager
def told_of_workers(advice: str) -> Iterator[None]:
    """Turn the death of a loader worker, of which torch tells at any time, into an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise AtomizerError(f"a loader worker died, probably out of memory: {advice}") from error


class PackingLoader(DataLoader[Any]):
    """A data loader whose workers send each batch in one block of memory; all options are those of ``DataLoader``."""

    def __init__(self, dataset: Any, *, collate_fn: Callable[[Sequence[Any]], Any], **options: Any) -> None:
        super().__init__(dataset, collate_fn=_PackInWorker(collate_fn), **options)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for item in super().__iter__():
            yield item.unpack() if isinstance(item, Packed) else item

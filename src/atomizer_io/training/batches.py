"""Batches: samples with their prepared inputs, how loader workers send them, and how evaluation groups small ones."""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data
from torch import Tensor
from torch.utils.data import DataLoader

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Skipped
from atomizer_io.errors import AtomizerError
from atomizer_io.models.base import Model
from atomizer_io.training.draws import Draw

GROUP = 32_000  # measurements and queries that are evaluated at once, unless a single sample has more


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples, their prepared inputs (``model.predict(batch.inputs)``), and what could not be read."""

    samples: list[Sample]
    inputs: list[Any]
    skipped: list[Skipped]
    draws: list[Draw]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def read(self) -> int:
        """The number of samples of the dataset, with those that could not be read."""
        return len(self.samples) + len(self.skipped)

    @property
    def num_atoms(self) -> int:
        """The number of atoms of all samples."""
        return sum(sample.atoms.num_atoms for sample in self.samples)

    @property
    def size(self) -> int:
        """What a model has to hold: measurements, with those that are absent at a site, and queries."""
        values = sum(acquisition.values.numel() for sample in self.samples for acquisition in sample.atoms)
        return values + sum(len(sample.queries) for sample in self.samples if sample.queries is not None)

    def first(self, count: int) -> Batch:
        """Return the first ``count`` samples only."""
        return Batch(self.samples[:count], self.inputs[:count], [], self.draws[:count])

    def target(self, device: torch.device) -> Tensor:
        """Return the targets of all samples, concatenated (M,)."""
        return torch.cat([sample.target.reshape(-1) for sample in self.samples]).to(device)

    def weight(self, device: torch.device) -> Tensor | None:
        """Return how much each target counts in the loss, concatenated (M,); None where all count alike."""
        weights = [None if sample.queries is None else sample.queries.weight for sample in self.samples]
        if all(weight is None for weight in weights):
            return None
        counts = [sample.target.numel() for sample in self.samples]
        return torch.cat(
            [torch.ones(count) if own is None else own for own, count in zip(weights, counts, strict=True)]
        ).to(device)

    def outputs(self, model: Model) -> Tensor:
        """Return the outputs of ``model`` for all targets, concatenated (M, outputs)."""
        by_sample = model.predict(self.inputs)
        return torch.cat(by_sample) if model.task_spec.dense else torch.stack(by_sample)

    def by_sample(self, outputs: Tensor) -> list[Tensor]:
        """Return the parts of :meth:`outputs` that belong to each sample."""
        return list(outputs.split([sample.target.numel() for sample in self.samples]))


def joined(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all samples of several batches, in their order."""
    return Batch(
        [sample for batch in batches for sample in batch.samples],
        [inputs for batch in batches for inputs in batch.inputs],
        [item for batch in batches for item in batch.skipped],
        [draw for batch in batches for draw in batch.draws],
    )


class Grouped:
    """The ``singles`` of a loader, ``samples`` in all, with small ones that follow each other in one batch.

    Of tiny samples most of the time goes into calls rather than numbers, so many at once take far less of it. A batch
    has no more than ``size`` measurements and positions, or one sample. Order and samples stay as they are.
    """

    def __init__(self, singles: Iterable[Batch], samples: int, size: int = GROUP) -> None:
        self.singles, self.samples, self.size = singles, samples, size

    def __iter__(self) -> Iterator[Batch]:
        group, held = list[Batch](), 0
        for single in self.singles:
            own = single.size
            if group and held + own > self.size:
                yield joined(group)
                group, held = [], 0
            group.append(single)
            held += own
        if group:
            yield joined(group)


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


def _packed_in_worker(collate: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Any:
    """Collate, and pack what another process will receive."""
    batch = collate(items)
    return batch if torch.utils.data.get_worker_info() is None else pack(batch)


@contextlib.contextmanager
def explained_worker_death(advice: str) -> Iterator[None]:
    """Turn the death of a loader worker, which torch reports at any time, into an error with ``advice``."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise AtomizerError(f"a loader worker died, probably out of memory: {advice}") from error


class PackingLoader(DataLoader[Any]):
    """A data loader whose workers send each batch in one block of memory; all options are those of ``DataLoader``."""

    def __init__(self, dataset: Any, *, collate_fn: Callable[[Sequence[Any]], Any], **options: Any) -> None:
        super().__init__(dataset, collate_fn=functools.partial(_packed_in_worker, collate_fn), **options)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for item in super().__iter__():
            yield item.unpack() if isinstance(item, Packed) else item

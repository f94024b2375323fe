"""Reading a dataset item by item, in this process or in others."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import DataLoader

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Skipped


def each(dataset: Dataset, workers: int = 0, limit: int | None = None) -> Iterator[Sample | Skipped]:
    """Yield the items of a dataset in order, at most ``limit``, read by ``workers`` processes (0: this one)."""
    indices = range(len(dataset) if limit is None else min(limit, len(dataset)))
    if not workers:
        yield from (dataset[index] for index in indices)
        return
    for item in DataLoader(dataset, batch_size=None, sampler=indices, num_workers=workers):
        if isinstance(item, Skipped) and item not in dataset.skipped:  # the worker's list stays with the worker
            dataset.skipped.append(item)
        yield item

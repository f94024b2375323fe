"""Batches for training and evaluation: samples with their geometry, built in the workers of a data loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from atomizer_io.atoms import AtomSet
from atomizer_io.datasets.dataset import Dataset, Skipped
from atomizer_io.models.atomizer.cache import GeometryCache
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.geometry import Geometry
from atomizer_io.models.atomizer.placing import Located
from atomizer_io.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples, and for a model of the settings they were made for, their geometry and (dense tasks) located queries.

    ``model(batch.atoms, batch.located, geometry=batch.geometries)`` answers for all of them. ``skipped`` holds what
    could not be read; a batch may be empty but for that.
    """

    samples: list[Sample]
    geometries: list[Geometry]
    located: list[Located] | None
    skipped: list[Skipped]

    @property
    def atoms(self) -> list[AtomSet]:
        """The observations of the samples."""
        return [sample.atoms for sample in self.samples]

    @property
    def targets(self) -> list[Tensor]:
        """What is true, of each sample."""
        return [sample.target for sample in self.samples]

    def __len__(self) -> int:
        return len(self.samples)


class Collate:
    """Samples (or what stands for an unreadable one) → :class:`Batch`; keeps the geometry of grids that come again."""

    def __init__(self, config: AtomizerConfig, entries: int = 16) -> None:
        self.config, self.entries = config, entries
        self.cache = GeometryCache(config, entries)

    def __call__(self, items: Sequence[Sample | Skipped]) -> Batch:
        """A batch of the items that could be read."""
        samples = [item for item in items if isinstance(item, Sample)]
        skipped = [item for item in items if isinstance(item, Skipped)]
        placed = [placed_in(self.cache, sample) for sample in samples]
        located = [where for _, where in placed if where is not None] if self.config.dense else None
        return Batch(samples, [geometry for geometry, _ in placed], located, skipped)

    def __getstate__(self) -> dict[str, Any]:  # what was kept stays where it is: workers build their own
        return {"config": self.config, "entries": self.entries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"], state["entries"])  # type: ignore[misc]


def placed_in(
    cache: GeometryCache, sample: Sample, atoms_per_latent: int | None = None
) -> tuple[Geometry, Located | None]:
    """Geometry of a sample and, for dense tasks, of its queries."""
    if sample.queries is None or not cache.config.dense:
        return cache.geometry(sample.atoms, atoms_per_latent=atoms_per_latent), None
    queries = sample.queries
    return cache.place(sample.atoms, queries.positions, sites=queries.sites, atoms_per_latent=atoms_per_latent)


def loader(
    dataset: Dataset, config: AtomizerConfig, *, batch_size: int = 1, workers: int = 0, **options: Any
) -> DataLoader[Any]:
    """A data loader of :class:`Batch` for models of ``config``; ``options`` are those of torch's ``DataLoader``."""
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers, collate_fn=Collate(config), **options)


def each(dataset: Dataset, workers: int = 0, limit: int | None = None) -> Iterator[Sample | Skipped]:
    """The items of a dataset one by one, in order, read by ``workers`` processes; at most ``limit``."""
    indices = range(len(dataset) if limit is None else min(limit, len(dataset)))
    if not workers:
        yield from (dataset[index] for index in indices)
        return
    for item in DataLoader(dataset, batch_size=None, sampler=indices, num_workers=workers):
        if isinstance(item, Skipped) and item not in dataset.skipped:  # the worker's list stays with the worker
            dataset.skipped.append(item)
        yield item

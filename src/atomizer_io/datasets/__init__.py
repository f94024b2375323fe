"""Scenes with targets: published datasets as they lie on disk, your own files, and synthetic scenes."""

from atomizer_io.data.sample import Meta, Queries, Sample
from atomizer_io.datasets.dataset import Dataset, Info, Labels, Skipped
from atomizer_io.datasets.registry import create, describe, list_datasets
from atomizer_io.datasets.statistics import Statistics

__all__ = [
    "Dataset",
    "Info",
    "Labels",
    "Meta",
    "Queries",
    "Sample",
    "Skipped",
    "Statistics",
    "create",
    "describe",
    "list_datasets",
]

"""Base of all datasets: a description, options, splits, lazy reading, and what happens when a file is broken."""

from __future__ import annotations

import abc
import difflib
import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import torch.utils.data
from numpy.typing import NDArray

from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample, dates_of
from atomizer_io.data.sensors import Sensor, get
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.errors import AtomizerError, ConfigError, DataError, NoSampleError
from atomizer_io.extras import advice
from atomizer_io.io.rasters import Raster, read_raster
from atomizer_io.io.tables import checksum
from atomizer_io.option_types import fits, in_words

SPLIT_NAMES = {"valid": "val", "validation": "val", "training": "train", "testing": "test"}
# kinds of numbers in numpy's letters, B for 8 bits
NUMBERS = {"f": "floating-point numbers", "iu": "whole numbers", "iuf": "numbers", "B": "8-bit values"}


@dataclass(frozen=True, slots=True)
class Info:
    """What a dataset is, for people and for the model that will read it.

    ``channels`` carry the statistics of this dataset in its raw units where they are published. ``extent_m`` is the
    usual width of a sample. ``codes`` are the numbers of the classes on disk, in which products are written, where they
    are not 0 … C−1. ``layout`` is the folder tree as published, ``notes`` what a user should know.
    """

    name: str
    title: str
    task: str  # classification, segmentation or regression
    channels: tuple[Channel, ...]
    extent_m: float
    splits: tuple[str, ...] = ("train", "val", "test")
    classes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    label_codes: Mapping[int, int] = field(default_factory=dict)  # class of each code, where codes share a class
    las_standard: bool = True  # whether classes of points are those of the LAS standard, of which some are noise
    target_name: str | None = None  # what is measured, for regression
    unit: str | None = None  # unit of the target, for regression
    temporal: bool = False  # several dates a sample
    layout: str = ""
    source: str = ""  # where to get it, and its licence
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, **more: Any) -> Info:
        """Return what ``descriptions.toml`` has of a dataset, and what is not written there."""
        described = {
            key: tuple(value) if isinstance(value, list) else value for key, value in _descriptions()[name].items()
        }
        listed = (channel for part in described.pop("channels", ()) for channel in _channels(**part))
        return cls(**{"name": name, "channels": tuple(listed), **described, **more})

    @property
    def num_outputs(self) -> int:
        """Number of outputs that a model needs."""
        return len(self.classes) or 1


@functools.cache
def _descriptions() -> dict[str, dict[str, Any]]:
    with Path(__file__).with_name("descriptions.toml").open("rb") as file:
        return tomllib.load(file)


def _channels(
    sensor: str,
    bands: str,
    gsd_m: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[Channel, ...]:
    """Return channels of the catalogue, or such as it does not have if ``gsd_m`` is given, with their statistics."""
    names = bands.split()
    bare = dict.fromkeys(names)
    own = get(sensor).subset(*names) if gsd_m is None else Sensor.define(sensor, gsd_m=gsd_m, bands=bare)
    return (own if mean is None else own.with_statistics(mean=mean, std=std)).channels


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a dataset with ``on_error="skip"`` gives instead of a sample that it could not read; counts as false."""

    path: str
    cause: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}"


@dataclass(kw_only=True, eq=False, repr=False)
class Dataset(torch.utils.data.Dataset[Sample | Skipped], abc.ABC):
    """Samples of one split of a dataset, read when they are indexed.

    ``root`` is the folder as published, a path or its text. ``on_error="skip"`` goes on where a sample cannot be read:
    iterating leaves it out and ``skipped`` lists it, indexing gives a :class:`Skipped`. ``transform`` is applied to
    each sample.

    A subclass is a dataclass whose fields are its options; values of another type than annotated are refused. It has
    ``info`` and three methods: ``find`` lists the items of the split (cheap: no pixel is read), ``files`` the files of
    an item, ``read`` makes the sample. ``configure`` may refuse options and adapt ``info`` to them.
    """

    root: Path = field(kw_only=False)
    split: str = field(default="train", kw_only=False)
    on_error: Literal["raise", "skip"] = "raise"
    transform: Callable[[Sample], Sample] | None = None
    skipped: list[Skipped] = field(init=False, default_factory=list)

    info = Info("", "", "", (), 0.0)  # of the class; some datasets adapt it to their options or to the folder
    on_disk = True  # false where samples are made on the spot, without a folder
    free_splits = False  # whether a folder of this kind may have any of its splits, rather than all

    def __post_init__(self) -> None:
        check_types(self)
        self.root = Path(self.root).expanduser()
        self.configure()
        self.split = split_name(self.split, self.info)
        if not self.root.is_dir():
            raise DataError(
                self.root,
                f"no such folder; name the folder of the data (a run: data.root=FOLDER). {self.info.title} is expected "
                f"there as\n{self.info.layout}",
            )
        try:
            self.items: Sequence[Any] = self.find()
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(advice(error) or str(error), name=error.name) from error
        if not self.items:
            raise NoSampleError(
                self.root, f"no sample of split {self.split!r}; {self.info.title} is expected as\n{self.info.layout}"
            )

    def configure(self) -> None:
        """Refuse options that make no sense, and adapt ``info`` to the others; nothing has been read yet."""

    @abc.abstractmethod
    def find(self) -> Sequence[Any]:
        """Return the items of the split, in a fixed order."""

    @abc.abstractmethod
    def files(self, item: Any) -> tuple[Path, ...]:
        """Return the files that ``read`` needs for an item, the one with the target last."""

    @abc.abstractmethod
    def read(self, item: Any) -> Sample:
        """Return the sample of an item; its files and dates are added where its ``meta`` does not name them."""

    def warnings(self) -> list[str]:
        """Return what is not wrong with the folder but worth a look; ``atomizer data check`` prints it."""
        return []

    @classmethod
    def splits_in(cls, root: Path, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the splits that a folder may have: those of the class, or more where a folder may name its own."""
        return cls.info.splits

    def for_evaluation(self) -> Dataset:
        """Return the same split as it is scored: by default as it is, for tiles with windows that overlap."""
        return self

    def whole_of(self, index: int) -> str | None:
        """Return the name of the larger whole that a sample is a window of; None where it stands for itself.

        Samples of one whole follow each other, as their predictions are averaged where they overlap.
        """
        return None

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels with this dataset's statistics, for ``create_model(channels=...)``."""
        return self.info.channels

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Sample | Skipped:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.info.name} {self.split} has {len(self)} samples, there is no number {index}")
        try:
            return self.sample(self.items[index])
        except DataError as error:
            if self.on_error == "raise":
                raise
            skipped = Skipped(error.path, error.cause)
            if skipped not in self.skipped:
                self.skipped.append(skipped)
            return skipped

    def __iter__(self) -> Iterator[Sample]:
        for index in range(len(self)):
            sample = self[index]
            if isinstance(sample, Sample):
                yield sample

    def sample(self, item: Any) -> Sample:
        """Return what ``read`` gives, checked and transformed; faults of files become a :class:`DataError`."""
        try:
            sample = self.read(item)
        except DataError:
            raise
        except AtomizerError as error:
            raise DataError(self.files(item)[0], str(error)) from error
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(advice(error) or str(error), name=error.name) from error
        if not any(a.valid is None or a.valid.numpy().any() for a in sample.atoms):
            raise DataError(self.files(item)[0], "has no valid measurement: everything is nodata, NaN or masked")
        meta = sample.meta
        files = meta.files or tuple(map(str, self.files(item)))
        sample = replace(sample, meta=replace(meta, files=files, dates=meta.dates or dates_of(sample.atoms)))
        return sample if self.transform is None else self.transform(sample)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info.name}, split {self.split!r}, {len(self)} samples, {self.root})"

    def existing(self, folder: Path, what: str = "") -> Path:
        """Return a folder that has to be there; ``what`` it holds is named where it is not."""
        if not folder.is_dir():
            raise DataError(folder, f"no such folder{what}; {self.info.title} is expected as\n{self.info.layout}")
        return folder


def check_types(dataset: Dataset) -> None:
    """Refuse options whose values are of another type than their annotation."""
    hints = get_type_hints(type(dataset))
    for name in option_names(type(dataset)):
        if name in vars(dataset) and name in hints and not fits(vars(dataset)[name], hints[name]):
            value = vars(dataset)[name]
            raise ConfigError(f"{dataset.info.name}: {name} is {value!r}; it has to be {in_words(hints[name])}")


def option_names(dataset: type[Dataset]) -> list[str]:
    """Return the options that a dataset takes beside its folder and split."""
    fields = dataset.__dataclass_fields__
    return [name for name, option in fields.items() if option.init and name not in ("root", "split")]


def require(holds: bool, message: str) -> None:
    """Refuse an option with this message unless something ``holds``."""
    if not holds:
        raise ConfigError(message)


def split_name(split: str, info: Info) -> str:
    """Return the dataset's own name of a split: ``valid`` and ``validation`` are ``val``."""
    split = str(split)
    name = split if split in info.splits else SPLIT_NAMES.get(split.casefold(), split.casefold())
    if name not in info.splits:
        near = difflib.get_close_matches(name, info.splits, n=1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        raise ConfigError(f"{info.name} has no split {split!r}; {hint} has {', '.join(info.splits)}")
    return name


def read_items(dataset: Dataset, workers: int = 0, limit: int | None = None) -> Iterator[Sample | Skipped]:
    """Yield the items of a dataset in order, at most ``limit``, read by ``workers`` processes (0: this one)."""
    indices = range(len(dataset) if limit is None else min(limit, len(dataset)))
    if not workers:
        yield from (dataset[index] for index in indices)
        return
    for item in torch.utils.data.DataLoader(dataset, batch_size=None, sampler=indices, num_workers=workers):
        if isinstance(item, Skipped) and item not in dataset.skipped:  # the worker's list stays with the worker
            dataset.skipped.append(item)
        yield item


def read_image(path: Path, kinds: str, expected: str | None = None, **options: Any) -> Raster:
    """Read a raster whose numbers must be of one of the ``kinds``; ``options`` as for ``read_raster``."""
    raster = read_raster(path, **options)
    dtype = raster.values.dtype
    if dtype.kind not in kinds and dtype.char not in kinds:
        raise DataError(path, f"holds {dtype}, expected {expected or NUMBERS[kinds]}")
    return raster


def meta_of(id: str, raster: Raster, **extra: Any) -> Meta:
    """Return the ``meta`` of a sample whose queries are the pixels of a raster, or whose atoms are."""
    return Meta(id, crs=raster.crs, transform=raster.transform, origin=raster.origin, extra=extra)


@dataclass(frozen=True, slots=True)
class Labels:
    """How class numbers on disk become classes in memory.

    Numbers in ``ignore`` become −1. A ``mapping`` (number on disk → class) has to name all others; without one, the
    numbers are the classes 0 … C−1 themselves.
    """

    classes: int
    ignore: tuple[int, ...] = ()
    mapping: Mapping[int, int] = field(default_factory=dict)

    def read(self, array: NDArray[Any], path: str | Path) -> NDArray[np.int64]:
        """Return the classes 0 … C−1 and −1 of ``array``, NaN being −1; an error about other numbers names ``path``."""
        if array.dtype.kind == "f":
            known = np.isfinite(array)
            result = np.full(array.shape, IGNORE, dtype=np.int64)
            if not np.array_equal(array[known], np.rint(array[known])):
                raise DataError(path, "labels are not whole numbers: is this the label file?")
            result[known] = self.read(array[known].astype(np.int64), path)
            return result
        if not array.size:
            return array.astype(np.int64)
        low, high = int(array.min()), int(array.max())
        if high - low > 1 << 20:
            raise DataError(path, f"labels reach from {low} to {high}: is this the label file?")
        shifted = array.astype(np.int64) - low
        counts = np.bincount(shifted.ravel())
        present = (np.flatnonzero(counts) + low).tolist()
        classes = self.mapping or {number: number for number in range(self.classes)}
        classes = {**classes, **dict.fromkeys(self.ignore, IGNORE)}
        if wrong := [value for value in present if value not in classes]:
            count = counts[np.array(wrong) - low].sum()
            raise DataError(
                path,
                f"label {', '.join(map(str, wrong[:5]))} ({count} positions) is not among the "
                f"classes {', '.join(map(str, self.mapping)) or f'0 … {self.classes - 1}'}"
                + (f" nor among the ignored {', '.join(map(str, self.ignore))}" if self.ignore else ""),
            )
        table = np.full(len(counts), IGNORE, dtype=np.int64)
        table[np.array(present) - low] = [classes[value] for value in present]
        return table[shifted]


def lowest_checksums(names: Iterable[str], count: int) -> set[str]:
    """Return the ``count`` names with the lowest checksums: a split at random that is always the same."""
    return set(sorted(names, key=lambda name: (checksum(name), name))[:count])

"""MNIST: handwritten digits, the controlled test of geometry in which dark pixels are removed."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import GRAYSCALE
from atomizer_io.datasets.dataset import Dataset, Info, Labels, require
from atomizer_io.errors import ConfigError, DataError, first_line

FOLDERS = ("", "MNIST/raw", "raw")
LABELS = Labels(classes=10)
MAGIC = {1: 0x00000801, 3: 0x00000803}  # unsigned bytes in one or three dimensions
PIXEL_M = 1.0  # the paper counts positions in pixels
MOST_PACKED = 1100  # values in a byte of a packed file: gzip cannot do more


@dataclass(kw_only=True, eq=False, repr=False)
class Mnist(Dataset):
    """Images of 28 × 28 pixels with values 0 … 255, and the digit; a pixel counts as one metre.

    ``holdout`` moves the last images of the training file from ``train`` to ``val``, which is empty otherwise. ``pool``
    averages blocks of this many pixels along each side, for smaller images of the same extent.
    """

    holdout: int = 0
    pool: int = 1

    info = Info.of("mnist", channels=GRAYSCALE.channels)

    def configure(self) -> None:
        """Refuse numbers below those that make sense."""
        require(self.holdout >= 0, f"holdout is {self.holdout}; use the number of training images to keep for val")
        require(self.pool >= 1, f"pool is {self.pool}; use the number of pixels along the side of a block")

    def find(self) -> range:
        """Return the numbers of the images in their file; only the headers are read."""
        part = "t10k" if self.split == "test" else "train"
        self.paths = (_path(self.root, part, "images", 3), _path(self.root, part, "labels", 1))
        count, *sides = _shape(_bytes(self.paths[0], 16), 3, self.paths[0])
        (labels,) = _shape(_bytes(self.paths[1], 16), 1, self.paths[1])
        if labels != count:
            raise DataError(self.paths[1], f"has {labels} labels for {count} images in {self.paths[0].name}")
        fits = not any(side % self.pool for side in sides)
        require(fits, f"mnist: blocks of {self.pool} do not fill images of {' × '.join(map(str, sides))} pixels")
        if self.split == "test":
            return range(count)
        require(
            self.holdout < count and (self.split != "val" or self.holdout > 0),
            f"mnist: holdout is {self.holdout} of {count} training images, the last of which are val: "
            f"give 1 to {count - 1}",
        )
        return range(count - self.holdout) if self.split == "train" else range(count - self.holdout, count)

    def files(self, item: int) -> tuple[Path, ...]:
        """Return the file of images and that of labels."""
        return self.paths

    def read(self, item: int) -> Sample:
        """Return the sample of one image."""
        images, labels = self.arrays
        image, block = images[item], self.pool
        if block > 1:
            blocks = image.reshape(image.shape[0] // block, block, -1, block)
            image = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
        atoms = AtomSet.from_raster(image[None], GRAYSCALE, PIXEL_M * block)
        name = "test" if self.split == "test" else "train"
        return Sample.of_scene(atoms, int(labels[item]), Meta(f"{name}-{item:05d}"))

    @cached_property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All images (N, H, W) and labels (N,) of the files, read once in each process."""
        images, labels = (_values(path, n) for path, n in zip(self.paths, (3, 1), strict=True))
        return images, LABELS.read(labels, self.paths[1])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the arrays: a worker reads its own."""
        return {key: value for key, value in self.__dict__.items() if key != "arrays"}


def sparsify(sample: Sample, share: float, generator: torch.Generator, threshold: float = 0.5) -> Sample:
    """Return ``sample`` without ``share`` (0 … 1) of its dark pixels, those with values up to ``threshold`` · 255.

    The pixels are drawn from ``generator``; bright ones stay. From the same state of the generator, the pixels
    removed by a smaller share are among those removed by a larger one.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share is {share}; use the share of the dark pixels to remove, from 0 to 1")
    (image,) = sample.atoms.acquisitions
    valid = image.valid_mask().clone()
    dark = ((image.values <= threshold * 255) & valid)[:, 0].nonzero()[:, 0]
    order = torch.randperm(len(dark), generator=generator)
    valid[dark[order[: round(share * len(dark))]]] = False
    return replace(sample, atoms=AtomSet((image.only(valid),)))


def _path(root: Path, part: str, kind: str, dimensions: int) -> Path:
    """Return the path of a file under any of its names."""
    names = [f"{part}-{kind}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    for path in (root / folder / name for folder in FOLDERS for name in names):
        if path.is_file():
            return path
    raise DataError(root / names[0], f"no such file, nor {', '.join(names[1:])}, nor in MNIST/raw or raw")


def _bytes(path: Path, count: int = -1) -> bytes:
    """Return the first ``count`` bytes of a file (all by default), unpacked if need be."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: truncated or not gzip ({first_line(error)})") from error


def _shape(data: bytes, dimensions: int, path: Path) -> tuple[int, ...]:
    """Return the shape that the header of an idx file states."""
    if len(data) < 4 + 4 * dimensions:
        raise DataError(path, f"has {len(data)} bytes, too few for a header")
    magic, *shape = struct.unpack(f">{dimensions + 1}I", data[: 4 + 4 * dimensions])
    if magic != MAGIC[dimensions]:
        raise DataError(path, f"is not this kind of idx file: begins with {magic:#x}, not {MAGIC[dimensions]:#x}")
    if 0 in shape:
        raise DataError(path, f"is empty: its header has {' × '.join(map(str, shape))}")
    return tuple(shape)


def _values(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return what follows the header of an idx file, in its shape; no more is unpacked than the header states."""
    start = 4 + 4 * dimensions
    shape = _shape(_bytes(path, start), dimensions, path)
    expected = int(np.prod(shape, dtype=object))
    if expected > MOST_PACKED * path.stat().st_size:
        raise DataError(path, f"has no room for the {expected} values of its header: truncated or damaged")
    body = np.frombuffer(_bytes(path, start + expected + 1), dtype=np.uint8, offset=start)
    if len(body) != expected:
        count = f"{len(body)}" if len(body) < expected else "more"
        raise DataError(path, f"has {count} values, its header states {expected}: truncated or damaged")
    return body.reshape(shape)

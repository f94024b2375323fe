"""MNIST: the fixture, the real files, dark pixels removed, and files that are not as they should be."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.datasets.mnist import sparsify
from atomizer_io.errors import ConfigError, DataError
from scenes import data_folder

SHAPE = (28, 28)
FILES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
DATASET = "mnist"


def parsed(folder: Path, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Images and labels straight from the files."""
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.array(list(images[16:]) if len(images) < 1 << 17 else memoryview(images)[16:])
    return pixels.reshape(-1, 28, 28), np.array(memoryview(labels)[8:])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_splits_are_the_official_ones(folder: Path) -> None:
    assert len(aio.datasets.create("mnist", folder)) == 60
    assert len(aio.datasets.create("mnist", folder, "test")) == 20
    train, val = (aio.datasets.create("mnist", folder, s, holdout=12) for s in ("train", "val"))
    assert (len(train), len(val)) == (48, 12)
    assert val[0].meta.id == "train-00048" and train[-1].meta.id == "train-00047"
    with pytest.raises(ConfigError, match="holdout is 0 of 60"):
        aio.datasets.create("mnist", folder, "val")
    for wrong in (60, -1, "5"):
        with pytest.raises(ConfigError, match="holdout"):
            aio.datasets.create("mnist", folder, holdout=wrong)


@pytest.mark.parametrize("split", ["train", "test"])
def test_values_are_those_of_the_files(folder: Path, split: str) -> None:
    images, labels = parsed(folder, "train" if split == "train" else "t10k")
    for index, sample in enumerate(aio.datasets.create("mnist", folder, split)):
        np.testing.assert_array_equal(grid_values(sample.atoms, 0, SHAPE)[0], images[index])
        assert sample.target.dtype == torch.int64 and int(sample.target) == labels[index]
        assert sample.atoms.num_atoms == 784  # black was observed
        assert sample.queries is None
        assert sample.meta.id == f"{split}-{index:05d}" and sample.meta.files[0].endswith("idx3-ubyte.gz")


@pytest.mark.parametrize("place", ["", "MNIST/raw", "raw"])
@pytest.mark.parametrize("form", ["{}-{}-idx{}-ubyte", "{}-{}.idx{}-ubyte", "{}-{}.idx{}-ubyte.gz"])
def test_files_go_by_several_names(folder: Path, tmp_path: Path, place: str, form: str) -> None:
    target = tmp_path / "other" / place
    target.mkdir(parents=True)
    for kind, dimensions in (("images", 3), ("labels", 1)):
        data = (folder / f"train-{kind}-idx{dimensions}-ubyte.gz").read_bytes()
        name = form.format("train", kind, dimensions)
        (target / name).write_bytes(data if name.endswith(".gz") else gzip.decompress(data))
    sample, expected = (aio.datasets.create("mnist", root)[7] for root in (tmp_path / "other", folder))
    assert torch.equal(sample.atoms.acquisitions[0].values, expected.atoms.acquisitions[0].values)
    assert sample.target == expected.target


def packed(change: Any) -> Any:
    """A damage that is packed again."""
    return lambda path: path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


IMAGES, LABELS = FILES
BROKEN = {
    "missing": (IMAGES, Path.unlink, "no such file, nor"),
    "no labels": (LABELS, Path.unlink, "no such file, nor"),
    "truncated": (IMAGES, lambda p: p.write_bytes(p.read_bytes()[:-500]), "cannot be read"),
    "damaged": (IMAGES, lambda p: p.write_bytes(p.read_bytes()[:500] + bytes(500)), "truncated or damaged"),
    "not gzip": (IMAGES, lambda p: p.write_bytes(gzip.decompress(p.read_bytes())), "cannot be read"),
    "empty": (IMAGES, lambda p: p.write_bytes(b""), "has 0 bytes"),
    "no header": (LABELS, packed(lambda d: d[:6]), "has 6 bytes"),
    "short": (IMAGES, packed(lambda d: d[:-1]), "has 47039 values, its header states 47040"),
    "long": (LABELS, packed(lambda d: d + b"0"), "has more values, its header states 60"),
    "magic": (IMAGES, packed(lambda d: struct.pack(">I", 0x801) + d[4:]), "is not this kind of idx file"),
    "no images": (IMAGES, packed(lambda d: d[:4] + struct.pack(">I", 0) + d[8:]), "is empty"),
    "counts": (LABELS, packed(lambda d: d[:4] + struct.pack(">I", 59) + d[8:-1]), "has 59 labels for 60 images"),
    "label": (LABELS, packed(lambda d: d[:-1] + b"\x0a"), r"label 10 \(1 position"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_files_are_named(folder: Path, what: str) -> None:
    name, damage, cause = BROKEN[what]
    damage(folder / name)
    with pytest.raises(DataError, match=cause) as caught:
        aio.datasets.create("mnist", folder)[0]
    assert Path(caught.value.path).name.removesuffix(".gz") == name.removesuffix(".gz")


def test_dark_pixels_are_removed(folder: Path) -> None:
    sample = aio.datasets.create("mnist", folder)[3]
    image = grid_values(sample.atoms, 0, SHAPE)[0]
    dark = image <= 127.5
    for share in (0.0, 0.25, 0.9, 1.0):
        sparse = sparsify(sample, share, generator())
        left = grid_values(sparse.atoms, 0, SHAPE)[0]
        assert (np.isnan(left) <= dark).all()  # bright ones stay
        assert np.isnan(left).sum() == round(share * dark.sum())
        np.testing.assert_array_equal(left[np.isfinite(left)], image[np.isfinite(left)])
        assert sparse.atoms.num_atoms == 784 - round(share * dark.sum())
        assert (sparse.target, sparse.meta) == (sample.target, sample.meta)
    assert sample.atoms.num_atoms == 784  # the sample itself is as it was
    assert sparsify(sample, 1.0, generator(), threshold=0.0).atoms.num_atoms == (image > 0).sum()
    with pytest.raises(ConfigError, match=r"share is 1\.5"):
        sparsify(sample, 1.5, generator())


def test_removal_is_progressive_and_repeatable(folder: Path) -> None:
    sample = aio.datasets.create("mnist", folder)[3]
    masks = [sparsify(sample, share, generator(4)).atoms.acquisitions[0].valid_mask() for share in (0.3, 0.3, 0.6)]
    assert torch.equal(masks[0], masks[1]) and (masks[2] <= masks[0]).all()
    drawn_again = sparsify(sample, 0.3, generator(5)).atoms.acquisitions[0].valid_mask()
    assert not torch.equal(masks[0], drawn_again)


@pytest.mark.realdata
def test_the_real_files() -> None:
    root = data_folder("mnist")
    train, test = (aio.datasets.create("mnist", root, split) for split in ("train", "test"))
    assert (len(train), len(test)) == (60_000, 10_000)
    images, labels = parsed(root)
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_array_equal(train.arrays[1], labels)
    for index in (0, 12_345, 59_999):
        sample = train[index]
        np.testing.assert_array_equal(grid_values(sample.atoms, 0, SHAPE)[0], images[index])
        assert int(sample.target) == labels[index]
    assert [int(train[i].target) for i in range(5)] == [5, 0, 4, 1, 9]
    assert [int(test[i].target) for i in range(5)] == [7, 2, 1, 0, 4]
    mean, std = images.mean(), images.std()
    (gray,) = train.channels
    assert (gray.mean, gray.std) == (pytest.approx(mean, abs=0.05), pytest.approx(std, abs=0.05))

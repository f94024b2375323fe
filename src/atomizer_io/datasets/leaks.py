"""What one split shares with another: the same files, files with the same content, and overlapping extents."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.io.crs import Box, LocalFrame, outline

HEAD = 1 << 16  # bytes that are compared before whole files are
TOUCHING = 0.01  # of the smaller of two extents: neighbours share an edge, and rounding
TOUCHING_ABROAD = 0.1  # where the coordinate systems differ: a box around a rotated box is larger than it

Extent = tuple[str, str | None, Box]  # the file (or sample), its coordinate system and its bounds there


@dataclass(slots=True)
class Leaks:
    """The files and the extents of the splits that were read so far."""

    root: Path
    files: dict[str, list[Path]] = field(default_factory=dict)  # by split
    extents: dict[str, dict[str, Extent]] = field(default_factory=dict)  # by split and name

    def add(self, dataset: Dataset, item: object, sample: Sample) -> None:
        """Take in where a sample of a split lies; the windows of a tile are one extent."""
        if (box := bounds_of(sample)) is None:
            return
        name = str(dataset.files(item)[0]) if dataset.whole_of(0) is not None else sample.meta.id
        file = sample.meta.files[0] if sample.meta.files else sample.meta.id
        extents = self.extents.setdefault(dataset.split, {})
        if name in extents:
            before = extents[name][2]
            box = (*np.minimum(before[:2], box[:2]).tolist(), *np.maximum(before[2:], box[2:]).tolist())
        extents[name] = (file, sample.meta.crs, box)

    def lines(self, dataset: Dataset) -> Iterator[str]:
        """Yield what a split, once it was read, shares with each split before it."""
        own = list(dict.fromkeys(path for item in dataset.items for path in images_of(dataset.files(item))))
        for split, others in self.files.items():
            yield from self._shared(dataset, split, own, others)
        self.files[dataset.split] = own

    def _shared(self, dataset: Dataset, split: str, own: Sequence[Path], others: Sequence[Path]) -> Iterator[str]:
        tiles = dataset.whole_of(0) is not None  # other files may hold samples of several splits
        same = sorted(set(own) & set(others)) if tiles else []
        if same:
            yield f"also in split {split!r}: {self._named(same[0])}{more(len(same))}"
        equal = equal_files(own, others)
        if equal:
            names = f"{self._named(equal[0][0])} is {self._named(equal[0][1])}{more(len(equal))}"
            yield f"has the same content as in split {split!r}: {names}"
        known = {(str(one), str(twin)) for one, twin in equal} | {(str(path), str(path)) for path in same}
        extents, before = (list(self.extents.get(name, {}).values()) for name in (dataset.split, split))
        over = [pair for pair in overlaps(extents, before) if pair[:2] not in known and pair[0] != pair[1]]
        if over:
            here, there, share = max(over, key=lambda pair: pair[2])
            names = f"{self._named(here)} and {self._named(there)} share {100 * share:.3g} %{more(len(over))}"
            yield f"lies over split {split!r}: {names}; scores there are too good, unless the same location is meant"

    def _named(self, path: str | Path) -> str:
        inside = Path(path).is_relative_to(self.root)
        return (Path(path).relative_to(self.root) if inside else Path(path)).as_posix()


def more(count: int) -> str:
    """Return how many there are beside the first."""
    return f" (and {count - 1} more)" if count > 1 else ""


def images_of(files: Sequence[Path]) -> Sequence[Path]:
    """Return the files of a sample without the one with the target, which may be alike where nothing is there."""
    return files if len(files) == 1 else files[:-1]


def bounds_of(sample: Sample) -> Box | None:
    """Return the bounds of what a sample observed in its coordinate system, None where it is not known where it is."""
    meta = sample.meta
    if meta.origin is None:
        return None
    west, south, east, north = sample.atoms.bounds
    frame = LocalFrame.around(meta.crs, *meta.origin)
    (x_min, x_max), (y_min, y_max) = frame.coordinates(np.array([west, east]), np.array([south, north]))
    return (float(x_min), float(y_min), float(x_max), float(y_max))


def equal_files(own: Sequence[Path], others: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return the pairs of different files with the same content; only files of one size are opened."""
    by_size: dict[int, list[Path]] = {}
    for path in others:
        if path.is_file():
            by_size.setdefault(path.stat().st_size, []).append(path)
    head, whole = functools.cache(lambda path: digest(path, HEAD)), functools.cache(digest)
    pairs = []
    for path in own:
        size = path.stat().st_size if path.is_file() else 0
        candidates = by_size.get(size, []) if size else []
        if path in candidates:
            continue
        alike = [twin for twin in candidates if head(twin) == head(path)]
        pairs += [(path, twin) for twin in alike if whole(twin) == whole(path)][:1]
    return pairs


def digest(path: Path, size: int = -1) -> str:
    """Return a digest of the first ``size`` bytes of a file, of all if negative."""
    with path.open("rb") as file:
        if size >= 0:
            return hashlib.blake2b(file.read(size)).hexdigest()
        return hashlib.file_digest(file, "blake2b").hexdigest()


def overlaps(own: Sequence[Extent], others: Sequence[Extent]) -> list[tuple[str, str, float]]:
    """Return the pairs of files whose extents overlap, and the share of the smaller one."""
    pairs = []
    groups: dict[str | None, list[Extent]] = {}
    for extent in others:
        groups.setdefault(extent[1], []).append(extent)
    for crs, group in groups.items():
        group.sort(key=lambda extent: extent[2][0])  # by their western edges
        boxes_N4 = np.array([box for _, _, box in group])
        widest = (boxes_N4[:, 2] - boxes_N4[:, 0]).max()
        for file, own_crs, box in own:
            if (own_crs is None) != (crs is None):
                continue
            if own_crs != crs:  # the box around the box in the other coordinate system
                x, y = outline(box, own_crs, crs)
                box = (float(x.min()), float(y.min()), float(x.max()), float(y.max()))
            first, last = np.searchsorted(boxes_N4[:, 0], (box[0] - widest, box[2])).tolist()
            share_N = shares(box, boxes_N4[first:last])
            least = TOUCHING if own_crs == crs else TOUCHING_ABROAD
            pairs += [(file, group[first + i][0], float(share_N[i])) for i in np.flatnonzero(share_N > least).tolist()]
    return pairs


def shares(box: Box, boxes_N4: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the overlap (N,) of a box with others as a share of the smaller of each two."""
    low_N2, high_N2 = np.maximum(boxes_N4[:, :2], box[:2]), np.minimum(boxes_N4[:, 2:], box[2:])
    common_N = np.prod(np.clip(high_N2 - low_N2, 0, None), axis=1)
    areas_N = np.prod(boxes_N4[:, 2:] - boxes_N4[:, :2], axis=1)
    smaller_N = np.maximum(np.minimum(areas_N, (box[2] - box[0]) * (box[3] - box[1])), 1e-30)
    result: NDArray[np.float64] = np.nan_to_num(common_N / smaller_N)
    return result

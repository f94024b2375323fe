"""A dataset that is made on the spot, in the shape of several of the others, and needs no download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Dataset, Info, split_name
from atomizer_io.errors import ConfigError
from atomizer_lab.synthetic.mimic import PROBES, SHAPES, STORIES, Shape, scene, shape_of

LENGTHS = {"train": 400, "val": 100, "test": 100}
# Numbers of scenes: splits never meet.
FIRST = {"train": 0, "val": 800_000, "test": 900_000}
PER_SEED = 1_000_000


def describe(like: str, shape: Shape) -> Info:
    """Return what the synthetic twin of a dataset is."""
    return Info(
        name="synthetic",
        title=f"Synthetic, like {like}",
        **{name: getattr(shape, name) for name in ("task", "classes", "unit", "channels", "extent_m", "temporal")},
        layout="(no files)",
        source="made by this package",
        notes=(
            f"like= one of {', '.join(SHAPES)}, or a probe of one capability: {', '.join(PROBES)}",
            f"or scenes in which the neighbourhood decides: {', '.join(STORIES)}",
            "mean and std of the channels are the catalogue's, and values are made to fit them roughly",
            "scores on it say that a pipeline works and what a capability is worth, nothing about a real dataset",
        ),
    )


class Synthetic(Dataset):
    """Synthetic scenes that look like those of the dataset ``like``, with targets everywhere; no file is read.

    ``length`` is the number of scenes (400 in train, 100 in val and test by default), ``size`` their width in pixels
    (metres for point clouds; by default the dataset's), ``dates`` the most dates of each sensor in a time series,
    ``sensor`` the only one that is kept of several, and ``seed`` chooses other scenes. Scenes of different splits and
    seeds are never the same.
    """

    info = describe("sen1floods11", SHAPES["sen1floods11"])
    on_disk = False

    def __init__(
        self,
        like: str = "sen1floods11",
        split: str = "train",
        *,
        length: int | None = None,
        size: int | None = None,
        dates: int | None = None,
        sensor: str | None = None,
        seed: int = 0,
        on_error: Literal["raise", "skip"] = "raise",
        transform: Callable[[Sample], Sample] | None = None,
    ) -> None:
        shape = shape_of(like)
        self.info = describe(like, shape)
        if size is not None:
            self.info = replace(self.info, extent_m=size * (shape.gsd_m or 1.0))
        if sensor is not None:
            own = tuple(channel for channel in shape.channels if channel.sensor == sensor)
            if not own:
                names = ", ".join(dict.fromkeys(channel.sensor for channel in shape.channels))
                raise ConfigError(f"sensor is {sensor!r}; scenes like {like} have {names}")
            self.info = replace(self.info, channels=own)
        self.like, self.size, self.dates, self.sensor, self.seed = like, size, dates, sensor, seed
        most = FIRST["val"] if split_name(split, self.info) == "train" else FIRST["test"] - FIRST["val"]
        self.length = LENGTHS[split_name(split, self.info)] if length is None else length
        if not isinstance(self.length, int) or not 1 <= self.length <= most:
            raise ConfigError(f"length is {length}; give a whole number from 1 to {most}")
        if not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"seed is {seed}; give a whole number from 0")
        super().__init__(Path(), split, on_error=on_error, transform=transform)

    def find(self) -> range:
        """Return the numbers of the scenes."""
        first = self.seed * PER_SEED + FIRST[self.split]
        return range(first, first + self.length)

    def files(self, item: int) -> tuple[Path, ...]:
        """Return a name for messages; there are no files."""
        return (Path(f"synthetic-{self.like}-{item:06d}"),)

    def read(self, item: int) -> Sample:
        """Return the sample of one scene."""
        sample = scene(self.like, item, self.size, self.dates)
        return sample if self.sensor is None else replace(sample, atoms=sample.atoms.select(sensor=self.sensor))

    def __repr__(self) -> str:
        return f"Synthetic(like {self.like!r}, split {self.split!r}, {len(self)} samples)"

"""DALES: airborne LiDAR of Surrey (British Columbia), 40 tiles of half a kilometre, eight classes of points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.dataset import Info, Labels
from atomizer_io.datasets.point_dataset import TileDataset, classes_of, numbers_of
from atomizer_io.errors import DataError
from atomizer_io.io.point_atoms import HEIGHT_CHANNELS
from atomizer_io.io.point_clouds import SUFFIXES
from atomizer_io.io.point_windows import TileWindow, tile_name

# The published split has no validation: these three of the 29 training tiles are those of superpoint_transformer.
VAL_TILES = ("5145_54340", "5095_54455", "5110_54475")
FOLDERS = ("DALESObjects", "dales_las", "dales_ply")
LABELS = Labels(classes=8, ignore=(0,), mapping={number: number - 1 for number in range(1, 9)})


class Dales(TileDataset):
    """Windows of the tiles: height of every return, with intensity and echo where the release has them.

    Options are those of :class:`~atomizer_io.datasets.point_dataset.TileDataset`: ``window_m``, ``stride_m``,
    ``cache``, ``heights`` and ``grid_m``.
    """

    info = Info.of("dales", channels=HEIGHT_CHANNELS["ground"])

    def paths(self) -> list[Path]:
        """Return the tiles of the split, in the folder of a release or in one that has such a folder."""
        folders = (self.root, *(self.root / name for name in FOLDERS))
        release = next((f for f in folders if any((f / name).is_dir() for name in self.info.splits)), None)
        if release is None:
            raise DataError(self.root, f"has no folder train or test; DALES is expected as\n{self.info.layout}")
        from_train = self.split == "val" and not (release / "val").is_dir()
        inside = self.existing(
            release / ("train" if from_train else self.split), f": the tiles of split {self.split!r}"
        )
        paths = sorted(p for p in inside.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
        if self.split == "train" or from_train:
            return [p for p in paths if (tile_name(p).removesuffix("_new") in VAL_TILES) == from_train]
        return paths

    def find(self) -> list[TileWindow]:
        """Return the windows with points."""
        return [replace(window, id=window.id.replace("_new", "")) for window in super().find()]

    def read(self, item: TileWindow) -> Sample:
        """Return the sample of one window."""
        scene = self.scene(item, self.tile_points(item))
        sample = self.points_sample(item, scene, LABELS.read(classes_of(scene.points), item.path))
        return self.in_tile(sample, item, numbers_of(scene.points))

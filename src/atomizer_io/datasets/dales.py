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
from atomizer_io.io.tile_windows import TileWindow, tile_name

# The published split has no validation: these three of the 29 training tiles are those of superpoint_transformer.
VAL_TILES = ("5145_54340", "5095_54455", "5110_54475")
FOLDERS = ("DALESObjects", "dales_las", "dales_ply")
SPLITS = ("train", "val", "test")
LABELS = Labels(classes=8, ignore=(0,), mapping={number: number - 1 for number in range(1, 9)})


class Dales(TileDataset):
    """Windows of the tiles: height of every return, with intensity and echo where the release has them.

    Options are those of :class:`~atomizer_io.datasets.point_dataset.TileDataset`: ``window_m``, ``stride_m``,
    ``cache``, ``heights`` and ``grid_m``.
    """

    coded = False  # its class 7 are poles
    info = Info(
        name="dales",
        title="DALES",
        task="segmentation",
        classes=("ground", "vegetation", "cars", "trucks", "power lines", "fences", "poles", "buildings"),
        channels=HEIGHT_CHANNELS["ground"],
        extent_m=50.0,
        layout=(
            "DALESObjects/{train,test}/<tile>_new.ply, or\n"
            "dales_las/{train,test}/<tile>.las, or\n"
            "dales_ply/{train,test}/<tile>.ply"
        ),
        source="https://udayton.edu/engineering/research/centers/vision_lab/research/was_data_analysis_and_processing/dale.php",
        notes=(
            "val is three of the 29 training tiles, those of superpoint_transformer; class 0 (unknown) is ignored",
            "coordinates are metres (UTM zone 10 north), also where the files do not say so",
            "numbers of classes are its own, not those of LAS: predictions have the LAS codes of the class names",
            "of several releases in one folder the first of those above is read",
            "tiles are sorted once into a cache of about 20 GB for all of them: cache=PATH, cache=false for none",
        ),
    )

    def paths(self) -> list[Path]:
        """Return the tiles of the split."""
        return tiles(self.root, self.split)

    def find(self) -> list[TileWindow]:
        """Return the windows with points."""
        return [replace(window, id=window.id.replace("_new", "")) for window in super().find()]

    def read(self, item: TileWindow) -> Sample:
        """Return the sample of one window."""
        scene = self.scene(item, self.tile_points(item))
        sample = self.points_sample(scene, LABELS.read(classes_of(scene.cloud), item.path))
        return self.in_tile(sample, item, numbers_of(scene.cloud))


def tiles(root: Path, split: str) -> list[Path]:
    """Return the files of a split, in the folder of a release or in one that has such a folder."""
    folders = (root, *(root / name for name in FOLDERS))
    folder = next((f for f in folders if any((f / name).is_dir() for name in SPLITS)), None)
    if folder is None:
        raise DataError(root, f"has no folder train or test; DALES is expected as\n{Dales.info.layout}")
    own_val = (folder / "val").is_dir()
    inside = folder / ("train" if split == "val" and not own_val else split)
    if not inside.is_dir():
        raise DataError(inside, f"no such folder: the tiles of split {split!r}")
    paths = sorted(p for p in inside.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    if split == "train":
        return [path for path in paths if tile(path) not in VAL_TILES]
    return [path for path in paths if tile(path) in VAL_TILES] if split == "val" and not own_val else paths


def tile(path: Path) -> str:
    """Return the name of the tile that a file is."""
    return tile_name(path).removesuffix("_new")

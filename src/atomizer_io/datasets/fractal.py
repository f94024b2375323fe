"""FRACTAL: 100 000 patches of airborne LiDAR from five regions of France, with aerial images, seven classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import AERIAL
from atomizer_io.datasets.dataset import Info, Labels, read_image, require
from atomizer_io.datasets.point_dataset import PointDataset, classes_of
from atomizer_io.errors import DataError
from atomizer_io.io.point_atoms import HEIGHT_CHANNELS
from atomizer_io.io.point_clouds import Bounds, read_point_cloud
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_windows import TileWindow

PATCH_M = 50.0
PIXELS, PIXEL_M = 250, 0.2  # side of an image, and size of its pixels
BANDS = AERIAL.pick("NIR", "R", "G", "B")  # in the order of the files
COLOUR_OF = {"NIR": "nir", "R": "red", "G": "green", "B": "blue"}  # what points call them
LEFT_OUT = (65, 66)  # noise, which is neither a site nor a query
# Published are 1 2 5 6 9 17 64; the others are what the source tiles may hold: low and medium vegetation, never
# classified, and two codes of IGN's production.
LABELS = Labels(classes=7, mapping={0: 0, 1: 0, 100: 0, 101: 0, 2: 1, 3: 2, 4: 2, 5: 2, 6: 3, 9: 4, 17: 5, 64: 6})


@dataclass(frozen=True, slots=True)
class Patch(TileWindow):
    """A patch (a file of points) and the file of its image."""

    image: Path | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Fractal(PointDataset):
    """Patches of 50 m: height with echo and intensity of every return, and the aerial image (NIR, R, G, B) at 0.2 m.

    ``bands`` are those of the image that are used, by default all four; the paper has R, G, B. ``images`` is the folder
    of FRACTAL-IRGB, by default ``images`` or ``FRACTAL-IRGB`` in ``root`` or ``FRACTAL-IRGB`` beside it; without one,
    or with ``use_images=False``, there are points only. ``colour`` adds the colours that the points themselves carry,
    painted from the same images.
    Options ``heights`` and ``grid_m``: see :class:`~atomizer_io.datasets.point_dataset.PointDataset`.
    """

    images: str | Path | None = None
    use_images: bool = True
    colour: bool = False
    bands: Sequence[str] = ("NIR", "R", "G", "B")

    info = Info.of("fractal", channels=(*HEIGHT_CHANNELS["ground"], *BANDS))

    def configure(self) -> None:
        """Take the channels of the bands."""
        self.channels_of_image = tuple(channel for channel in BANDS if channel in AERIAL.pick(*self.bands))
        named = bool(self.channels_of_image)
        require(named, "bands names no band: use some of NIR, R, G, B, or use_images=False for points only")
        self.info = replace(self.info, channels=self.channels_of_image)
        super().configure()

    def find(self) -> list[Patch]:
        """Return the patches of the split with their images."""
        folders = [self.root / part / self.split for part in ("data", ".", "FRACTAL/data")]
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if folder is None:
            raise DataError(folders[0], f"no such folder: the patches of split {self.split!r}")
        paths = sorted((p for p in folder.rglob("*.laz") if not p.name.startswith(".")), key=lambda path: path.name)
        archives = sorted(folder.glob("*.zip"))
        if archives and not paths:
            raise DataError(archives[0], "is still zipped: unzip the archives in their folder")
        images = self.image_folder() if self.use_images else None
        if images is None:
            return [Patch(path, path.stem, number) for number, path in enumerate(paths)]
        by_name = {path.stem: path for kind in ("*.tif", "*.tiff") for path in images.rglob(kind)}
        return [
            Patch(path, path.stem, number, image=by_name.get(path.stem, images / self.split / f"{path.stem}.tif"))
            for number, path in enumerate(paths)
        ]

    def image_folder(self) -> Path | None:
        """Return the folder with the images, None if there is none."""
        if self.images is not None:
            if not Path(self.images).is_dir():
                raise DataError(self.images, "no such folder: the images of FRACTAL-IRGB")
            return Path(self.images)
        usual = (self.root / "images", self.root / "FRACTAL-IRGB", self.root.absolute().parent / "FRACTAL-IRGB")
        return next((folder for folder in usual if folder.is_dir()), None)

    def files(self, item: TileWindow) -> tuple[Path, ...]:
        """Return the image, if there is one, and the points."""
        image = item.image if isinstance(item, Patch) else None
        return (item.path,) if image is None else (image, item.path)

    def read(self, item: Patch) -> Sample:
        """Return the sample of one patch."""
        points = read_point_cloud(item.path)
        kept = ~np.isin(classes_of(points), LEFT_OUT)
        if not kept.any():
            raise DataError(item.path, "has only points of noise")
        points = PointCloudReference.of_point_cloud(points).complete(points).where(kept)
        names = [COLOUR_OF[channel.name] for channel in self.channels_of_image]
        points = replace(points, colours={name: c for name, c in (points.colours or {}).items() if name in names})
        scene = self.scene(item, points, centre=patch_centre(points.bounds), colour=self.colour)
        if item.image is not None:
            image = image_atoms(item.image, scene.centre, self.channels_of_image)
            scene = replace(scene, atoms=scene.atoms + image)
        return self.points_sample(item, scene, LABELS.read(classes_of(scene.points), item.path))


def patch_centre(bounds: Bounds) -> tuple[float, float]:
    """Return the centre of the cell of the 50 m grid that holds the points; their own middle if none does."""
    centre = []
    for low, high in ((bounds[0], bounds[2]), (bounds[1], bounds[3])):
        middle = (low + high) / 2
        cell = math.floor(middle / PATCH_M) * PATCH_M
        inside = cell - 0.01 <= low and high <= cell + PATCH_M + 0.01
        centre.append(cell + PATCH_M / 2 if inside else middle)
    return (centre[0], centre[1])


def image_atoms(path: Path, centre: tuple[float, float], bands: tuple[Channel, ...] = BANDS) -> AtomSet:
    """Return some ``bands`` of the image over a patch as atoms, in metres around ``centre``."""
    raster = read_image(path, "B", bands=len(BANDS), gsd_m=PIXEL_M)
    if raster.origin is not None:
        offset = (raster.origin[0] - centre[0], raster.origin[1] - centre[1])
    elif raster.grid.shape == (PIXELS, PIXELS):
        offset = (0.0, 0.0)
    else:
        raise DataError(
            path,
            f"has no coordinate system and {raster.grid.shape} pixels; without one it must have {PIXELS} × {PIXELS}",
        )
    if max(map(abs, offset)) > PATCH_M / 2:
        raise DataError(path, f"lies {math.hypot(*offset):.0f} m away from its points")
    # IGN's images mark 255 as nodata, which is a colour too: nothing was seen only where all bands hold it
    marks = np.array([np.nan if mark is None else mark for mark in raster.nodata])
    absent = (raster.values == marks[:, None, None]).all(axis=0)
    chosen = [BANDS.index(band) for band in bands]
    plain = replace(raster, values=raster.values[chosen], nodata=(None,) * len(bands))
    return plain.atoms(bands, valid=~absent if absent.any() else None, center_m=offset)

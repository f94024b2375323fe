"""EuroSAT: land use of 27 000 Sentinel-2 scenes of 640 m, as first released and as GEO-Bench's m-eurosat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import Sensor
from atomizer_io.datasets.dataset import Dataset, Info, meta_of, read_image
from atomizer_io.datasets.geobench import GeoBench, geobench_info, true_bands
from atomizer_io.errors import DataError
from atomizer_io.io.tables import lines

INFO = Info.of("eurosat")
CLASSES, BANDS = INFO.classes, Sensor(INFO.title, INFO.channels)
# Where the folders of the classes lie: TorchGeo's archive, Zenodo, Kaggle, or unpacked in place.
FOLDERS = ("ds/images/remote_sensing/otherDatasets/sentinel_2/tif", "EuroSAT_MS", "EuroSATallBands", "")
SIZE = 64
GSD_M = 10.0


@dataclass(kw_only=True, eq=False, repr=False)
class EuroSAT(Dataset):
    """Scenes of 64 × 64 pixels of 10 m: thirteen bands of Sentinel-2 L1C × 10⁴, one of ten kinds of land use.

    ``spatial=True`` takes the split by longitude (eurosat-spatial-*.txt) instead of the random one.
    """

    spatial: bool = False

    info = INFO

    def find(self) -> list[str]:
        """Return the names of the scenes, from the list of the split, which has names of the RGB release (.jpg)."""
        path = self.root / f"eurosat-{'spatial-' if self.spatial else ''}{self.split}.txt"
        names = [line.rsplit(".", 1)[0] for line in lines(path)]
        for name in names:
            kind, _, number = name.rpartition("_")
            if kind not in CLASSES or not number.isdecimal():
                raise DataError(path, f"{name!r} is not a scene: names are <Class>_<n>.jpg")
        folders = [self.root / folder for folder in FOLDERS]
        with_classes = (folder for folder in folders if any((folder / name).is_dir() for name in CLASSES))
        self.folder = next(with_classes, folders[0])
        return names

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the one file of a scene; its folder is the class."""
        return (self.folder / item.rsplit("_", 1)[0] / f"{item}.tif",)

    def read(self, item: str) -> Sample:
        """Return the sample of one scene."""
        (path,) = self.files(item)
        raster = read_image(path, "iuf", bands=len(BANDS.channels), gsd_m=GSD_M)
        if raster.grid.shape != (SIZE, SIZE):
            raise DataError(path, f"has {raster.grid.height} × {raster.grid.width} pixels, expected {SIZE} × {SIZE}")
        label = CLASSES.index(item.rsplit("_", 1)[0])
        return Sample.of_scene(raster.atoms(BANDS.channels), label, meta_of(item, raster))


class MEuroSAT(GeoBench):
    """GEO-Bench's 4 000 scenes of EuroSAT, each band under its true name.

    The conversion gave the names of Sentinel-2's bands in the order of ESA (B8A after B08) to bands in the order of
    EuroSAT's files (B8A last), so five of them are mislabelled: ``08A`` is B09, ``09`` B10, ``10`` B11, ``11`` B12,
    ``12`` B8A. The means that PANGAEA publishes by name show it: 12.0 for ``09``, which only cirrus has.
    """

    info = geobench_info(EuroSAT.info, "m-eurosat")
    known_bands: ClassVar = {key: BANDS[name] for key, name in true_bands("m-eurosat").items()}
    pixel_m = GSD_M

"""EuroSAT: land use of 27 000 Sentinel-2 scenes of 640 m, as first released and as GEO-Bench's m-eurosat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets.dataset import Dataset, Info, Labels
from atomizer_io.datasets.geobench import LAYOUT, GeoBench, true_bands
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tables import lines

CLASSES = (
    "AnnualCrop",
    "Forest",
    "HerbaceousVegetation",
    "Highway",
    "Industrial",
    "Pasture",
    "PermanentCrop",
    "Residential",
    "River",
    "SeaLake",
)
# Where the folders of the classes lie: TorchGeo's archive, Zenodo, Kaggle, or unpacked in place.
FOLDERS = ("ds/images/remote_sensing/otherDatasets/sentinel_2/tif", "EuroSAT_MS", "EuroSATallBands", "")
SIZE = 64
GSD_M = 10.0

# Bands in the order of the files, B8A last. Mean, std: all of EuroSAT, as TorchGeo ships them.
BANDS = SENTINEL2.subset(
    "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B8A"
).with_statistics(
    mean=[
        *(1354.40546513, 1118.24399958, 1042.92983953, 947.62620298, 1199.47283961, 1999.79090914, 2369.22292565),
        *(2296.82608323, 732.08340178, 12.11327804, 1819.01027855, 1118.92391149, 2594.14080798),
    ],
    std=[
        *(245.71762908, 333.00778264, 395.09249139, 593.75055589, 566.4170017, 861.18399006, 1086.63139075),
        *(1117.98170791, 404.91978886, 4.77584468, 1002.58768311, 761.30323499, 1231.58581042),
    ],
)


class EuroSAT(Dataset):
    """Scenes of 64 × 64 pixels of 10 m: thirteen bands of Sentinel-2 L1C × 10⁴, one of ten kinds of land use.

    ``spatial=True`` takes the split by longitude (eurosat-spatial-*.txt) in place of the random one.
    """

    info = Info(
        name="eurosat",
        title="EuroSAT (multispectral)",
        task="classification",
        classes=CLASSES,
        channels=BANDS.channels,
        extent_m=SIZE * GSD_M,
        layout=(
            "ds/images/remote_sensing/otherDatasets/sentinel_2/tif/<Class>/<Class>_<n>.tif\n"
            "  (or EuroSAT_MS/<Class>/…, EuroSATallBands/<Class>/…, <Class>/…)\n"
            "eurosat-{train,val,test}.txt (or eurosat-spatial-{train,val,test}.txt)"
        ),
        source="https://github.com/phelber/EuroSAT, lists of the splits: https://huggingface.co/datasets/torchgeo/eurosat",
        notes=(
            "the dates of the scenes were not published",
            "the 20 m and 60 m bands were resampled to 10 m by the authors",
        ),
    )

    def __init__(self, root: str | Path, split: str = "train", *, spatial: bool = False, **common: Any) -> None:
        if not isinstance(spatial, bool):
            raise ConfigError(f"spatial is {spatial!r}; use True or False")
        self.spatial = spatial
        super().__init__(root, split, **common)

    def find(self) -> list[str]:
        """Return the names of the scenes, from the list of the split, which has names of the RGB release (.jpg)."""
        path = self.root / f"eurosat-{'spatial-' if self.spatial else ''}{self.split}.txt"
        names = [line.rsplit(".", 1)[0] for line in lines(path)]
        parts = {name: name.rpartition("_") for name in names}
        wrong = [name for name, (kind, _, number) in parts.items() if kind not in CLASSES or not number.isdecimal()]
        if wrong:
            raise DataError(path, f"{wrong[0]!r} is not a scene: names are <Class>_<n>.jpg")
        within = (self.root / folder for folder in FOLDERS)
        found = (folder for folder in within if any((folder / name).is_dir() for name in CLASSES))
        self.folder = next(found, self.root / FOLDERS[0])
        return names

    def files(self, item: str) -> tuple[Path, ...]:
        """Return the one file of a scene; its folder is the answer."""
        return (self.folder / item.rsplit("_", 1)[0] / f"{item}.tif",)

    def read(self, item: str) -> Sample:
        """Return the sample of one scene."""
        (path,) = self.files(item)
        raster = read_raster(path, bands=len(BANDS), gsd_m=GSD_M)
        if raster.grid.shape != (SIZE, SIZE):
            raise DataError(path, f"has {raster.grid.height} × {raster.grid.width} pixels, expected {SIZE} × {SIZE}")
        if raster.values.dtype.kind not in "iuf":
            raise DataError(path, f"holds {raster.values.dtype}, not numbers")
        meta = Meta(item, (str(path),), raster.crs, raster.transform, raster.origin)
        return Sample.of_scene(raster.atoms(BANDS), CLASSES.index(item.rsplit("_", 1)[0]), meta)


class MEuroSAT(GeoBench):
    """GEO-Bench's 4 000 scenes of EuroSAT, each band under its true name.

    The conversion gave the names of Sentinel-2's bands in the order of ESA (B8A after B08) to bands in the order of
    EuroSAT's files (B8A last), so five of them are mislabelled: ``08A`` is B09, ``09`` B10, ``10`` B11, ``11`` B12,
    ``12`` B8A. The means that PANGAEA publishes by name show it: 12.0 for ``09``, which only cirrus has.
    """

    info = Info(
        name="m-eurosat",
        title="EuroSAT of GEO-Bench v1",
        task="classification",
        classes=CLASSES,
        channels=BANDS.channels,
        extent_m=SIZE * GSD_M,
        layout=LAYOUT,
        source="https://huggingface.co/datasets/recursix/geo-bench-1.0 (classification_v1.0/m-eurosat)",
        notes=("five bands are stored under the name of another, which is put right here; no place, no dates",),
    )
    bands: Mapping[str, Channel] = {key: BANDS[name] for key, name in true_bands("m-eurosat").items()}
    labels = Labels(classes=len(CLASSES))
    gsd_m = GSD_M

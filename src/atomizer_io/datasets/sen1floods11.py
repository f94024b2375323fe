"""Sen1Floods11: surface water from Sentinel-1 and Sentinel-2, 446 hand-labelled chips of eleven flood events."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from atomizer_io.data.sample import Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.datasets.dataset import Dataset, Info, Labels, meta_of, require
from atomizer_io.errors import DataError
from atomizer_io.io.dates import as_day
from atomizer_io.io.rasters import read_raster
from atomizer_io.io.tables import first_existing, from_json, lines

CHIPS = "v1.1/data/flood_events/HandLabeled"
SPLITS = "v1.1/splits/flood_handlabeled"
METADATA = "v1.1/Sen1Floods11_Metadata.geojson"
OFFICIAL = {"train": "train", "val": "valid", "test": "test", "bolivia": "bolivia"}
LOCATIONS = {"Mekong": "Cambodia"}  # where the name of a chip and that of its event in the metadata differ
LABELS = Labels(classes=2, ignore=(-1,))
RADAR = SENTINEL1.pick("VV", "VH")
OPTICAL = SENTINEL2.channels  # in the order of the files, B8A after B08; these are also the statistics' source


@dataclass(kw_only=True, eq=False, repr=False)
class Sen1Floods11(Dataset):
    """Chips of 512 × 512 pixels of about 10 m: Sentinel-1 in dB, Sentinel-2 L1C × 10⁴, dry or water.

    ``chips`` names the chips to read, by default all of the split.
    """

    chips: Sequence[str] | None = None

    info = Info.of("sen1floods11", channels=(*RADAR, *OPTICAL))

    def find(self) -> list[str]:
        """Return the names of the chips, from the official csv or a list of names."""
        name = OFFICIAL[self.split]
        lists = (f"flood_{name}_data.csv", f"flood_{name}_data.txt", f"stems_{name}.txt")
        listed = first_existing(self.root / SPLITS, lists, f"the list of chips of split {self.split!r}")
        first = [line.split(",")[0] for line in lines(listed)]
        names = [entry.removesuffix(".tif").removesuffix("_S1Hand") for entry in first]
        for chip in self.chips or ():
            require(chip in names, f"chip {chip!r} is not in split {self.split!r} of {listed.name}")
        return names if self.chips is None else list(self.chips)

    def files(self, item: str) -> tuple[Path, ...]:
        """Return Sentinel-1, Sentinel-2 and the labels of a chip."""
        return tuple(self.root / CHIPS / kind / f"{item}_{kind}.tif" for kind in ("S1Hand", "S2Hand", "LabelHand"))

    def read(self, item: str) -> Sample:
        """Return the sample of one chip."""
        name = item.rsplit("_", 1)[0]
        event = LOCATIONS.get(name, name)
        if event not in self.dates and (self.root / METADATA).is_file():
            raise DataError(self.root / METADATA, f"has no event {event!r}, to which {item} belongs")
        radar_day, optical_day = self.dates.get(event, (None, None))
        radar, optical, labels = (
            read_raster(path, bands=bands) for path, bands in zip(self.files(item), (2, 13, 1), strict=True)
        )
        for raster in (optical, labels):
            raster.check_grid(radar)
        atoms = radar.atoms(RADAR, radar_day) + optical.atoms(OPTICAL, optical_day)
        target = LABELS.read(labels.values[0], labels.path)
        return Sample.of_map(atoms, labels.grid, target, meta_of(item, labels, event=event))

    def warnings(self) -> list[str]:
        """Return a warning if the dates are missing."""
        there = (self.root / METADATA).is_file()
        return [] if there else [f"no dates: {METADATA} is missing, so that all chips are read as undated"]

    @cached_property
    def dates(self) -> dict[str, tuple[datetime.date, datetime.date]]:
        """Dates of the Sentinel-1 and the Sentinel-2 image by event; none if the metadata are not there."""
        path = self.root / METADATA
        if not path.is_file():
            return {}
        document = from_json(path)
        try:
            events = {f["properties"]["location"]: f["properties"] for f in document["features"]}
            written = {name: (of["s1_date"], of["s2_date"]) for name, of in events.items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(path, f"does not give s1_date and s2_date of each location ({error!r})") from error
        return {name: (self.day(radar), self.day(optical)) for name, (radar, optical) in written.items()}

    def day(self, written: object) -> datetime.date:
        """Return a date of the metadata, which is written ``2018/02/15``."""
        day = as_day(str(written))
        if day is None:
            raise DataError(self.root / METADATA, f"has the date {written!r}; expected a date like 2018/02/15")
        return day

"""Folders of images, one for each sensor: which exist, which are used, and what the bands of their files are."""

from __future__ import annotations

import glob
import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.data.inputs import option
from atomizer_io.data.sensors import Sensor
from atomizer_io.data.sensors.files import LEFT_OUT
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.raster_bands import Bands, RasterHeader, own_sensor, sidecar

SAME_SIZE = 0.01  # pixel sizes that differ by less are the same
OneOrEach = str | Sensor | Mapping[str, str | Sensor] | None


@dataclass(frozen=True, slots=True)
class ImageFolders:
    """The folders ``image`` and ``image_<name>`` in ``base``, and the user's options for them.

    With ``patterns`` the files of ``image``, or of each name, fit a pattern instead (:func:`matching`).
    ``sensor``, ``bands``, ``gsd_m`` and ``crs`` are one for all folders, or dictionaries by the name of the folder
    (``s2`` for ``image_s2``, ``image`` for ``image``). What they leave open may be given in ``a.bands.yaml`` beside
    ``a.tif``, or in ``image_s2.bands.yaml`` beside the folder or in ``root``.
    """

    root: Path
    base: Path
    word: str  # what names of folders begin with
    sensor: OneOrEach
    bands: Sequence[str] | Mapping[str, Sequence[str]] | None
    gsd_m: float | Mapping[str, float] | None
    crs: str | Mapping[str, str] | None = None
    allow_vrt: bool = False
    patterns: Mapping[str, str] | None = None

    def there(self) -> dict[str, Path]:
        """Return the folders that exist, by name; ``image``, which is then missing, where there is none."""
        if self.patterns is not None:
            return dict.fromkeys(self.patterns, self.root)
        prefix = f"{self.word}_"
        several = {
            path.name.removeprefix(prefix): path for path in sorted(self.base.glob(f"{prefix}*")) if path.is_dir()
        }
        single = self.base / self.word
        return {self.word: single, **several} if single.is_dir() or not several else several

    def used(self) -> dict[str, Path]:
        """Return the folders to use, in the order in which the user names them, without those left out by ``-``."""
        there = self.there()
        if isinstance(self.sensor, Mapping):
            missing = [name for name, sensor in self.sensor.items() if name not in there and sensor != LEFT_OUT]
            if missing:
                raise DataError(
                    self.base,
                    f"{self.word}_{missing[0]}: no such folder, but sensor= names it; the folders of images are "
                    f"{', '.join(path.name for path in there.values() if path.is_dir()) or 'none'}",
                )
            there = {name: there[name] for name in dict.fromkeys((*self.sensor, *there)) if name in there}
        elif self.sensor is not None and self.word not in there:
            raise ConfigError(
                f"{self.base} has several rasters a sample; name the sensor of each: sensor={self.naming()}"
            )
        for key, setting in (("bands", self.bands), ("gsd_m", self.gsd_m), ("crs", self.crs)):
            unknown = [name for name in setting if name not in there] if isinstance(setting, Mapping) else []
            if unknown:
                raise ConfigError(f"{key} names {unknown[0]!r}, but the folders of images are {', '.join(there)}")
        used = {name: path for name, path in there.items() if option(self.sensor, name) != LEFT_OUT}
        if not used:
            raise ConfigError(f"sensor= leaves out every folder of images in {self.base}; use at least one")
        return used

    def files(self, name: str) -> dict[str, tuple[Path, str | None]]:
        """Return the images of the folder ``name``, and their labels where a pattern has them, by sample."""
        if self.patterns is not None:
            return matching(self.root, self.patterns[name])
        return {stem: (path, None) for stem, path in by_stem(self.there()[name], self.allow_vrt).items()}

    def left_out(self) -> list[Path]:
        """Return the folders that are not used."""
        used = self.used()
        return [path for name, path in self.there().items() if name not in used]

    def naming(self, left_out: str | None = None) -> str:
        """Return the option ``sensor`` with every folder named, as an example for the user to complete.

        ``left_out`` is a folder that the example leaves out.
        """
        known = self.sensor if isinstance(self.sensor, Mapping) else {self.word: self.sensor}
        words = {name: repr(known[name]) if isinstance(known.get(name), str) else "..." for name in self.there()}
        if left_out is not None:
            words[left_out] = repr(LEFT_OUT)
        return "{" + ", ".join(f"{name!r}: {sensor}" for name, sensor in words.items()) + "}"

    def named(self, name: str) -> bool:
        """Return whether the option ``sensor`` is about the folder ``name``; one for all is about ``image``."""
        return name in self.sensor if isinstance(self.sensor, Mapping) else name == self.word

    def description(self, path: Path, name: str) -> dict[str, Any]:
        """Return the facts about a file of the folder ``name`` (sensor, bands, gsd_m, crs, date, nodata).

        Options of the user come before the files ``bands.yaml`` beside it. A sensor without a name gets that of its
        folder.
        """
        options = {
            "sensor": option(self.sensor, name) if self.named(name) else None,
            "bands": option(self.bands, name) if self.named(name) or isinstance(self.bands, Mapping) else None,
            "gsd_m": option(self.gsd_m, name),
            "crs": option(self.crs, name),
        }
        beside = {**sidecar(self.root / path.parent.name), **sidecar(path.parent), **sidecar(path)}
        facts = {**beside, **{key: value for key, value in options.items() if value is not None}}
        if isinstance(options["sensor"], Sensor):  # it has its own bands
            facts["bands"] = options["bands"]
        elif isinstance(facts.get("bands"), Mapping):
            facts |= {"sensor": own_sensor(path, str(facts.get("sensor") or name), facts["bands"]), "bands": None}
        elif not self.named(name):
            facts.setdefault("sensor", name)
        return facts

    def check_size(self, path: Path, name: str, header: RasterHeader) -> None:
        """Refuse a pixel size that the option ``gsd_m`` names for a folder whose files have another one."""
        named = self.gsd_m.get(name) if isinstance(self.gsd_m, Mapping) else None
        if named is not None and not all(math.isclose(named, size, rel_tol=SAME_SIZE) for size in header.grid.pixel_m):
            raise ConfigError(
                f"{path}: gsd_m names pixels of {named:g} m for {name!r}, but the file has a coordinate system and "
                f"pixels of {max(header.grid.pixel_m):g} m: leave gsd_m out for it, or correct the file"
            )

    def bands_of(self, path: Path, name: str) -> Bands:
        """Return what the bands of a file are; where nothing describes them, an error explains what to do."""
        facts = self.description(path, name)
        header = RasterHeader.of(path, facts.get("gsd_m"), facts.get("crs"), self.allow_vrt)
        self.check_size(path, name, header)
        try:
            return Bands.of(header, facts.get("sensor"), facts.get("bands"))
        except AtomizerError as error:
            if self.named(name):
                raise
            raise ConfigError(
                f"sensor= does not name {path.parent}, and its files do not describe their bands: name its sensor, "
                f"sensor={self.naming()}, or leave it out, sensor={self.naming(name)} ({error})"
            ) from error


SUFFIX = re.compile(r"\.(?:tiff?|vrt)$", re.IGNORECASE)


def geotiffs_in(folder: Path, vrt: bool = False) -> Iterator[Path]:
    """Yield the GeoTIFFs of a folder in order, without hidden ones such as the ``._a.tif`` of some systems.

    With ``vrt`` VRT files count, too.
    """
    for path in sorted(folder.glob("*")):
        known = SUFFIX.search(path.name) and (vrt or path.suffix.casefold() != ".vrt")
        if known and not path.name.startswith(".") and path.is_file():
            yield path


def by_stem(folder: Path, vrt: bool = False) -> dict[str, Path]:
    """Return the GeoTIFFs of a folder by name without suffix; nothing if there is no such folder."""
    paths: dict[str, Path] = {}
    for path in geotiffs_in(folder, vrt):
        paths.setdefault(without_suffix(path.name), path)
    return paths


def doubles(folder: Path) -> list[Path]:
    """Return the GeoTIFFs of a folder that :func:`by_stem` leaves out, such as ``a.tiff`` beside ``a.tif``."""
    used = set(by_stem(folder).values())
    return [path for path in geotiffs_in(folder) if path not in used]


def without_suffix(name: str) -> str:
    """Return a name without ``.tif`` in the form in which names are compared: an ü may be one letter or two."""
    return unicodedata.normalize("NFC", SUFFIX.sub("", name.strip()))


def band_by_band(
    patterns: Mapping[str, str], sensor: OneOrEach, bands: Any
) -> tuple[dict[str, str], dict[str, str | Sensor], dict[str, Any]]:
    """Return patterns, sensors and bands by name, with an entry ``NAME/BAND`` for each file of one with ``{band}``."""
    files: dict[str, str] = {}
    sensors: dict[str, str | Sensor] = {}
    names: dict[str, Any] = {}
    for name, pattern in patterns.items():
        kind, own = option(sensor, name), option(bands, name)
        if "{band}" in pattern and own is None:
            raise ConfigError(f"{pattern!r} is a file for each band: pass bands={{{name!r}: [...]}}")
        for band in own if "{band}" in pattern else ("",):
            entry = f"{name}/{band}" if band else name
            files[entry] = pattern.replace("{band}", band)
            sensors |= {} if kind is None else {entry: kind}
            names |= {} if own is None else {entry: [band] if band else own}
    return files, sensors, names


def matching(root: Path, pattern: str) -> dict[str, tuple[Path, str | None]]:
    """Return the files below ``root`` that fit a pattern, with their label, by the name of the sample.

    ``{name}`` in a pattern such as ``{label}/{name}.jpg`` stands for the name, ``{label}`` for that of its class.
    """
    parts = re.split(r"\{(\w+)\}", pattern)
    unknown = set(parts[1::2]) - {"name", "label"}
    if unknown or "name" not in parts[1::2] or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ConfigError(f"{pattern!r} has to be a path within the folder with {{name}} in it, and may have {{label}}")
    seen: set[str] = set()
    words = [re.escape(part) for part in parts]
    for at in range(1, len(parts), 2):  # the same word again stands for the same text
        words[at] = f"(?P={parts[at]})" if parts[at] in seen else f"(?P<{parts[at]}>[^/]+)"
        seen.add(parts[at])
    files: dict[str, tuple[Path, str | None]] = {}
    for path in sorted(root.glob("".join("*" if at % 2 else glob.escape(part) for at, part in enumerate(parts)))):
        match = re.fullmatch("".join(words), path.relative_to(root).as_posix())
        if match is None or path.name.startswith(".") or not path.is_file():
            continue
        name = unicodedata.normalize("NFC", match["name"])
        if name in files:
            raise DataError(path, f"has the same name, {name!r}, as {files[name][0]}: names of samples must differ")
        files[name] = (path, match.groupdict().get("label"))
    if not files:
        raise DataError(root / pattern, "no file fits this pattern")
    return files


def assigned(masks: Mapping[str, Path], images: Collection[str]) -> dict[str, list[Path]]:
    """Return the masks that may belong to each image: the one of its name, else those whose names begin with it.

    A mask that could belong to several images (``tile_2_mask`` to ``tile`` and ``tile_2``) goes to the longest name.
    """
    masks_of: dict[str, list[Path]] = {}
    for stem, path in masks.items():
        ends = [end for end, letter in enumerate(stem) if not (letter.isascii() and letter.isalnum())]
        image = next((stem[:end] for end in (len(stem), *reversed(ends)) if stem[:end] in images), None)
        if image is not None:
            masks_of.setdefault(image, []).append(path)
    return {image: [masks[image]] if image in masks else paths for image, paths in masks_of.items()}

"""Samples of other libraries: dictionaries of TorchGeo, GEO-Bench and terratorch become a :class:`Sample`.

None of those libraries is needed, or imported, here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel, channel_tuple
from atomizer_io.data.grid import Grid
from atomizer_io.data.inputs import option, tensor
from atomizer_io.data.sample import Meta, Sample, dates_of
from atomizer_io.data.sensors import Sensor, get
from atomizer_io.data.task_spec import IGNORE
from atomizer_io.errors import AtomsError, ConfigError
from atomizer_io.io.crs import as_gsd
from atomizer_io.io.dates import listed_date
from atomizer_io.io.sample_location import SampleLocation

LAYOUTS = ("TCHW", "CTHW")
TARGETS = ("mask", "label", "target")

Channels = Iterable[Channel] | Sequence[str]


class Indexable(Protocol):
    """Anything that has a length and items."""

    def __len__(self) -> int:
        """Return the number of items."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the item ``index``."""


def from_torchgeo(
    sample: Mapping[str, Any],
    channels: Channels | Mapping[str, Channels],
    *,
    sensor: str | Sensor | Mapping[str, str | Sensor] | None = None,
    gsd_m: float | Mapping[str, float] | None = None,
    day_of_year: Any = None,
    nodata: float | None = None,
    ignore_index: int | Sequence[int] | None = (255, -1),
    layout: str = "TCHW",
    crs: Any = None,
    id: str | None = None,
) -> Sample:
    """Return a dictionary with ``image`` and ``mask`` or ``label`` as a sample.

    ``image`` is (C, H, W) or a series (T, C, H, W); with ``layout="CTHW"`` (terratorch, PANGAEA) (C, T, H, W). Several
    sensors, as a dictionary in ``image`` or as ``image_<name>``, take ``channels={name: ...}``; each name given must
    be there. ``channels`` are channels, or names of bands of ``sensor``.

    The pixel size is ``gsd_m``, else that of ``transform`` or ``bounds`` in ``crs`` (without one, coordinates within
    ±360 and ±90 count as degrees), else the channels' common ``gsd_m``. All images and the mask cover the same area.
    Dates are ``day_of_year`` (one, or one per step, or by name), else ``dates``, ``dates_<name>`` or
    ``temporal_coords``, else the time in ``bounds`` where that is a single day.

    NaN and ``nodata`` are absent: give ``nodata=0`` where a library has filled gaps with zeros. A mask or label of
    whole numbers is a class, ``ignore_index`` being ignored; one of floats a value, NaN or ``nodata`` being ignored.
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout is {layout!r}; use {' or '.join(LAYOUTS)}")
    images = images_of(sample, channels)
    location = SampleLocation.of(sample, crs)
    atoms, grids = AtomSet(), []
    for name, image in images.items():
        listed = channels_of(channels, sensor, name)
        steps = series(image, len(listed), layout, name)
        gsd = pixel_size(option(gsd_m, name), location, steps.shape[-2:], len(images) == 1, listed)
        grids.append(Grid(steps.shape[-2], steps.shape[-1], gsd_m=gsd))
        days = days_of(sample, location, option(day_of_year, name), name, len(steps))
        numbered = len(steps) > 1 and all(day is None for day in days)  # else each day is a step
        for step, day in enumerate(days):
            timestep = step if numbered else None
            atoms += AtomSet.from_raster(steps[step], listed, gsd, day, nodata=nodata, timestep=timestep)
    first = grids[0]
    target = target_of(sample, ignore_index, nodata)
    meta = Meta(
        str(sample.get("filename", "")) if id is None else id,
        crs=location.name,
        transform=location.transform(target.shape if target.ndim == 2 else first.shape),
        origin=location.origin,
        dates=dates_of(atoms),
    )
    if target.ndim == 0:
        return Sample.of_scene(atoms, target, meta)
    height, width = target.shape
    across, down = first.size_m
    grid = first if target.shape == first.shape else Grid(height, width, gsd_m=(across / width, down / height))
    return Sample.of_map(atoms, grid, target, meta)


class TorchGeoDataset(torch.utils.data.Dataset[Sample]):
    """A dataset of TorchGeo's dictionaries, as one of samples; ``options`` are those of :func:`from_torchgeo`."""

    def __init__(self, dataset: Indexable, channels: Channels | Mapping[str, Channels], **options: Any) -> None:
        unknown = set(options) - set(from_torchgeo.__kwdefaults__ or ()) | set(options) & {"id"}
        if unknown:
            raise ConfigError(f"there is no option {', '.join(sorted(unknown))}; see from_torchgeo")
        self.dataset, self.options = dataset, options
        names: Iterable[str] = channels if isinstance(channels, Mapping) else ("",)
        described = {name: channels_of(channels, options.get("sensor"), name) for name in names}
        self.described = described if isinstance(channels, Mapping) else described[""]

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels of all images, for ``create_model(channels=...)``."""
        listed = self.described.values() if isinstance(self.described, dict) else (self.described,)
        return tuple(dict.fromkeys(channel for several in listed for channel in several))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"the dataset has {len(self)} samples, there is no number {index}")
        item = self.dataset[index % len(self)]
        name = item.get("filename", index % len(self)) if isinstance(item, Mapping) else index
        try:
            return from_torchgeo(item, self.described, id=str(name), **self.options)
        except AtomsError as error:
            raise AtomsError(f"sample {index}: {error}") from error


def images_of(sample: Mapping[str, Any], channels: Any) -> dict[str, Tensor]:
    """Return the images of a sample by name; the name is empty if there is only one."""
    if not isinstance(sample, Mapping):
        raise AtomsError(f"a sample is a dictionary with 'image' and 'mask' or 'label', got {type(sample).__name__}")
    whole = sample.get("image")
    parts = dict(whole) if isinstance(whole, Mapping) else {}
    parts |= {key.removeprefix("image_"): value for key, value in sample.items() if is_image(key, value)}
    if isinstance(channels, Mapping):
        missing = [name for name in channels if name not in parts]
        if missing or not channels:
            raise AtomsError(f"no image {', '.join(missing)} in the sample; it has {', '.join(parts) or 'one image'}")
        return {name: tensor(parts[name], f"image {name}") for name in channels}
    if whole is None or isinstance(whole, Mapping):
        if parts:
            raise AtomsError(f"the sample has images {', '.join(parts)}: pass channels={{{next(iter(parts))!r}: ...}}")
        raise AtomsError(f"the sample has no 'image'; it has {', '.join(map(str, sample)) or 'nothing'}")
    return {"": tensor(whole, "image")}


def is_image(key: Any, value: Any) -> bool:
    """Return whether an entry is ``image_<name>`` (and not a name or a number, such as ``image_id``)."""
    return isinstance(key, str) and key.startswith("image_") and getattr(value, "ndim", 0) > 2


def channels_of(channels: Any, sensor: Any, name: str) -> tuple[Channel, ...]:
    """Return the channels of the image ``name``, looked up in ``sensor`` where they are names."""
    listed = list(channels[name] if isinstance(channels, Mapping) else channels)
    if not any(isinstance(channel, str) for channel in listed):
        return channel_tuple(listed)
    own = option(sensor, name)
    if own is None:
        raise ConfigError(f"{', '.join(map(str, listed[:3]))} … are bands of which sensor? Pass sensor='sentinel2'")
    return (own if isinstance(own, Sensor) else get(own)).pick(*listed)


def series(image: Tensor, count: int, layout: str, name: str) -> Tensor:
    """Return an image as (T, C, H, W)."""
    what = f"image {name}".strip()
    if image.ndim == 3:
        image = image[None]
    elif image.ndim == 4 and layout == "CTHW":
        image = image.transpose(0, 1)
    if image.ndim != 4:
        raise AtomsError(f"{what} has shape {tuple(image.shape)}; expected (C, H, W), or a series of four dimensions")
    if image.shape[1] != count:
        alternative = LAYOUTS[1 - LAYOUTS.index(layout)]
        hint = f"; if it is {alternative}, pass layout={alternative!r}" if image.shape[0] == count else ""
        raise AtomsError(f"{what} has {image.shape[1]} channels as {layout}, {count} are named{hint}")
    return image


def pixel_size(
    named: float | None, location: SampleLocation, shape: Sequence[int], alone: bool, channels: tuple[Channel, ...]
) -> float | tuple[float, float]:
    """Return the metres per pixel: as named, by the location of the sample, or by its channels."""
    if named is not None:
        return float(named)
    if location.metres is None:
        known = {channel.gsd_m for channel in channels}
        only = known.pop() if len(known) == 1 else None
        if only is None:
            raise AtomsError("neither the sample nor its channels state the pixel size: pass gsd_m=")
        return only
    pixel = location.pixel(shape)
    if alone and location.step not in (None, pixel):
        raise AtomsError(
            f"{shape[0]} × {shape[1]} pixels of the size that the sample states do not fill its bounds: if the image "
            "was cropped or resized, pass gsd_m="
        )
    return as_gsd(pixel[0] * location.metres[0], pixel[1] * location.metres[1])


def days_of(sample: Mapping[str, Any], location: SampleLocation, dates: Any, name: str, steps: int) -> list[Any]:
    """Return one date per step, None where it is unknown."""
    if dates is None:
        keys = (f"dates_{name}", f"{name}_dates") if name else ()
        dates = next((sample[key] for key in (*keys, "dates") if sample.get(key) is not None), None)
        dates = option(dates, name)
    if dates is None and sample.get("temporal_coords") is not None:
        rows = torch.as_tensor(sample["temporal_coords"]).reshape(-1, 2).tolist()  # year, days after 1 January
        dates = [datetime.date(int(year), 1, 1) + datetime.timedelta(days=int(day)) for year, day in rows]
    if dates is None:
        dates = location.day if steps == 1 else None
    if isinstance(dates, np.ndarray | np.datetime64) and dates.dtype.kind == "M":
        dates = dates.astype("datetime64[D]")
    if hasattr(dates, "tolist"):
        dates = dates.tolist()
    days = list(dates) if isinstance(dates, list | tuple) else [dates] * steps
    if len(days) != steps:
        raise AtomsError(f"{len(days)} dates for {steps} steps of image {name}: pass day_of_year=")
    return [listed_date(day) for day in days]


def target_of(sample: Mapping[str, Any], ignore_index: int | Sequence[int] | None, nodata: float | None) -> Tensor:
    """Return the target of a sample: a number, or a map (H, W)."""
    key = next((key for key in TARGETS if sample.get(key) is not None), None)
    if key is None:
        raise AtomsError(f"the sample has no target ({', '.join(TARGETS)}); it has {', '.join(map(str, sample))}")
    target = torch.as_tensor(sample[key]) if isinstance(sample[key], int | float) else tensor(sample[key], key)
    while target.ndim and target.shape[0] == 1 and target.ndim != 2:
        target = target[0]
    if target.ndim not in (0, 2):
        raise AtomsError(f"{key} has shape {tuple(target.shape)}; expected one number or a map (H, W)")
    if target.is_floating_point():
        return target if nodata is None else target.masked_fill(target == nodata, torch.nan)
    ignored = (ignore_index,) if isinstance(ignore_index, int) else tuple(ignore_index or ())
    target = target.to(torch.int64)
    return target.masked_fill(torch.isin(target, torch.tensor(ignored, dtype=torch.int64)), IGNORE)

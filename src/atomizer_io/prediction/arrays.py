"""Maps from xarray to xarray: arrays with coordinates go through files, as rasters do."""

from __future__ import annotations

import datetime
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from atomizer_io.data.sensors import Sensor
from atomizer_io.errors import AtomsError
from atomizer_io.models.base import Model
from atomizer_io.prediction.products import LAYERS
from atomizer_io.prediction.rasters import predict_raster


def predict_xarray(
    model: Model | str | Path,
    data: Any,
    *,
    sensor: str | Sensor | Sequence[str | Sensor | None] | None = None,
    date: Any = None,
    gsd: float | None = None,
    layers: Sequence[str] = (),
    **how: Any,
) -> Any:
    """Return the map of a DataArray (band, y, x) or of a time series (time, band, y, x) as a DataArray (y, x).

    A Dataset is taken as one band a variable. Several of them, each on its own grid, come as a list, with a list of
    sensors and dates beside it. The coordinate ``band`` names bands of ``sensor``; ``time`` has the dates, else
    ``date``. The coordinate system and the value without data are those that rioxarray finds; ``gsd`` is the pixel size
    in metres of arrays without a coordinate system, whose first row lies in the north unless ``y`` rises. With
    ``layers`` the result is a Dataset: the map, and each layer by its name. Keywords are those of
    :func:`predict_raster`, of which ``gsd_m`` is the pixel size of the map. Needs rioxarray.
    """
    import rioxarray
    import xarray
    from rasterio.errors import NotGeoreferencedWarning

    arrays = list(data) if isinstance(data, list | tuple) else [data]
    sensors = list(sensor) if isinstance(sensor, list | tuple) else [sensor] * len(arrays)
    dates = list(date) if isinstance(date, list | tuple) else [date] * len(arrays)
    if not len(arrays) == len(sensors) == len(dates):
        raise AtomsError(f"{len(arrays)} arrays, {len(sensors)} sensors and {len(dates)} dates: one of each is needed")
    with tempfile.TemporaryDirectory(prefix="atomizer-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # arrays without a coordinate system have a pixel size
        rasters: list[dict[str, Any]] = []
        images: list[Any] = []
        for array, of, day in zip(arrays, sensors, dates, strict=True):
            for image, taken in _images(array, day, gsd):
                path = Path(folder) / f"raster{len(rasters)}.tif"
                bare = image.rio.crs is None  # such a file has its first row in the north
                (image.isel(_reversed(image)) if bare else image).rio.to_raster(path)
                images.append(image)
                known = {"path": path, "sensor": of, "bands": _bands(image), "date": taken}
                rasters.append(known | {"gsd_m": gsd if bare else None})
        product = predict_raster(model, rasters, Path(folder) / "map.tif", layers=layers, **how)
        first = None if how.get("gsd_m") else images[how.get("like", 0)]
        files = {name: product.files[f"{name}.tif"] for name in ("map", *LAYERS) if f"{name}.tif" in product.files}
        maps = {}
        for name, path in files.items():
            opened: Any = rioxarray.open_rasterio(path)
            with opened:
                maps[name] = _like(opened.load(), first)
    result = maps.pop("map").squeeze("band", drop=True).rename("prediction")
    if product.hectares:
        result.attrs |= {"classes": list(product.codes), "codes": list(product.codes.values())}
    if product.unit is not None:
        result.attrs["units"] = product.unit
    if product.target is not None:
        result.attrs["long_name"] = product.target
    if not maps:
        return result
    bands = {name: layer.rename(band=f"{name}_band") for name, layer in maps.items()}
    return xarray.Dataset({"map": result, **bands})


def _images(array: Any, day: Any, gsd: float | None) -> Iterator[tuple[Any, Any]]:
    """Yield the images (band, y, x) of an array, each with its date."""
    array = array.to_array("band") if hasattr(array, "data_vars") else array
    if not hasattr(array, "rio"):
        raise AtomsError(
            f"{type(array).__name__} is not an array of xarray: pass xarray.DataArray(values, dims=('band', 'y', 'x'), "
            "coords={'band': ['B02', ...]}) and gsd=, its pixel size in metres"
        )
    if "time" in array.dims:
        for number, step in enumerate(array["time"].values):
            taken = datetime.date.fromisoformat(str(step)[:10])
            yield from _images(array.isel(time=number, drop=True), taken, gsd)
        return
    if "band" not in array.dims:
        array = array.expand_dims("band")
    if array.ndim != 3 or (array.rio.crs is None and gsd is None):
        raise AtomsError(
            "an array has dimensions (band, y, x) and a coordinate system (rio.write_crs) or else gsd=, its pixel size "
            f"in metres, not {array.dims} in {array.rio.crs}"
        )
    yield array.transpose("band", array.rio.y_dim, array.rio.x_dim), day


def _bands(image: Any) -> tuple[str, ...] | None:
    """Return the names of the bands, or None where the bands are only numbered."""
    names = image["band"].values.tolist() if "band" in image.coords else []
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def _like(layer: Any, first: Any) -> Any:
    """Return ``layer`` with the axes and coordinates of the array ``first``, so that the two can be combined."""
    if first is None:
        return layer
    y, x = first.rio.y_dim, first.rio.x_dim
    layer = layer.rename({"y": y, "x": x}) if (y, x) != ("y", "x") else layer
    own = {axis: first[axis] for axis in (y, x) if axis in first.coords}
    return layer.isel(_reversed(first)).drop_vars([y, x], errors="ignore").assign_coords(own)


def _reversed(image: Any) -> dict[Any, slice]:
    """Return the axes to reverse so that the first row lies in the north and the first column in the west."""
    axes = {image.rio.y_dim: 1, image.rio.x_dim: -1}
    known = {axis: image[axis] for axis in axes if axis in image.coords and len(image[axis]) > 1}
    return {axis: slice(None, None, -1) for axis, along in known.items() if (along[-1] - along[0]) * axes[axis] > 0}

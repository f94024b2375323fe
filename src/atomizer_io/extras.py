"""Which optional extra of this package installs a library that is missing."""

from __future__ import annotations

EXTRAS = {
    "rasterio": "geo",
    "laspy": "geo",
    "lazrs": "geo",
    "pyproj": "geo",
    "h5py": "geo",
    "xarray": "geo",
    "rioxarray": "geo",
    "pyogrio": "geo",
    "shapely": "geo",
    "pyarrow": "geo",
    "matplotlib": "train",
    "lightning": "train",
    "torchmetrics": "train",
    "jsonargparse": "train",
    "dask": "dask",
    "distributed": "dask",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "pystac": "export",
    "sklearn": "baselines",
}


def advice(error: ModuleNotFoundError) -> str | None:
    """Return what to install, or None if the missing module is not an optional one."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    return None if extra is None else f"this needs {library}: pip install 'atomizer-io[{extra}]'"

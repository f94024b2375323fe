"""Which optional extra of this package installs a library, and which of them are there."""

from __future__ import annotations

import importlib.metadata
import importlib.util

EXTRAS = {
    "geo": ("rasterio", "laspy", "lazrs", "pyproj", "h5py", "xarray", "rioxarray", "pyogrio", "shapely", "pyarrow"),
    "train": ("matplotlib", "lightning", "torchmetrics", "jsonargparse"),
    "dask": ("dask", "distributed"),
    "embed": ("zarr",),
    "export": ("onnx", "onnxscript", "onnxruntime", "pystac"),
    "view": ("starlette", "uvicorn"),
    "notebook": ("anywidget",),
    "baselines": ("sklearn",),
    "completion": ("shtab",),
}


def advice(error: ModuleNotFoundError) -> str | None:
    """Return what to install, or None if the missing module is not an optional one."""
    library = (error.name or "").partition(".")[0]
    extra = next((extra for extra, libraries in EXTRAS.items() if library in libraries), None)
    return None if extra is None else f"this needs {library}: pip install 'atomizer-io[{extra}]'"


def version(library: str) -> str:
    """Return the version of an installed library without importing it; empty where it is not recorded."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def installed() -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return by extra its libraries that are installed, as text with their versions, and those that are missing."""
    parts = {}
    for extra, libraries in EXTRAS.items():
        missing = [name for name in libraries if importlib.util.find_spec(name) is None]
        there = {name: f"{name} {version(name)}".strip() for name in libraries if name not in missing}
        parts[extra] = there, missing
    return parts

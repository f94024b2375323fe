"""Open a page on this machine: click a map, switch sensors off, turn the cost dial, label, see the map change.

atomizer view runs/flood/best --raster s2.tif --sensor sentinel2 --raster s1.tif --sensor sentinel1
atomizer view runs/flood/best --raster july.tif --date 2021-07-04 --labels fields.gpkg --class-column crop
atomizer view runs/lidar/best --points tile.laz
atomizer view

Without arguments it opens the model and the scene that `atomizer demo` left in demo-output; MODEL may be the folder of
another demo. --sensor, --bands, --date, --gsd, --crs and --nodata belong to the --raster before them. The server
listens on 127.0.0.1 only and needs the token in the address; nothing is written until "save" or "train" is pressed.
"""

from __future__ import annotations

import argparse
import time
import webbrowser
from pathlib import Path
from typing import Any

from atomizer_io.cli.predict import add_rasters, rasters_of

DEMO = Path("demo-output")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer view``."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="folder of a model (default: that of the demo)")
    add = parser.add_argument_group("inputs").add_argument
    add_rasters(add, "a raster of the scene; may be repeated", "coordinate system of a raster without one")
    add("--points", type=Path, metavar="FILE", help="a point cloud instead, with rasters as images over it")
    parser.set_defaults(points_crs=None)
    add("--labels", type=Path, metavar="FILE", help="vector file of labels to begin with")
    add("--class-column", metavar="NAME", help="its column of the class (default: the only one there is)")
    text = "the part to open, in units of the first raster's CRS (default: all, or the middle 1024 × 1024 pixels)"
    add("--bounds", type=float, nargs=4, metavar=("W", "S", "E", "N"), help=text)
    add = parser.add_argument_group("page").add_argument
    text = 'folder that "save" and "train" write to (default: %(default)s)'
    add("-o", "--output", type=Path, default=Path("atomizer-view"), metavar="FOLDER", help=text)
    add("--port", type=int, default=0, help="port of the local server (default: a free one)")
    add("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    """Open the page and serve it until interrupted."""
    import starlette  # noqa: F401  before the work, not after it
    import uvicorn  # noqa: F401

    from atomizer_io.viewer.server import Server

    with Server(session_of(args), args.port) as server:
        print(f"\nopen      {server.address}\nend       Ctrl+C", flush=True)
        if not args.no_browser:
            webbrowser.open(server.address)
        try:
            while server.thread.is_alive():
                time.sleep(1)
        except KeyboardInterrupt:
            print("ended")
    return 0


def session_of(args: argparse.Namespace) -> Any:
    """Return the session of the options; without any, the demo's."""
    from atomizer_io.cli.info import model_line
    from atomizer_io.errors import ConfigError
    from atomizer_io.viewer.clouds import CloudSession, CloudView
    from atomizer_io.viewer.labels import read
    from atomizer_io.viewer.scenes import RasterView
    from atomizer_io.viewer.session import Session

    rasters, model = rasters_of(args), args.model
    if args.points is not None:
        if model is None:
            raise ConfigError("name the model that predicts the points")
        print(model_line(model))
        return CloudSession(CloudView(str(model), args.points, rasters, args.points_crs))
    demo = Path(model or DEMO)
    if not rasters and (model is None or (demo / "run" / "best").is_dir()):
        model, rasters = demo / "run" / "best", demo_rasters(demo)
    if model is None or not rasters:
        raise ConfigError("name a model and at least one --raster, or the folder of a demo (default: demo-output)")
    print(model_line(model))
    view = RasterView(str(model), rasters, None if args.bounds is None else tuple(args.bounds))
    for source in view.sources:
        print(source)
    if view.cropped and args.bounds is None:
        print(f"the scene is large: its middle {view.grid.width} × {view.grid.height} pixels are open (--bounds)")
    labels = None if args.labels is None else read(args.labels, view.grid.crs, args.class_column)
    return Session(view, args.output, labels)


def demo_rasters(folder: Path) -> list[dict[str, Any]]:
    """Return the rasters of the scene that the demo wrote."""
    from atomizer_io.errors import ConfigError

    files = sorted((folder / "scene").glob("*.tif"))
    if not files:
        raise ConfigError(f"there is no demo in {folder}: run `atomizer demo` first, or name a model and --raster")
    return [{"path": path} for path in files]  # facts lie beside them

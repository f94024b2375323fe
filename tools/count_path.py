"""Count how much code runs between a GeoTIFF and its map, and in a training of two steps.

    python tools/count_path.py                  # this tree
    python tools/count_path.py --src ../old/src # another one, counted in the same way

*Functions* are the distinct functions and methods of ``atomizer_io`` that are entered, lambdas included, but neither
comprehensions nor what runs only because a module is imported. *Files* are the files that hold them. A *change of file*
is a pair of functions in different files of which the first calls the second, directly or through another library.
Each path runs twice in a process of its own and the second run is counted, so that imports and caches do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SMALL = {"width": 16, "depth": 1, "self_head_dim": 8, "cross_head_dim": 8, "global_latents": 2}
BANDS = ("B02", "B03", "B08")
IMPORTED = ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Counted:
    """The functions of a package that threads of this process enter, and which of them call which."""

    def __init__(self, package: Path) -> None:
        self.package = f"{package}{os.sep}"
        self.functions: set[CodeType] = set()
        self.calls: set[tuple[CodeType, CodeType]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call: the signature is that of ``sys.setprofile``."""
        if event != "call" or not self.is_function(frame.f_code):
            return
        caller = frame.f_back
        while caller is not None and not self.is_function(caller.f_code):
            if caller.f_code.co_filename.startswith("<frozen importlib"):
                return  # runs because a module is imported
            caller = caller.f_back
        self.functions.add(frame.f_code)
        if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
            self.calls.add((caller.f_code, frame.f_code))

    def is_function(self, code: CodeType) -> bool:
        """Return whether code is that of a function of the package, and not the body of a module or class."""
        optimized = bool(code.co_flags & 1)  # CO_OPTIMIZED: functions have it, bodies of classes have not
        return optimized and code.co_name not in IMPORTED and code.co_filename.startswith(self.package)

    def by_file(self) -> Counter[str]:
        """Return the number of functions that were entered in each file."""
        return Counter(self.file(code) for code in self.functions)

    def names(self) -> dict[str, list[str]]:
        """Return the functions of each file in the order of their lines, with those that call each from other files."""
        callers: dict[CodeType, set[str]] = {}
        for caller, called in self.calls:
            callers.setdefault(called, set()).add(f"{self.file(caller)}:{caller.co_qualname}")
        names: dict[str, list[str]] = {}
        for code in sorted(self.functions, key=lambda one: (one.co_filename, one.co_firstlineno)):
            names.setdefault(self.file(code), []).append(" < ".join((code.co_qualname, *sorted(callers.get(code, ())))))
        return names

    def file(self, code: CodeType) -> str:
        """Return the file of a function, as a path inside the package."""
        return os.path.relpath(code.co_filename, self.package)


def write_raster(path: Path, values: Any, names: tuple[str, ...] | None = None) -> None:
    """Write a GeoTIFF of (C, H, W) values."""
    import rasterio
    from rasterio.transform import from_origin

    path.parent.mkdir(parents=True, exist_ok=True)
    size = dict(zip(("count", "height", "width"), values.shape, strict=True))
    place = {"crs": "EPSG:32631", "transform": from_origin(500_000, 4_650_000, 10, 10)}
    with rasterio.open(path, "w", driver="GTiff", dtype=values.dtype, **size, **place) as file:
        file.write(values)
        if names is not None:
            file.descriptions = names


def map_of_a_geotiff(folder: Path) -> Callable[[], object]:
    """Return the function that maps a small raster with a small model."""
    import numpy as np

    import atomizer_io as aio

    values = np.random.default_rng(0).uniform(500, 3000, (3, 40, 40)).astype(np.uint16)
    write_raster(folder / "scene.tif", values, BANDS)
    aio.create_model("atomizer_io_tiny", num_outputs=2, class_names=("dry", "wet"), **SMALL).save_pretrained(folder)
    rasters = [{"path": folder / "scene.tif", "sensor": "sentinel2"}]
    how = aio.Execution(overwrite=True)
    return lambda: aio.predict_raster(folder, rasters, folder / "map.tif", execution=how)


def training_of_two_steps(folder: Path) -> Callable[[], object]:
    """Return the function that trains two steps on a folder of small rasters and scores what came out."""
    import numpy as np

    from atomizer_io.training import config
    from atomizer_io.training.run import train

    for number, split in enumerate(("train", "train", "train", "val")):
        values = np.random.default_rng(number).uniform(500, 3000, (3, 16, 16)).astype(np.uint16)
        write_raster(folder / split / "image" / f"{number}.tif", values, BANDS)
        write_raster(folder / split / "mask" / f"{number}.tif", (values[2:] > np.median(values[2])).astype(np.uint8))
    options = {"sensor": "sentinel2", "bands": list(BANDS), "classes": ["bare", "green"]}
    data = {"name": "geotiff-folder", "root": str(folder), "options": options, "test": None, "workers": 0}
    training = {"max_steps": 2, "batch_size": 1, "queries": 50, "loggers": [], "accelerator": "cpu"}
    model = {"preset": "atomizer_io_tiny", "settings": SMALL}
    names = iter(("first", "second"))

    def run() -> object:
        document = {"data": data, "model": model, "training": training, "output": str(folder), "name": next(names)}
        return train(config.parse(document), progress=False)

    return run


PATHS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "GeoTIFF -> map": map_of_a_geotiff,
    "two training steps": training_of_two_steps,
}


def count(name: str) -> dict[str, Any]:
    """Run a path twice in this process; return what the second run entered."""
    import torch

    import atomizer_io

    torch.set_num_threads(1)
    counted = Counted(Path(atomizer_io.__file__).parent)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = PATHS[name](Path(folder))
        run()
        threading.setprofile(counted)
        sys.setprofile(counted)
        try:
            run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    files = counted.by_file()
    return {
        "functions": len(counted.functions),
        "files": dict(files.most_common()),
        "changes": len(counted.calls),
        "names": counted.names(),
    }


def lines(folder: Path) -> int:
    """Return the number of lines of Python in a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def main() -> None:
    """Print the lines of each package and the table of paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, default=HERE / "src", help="the src folder to count (default: this tree)")
    parser.add_argument("--files", action="store_true", help="also print the functions entered in each file")
    parser.add_argument(
        "--list", action="store_true", help="also print these functions and who calls them from other files"
    )
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.path is not None:
        result = count(args.path)
        sys.stdout.write("\n" + json.dumps(result))
        return
    source = args.src.resolve()
    for folder in (source / "atomizer_io", source / "atomizer_lab", source.parent / "tests"):
        print(f"{folder.relative_to(source.parent)!s:24} {lines(folder):7,d} lines of Python")
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    print(f"\n{'':24} {'functions':>9} {'files':>6} {'changes of file':>16}")
    for name in PATHS:
        command = [sys.executable, __file__, "--path", name]
        printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        path = json.loads(printed.splitlines()[-1])
        print(f"{name:24} {path['functions']:9,d} {len(path['files']):6,d} {path['changes']:16,d}")
        for file, functions in path["files"].items() if args.files or args.list else ():
            print(f"    {file:50} {functions:4,d}")
            for function in path["names"][file] if args.list else ():
                print(f"        {function}")


if __name__ == "__main__":
    main()

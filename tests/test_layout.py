"""The folder is the data flow: imports go one way, and only some rooms touch file formats."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import atomizer_io
from atomizer_io.extras import EXTRAS

PACKAGE = Path(atomizer_io.__file__).parent
FILE_FORMATS = {"rasterio", "laspy", "h5py", "pyproj"}
MAY_READ_FILES = {"bench/data.py", "bench/layouts.py", "sensors/files.py", "datasets", "prediction"}
NEED_LIGHTNING = {"training/callbacks.py", "training/progress.py", "training/state.py", "training/task.py"}
# what each room must not know of
FORBIDDEN = {
    "atoms.py": {"model", "datasets", "bench", "cli"},
    "grid.py": {"atoms", "sensors", "model", "datasets", "bench", "cli"},
    "sensors": {"model", "datasets", "bench", "cli"},
    "training": {"cli", "prediction"},
    "decoding": {"datasets", "training", "bench", "cli", "prediction"},
    "model": {"datasets", "training", "prediction", "decoding", "export", "bench", "cli"},
    "datasets": {"bench", "cli", "prediction", "training"},
    "bench": {"cli"},
    "export": {"datasets", "training", "prediction", "decoding", "bench", "cli"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(room: str) -> list[Path]:
    path = PACKAGE / room
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert found, f"{room} has no sources: has the layout changed?"
    return found


@pytest.mark.parametrize("room", FORBIDDEN)
def test_imports_go_one_way(room: str) -> None:
    for path in sources(room):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "atomizer_io" and len(parts) > 1:
                # from_points needs the LiDAR channel: the one look back, inside a function
                if room == "atoms.py" and name == "atomizer_io.sensors.LIDAR":
                    continue
                assert parts[1] not in FORBIDDEN[room], f"{path.relative_to(PACKAGE)} imports {name}"


def test_only_some_rooms_touch_file_formats() -> None:
    seen = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        formats = {name.split(".")[0] for name in imports(path)} & FILE_FORMATS
        if formats:
            seen.add(place)
            assert any(place == room or place.startswith(f"{room}/") for room in MAY_READ_FILES), place
    assert "sensors/files.py" in seen


def test_the_core_needs_no_extra() -> None:
    extras = FILE_FORMATS | set(EXTRAS)
    for path in PACKAGE.rglob("*.py"):
        top = ast.parse(path.read_text(encoding="utf-8")).body
        for node in top:  # at the top of a module; inside functions they are imported when needed
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used = {name.split(".")[0] for name in names} & extras
            if path.relative_to(PACKAGE).as_posix() in NEED_LIGHTNING:  # imported by training/run.py when it trains
                used -= {"lightning"}
            assert not used, f"{path.relative_to(PACKAGE)} imports {used} at its top"

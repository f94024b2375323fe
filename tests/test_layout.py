"""The folder is the data flow: imports go one way, nothing private is used from outside, few folders touch files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import atomizer_io
from atomizer_io.extras import EXTRAS

PACKAGE = Path(atomizer_io.__file__).parent
FILE_FORMATS = {"rasterio", "laspy", "h5py", "pyproj"}
MAY_READ_FILES = {"io", "datasets", "prediction"}
NEED_LIGHTNING = {"training/callbacks.py", "training/state.py", "training/task.py"}
# sensors.from_geotiff reads the band descriptions of a file: the one import against the order, inside a function
LOOKS_BACK = {("data/sensors/files.py", "io")}
# what each folder must not know of
FORBIDDEN = {
    "data": {"io", "datasets", "models", "decoding", "training", "prediction", "export", "cli"},
    "io": {"models", "datasets", "training", "prediction", "cli"},
    "datasets": {"models", "decoding", "training", "prediction", "export", "cli"},
    "models": {"datasets", "io", "decoding", "training", "prediction", "export", "cli"},
    "decoding": {"datasets", "io", "training", "prediction", "export", "cli"},
    "training": {"prediction", "export", "cli"},
    "prediction": {"datasets", "training", "export", "cli"},
    "export": {"datasets", "training", "prediction", "cli"},
    "viewer": {"training", "cli"},
}
# only these may know that Atomizer-IO is what it is; all others know models by their contract
KNOW_ATOMIZER = {
    *("models", "decoding", "export", "figures", "integrations"),
    *("cli/export.py", "cli/info.py", "cli/doctor.py", "__init__.py"),
}
MOST_PARAMETERS = 10


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources() -> Iterator[tuple[str, str, Path]]:
    """Each source file with its folder (a package, or a module at the top) and its path inside the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        yield file.parts[0].removesuffix(".py"), file.as_posix(), path


def own_imports(path: Path) -> Iterator[tuple[str, str]]:
    """The folders that a file imports from, and what."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "atomizer_io" and len(parts) > 1:
            yield parts[1], name


def test_no_two_packages_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for folder, file, path in sources():
        if folder not in ("__init__", "__main__"):
            folders = {name for name, _ in own_imports(path) if name not in (folder, "__version__")}
            graph.setdefault(folder, set()).update(name for name in folders if (file, name) not in LOOKS_BACK)
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def imports_at_top(body: list[ast.stmt], modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules that importing a file imports; what only type checkers see, and functions, do not count."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from imports_at_top([*node.body, *node.orelse], modules)
        elif isinstance(node, ast.Try):
            yield from imports_at_top(node.body, modules)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in names)


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {}
    for _, file, path in sources():
        name = f"atomizer_io/{file}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        modules[name] = path
    graph = {}
    for name, path in modules.items():
        imported = set(imports_at_top(ast.parse(path.read_text(encoding="utf-8")).body, modules))
        graph[name] = (imported & set(modules)) - {name}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_go_one_way(folder: str) -> None:
    files = [(file, path) for name, file, path in sources() if name == folder]
    assert files, f"{folder} has no sources: has the layout changed?"
    for file, path in files:
        for imported, name in own_imports(path):
            assert imported not in FORBIDDEN[folder] or (file, imported) in LOOKS_BACK, f"{file} imports {name}"


def test_the_library_does_not_know_the_laboratory() -> None:
    for _, file, path in sources():
        for name in imports(path):
            assert name.split(".")[0] != "atomizer_lab", f"{file} imports {name}"


def test_models_are_known_by_their_contract() -> None:
    for _, file, path in sources():
        if not any(file == folder or file.startswith(f"{folder}/") for folder in KNOW_ATOMIZER):
            for _, name in own_imports(path):
                assert not name.startswith("atomizer_io.models.atomizer"), f"{file} imports {name}"


def test_nothing_private_is_used_from_outside() -> None:
    for folder, file, path in sources():
        for imported, name in own_imports(path):
            private = any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
            assert not private or imported == folder, f"{file} imports {name}"


def definitions(path: Path) -> Iterator[str]:
    """Names of all functions, classes, variables and attributes that a file makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_private_attributes_are_used_in_their_own_folder() -> None:
    private: dict[Path, set[str]] = {}
    for _, _, path in sources():
        names = {name for name in definitions(path) if name.startswith("_") and not name.startswith("__")}
        private.setdefault(path.parent, set()).update(names)
    for _, file, path in sources():
        foreign = set[str]().union(*private.values()) - private[path.parent]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
            if isinstance(node, ast.Attribute) and not own:
                assert node.attr not in foreign, f"{file}, line {node.lineno}: {ast.unparse(node)} is private"


def test_no_public_function_has_too_many_parameters() -> None:
    for _, file, path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                count = len([name for name in arguments if name not in ("self", "cls")])
                assert count <= MOST_PARAMETERS, f"{file}: {node.name} has {count} parameters"


def test_only_some_rooms_touch_file_formats() -> None:
    seen = set()
    for _, file, path in sources():
        formats = {name.split(".")[0] for name in imports(path)} & FILE_FORMATS
        if formats:
            seen.add(file)
            assert any(file == folder or file.startswith(f"{folder}/") for folder in MAY_READ_FILES), file
    assert "io/raster_files.py" in seen


def test_the_core_needs_no_extra() -> None:
    extras = FILE_FORMATS.union(*EXTRAS.values())
    for _, file, path in sources():
        top = ast.parse(path.read_text(encoding="utf-8")).body
        for node in top:  # at the top of a module; inside functions they are imported when needed
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used = {name.split(".")[0] for name in names} & extras
            if file in NEED_LIGHTNING:  # imported by training/run.py when it trains
                used -= {"lightning"}
            assert not used, f"{file} imports {used} at its top"

"""The files of ``results/``: what items of the paper wrote, what was looked at, and all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.errors import DataError
from atomizer_io.texts import parse_json, read_text
from atomizer_lab.matrix import present
from atomizer_lab.paper.item import SCALES
from atomizer_lab.paper.looks import NAME as LOOKS
from atomizer_lab.paper.looks import folder_of
from atomizer_lab.paper.registry import ITEMS, item

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ResultFile:
    """A file of results: ``item`` and ``scale`` are empty where it is not of an item of the paper."""

    path: Path
    document: Document
    item: str = ""
    scale: str = ""

    @property
    def runs(self) -> Mapping[str, Any]:
        """The runs by name; none where the file has no list of them."""
        runs = self.document.get("runs", {})
        return runs if isinstance(runs, Mapping) else {}

    @property
    def results(self) -> dict[str, Any]:
        """What each run returned."""
        return {name: run["result"] for name, run in self.runs.items()}

    @property
    def command(self) -> str:
        """The command that makes the file; empty where it is of no item and does not say."""
        if self.item:
            return item(self.item).command(self.scale)
        return str(self.document.get("command", ""))

    @property
    def minutes(self) -> float | None:
        """Minutes of all runs together; None where they are not known."""
        minutes = [run["minutes"] for run in self.runs.values() if isinstance(run, Mapping) and "minutes" in run]
        return sum(minutes) if minutes else None

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        seeds = {_seed(run.get("arguments", {})) for run in self.runs.values() if isinstance(run, Mapping)}
        return sorted(seed for seed in seeds if seed is not None)

    @property
    def machines(self) -> list[Document]:
        """What the runs, or the rows of a table, ran on, the earliest first; where they do not say, the file does."""
        rows = self.document.get("rows")
        parts = [*self.runs.values(), *(rows if isinstance(rows, list) else ())]
        machines = [part["machine"] for part in parts if isinstance(part, Mapping) and "machine" in part]
        own = self.document.get("machine")
        machines = machines or ([own] if isinstance(own, Mapping) else [])
        return sorted(machines, key=lambda machine: str(machine.get("date", "")))


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """What was looked at of an item at a scale, and the folders of its figures: results and work."""

    document: Document
    folders: Mapping[str, Path]

    def figure(self, file: Mapping[str, str]) -> bytes | None:
        """Return the figure of a file; None where it is not there."""
        return figure_in(self.folders[file["in"]], file["file"])


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Everything that a page is made of."""

    folder: Path
    items: Mapping[tuple[str, str], ResultFile]  # by item and scale
    looks: Mapping[tuple[str, str], Looks]
    others: list[ResultFile]

    def of_scale(self, scale: str) -> dict[str, ResultFile]:
        """Return the files of a scale by item, in the order of items."""
        return {name: self.items[name, scale] for name in ITEMS if (name, scale) in self.items}


def figure_in(folder: Path, name: str) -> bytes | None:
    """Return the figure of this name in a folder; None where it is not there.

    A path, or a link that leads out of the folder, is a ValueError: a page must not embed any other file.
    """
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a figure")
    path = folder / name
    if not path.is_file():
        return None
    if path.resolve().parent != folder.resolve():
        raise ValueError(f"{name!r} is a link to a file outside of {folder}")
    return path.read_bytes()


def read_results(folder: Path, work: Path) -> Results:
    """Read all result files of a folder; ``work`` is the folder of runs, where figures of data lie.

    A file that is no result file, or one that lacks what it must have, is an error that names it.
    """
    if not folder.is_dir():
        raise DataError(folder, "no such folder of results; `atomizer reproduce ITEM` makes one")
    items: dict[tuple[str, str], ResultFile] = {}
    looks: dict[tuple[str, str], Looks] = {}
    others = []
    for path in sorted(folder.glob("*.json")):
        file = read_file(path)
        if file.item:
            key = (file.item, file.scale)
            if key in items:
                raise DataError(path, f"{items[key].path} is of the same item and scale: keep one of them")
            items[key] = file
            folder_of_looks = folder_of(path)
            if (folder_of_looks / LOOKS).exists():
                looks[key] = read_looks(folder_of_looks, work)
        else:
            others.append(file)
    return Results(folder, items, looks, others)


def read_file(path: Path) -> ResultFile:
    """Read one file; where it is of an item, it is checked."""
    document = _document(path)
    if document.get("item") is None:
        return ResultFile(path, document)
    name, scale = document["item"], document.get("scale")
    if name not in ITEMS:
        raise DataError(path, f"there is no item {name!r}; there are {', '.join(ITEMS)}")
    if scale not in SCALES:
        raise DataError(path, f"its scale is {scale!r}; scales are {', '.join(SCALES)}")
    for part in ("paper", "found", "runs"):
        if not _nested(document.get(part), 2):
            raise DataError(path, f"its part {part!r} is missing or malformed: remove the file, and run the item again")
    for row, columns in document["found"].items():
        for column, cell in columns.items():
            if not _is_cell(cell):
                raise DataError(path, f"the cell {row!r}, {column!r} of 'found' has no mean and standard deviation")
    for run, entry in document["runs"].items():
        if not isinstance(entry.get("result"), Mapping):
            raise DataError(path, f"the run {run!r} has no result")
    return ResultFile(path, document, name, scale)


def read_looks(folder: Path, work: Path) -> Looks:
    """Read what was looked at beside a result file."""
    document = _document(folder / LOOKS)
    for part in ("data", "runs"):
        if not _nested(document.get(part), 2):
            raise DataError(folder / LOOKS, f"its part {part!r} is malformed: remove the file, and run the item again")
    return Looks(document, {"results": folder, "work": work / "looks" / folder.name})


def _document(path: Path) -> dict[str, Any]:
    try:
        document = present(parse_json(read_text(path)))
    except (OSError, ValueError) as error:
        raise DataError(path, f"this is not JSON ({error}): remove the file, or write it again") from error
    if not isinstance(document, dict):
        raise DataError(path, "a result file holds names and values, this one does not: remove it")
    return document


def _nested(part: Any, depth: int) -> bool:
    """Whether these are names with values that to some depth are names with values themselves."""
    return isinstance(part, Mapping) and (depth <= 1 or all(_nested(value, depth - 1) for value in part.values()))


def _is_cell(cell: Any) -> bool:
    """Whether this is a mean with a standard deviation, which may be unknown."""
    return isinstance(cell, Mapping) and isinstance(cell.get("mean"), int | float) and "spread" in cell  # old name


def _seed(arguments: Document) -> int | None:
    document = arguments.get("document", arguments)
    seed = document.get("seed") if isinstance(document, Mapping) else None
    return seed if isinstance(seed, int) else None

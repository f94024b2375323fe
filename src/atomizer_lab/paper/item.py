"""What a table or figure of the paper is here: the paper's numbers, runs of three scales, and both side by side.

Each run returns ``{"numbers": {row: {column: value}}, ...}``; runs that differ by their seed have the same rows and
columns. From these come the mean and the standard deviation in the result file, and the printed table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from atomizer_io.errors import ConfigError, listed
from atomizer_lab.matrix import Task, gathered, is_there, run_all, run_alone
from atomizer_lab.paper.registry import ITEMS
from atomizer_lab.paper.text_table import beside

PAPER, SMALL, SMOKE = "paper", "small", "smoke"
SCALES = (PAPER, SMALL, SMOKE)
Results = Mapping[str, Any]
LARGE = 10_000  # numbers that have no digits after the point
Summary = dict[str, dict[str, dict[str, Any]]]  # mean, standard deviation and values by row and column


@dataclass(frozen=True, slots=True)
class Where:
    """Where things lie: real data, what runs leave, results with the models kept beside them, and configurations."""

    data: Path = Path("data")
    work: Path = Path("runs")
    results: Path = Path("results")
    configs: Path = Path("configs")


@dataclass(frozen=True, slots=True)
class Scale:
    """How an item is run: ``protocol`` is on what data and for how long, ``runs`` lists the runs for some seeds.

    ``reads_data`` is whether there have to be files of data; at ``smoke`` none are read.
    """

    protocol: str
    runs: Callable[[Where, Sequence[int]], list[Task]]
    seeds: tuple[int, ...] = (0,)
    reads_data: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure: its name in ``tables.yaml``, which has the paper's numbers, and the scales that it is run at.

    ``derive`` adds rows that follow from those measured. ``draw`` makes the figure of the item at a scale, from its
    results, into the file that it is given.
    """

    name: str
    scales: Mapping[str, Scale] = field(hash=False)
    derive: Callable[[Summary], Summary] = lambda summary: summary
    draw: Callable[[Results, Where, Path, str], None] | None = None

    @property
    def paper(self) -> dict[str, dict[str, float]]:
        """The paper's numbers by row and column."""
        table = paper_tables()[self.name]
        rows = {row: zip(table["columns"], numbers, strict=True) for row, numbers in table.get("rows", {}).items()}
        return {row: {column: number for column, number in cells if number is not None} for row, cells in rows.items()}

    @property
    def label(self) -> str:
        """The label of the table or figure in the paper."""
        return str(paper_tables()[self.name]["label"])

    @property
    def unit(self) -> str:
        """What the numbers measure."""
        return str(paper_tables()[self.name]["unit"])

    @property
    def shows(self) -> str:
        """What the item shows, in a line."""
        return ITEMS[self.name][1]

    def command(self, scale: str) -> str:
        """Return the command that runs the item at a scale; DATA stands for the folder of data."""
        data = " --data DATA" if scale != SMOKE and self.scale(scale).reads_data else ""
        return f"atomizer reproduce {self.name} --scale {scale}{data}"

    def scale(self, name: str) -> Scale:
        """Return a scale; one that the item does not have is an error."""
        if name not in self.scales:
            raise ConfigError(f"{self.name} has no scale {name!r}: it has {', '.join(self.scales)}")
        return self.scales[name]

    def runs(self, scale: str, where: Where, seeds: Sequence[int] | None = None) -> list[Task]:
        """Return the runs of a scale, numbered from 0 as they come."""
        own = self.scale(scale)
        return own.runs(where, own.seeds if seeds is None else seeds)

    def run(
        self,
        scale: str,
        where: Where,
        output: Path,
        *,
        seeds: Sequence[int] | None = None,
        jobs: int = 1,
        only: str = "",
    ) -> str:
        """Run what is not there yet, write ``output`` and the figure beside it, and return the table as text.

        ``only`` is a text that the names of the runs must have.
        """
        every = self.runs(scale, where, seeds)
        tasks = [task for task in every if only in task.name]
        if scale != SMOKE:
            check_data(tasks, where, output)
        results = run_all(tasks, output, jobs=jobs, about=self.about(scale, where, every))
        if self.draw is not None:
            self.draw(results, where, output.with_suffix(".png"), scale)
        return self.table(results, scale)

    def run_cell(self, scale: str, where: Where, output: Path, number: int, *, seeds: Sequence[int] | None) -> str:
        """Run one of the runs of a scale in this process; its result is gathered by the next call of ``run``."""
        result = run_alone(self.runs(scale, where, seeds), number, output)
        return self.table({"": result}, scale)

    def so_far(self, scale: str, where: Where, output: Path, seeds: Sequence[int] | None = None) -> str:
        """Return the table of the runs that are there already."""
        kept = gathered(output)
        tasks = self.runs(scale, where, seeds)
        results = {task.name: kept[task.name]["result"] for task in tasks if is_there(kept, task)}
        absent = "" if results or output.exists() else " (no such file)"
        head = f"{output}{absent}: {len(results)} of {len(tasks)} runs are there"
        if others := len(kept) - len(results):
            head += f"; {others} more, of settings or seeds other than the requested, are not shown"
        if missing := [f"‘{task.name}’" for task in tasks if task.name not in results]:
            head += f"\nmissing: {listed(missing)}"
        return f"{head}\n{self.table(results, scale)}"

    def about(self, scale: str, where: Where, tasks: Sequence[Task]) -> Callable[[Results], dict[str, Any]]:
        """Return what makes the head of the result file from the results so far; only those of ``tasks`` count."""

        def made(results: Results) -> dict[str, Any]:
            own = {task.name: results[task.name] for task in tasks if task.name in results}
            return {
                "item": self.name,
                "scale": scale,
                "shows": self.shows,
                "command": self.command(scale),
                "protocol": self.scale(scale).protocol,
                "label": self.label,
                "unit": self.unit,
                "paper": self.paper,
                "found": self.derive(summary(own)),
            }

        return made

    def table(self, results: Results, scale: str) -> str:
        """Return the paper's numbers and ours side by side; ours are of one scale only."""
        measured = self.derive(summary(results))
        head = [f"{self.name}: {self.shows}", f"{scale}: {self.scale(scale).protocol}", f"numbers: {self.unit}", ""]
        ours = {row: {column: self.text(cell) for column, cell in columns.items()} for row, columns in measured.items()}
        paper = {row: {c: self.number(value) for c, value in cells.items()} for row, cells in self.paper.items()}
        return "\n".join([*head, *beside(paper, ours, f"paper ({self.label})", f"here ({scale})")])

    def text(self, cell: Mapping[str, Any]) -> str:
        """Return a number as text, with the standard deviation of several seeds."""
        mean = self.number(cell["mean"])
        std = cell["spread"]  # old name
        return mean if std is None else f"{mean} ± {self.number(std)}"

    def number(self, value: float) -> str:
        """Return a number with the digits of the item; large ones are whole."""
        digits = paper_tables()[self.name].get("digits", 1)
        return f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.{digits}f}"


@lru_cache
def paper_tables() -> dict[str, dict[str, Any]]:
    """Return what ``tables.yaml`` holds, by item."""
    tables: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text("utf-8"))
    return tables


def check_data(tasks: Sequence[Task], where: Where, output: Path) -> None:
    """Refuse to begin runs that read data where there is no folder of them."""
    kept = gathered(output)
    if not where.data.is_dir() and any("data" in task.folders and not is_there(kept, task) for task in tasks):
        raise ConfigError(
            f"{where.data}: no such folder. Name the one that holds a folder for each dataset with --data or the "
            "variable ATOMIZER_DATA; docs/how-to/reproduce.md lists which are needed, docs/reference/datasets.md what "
            "they hold"
        )


def summary(results: Results) -> Summary:
    """Return numbers by row and column: those of each run, their mean, and their standard deviation if there are more.

    The values of each cell stand in the order of the runs.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for result in results.values():
        for row, columns in result["numbers"].items():
            for column, value in columns.items():
                values.setdefault(row, {}).setdefault(column, []).append(value)
    return {
        row: {
            column: {
                "values": numbers,
                "mean": statistics.mean(numbers),
                "spread": statistics.stdev(numbers) if len(numbers) > 1 else None,  # old name
            }
            for column, numbers in columns.items()
        }
        for row, columns in values.items()
    }

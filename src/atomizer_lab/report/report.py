"""The page: for each scale the items that were measured and those that were not, then what was run and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from jinja2 import TemplateError
from markupsafe import Markup

from atomizer_io.errors import DataError
from atomizer_io.texts import write_output
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE
from atomizer_lab.paper.registry import ITEMS, item
from atomizer_lab.report.claims import CLAIMS, claims
from atomizer_lab.report.figures import charts
from atomizer_lab.report.inspected import curves, figures_of, matrices
from atomizer_lab.report.pages import figure, render
from atomizer_lab.report.results import ResultFile, Results, figure_in, read_results
from atomizer_lab.report.tables import as_it_is, beside, log, runs

NOTES = {
    SMALL: "Small: real data on two CPU cores, with small models and short trainings. The paper's numbers, of large "
    "models on whole datasets, stand beside them for the shape of a result, not to be reached.",
    PAPER: "Paper: the full protocol. These numbers can be held against the paper's.",
    SMOKE: "Smoke: seconds on synthetic data. These runs prove that the commands work; their numbers mean nothing.",
}
GROUPS = {
    "Scores": ("table2", "table3", "lidar", "dales-classes", "hyperspectral"),
    "Ablations": ("rope", "local-observations", "temporal", "mnist-sparse", "rates"),
    "Compute": ("compute", "sensitivity", "complexity", "parameters", "partition"),
}
CURVES = ("compute", "sensitivity")  # items whose table is long, and whose curves say more
DIGITS = "mnist-sparse"  # its runs count confusions themselves
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, TemplateError)
Made = TypeVar("Made")


def write_report(results: Path, work: Path, output: Path) -> Path:
    """Write one page about everything in the folder ``results``; ``work`` is the folder of runs."""
    write_output(output, report(read_results(results, work)))
    return output


def report(results: Results) -> str:
    """Return the page."""
    items = list(results.items.values())
    files = [*items, *results.others]
    dates = sorted(str(machine["date"])[:10] for file in files for machine in file.machines if machine.get("date"))
    numbers = {
        **{f"items at {scale}": f"{len(results.of_scale(scale))} of {_count(scale)}" for scale in NOTES},
        "runs": f"{sum(len(file.runs) for file in items):,}",
        "hours of computing": f"{sum(file.minutes or 0.0 for file in items) / 60:.1f}",
        "last measured": dates[-1] if dates else "–",
    }
    panels = {scale: of_scale(results, scale) for scale in NOTES}
    if results.others:
        panels["other measurements"] = render("others.html", parts=[guarded(file, as_it_is) for file in results.others])
    return render(
        "report.html",
        numbers=numbers,
        panels=panels,
        chosen=next((scale for scale in NOTES if results.of_scale(scale)), SMALL),
        log=log(files),
        folder=results.folder,
        now=datetime.now(UTC).isoformat(timespec="minutes"),
    )


def _count(scale: str) -> int:
    return sum(scale in item(name).scales for name in ITEMS)


def of_scale(results: Results, scale: str) -> Markup:
    """Return everything of one scale: items in groups, then what is missing with the command that makes it."""
    there, missing = results.of_scale(scale), []
    for name in ITEMS:
        own = item(name)
        if scale in own.scales and name not in there:
            missing.append((name, own.shows, own.scale(scale).protocol, own.command(scale)))
    verdicts = {c.item: guarded(there[c.item], c.judged) for c in CLAIMS if c.item in there}
    return render(
        "scale.html",
        note=NOTES[scale],
        claims=claims(verdicts) if there and scale == SMALL else None,
        groups={
            group: [guarded(there[name], lambda file: section(results, file)) for name in names if name in there]
            for group, names in GROUPS.items()
        },
        missing=missing,
        folder=results.folder,
    )


def guarded(file: ResultFile, made: Callable[[ResultFile], Made]) -> Made:
    """Return what is made of a file; where something in it is not as expected, the error names the file."""
    try:
        return made(file)
    except MALFORMED as error:
        raise DataError(
            file.path,
            f"it, or what lies in {file.path.with_suffix('')}, is malformed ({error!r}): run its command again",
        ) from error


def section(results: Results, file: ResultFile) -> Markup:
    """Return the section of an item: its table, charts, matrices, figures and runs."""
    own, looks = item(file.item), results.looks.get((file.item, file.scale))
    drawn = figure_in(file.path.parent, f"{file.path.stem}.png") if own.name == "partition" else None
    trained = any(run.get("arguments", {}).keys() & {"document", "changes"} for run in file.runs.values())
    confusions = matrices(file, looks)
    return render(
        "item.html",
        item=own,
        file=file,
        numbers=beside(own, file),
        charts=charts(own, file),
        folded=own.name in CURVES,
        plates=[] if drawn is None else [figure(drawn, own.shows)],
        not_inspected=looks is None and trained and own.name not in CURVES,
        matrices=confusions,
        outdated=own.name == DIGITS and not confusions,
        curves=[] if looks is None else curves(looks),
        runs=runs(file),
        **figures_of(looks),
    )

"""The page: for each scale the items that were measured and those that were not, then what was run and when."""

from __future__ import annotations

import html
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from atomizer_io.errors import DataError
from atomizer_io.texts import write_output
from atomizer_lab.pages import images
from atomizer_lab.pages.parts import facts, page, tabs
from atomizer_lab.pages.script import SCRIPT
from atomizer_lab.pages.tables import NOTHING, Cell, Head, table
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Item
from atomizer_lab.paper.registry import ITEMS, item
from atomizer_lab.report.claims import CLAIMS, claims
from atomizer_lab.report.comparison import beside
from atomizer_lab.report.figures import figures
from atomizer_lab.report.look import LOOK
from atomizer_lab.report.others import other, small_data
from atomizer_lab.report.results import SMALL_DATA, ResultFile, Results, figure_in, read_results
from atomizer_lab.report.seen import curves, made_by, matrices, pictures_of, plate

ORDER = (SMALL, PAPER, SMOKE)
SAYS = {
    SMALL: "Small: real data on two CPU cores, with small models and short trainings. The paper's numbers, of large "
    "models on whole datasets, stand beside them for the shape of a result, not to be reached.",
    PAPER: "Paper: the full protocol. These numbers can be held against the paper's.",
    SMOKE: "Smoke: seconds on made-up data. These runs prove that the commands work; their numbers mean nothing.",
}
GROUPS = {
    "Scores": ("table2", "table3", "lidar", "dales-classes", "hyperspectral"),
    "Ablations": ("rope", "local-observations", "temporal", "mnist-sparse", "rates"),
    "Compute": ("compute", "sensitivity", "complexity", "parameters", "partition"),
}
CURVES = ("compute", "sensitivity")  # items whose table is long, and whose curves say more
OLDER = "other measurements"
Made = TypeVar("Made")


def write_report(results: Path, work: Path, output: Path) -> Path:
    """Write one page about everything in the folder ``results``; ``work`` is the folder of runs."""
    text = report(read_results(results, work))
    write_output(output, text)
    return output


def report(found: Results) -> str:
    """Return the page."""
    panels = {scale: of_scale(found, scale) for scale in ORDER}
    if found.others:
        panels[OLDER] = older(found)
    first = next((scale for scale in ORDER if found.of_scale(scale)), SMALL)
    body = [head(found), tabs(panels, "scales", "scales", chosen=first), what_was_run(found), foot(found)]
    return page("Atomizer-IO: results", "\n".join(body), style=LOOK, script=SCRIPT)


def head(found: Results) -> str:
    """Say what the page is, and how much was run."""
    files = [*found.items.values(), *([found.small_data] if found.small_data else [])]
    machines = [machine for file in [*files, *found.others] for machine in file.machines]
    dates = sorted(str(machine["date"])[:10] for machine in machines if machine.get("date"))
    hours = sum(file.minutes or 0.0 for file in files) / 60
    numbers = {
        **{f"items at {scale}": f"{len(found.of_scale(scale))} of {_count(scale)}" for scale in ORDER},
        "runs": f"{sum(len(file.runs) for file in files):,}",
        "hours of computing": f"{hours:.1f}",
        "last measured": dates[-1] if dates else "–",
    }
    return f"""<header><span class="tag">Atomizer-IO</span>
<h1>The paper's tables and figures, measured</h1>
<p class="lead">Every table and figure of the paper is a command. This page holds what these commands found, with the
paper's numbers in columns beside; results of different scales are never in one table.</p>
{facts(numbers)}</header>"""


def _count(scale: str) -> int:
    return sum(scale in item(name).scales for name in ITEMS)


def what_was_run(found: Results) -> str:
    """List all result files: what, at which scale, when, how long, at which commit, and by which command."""
    heads = ("what", "scale", "runs", "seeds", "minutes", "when", "commit", "machine", "command")
    files = [*found.items.values(), *([found.small_data] if found.small_data else []), *found.others]
    rows = [_run_row(file) for file in files]
    if not rows:
        place = html.escape(str(found.folder))
        return f'<section><h2>What was run</h2><p class="missing">{place} holds no results yet.</p></section>'
    return f"""<section><span class="tag">Log</span><h2>What was run, and when</h2>
{table([Head(text) for text in heads], rows, style="words", name="what was run")}</section>"""


def _run_row(file: ResultFile) -> list[Cell]:
    machines = file.machines
    dates = [str(machine.get("date", ""))[:16].replace("T", " ") for machine in machines]
    commits = list(dict.fromkeys(str(machine.get("commit") or "") for machine in machines))
    on = list(dict.fromkeys(f"{m.get('processor', '')}, threads: {m.get('threads', '?')}" for m in machines))
    minutes = file.minutes
    name = file.item or file.path.stem
    return [
        Cell(name, name),
        Cell(file.scale, file.scale) if file.scale else NOTHING,
        Cell(f"{len(file.runs)}", len(file.runs)) if file.runs else NOTHING,
        Cell(", ".join(map(str, file.seeds)), len(file.seeds)) if file.seeds else NOTHING,
        NOTHING if minutes is None else Cell(f"{minutes:.1f}", minutes),
        Cell(dates[-1], dates[-1], f"from {dates[0]} to {dates[-1]}") if dates else NOTHING,
        Cell(", ".join(commits), commits[0]) if commits else NOTHING,
        Cell("; ".join(on), on[0]) if on else NOTHING,
        Cell(file.command, file.command) if file.command else NOTHING,
    ]


def of_scale(found: Results, scale: str) -> str:
    """Return everything of one scale: items in groups, then what is missing with the command that makes it."""
    there = found.of_scale(scale)
    parts = [f'<p class="protocol scale-note">{SAYS[scale]}</p>']
    if there and scale == SMALL:
        parts.append(claims({c.item: guarded(there[c.item], c.judged) for c in CLAIMS if c.item in there}))
    for group, names in GROUPS.items():
        own = [guarded(there[name], lambda file: section(found, file)) for name in names if name in there]
        if own:
            parts.append(f"<section><h2>{group}</h2>{''.join(own)}</section>")
    if scale == SMALL and found.small_data is not None:
        parts.append(guarded(found.small_data, small_data))
    parts.append(missing(found, scale))
    return "".join(parts)


def guarded(file: ResultFile, made: Callable[[ResultFile], Made]) -> Made:
    """Return what is made of a file; where something in it is not as expected, the error names the file."""
    try:
        return made(file)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(
            file.path,
            f"it, or what lies in {file.path.with_suffix('')}, is malformed ({error!r}): run its command again",
        ) from error


def section(found: Results, file: ResultFile) -> str:
    """Return the section of an item: its table, charts, matrices, pictures and runs."""
    own: Item = item(file.item)
    looks = found.looks.get((file.item, file.scale))
    drawn = figure_in(file.path.parent, f"{file.path.stem}.png") if own.name == "partition" else None
    picture = "" if drawn is None else plate([(images.source(drawn), own.shows, "")])
    numbers = f"{beside(own, file)}{figures(own, file)}"
    if own.name in CURVES:
        numbers = f"{figures(own, file)}<details><summary>All numbers</summary>{beside(own, file)}</details>"
    label = f"{html.escape(own.label)} · {file.scale}"
    return f"""<section id="{file.item}-{file.scale}"><span class="tag label">{label}</span>
<h3 class="shows">{html.escape(own.shows)}</h3>
<p class="protocol">{html.escape(str(file.document.get("protocol", "")))}. Numbers: {html.escape(own.unit)}.</p>
{numbers}{made_by(file.command)}
{picture}{pictures_of(file, looks) if looks else not_seen(file)}
{matrices(file, looks)}{curves(looks) if looks else ""}{runs(file)}</section>"""


def not_seen(file: ResultFile) -> str:
    """Say how pictures of an item are made, where it trains and nothing was looked at."""
    trained = any(run.get("arguments", {}).keys() & {"document", "changes"} for run in file.runs.values())
    if not trained or file.item in CURVES:
        return ""
    return (
        '<p class="missing">No predictions or confusion matrices of these models were saved: '
        f"<code>{html.escape(file.command)}</code>, run again where the trained models are, "
        "writes predictions, confusion matrices and curves.</p>"
    )


def runs(file: ResultFile) -> str:
    """List the runs of an item with what they took."""
    heads = ("run", "minutes", "steps", "seconds of training", "when", "commit")
    rows = []
    for name, run in file.runs.items():
        result, machine = run["result"], run.get("machine", {})
        minutes = run.get("minutes")
        rows.append(
            [
                Cell(name, name),
                NOTHING if minutes is None else Cell(f"{minutes:.2f}", minutes),
                *(Cell(f"{result[key]:,}", result[key]) if key in result else NOTHING for key in ("steps", "seconds")),
                Cell(str(machine.get("date", ""))[:16].replace("T", " "), str(machine.get("date", ""))),
                Cell(str(machine.get("commit") or ""), str(machine.get("commit") or "")),
            ]
        )
    shown = table([Head(text) for text in heads], rows, name=f"runs of {file.path.stem}")
    return f"<details><summary>{len(rows)} {'run' if len(rows) == 1 else 'runs'}</summary>{shown}</details>"


def missing(found: Results, scale: str) -> str:
    """List the items that have no results at a scale, each with the command that makes them."""
    rows = []
    for name in ITEMS:
        own = item(name)
        if scale in own.scales and (name, scale) not in found.items:
            rows.append((name, own.shows, own.scale(scale).protocol, own.command(scale)))
    if scale == SMALL and found.small_data is None:
        rows.append(
            ("small-data", "seven small tasks", "beside a forest and a regression", f"{SMALL_DATA} --data DATA")
        )
    if not rows:
        return ""
    listed = "".join(
        f"<li><b>{name}</b>: {html.escape(shows)}<br><small>{html.escape(protocol)}</small><br>"
        f"<code>{html.escape(command)}</code></li>"
        for name, shows, protocol, command in rows
    )
    return f"""<section><span class="tag">not measured at this scale</span><h2>What is missing</h2>
<p>No file in <code>{html.escape(found.folder.name)}/</code> holds these. Each is made by its command.</p>
<ul class="todo">{listed}</ul></section>"""


def older(found: Results) -> str:
    """Return files that are not of items: benchmarks, and single runs."""
    parts = "".join(guarded(file, other) for file in found.others)
    return f"""<section><h2>Other measurements</h2><p>Benchmarks of speed, calibrations and single runs, as their files
hold them. They are of no scale above and of no table of the paper.</p>{parts}</section>"""


def foot(found: Results) -> str:
    """Say what made the page, and when."""
    now = datetime.now(UTC).isoformat(timespec="minutes")
    command = f"atomizer report --results {html.escape(str(found.folder))}"
    return f"""<footer><p>Made by <code>{command}</code>, {now}. What the paper does not say, and what
was chosen, is in docs/paper-choices.md.</p></footer>"""

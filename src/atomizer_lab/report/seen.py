"""What was looked at of trained models: pictures with the command that made them, confusion matrices, curves."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_io.figures.class_colours import WRONG, class_colours
from atomizer_lab.pages import images
from atomizer_lab.pages.charts import Axes, Series, chart, colour_of
from atomizer_lab.pages.parts import Picture, bar, gallery, legend, tabs
from atomizer_lab.pages.tables import confusion, css_colour
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.report.results import Looks, ResultFile

DIGITS = [str(number) for number in range(10)]
DIGITS_ITEM = "mnist-sparse"  # its runs count confusions themselves
MANY = 24  # channels: of more, bars would fill the page
SCORES = {"miou": "mIoU", "macro_f1": "macro F1", "rmse": "RMSE", "accuracy": "accuracy"}
Run = Mapping[str, Any]


def pictures_of(file: ResultFile, looks: Looks) -> str:
    """Return the pictures of an item, by its columns, with the command that draws them; first one that has them all."""
    panels, lost, first = dict[str, str](), list[Any](), None
    for title, runs in by_title(looks).items():
        shown, missing = of_title(title, runs, looks)
        lost += missing
        if shown:
            panels[title] = shown
            first = title if first is None and not missing else first
    body = digits(looks) + (tabs(panels, f"{file.path.stem}: pictures", chosen=first) if panels else "")
    if lost:
        body += without(file, len(lost))
    if not body:
        return ""
    told = '<p class="made">Shares below a picture are of the one scene that it shows.</p>' if panels else ""
    return f"<h3>Pictures</h3>{told}{body}{made_by(file.command)}"


def made_by(command: str) -> str:
    """Return the command that made something."""
    return f'<p class="made">made by <code>{html.escape(command)}</code></p>'


def without(file: ResultFile, count: int) -> str:
    """Say how to draw pictures that are not there."""
    return (
        f'<p class="missing">{count} pictures show data that are not published with the results. '
        f"<code>{html.escape(file.command)}</code> draws them, where the trained models are, into "
        "the folder of runs, and <code>atomizer report --work RUNS</code> shows them.</p>"
    )


def by_title(looks: Looks) -> dict[str, list[tuple[Run, Run]]]:
    """Return runs with what they found in a column, by the title of the column."""
    found: dict[str, list[tuple[Run, Run]]] = {}
    for run in looks.document["runs"].values():
        for title, column in run["columns"].items():
            found.setdefault(title, []).append((run, column))
    return found


def of_title(title: str, runs: Sequence[tuple[Run, Run]], looks: Looks) -> tuple[str, list[Any]]:
    """Return the pictures of a column: what was seen, what is true and what each model answers; and those not there."""
    first, lost = runs[0][0], list[Any]()
    data = looks.document["data"].get(first["data"], {})

    def picture(file: Mapping[str, str], name: str, remark: str = "") -> list[Picture]:
        content = looks.picture(file)
        if content is None:
            lost.append(file)
            return []
        return [(images.source(content), name, remark)]

    inputs = [each for file in data.get("inputs", ()) for each in picture(file, file["title"], file["note"])]
    target = picture(data["target"], "target") if "target" in data else []
    answers = [
        each
        for run, column in runs
        if "picture" in column
        for each in picture(column["picture"], run["row"], column.get("note", ""))
    ]
    body = gallery([*inputs, *target]) if inputs or target else ""
    if answers:
        body += f"{colours(data)}{gallery(answers)}"
    for run, column in runs:
        body += plate(picture(column["cloud"], run["row"])) if "cloud" in column else ""
        body += inner_life(run["inner"], picture) if run.get("inner") else ""
    return body, lost


def plate(pictures: Sequence[Picture]) -> str:
    """Return large pictures, each with its name below."""
    return "".join(
        f'<figure class="plate"><img alt="{html.escape(name)}" src="{source}">'
        f"<figcaption><b>{html.escape(name)}</b> {html.escape(remark)}</figcaption></figure>"
        for source, name, remark in pictures
    )


def colours(data: Run) -> str:
    """Return what the colours of a map mean: classes, and pink where an answer is wrong."""
    classes = data.get("classes", [])
    if not classes:
        return f'<p class="made">dark is little, bright is much ({html.escape(data.get("unit", ""))})</p>'
    named = {name: css_colour(colour) for name, colour in zip(classes, class_colours(classes), strict=True)}
    return legend({**named, "wrong": WRONG})


def inner_life(inner: Run, picture: Any) -> str:
    """Return the cells of latents, where a quadtree asks, and the attention that each channel receives."""
    attention = inner.get("attention", {})
    shown = [
        *picture(inner["cells"], "latent cells", f"{inner['cells']['latents']:,} latents"),
        *picture(inner["quadtree"], "where a quadtree asks", inner["quadtree"]["note"]),
        *(
            each
            for file in attention.get("maps", ())
            for each in picture(file, f"attention to {file['title']}", "bright: more")
        ),
    ]
    body = f"<p>{ATOMIZER}, {html.escape(inner.get('place', ''))}:</p>{gallery(shown)}" if shown else ""
    shares = attention.get("shares", {})
    if 1 < len(shares) <= MANY:
        most = max(part for pair in shares.values() for part in pair) or 1.0
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td>{bar(here, most, 'ours')}{bar(around, most, 'pixels')}</tr>"
            for name, (here, around) in shares.items()
        )
        body += (
            f'<details><summary>Attention that each channel receives in {ATOMIZER}</summary><div class="card scroll">'
            '<table class="bars"><thead><tr><th>channel</th><th>at the position</th><th>around it</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div></details>"
        )
    return body


def digits(looks: Looks) -> str:
    """Return test digits with fewer and fewer dark pixels, and what each network takes them for."""
    images = looks.document.get("digits", [])
    rows = []
    for image in images:
        cells = []
        for title, column in image["columns"].items():
            content = looks.picture(column)
            if content is None:
                continue
            taken = "".join(
                f'<span class="{"right" if answer == image["truth"] else "wrong"}">'
                f"{html.escape(f'{name}: {answer}')}</span>"
                for name, answer in column["answers"].items()
            )
            digit = html.escape(f"the digit {image['truth']}, {title}")
            cells.append(
                f'<figure><img alt="{digit}" src="{images.source(content)}">'
                f"<figcaption><b>{html.escape(title)}</b>{taken}</figcaption></figure>"
            )
        rows.append(f'<div class="digits">{"".join(cells)}</div>')
    if not rows:
        return ""
    return (
        "<p>Test digits, and what each network takes them for. Blue pixels are absent, which is not the same as "
        f"dark.</p>{''.join(rows)}"
    )


def matrices(file: ResultFile, looks: Looks | None) -> str:
    """Return the confusion matrices of an item by column; those of seeds and folds are added up."""
    found: dict[str, dict[str, tuple[list[str], list[list[int]]]]] = {}
    for run in file.results.values():
        for title, matrix in run.get("confusion", {}).items():
            _add(found, title, next(iter(run["numbers"])), DIGITS, matrix)
    for run in looks.document["runs"].values() if looks is not None else ():
        classes = looks.document["data"].get(run["data"], {}).get("classes", []) if looks is not None else []
        for title, column in run["columns"].items():
            if "confusion" in column:
                matrix = column["confusion"]
                names = classes if len(classes) == len(matrix) else [str(n) for n in range(len(matrix))]
                _add(found, title, run["row"], names, matrix)
    if not found and file.item == DIGITS_ITEM:
        return (
            f'<p class="missing">{html.escape(file.path.name)} is older than confusion matrices: remove it, and run '
            "its command.</p>"
        )
    if not found:
        return ""
    panels = {
        title: f'<div class="matrices" style="--least:{9 + 3 * max(len(names) for names, _ in rows.values())}rem">'
        + "".join(confusion(matrix, names, row) for row, (names, matrix) in rows.items())
        + "</div>"
        for title, rows in found.items()
    }
    return (
        "<details><summary>Confusion matrices</summary><p>Rows are the truth, columns the answers, cells percent of "
        f"their row. Runs of the same model are added up.</p>{tabs(panels, f'{file.path.stem}: confusion')}</details>"
    )


def _add(found: dict[str, Any], title: str, row: str, names: Sequence[str], matrix: list[list[int]]) -> None:
    """Add a matrix to that of the same column and row, if there is one."""
    rows = found.setdefault(title, {})
    if row in rows:
        before = rows[row][1]
        matrix = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(before, matrix, strict=True)]
    rows[row] = (list(names), matrix)


def curves(looks: Looks) -> str:
    """Return the validation score during training, a chart for each dataset and a line for each row."""
    by_data: dict[str, list[Series]] = {}
    scores: dict[str, str] = {}
    for name, run in looks.document["runs"].items():
        curve = run.get("curve")
        if curve and len(curve["points"]) > 1:
            title = next(iter(run["columns"]), name) if len(run["columns"]) == 1 else run["data"]
            lines = by_data.setdefault(title, [])
            if run["row"] not in [line.name for line in lines]:
                lines.append(
                    Series(run["row"], [(x, y) for x, y in curve["points"]], colour_of(run["row"], len(lines)))
                )
            scores[title] = SCORES.get(curve["score"], curve["score"])
    charts = [chart(title, lines, Axes("steps", f"{scores[title]}, validation")) for title, lines in by_data.items()]
    if not charts:
        return ""
    return f'<details><summary>Curves of training</summary><div class="charts">{"".join(charts)}</div></details>'

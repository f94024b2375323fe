"""What was seen of trained models: figures of their predictions, confusion matrices, training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from atomizer_io.figures.class_colours import WRONG, class_colours
from atomizer_lab.paper.models import ATOMIZER
from atomizer_lab.report.charts import Axes, Chart, Series, chart, colour_of
from atomizer_lab.report.pages import Confusion, Figure, css_colour, figure, render
from atomizer_lab.report.results import Looks, ResultFile

DIGITS = [str(number) for number in range(10)]
MANY = 24  # channels: of more, bars would fill the page
SCORES = {"miou": "mIoU", "macro_f1": "macro F1", "rmse": "RMSE", "accuracy": "accuracy"}
Run = Mapping[str, Any]


def figures_of(looks: Looks | None) -> dict[str, Any]:
    """Return the figures of an item: digits, a panel for each column, and how many are missing.

    The first panel that has them all is chosen.
    """
    panels, missing, chosen = dict[str, Markup](), 0, None
    for title, runs in ({} if looks is None else by_title(looks)).items():
        assert looks is not None
        panel, absent = of_column(runs, looks)
        missing += absent
        if panel is not None:
            panels[title] = panel
            chosen = title if chosen is None and not absent else chosen
    drawn = [] if looks is None else digits(looks)
    return {"digits": drawn, "panels": panels, "chosen": chosen, "missing": missing}


def by_title(looks: Looks) -> dict[str, list[tuple[Run, Run]]]:
    """Return runs with what was seen of them in a column, by the title of the column."""
    titles: dict[str, list[tuple[Run, Run]]] = {}
    for run in looks.document["runs"].values():
        for title, column in run["columns"].items():
            titles.setdefault(title, []).append((run, column))
    return titles


def of_column(runs: Sequence[tuple[Run, Run]], looks: Looks) -> tuple[Markup | None, int]:
    """Return the panel of a column, None without any figure, and how many of its figures are missing."""
    shown: list[Figure] = []
    missing: list[Run] = []
    data = looks.document["data"].get(runs[0][0]["data"], {})

    def drawn(file: Run, name: str, remark: str = "") -> list[Figure]:
        content = looks.figure(file)
        if content is None:
            missing.append(file)
            return []
        shown.append(figure(content, name, remark))
        return shown[-1:]

    inputs = [one for file in data.get("inputs", ()) for one in drawn(file, file["title"], file["note"])]
    inputs += drawn(data["target"], "target") if "target" in data else []
    predictions = []
    for run, column in runs:
        if "picture" in column:  # old name
            predictions += drawn(column["picture"], run["row"], column.get("note", ""))  # old name
    classes = data.get("classes", ())
    colours = {name: css_colour(c) for name, c in zip(classes, class_colours(classes), strict=True)}
    inner = []
    for run, column in runs:
        plates = drawn(column["cloud"], run["row"]) if "cloud" in column else []
        inner.append({"plates": plates, **(inner_life(run["inner"], drawn) if run.get("inner") else {})})
    panel = render(
        "column.html",
        name=ATOMIZER,
        inputs=inputs,
        predictions=predictions,
        colours={**colours, "wrong": WRONG} if colours else None,
        unit=data.get("unit", ""),
        runs=[{"figures": [], "shares": {}, **one} for one in inner],
    )
    return panel if shown else None, len(missing)


def inner_life(inner: Run, drawn: Any) -> dict[str, Any]:
    """Return the cells of latents, where a quadtree decodes, and the attention that each channel receives."""
    attention = inner.get("attention", {})
    figures = [
        *drawn(inner["cells"], "latent cells", f"{inner['cells']['latents']:,} latents"),
        *drawn(inner["quadtree"], "where a quadtree decodes", inner["quadtree"]["note"]),
    ]
    for file in attention.get("maps", ()):
        figures += drawn(file, f"attention to {file['title']}", "bright: more")
    shares = attention.get("shares", {})
    return {
        "extent": inner.get("place", ""),
        "figures": figures,
        "shares": shares if 1 < len(shares) <= MANY else {},
        "most": max((part for pair in shares.values() for part in pair), default=0.0) or 1.0,
    }


def digits(looks: Looks) -> list[list[tuple[Figure, str, list[tuple[str, bool]]]]]:
    """Return test digits with fewer and fewer dark pixels, and what each network predicts."""
    rows = []
    for image in looks.document.get("digits", []):
        row = []
        for title, column in image["columns"].items():
            content, target = looks.figure(column), image["truth"]  # old name
            if content is not None:
                by_model = column["answers"].items()  # old name
                taken = [(f"{name}: {digit}", digit == target) for name, digit in by_model]
                row.append((figure(content, f"the digit {target}, {title}"), title, taken))
        rows.append(row)
    return rows


def matrices(file: ResultFile, looks: Looks | None) -> dict[str, Markup]:
    """Return the confusion matrices of an item by column; those of seeds and folds are added up."""
    counted: dict[str, dict[str, tuple[list[str], list[list[int]]]]] = {}
    for run in file.results.values():
        for title, matrix in run.get("confusion", {}).items():
            _add(counted, title, next(iter(run["numbers"])), DIGITS, matrix)
    for run in looks.document["runs"].values() if looks is not None else ():
        classes = looks.document["data"].get(run["data"], {}).get("classes", []) if looks is not None else []
        for title, column in run["columns"].items():
            if "confusion" in column:
                matrix = column["confusion"]
                names = classes if len(classes) == len(matrix) else [str(n) for n in range(len(matrix))]
                _add(counted, title, run["row"], names, matrix)
    return {
        title: render(
            "matrices.html",
            least=9 + 3 * max(len(names) for names, _ in rows.values()),
            matrices=[Confusion.of(row, names, matrix) for row, (names, matrix) in rows.items()],
        )
        for title, rows in counted.items()
    }


def _add(counted: dict[str, Any], title: str, row: str, names: Sequence[str], matrix: list[list[int]]) -> None:
    """Add a matrix to that of the same column and row, if there is one."""
    rows = counted.setdefault(title, {})
    if row in rows:
        matrix = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(rows[row][1], matrix, strict=True)]
    rows[row] = (list(names), matrix)


def curves(looks: Looks) -> list[Chart]:
    """Return the validation score during training, a chart for each dataset and a line for each row."""
    by_data: dict[str, list[Series]] = {}
    scores: dict[str, str] = {}
    for name, run in looks.document["runs"].items():
        curve = run.get("curve")
        if curve and len(curve["points"]) > 1:
            title = next(iter(run["columns"]), name) if len(run["columns"]) == 1 else run["data"]
            lines = by_data.setdefault(title, [])
            if run["row"] not in [line.name for line in lines]:
                points = tuple((x, y) for x, y in curve["points"])
                lines.append(Series(run["row"], points, colour_of(run["row"], len(lines))))
            scores[title] = SCORES.get(curve["score"], curve["score"])
    drawn = [chart(title, lines, Axes("steps", f"{scores[title]}, validation")) for title, lines in by_data.items()]
    return [one for one in drawn if one is not None]

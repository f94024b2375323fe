"""The report of a map: one HTML page that needs no other file; every name in it is escaped."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from atomizer_io import __version__
from atomizer_io.errors import printable
from atomizer_io.training.area_accuracy import Estimate

if TYPE_CHECKING:
    from atomizer_io.mapping.label_map import LabelMap

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #20222a }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 1.6rem }
table { border-collapse: collapse } td, th { padding: .2rem .7rem; border-bottom: 1px solid #d4d4d4; text-align: right }
th { font-weight: 600 } td:first-child, th:first-child { text-align: left } img { max-width: 100% }
.own { background: #eef3ee } .note { background: #fff6dd; padding: .4rem .7rem }
.colour { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -.05rem }
"""


def report(made: LabelMap) -> str:
    """Return the page."""
    title = f"Map {made.product.path.name}"
    parts = [
        f"<h1>{text(title)}</h1>",
        *(f'<p class="note">{text(note)}</p>' for note in made.notes),
        preview(made),
        *accuracy(made),
        *areas(made),
        *sets(made),
        *training(made),
        *files(made),
        f"<p>atomizer-io {__version__}, {datetime.date.today().isoformat()}, {made.seconds:.0f} s</p>",
    ]
    head = f'<meta charset="utf-8"><title>{text(title)}</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def preview(made: LabelMap) -> str:
    """Return the preview of the map, inside the page."""
    image = base64.b64encode(made.product.files["preview.png"].read_bytes()).decode()
    return f'<img alt="preview of the map" src="data:image/png;base64,{image}">'


def accuracy(made: LabelMap) -> list[str]:
    """Return the confusion matrix and the accuracies."""
    names, own = made.names, made.accuracy
    rows: list[Sequence[str]] = []
    for number, name in enumerate(names):
        counts = [str(count) for count in made.confusion[number]]
        rows.append([colour(made, number) + text(name), *counts, interval(own.users[number])])
    rows.append(["<b>producer’s accuracy</b>", *(interval(estimate) for estimate in own.producers), ""])
    adjusted = "Adjusted for the areas of the classes (Olofsson et al., 2014). " if own.areas else ""
    blocks = "The interval is from how much blocks of labels differ, as labels near each other are alike. "
    return [
        "<h2>Accuracy</h2>",
        f"<p>Overall accuracy <b>{interval(own.overall)}</b>, on {text(made.tested_on)}. {adjusted or blocks}"
        "All intervals are of 95 %; one without width means that no error was met, not that there is none. "
        "A label counts once, however many pixels it has.</p>",
        "<p>Rows: the map. Columns: the labels.</p>",
        table(["", *map(text, names), "user’s accuracy"], rows),
    ]


def areas(made: LabelMap) -> list[str]:
    """Return the hectares of each class."""
    total = made.hectares
    head = ["class", "code", "on the map (ha)"]
    rows: list[Sequence[str]] = []
    for number, name in enumerate(made.names):
        area = hectares(made.product.hectares[name])
        row = [colour(made, number) + text(name), str([*made.legend][number]), area]
        if made.accuracy.areas:
            share = made.accuracy.areas[number]
            row += [hectares(share.value * total), f"{hectares(share.low * total)} – {hectares(share.high * total)}"]
        rows.append(row)
    rows.append(["<b>all</b>", "", hectares(total), *([hectares(total), ""] if made.accuracy.areas else [])])
    head += ["adjusted (ha)", "95 % interval"] if made.accuracy.areas else []
    note = "" if made.unadjusted is None else f'<p class="note">{text(capital(made.unadjusted))}.</p>'
    sample = (
        "<p>The labels were stated to be a random sample of the mapped area; the adjusted areas hold if they are.</p>"
    )
    return ["<h2>Areas</h2>", table(head, rows), note if made.unadjusted else sample]


def sets(made: LabelMap) -> list[str]:
    """Return what the prediction sets promise, and how large they are."""
    total = max(1, sum(made.sizes))
    rows = [[str(size), f"{count / total:.1%}"] for size, count in enumerate(made.sizes) if count]
    coverage = f"{made.sets.coverage:.4g}"
    return [
        "<h2>Prediction sets</h2>",
        f"<p>{text(made.files['sets.tif'].name)} has for each pixel the classes that it may have. Calibrated on "
        f"{made.sets.labels:,} held-out labels (split conformal prediction), the set holds the true class with a "
        f"probability of at least {coverage} for a label that is drawn like these: on average over all classes and "
        "places, not for each of them, and not where the land differs from that of the labels.</p>",
        table(["classes in the set", "share of the map"], rows),
    ]


def training(made: LabelMap) -> list[str]:
    """Return what the model was trained on, and what simple baselines get."""
    counts = zip(made.names, made.labels, strict=True)
    labels = ", ".join(f"{text(name)} {count:,}" for name, count in counts)
    inputs = ", ".join(text(str(raster["path"])) for raster in made.request.rasters)
    lines = [f"<p>Labels inside the rasters: {labels}, of {text(str(made.request.labels))}. Rasters: {inputs}.</p>"]
    baselines = ((made.scores.get("baselines") or {}).get("scores") or {}).get("test") or {}
    own = (made.scores.get("scores") or {}).get("test") or {}
    if baselines and own:
        pairs = [("this model", own), *baselines.items()]
        rows = [[text(name), f"{score['accuracy']:.3f}", f"{score['miou']:.3f}"] for name, score in pairs]
        lines += [
            "<p>On the held-out positions of the first fold, each counted once:</p>",
            table(["", "accuracy", "mean IoU"], rows),
        ]
    return ["<h2>Training</h2>", *lines]


def files(made: LabelMap) -> list[str]:
    """Return the list of files."""
    names = "".join(f"<li>{text(path.name)}</li>" for path in made.files.values())
    return ["<h2>Files</h2>", f"<ul>{names}</ul>"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already."""
    first = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{first}</tr>{body}</table>"


def colour(made: LabelMap, number: int) -> str:
    """Return a square in the colour of a class."""
    red, green, blue = (round(255 * part) for part in [*made.legend.values()][number][1])
    return f'<span class="colour" style="background: rgb({red},{green},{blue})"></span>'


def interval(estimate: Estimate) -> str:
    """Return a share and its interval."""
    if math.isnan(estimate.value):
        return "–"
    if math.isnan(estimate.low):
        return f"{estimate.value:.3f} (–)"
    return f"{estimate.value:.3f} ({estimate.low:.3f} – {estimate.high:.3f})"


def hectares(area: float) -> str:
    """Return an area for people: of small ones to the square metre."""
    return "–" if math.isnan(area) else f"{area:,.1f}" if area >= 100 else f"{area:,.4f}"


def capital(sentence: str) -> str:
    """Return a sentence with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def text(value: str) -> str:
    """Return a text as HTML."""
    return escape(printable(value))

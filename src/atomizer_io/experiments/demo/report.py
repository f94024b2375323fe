"""What the demo leaves for the eye: one page that needs no other file."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any

from atomizer_io.datasets.dataset import Info
from atomizer_io.decoding import Prediction
from atomizer_io.pictures.samples import draw_acquisition, draw_target
from atomizer_io.sample import Sample


def write_report(
    path: Path,
    result: dict[str, Any],
    table: dict[str, dict[str, float]],
    sample: Sample,
    info: Info,
    whole: Prediction,
    quick: Prediction,
) -> Path:
    """Write one page with scores, pictures and what the run was."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>" + "".join(f"<td>{value:.3f}</td>" for value in row.values()) + "</tr>"
        for name, row in table.items()
    )
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in next(iter(table.values())))
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    path.write_text(
        f"""<!doctype html><meta charset="utf-8"><title>Atomizer-IO demo</title>
<style>body{{font:16px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse}}td,th{{padding:.3em 1em;border-bottom:1px solid #ccc;text-align:right}}
td:first-child{{text-align:left}}img{{max-width:100%}}</style>
<h1>Atomizer-IO demo</h1>
<p>A tiny model trained for {result["steps"]} steps ({result["seconds"]:.0f} s) on made-up Sentinel-1 and Sentinel-2
scenes, then asked about scenes it has never seen, with all channels and with some missing. Mean IoU:</p>
<table><tr><th></th>{heads}</tr>{rows}</table>
<h2>One scene</h2>
<img alt="input, target, predictions" src="data:image/png;base64,{picture(sample, info, whole, quick)}">
<p>Dense decoding asked {whole.decoded:,} positions, the quadtree {quick.decoded:,}
({whole.flops / max(quick.flops, 1):.1f} times fewer operations in the decoder).</p>
<p><small>Seed {result["seed"]}; {html.escape(machine)}</small></p>
""",
        encoding="utf-8",
    )
    return path


def picture(sample: Sample, info: Info, whole: Prediction, quick: Prediction) -> str:
    """Draw input, target, both predictions and where the quadtree asked; return a PNG in base64."""
    from dataclasses import replace

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    draw_acquisition(axes[0, 0], sample.atoms.acquisitions[-1])
    draw_acquisition(axes[0, 1], sample.atoms.acquisitions[0])
    draw_target(axes[0, 2], sample, info)
    for axis, prediction, title in ((axes[1, 0], whole, "dense"), (axes[1, 1], quick, "quadtree")):
        draw_target(axis, replace(sample, target=prediction.labels.flatten()), info)
        axis.set_title(f"prediction, {title}", fontsize=8)
    axes[1, 2].imshow(quick.asked.numpy(), cmap="gray_r", interpolation="nearest")
    axes[1, 2].set_title("where the quadtree asked", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return base64.b64encode(buffer.getvalue()).decode("ascii")

"""Count how the FLOPs of models grow with the size of the input: pixels, channels, dates; nothing is run.

.venv/bin/python tools/bench_growth.py [NAME ...] [--output results/models-growth.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from atomizer_io.machine import machine
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.registry import create_model
from atomizer_io.texts import write_output
from atomizer_lab.bench.model_inputs import ModelInput, raster_input
from atomizer_lab.bench.models import settings_for

MODELS = ("atomizer_io_seg", "resnet50", "vit_small", "unet", "perceiver_io_seg", "ramen", "universat")
SERIES = {
    "resnet50": "resnet50_temporal",
    "vit_small": "vit_small_temporal",
    "atomizer_io_seg": "atomizer_io_seg_temporal",
}
LITERAL = "atomizer_io_seg, as the paper writes it"
SWEEPS = {
    "pixels along a side": {side: raster_input(side, side, 15) for side in (128, 256, 512, 1024)},
    "channels": {count: raster_input(128, 128, count) for count in (3, 6, 15, 50, 100, 224)},
    "dates": {count: raster_input(128, 128, 10, count) for count in (1, 3, 6, 12, 30, 60)},
}


def counted(name: str, scene: ModelInput) -> dict[str, float]:
    """Return the FLOPs (a multiply-add is two) of a model for one input, without running it; Atomizer-IO's twice.

    Beside what is computed here, its FLOPs as the paper writes them.
    """
    atoms, queries = scene.made()
    own = SERIES.get(name, name) if scene.dates > 1 else name
    with torch.device("meta"):  # no weights are needed to count
        model = create_model(own, task_spec=scene.task_spec, **settings_for(own, scene)).eval()
    inputs = [model.preparer()(atoms, queries)]
    counts = {name: float(model.flops(inputs))}
    if isinstance(model, AtomizerIO):
        size = InputSize.of(model, atoms, 0 if queries is None else len(queries), inputs[0].geometry)
        counts[LITERAL] = sum(stage.literal_flops for stage in stages(model, size))
    return counts


def run(names: Sequence[str], output: Path) -> dict[str, Any]:
    """Count all sweeps, print and write them, and plot them beside the result file."""
    counted_on: dict[str, dict[str, dict[str, float]]] = {}
    for axis, inputs in SWEEPS.items():
        counted_on[axis] = {}
        for value, scene in inputs.items():
            counts: dict[str, float] = {}
            for name in names or MODELS:
                counts |= counted(name, scene)
            counted_on[axis][str(value)] = counts
            line = ", ".join(f"{name} {count / 1e9:,.0f}" for name, count in counts.items())
            print(f"{axis} {value}: GFLOP {line}", flush=True)
    result = {"benchmark": "growth", "operations": counted_on, "machine": machine()}  # old name
    write_output(output, json.dumps(result, indent=1) + "\n")
    plot(counted_on, output.with_suffix(".png"))
    return result


def plot(gflops_by_axis: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw FLOPs against each axis, both on logarithmic scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(gflops_by_axis), 4.4), layout="constrained")
    panels = figure.subplots(1, len(gflops_by_axis), sharey=True)
    names = list(dict.fromkeys(name for counts in gflops_by_axis.values() for row in counts.values() for name in row))
    for panel, (axis, counts) in zip(panels, gflops_by_axis.items(), strict=True):
        for number, name in enumerate(names):
            points = [(float(value), row[name] / 1e9) for value, row in counts.items() if name in row]
            style = "--" if name == LITERAL else "-"
            width = 2.4 if name.startswith("atomizer") and name != LITERAL else 1.2
            colour = f"C{names.index(MODELS[0])}" if name == LITERAL and MODELS[0] in names else f"C{number}"
            if points:
                panel.plot(*zip(*points, strict=True), style, color=colour, linewidth=width, marker=".", label=name)
        panel.set(xscale="log", yscale="log", xlabel=axis)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("GFLOP (a multiply-add counts as two)")
    panels[-1].legend(fontsize=7)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Count, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help="models to count (default: those of the paper)")
    parser.add_argument("--output", type=Path, default=Path("results/models-growth.json"))
    args = parser.parse_args()
    run(args.models, args.output)
    print(f"written: {args.output} and {args.output.with_suffix('.png')}")


if __name__ == "__main__":
    main()

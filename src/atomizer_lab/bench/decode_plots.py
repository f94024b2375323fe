"""The paper's two figures of decoding, from the rows of ``bench/decode.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomizer_lab.bench.decode_ways import USUAL

Row = dict[str, Any]

VARIED = {"atoms_per_latent": "atoms per latent κ", "budget": "budget m", "neighbors": "neighbors k"}
# what moves along the line of each strategy in the figure of cost and performance
ALONG = {"dense": "atoms_per_latent", "zone_probe": "atoms_per_latent", "quadtree": "start", "sketch": "spacing"}
SCORES = {"miou": "mIoU", "rmse": "RMSE"}


def plot(result: Row, path: Path) -> Path:
    """Write both figures, the second as ``NAME-sensitivity.png``, whose path is returned."""
    import matplotlib

    matplotlib.use("Agg")
    trade_off(result, path)
    second = path.with_name(f"{path.stem}-sensitivity{path.suffix}")
    sensitivity({"": result}, second)
    return second


def trade_off(result: Row, path: Path) -> None:
    """FLOPs against the score: one line a strategy, calibrated operating points as stars."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for number, (strategy, name) in enumerate(ALONG.items()):
        color, rows = f"C{number}", line_of(result, strategy, name)
        if rows:
            axis.plot(*_spots(result, rows), "o-", color=color, label=f"{strategy} ({VARIED.get(name, name)})")
        for row, x, y in zip(rows, *_spots(result, rows), strict=True):
            axis.annotate(f"{value_of(row, name):g}", (x, y), (3, 3), textcoords="offset points", fontsize="x-small")
        stars = [row for row in result["rows"] if row["strategy"] == strategy and row["alpha"] is not None]
        if stars:
            axis.plot(*_spots(result, stars), "*", color=color, markersize=11, label=f"{strategy}, calibrated")
    axis.set(xscale="log", xlabel="GFLOPs per scene", ylabel=SCORES[result["score"]], title="Cost and performance")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def sensitivity(results: Mapping[str, Row], path: Path) -> None:
    """Draw score and, below it, FLOPs against κ, m and k, for each dataset: a line for each strategy."""
    import matplotlib.pyplot as plt

    count, named = len(results), set[str]()
    figure, axes = plt.subplots(
        2 * count, 3, figsize=(11, 6 * count), layout="constrained", sharey="row", squeeze=False
    )
    for number, (data, result) in enumerate(results.items()):
        _sensitivity(result, axes[2 * number : 2 * number + 2], named)
        axes[2 * number, 1].set_title(data)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(USUAL), fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _sensitivity(result: Row, axes: Any, named: set[str]) -> None:
    """Draw one dataset into two rows of three axes; a strategy is named, for the legend, where it is first drawn."""
    for column, (name, label) in enumerate(VARIED.items()):
        lines = {strategy: line_of(result, strategy, name) for strategy in USUAL}
        values = sorted({value_of(row, name) for rows in lines.values() for row in rows})
        for strategy, rows in lines.items():
            index = [values.index(value_of(row, name)) for row in rows]
            gflops, scores = _spots(result, rows)
            axes[0, column].plot(index, scores, "o-", label=strategy if rows and strategy not in named else None)
            named |= {strategy} if rows else set()
            axes[1, column].semilogy(index, gflops, "o-")
        for axis in axes[:, column]:
            axis.set_xticks(range(len(values)), ["all" if math.isinf(v) else f"{v:g}" for v in values])
        axes[1, column].set_xlabel(label)
    axes[0, 0].set_ylabel(SCORES[result["score"]])
    axes[1, 0].set_ylabel("GFLOPs per scene")


def line_of(result: Row, strategy: str, name: str) -> list[Row]:
    """The rows of a strategy, not calibrated, in which only ``name`` is not as usual, in its order."""
    model = {"atoms_per_latent": result["atoms_per_latent"], "budget": None, "neighbors": result["neighbors"]}
    usual = {**model, **USUAL[strategy]}
    rows = [row for row in result["rows"] if row["strategy"] == strategy and row["alpha"] is None]
    kept = [row for row in rows if all({**row, **row["settings"]}[key] == usual[key] for key in usual if key != name)]
    return sorted(kept, key=lambda row: value_of(row, name))


def value_of(row: Row, name: str) -> float:
    """Return the value of a setting; no budget counts as an infinite one."""
    value = {**row, **row["settings"]}[name]
    return math.inf if value is None else value


def _spots(result: Row, rows: list[Row]) -> tuple[list[float], list[float]]:
    """Return the GFLOPs of a whole scene and the scores, row by row."""
    return [row["gflops"]["total"] for row in rows], [row[result["score"]] for row in rows]

"""A folder of synthetic results as items write them: the paper's numbers, a little changed, and figures of noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_lab.paper.decoding import DECODED, FOLDED, LITERAL, SCORE
from atomizer_lab.paper.item import summary
from atomizer_lab.paper.registry import item
from atomizer_lab.report import images

MACHINE = {"processor": "a processor", "threads": 1, "commit": "abcdef123456", "date": "2026-11-16T10:00:00+00:00"}
CLASSES = ["water", "soil", "forest"]


def write_item(folder: Path, name: str, scale: str, runs: Mapping[str, Any]) -> Path:
    """Write the result file of an item from what its runs returned."""
    own = item(name)
    document = {
        **{"item": name, "scale": scale, "command": f"atomizer reproduce {name} --scale {scale}", "unit": own.unit},
        **{
            "protocol": f"the protocol of {scale}",
            "label": own.label,
            "paper": own.paper,
            "found": own.derive(summary(runs)),
        },
        "machine": MACHINE,
        "runs": {
            run: {"arguments": {"document": {"seed": n}}, "result": result, "minutes": 1.5, "machine": MACHINE}
            for n, (run, result) in enumerate(runs.items())
        },
    }
    path = folder / f"{name}-{scale}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def scores(rows: Sequence[str], columns: Sequence[str], seed: int, low: float = 50.0) -> dict[str, Any]:
    """Return the result of a run with numbers for all cells."""
    draw = np.random.default_rng(seed)
    numbers = {row: {column: float(draw.uniform(low, low + 40)) for column in columns} for row in rows}
    return {"numbers": numbers, "steps": 600, "seconds": 300.0}


def decodings() -> dict[str, Any]:
    """Return the result of a run that decodes with one checkpoint in many ways."""
    rows, numbers = [], {}
    base = {"alpha": None, "settings": {}, "budget": None, "neighbors": 9, "atoms_per_latent": 100}
    changes: list[dict[str, Any]] = [{"atoms_per_latent": kappa} for kappa in (50, 100, 200)]
    changes += [{"budget": budget} for budget in (32, 64)] + [{"neighbors": count} for count in (1, 4)]
    for number, change in enumerate(changes):
        row = {**base, **change, "strategy": "dense", "miou": 0.8 - 0.01 * number, "gflops": {"total": 2.0 + number}}
        rows.append(row)
        cells = {SCORE: 100 * row["miou"], FOLDED: 2.0 + number, LITERAL: 5.0 + number, DECODED: 100.0}
        numbers[f"dense, κ {row['atoms_per_latent']}, m {row['budget']}, k {row['neighbors']}"] = cells
    decode = {"score": "miou", "atoms_per_latent": 100, "neighbors": 9, "rows": rows}
    return {"numbers": numbers, "decode": decode, "steps": 600, "seconds": 300.0}


def write_looks(folder: Path, stem: str, titles: Sequence[str], rows: Sequence[str], work: Path | None = None) -> Path:
    """Write inspected models: matrices, curves, and figures, which go to a folder of runs or beside the numbers."""
    rng, numbers = np.random.default_rng(0), folder / stem
    numbers.mkdir(parents=True, exist_ok=True)
    figures = numbers if work is None else work / "looks" / stem
    figures.mkdir(parents=True, exist_ok=True)

    def file(name: str) -> dict[str, str]:
        (figures / f"{name}.png").write_bytes(images.png(rng.uniform(0, 1, (24, 12, 3))))
        return {"file": f"{name}.png", "in": "results" if work is None else "work"}

    matrix = [[90, 8, 2], [5, 70, 25], [0, 0, 0]]
    looks: dict[str, Any] = {"command": f"atomizer reproduce {stem}", "data": {}, "runs": {}}
    for number, title in enumerate(titles):
        inputs = [{**file(f"in-{number}"), "title": "sentinel2", "note": "13 channels"}]
        looks["data"][title] = {"classes": CLASSES, "unit": "", "inputs": inputs, "target": file(f"target-{number}")}
        for row in rows:
            column: dict[str, Any] = {"samples": 1, "confusion": matrix, "note": "91.2 % right"}
            column["picture"] = file(f"{row}-{number}")  # old name
            curve = {"score": "miou", "points": [[100 * n, 0.5 + 0.05 * n] for n in range(5)]}
            run: dict[str, Any] = {
                "training": "x",
                "row": row,
                "data": title,
                "columns": {title: column},
                "curve": curve,
            }
            if row == "Atomizer-IO":
                shares = {"sentinel1 VV": [0.3, 0.4], "sentinel2 B04": [0.7, 0.6]}
                attention = {"shares": shares, "maps": [{**file(f"attention-{number}"), "title": "sentinel1 VV"}]}
                run["inner"] = {
                    "place": "the middle of the scene, 24 × 12 pixels",
                    "cells": {**file(f"cells-{number}"), "latents": 40},
                    "quadtree": {**file(f"quadtree-{number}"), "note": "12 of 288 positions"},
                    "attention": attention,
                }
            looks["runs"][f"{row}, {title}"] = run
    (numbers / "looks.json").write_text(json.dumps(looks), encoding="utf-8")
    return numbers / "looks.json"


def write_digits(folder: Path, scale: str) -> None:
    """Write the sparse digits with confusion matrices and what networks take some images for."""
    columns, rows = ("100%", "25%", "10%"), ("Atomizer-IO", "ViT 1×1")
    counts = (90 * np.eye(10, dtype=int) + 1).tolist()
    runs = {
        f"{row}, seed 0": {
            **scores([row], columns, seed),
            "confusion": dict.fromkeys(columns, counts),
        }
        for seed, row in enumerate(rows)
    }
    path = write_item(folder, "mnist-sparse", scale, runs)
    figures = path.with_suffix("")
    figures.mkdir()
    digits = []
    for label in (7, 2):
        image = images.png(np.random.default_rng(label).uniform(size=(14, 14, 3)))
        by_column = {}
        for column in columns:
            name = f"{label}-{column[:-1]}.png"
            (figures / name).write_bytes(image)
            predictions = {rows[0]: label, rows[1]: 1}
            by_column[column] = {"file": name, "in": "results", "answers": predictions}  # old name
        digits.append({"truth": label, "columns": by_column})  # old name
    (figures / "looks.json").write_text(json.dumps({"data": {}, "runs": {}, "digits": digits}), encoding="utf-8")


def write_everything(folder: Path, work: Path) -> None:
    """Write results of several items at small, two at smoke, and what was looked at."""
    models = ("ResNet", "ViT", "UNet", "Perceiver-IO", "RAMEN", "UniverSat", "Atomizer-IO")
    table3 = [column for column in item("table3").paper["ResNet"] if column.startswith("S1F")]
    table3 += [column.replace("S1F", "MARIDA") for column in table3]
    small = ("Sen1Floods11 chip", "Rondônia", "BioMassters chip")
    write_item(folder, "table2", "small", {f"seed {n}": scores(models, small, n) for n in range(3)})
    write_item(folder, "table3", "small", {f"seed {n}": scores(models, table3, n) for n in range(3)})
    write_item(folder, "rope", "small", {"0": scores(item("rope").paper, ("MNIST", "Sen1Floods11 chip"), 0)})
    write_item(folder, "local-observations", "small", {"0": scores(item("local-observations").paper, small[:2], 1)})
    dates = ("T = 1", "T = 3", "T = 6")
    write_item(folder, "temporal", "small", {"0": scores(("joint", "aggregated"), dates, 2)})
    baselines = {name: {SCORE: 70.0, FOLDED: 3.0, LITERAL: 3.0, DECODED: 100.0} for name in ("ResNet", "ViT")}
    write_item(folder, "compute", "small", {"ours": decodings(), "baselines": {"numbers": baselines}})
    write_item(folder, "sensitivity", "small", {"ours": decodings()})
    write_digits(folder, "small")
    write_item(folder, "table2", "smoke", {"0": scores(("ResNet", "Atomizer-IO"), ("synthetic",), 0)})
    write_looks(folder, "table2-small", small[:2], models, work)
    write_looks(folder, "table2-smoke", ("synthetic",), models[-1:])
    (folder / "core.json").write_text(json.dumps({"benchmark": "core", "machine": MACHINE, "rows": [{"seconds": 0.1}]}))

"""All models on one input in one run: parameters, operations, memory, time to prepare, to answer, to train a step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from atomizer_io.atoms import AtomSet
from atomizer_io.channels import Channel
from atomizer_io.errors import AtomizerError
from atomizer_io.experiments.bench.measure import peak_extra_bytes, seconds
from atomizer_io.grid import Grid
from atomizer_io.machine import machine
from atomizer_io.models.contract import Model
from atomizer_io.models.registry import create_model
from atomizer_io.problem import Problem
from atomizer_io.sample import Queries, queries_at

GSD_M = 10.0


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What one model took; seconds are the shortest of the repeats. ``failed`` says why nothing was measured."""

    name: str
    parameters: int = 0
    gflops: float = 0.0  # a multiply-add counts as two operations
    prepare_s: float = 0.0
    answer_s: float = 0.0
    step_s: float = 0.0  # forward and backward, without optimizer
    peak_mb: float = 0.0  # of the answer, beyond what was there before
    failed: str | None = None

    def line(self) -> str:
        """Return this measurement as a row of the printed table."""
        if self.failed is not None:
            return f"{self.name:26} does not answer: {self.failed}"
        return (
            f"{self.name:26}{self.parameters / 1e6:10.2f}{self.gflops:12.2f}{1e3 * self.prepare_s:12.1f}"
            f"{1e3 * self.answer_s:12.1f}{1e3 * self.step_s:12.1f}{self.peak_mb:12.0f}"
        )


def made_up(height: int, width: int, count: int, dates: int) -> tuple[AtomSet, tuple[Channel, ...], Queries]:
    """Return a scene of noise with so many optical channels and dates, and a query for every pixel."""
    channels = tuple(
        Channel("made-up", f"B{i}", 0.4 + 2.0 * i / max(count, 2), 0.02, mean=0.0, std=1.0) for i in range(count)
    )
    generator = torch.Generator().manual_seed(0)
    atoms = AtomSet()
    for day in range(dates):
        values = torch.randn(count, height, width, generator=generator)
        atoms += AtomSet.from_raster(values, channels, GSD_M, 1 + day * 365 // dates)
    return atoms, channels, queries_at(Grid(height, width, gsd_m=GSD_M).positions())


def measure(name: str, size: tuple[int, int, int, int], repeats: int = 3) -> ModelRow:
    """Measure one model for segmentation into two classes; what it cannot do is said in its row."""
    atoms, channels, queries = made_up(*size)
    extent_m = GSD_M * max(size[:2])
    problem = Problem("segmentation", 2, channels=channels, extent_m=extent_m)
    try:
        model: Model = create_model(name, problem=problem).eval()
        prepare = model.preparer()
        inputs = [prepare(atoms, queries)]

        def answer() -> None:
            with torch.no_grad():
                model.answer(inputs)

        def step() -> None:
            model.answer(inputs)[0].logsumexp(dim=-1).mean().backward()

        answer()
        answered, peak = seconds(answer, repeats), peak_extra_bytes(answer)
        return ModelRow(
            name,
            parameters=model.num_parameters,
            gflops=model.operations(inputs) / 1e9,
            prepare_s=seconds(lambda: model.preparer()(atoms, queries), repeats),
            answer_s=answered,
            step_s=seconds(step, repeats),
            peak_mb=peak / 1e6,
        )
    except AtomizerError as error:
        return ModelRow(name, failed=str(error))


def run(names: Sequence[str], size: tuple[int, int, int, int], output: Path, repeats: int) -> dict[str, Any]:
    """Measure the models one after the other; each row is printed as it comes, and all are written at the end."""
    height, width, count, dates = size
    print(f"{height} × {width} pixels, {count} channels, {dates} dates; {torch.get_num_threads()} threads")
    print(f"{'model':26}{'M params':>10}{'GFLOP':>12}{'prepare ms':>12}{'answer ms':>12}{'step ms':>12}{'MB':>12}")
    rows = []
    for name in names:
        rows.append(measure(name, size, repeats))
        print(rows[-1].line(), flush=True)
    result = {"benchmark": "models", "input": list(size), "machine": machine(), "rows": [asdict(row) for row in rows]}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result

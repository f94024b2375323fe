"""What one checkpoint costs and scores when it is decoded in different ways, with baselines as single points.

Two figures of the paper share this: FLOPs against the score for three strategies, and the score against atoms per
latent κ, budget m and neighbours k. FLOPs are counted twice: as they are computed here, and as the paper writes them,
where each atom has a key and a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atomizer_io.data.sample import Sample
from atomizer_io.errors import AtomizerError
from atomizer_io.models.registry import load_model
from atomizer_io.training.splits import open_split
from atomizer_lab.bench.decode import DecodeBenchmark, settings_of
from atomizer_lab.bench.decode_ways import USUAL, Sweep, ways
from atomizer_lab.matrix import Task
from atomizer_lab.paper import networks
from atomizer_lab.paper.columns import Changes, Column, PaperDataset
from atomizer_lab.paper.item import Results, Where
from atomizer_lab.paper.models import ATOMIZER

SCORE, FOLDED, LITERAL, DECODED = "mIoU", "GFLOP", "GFLOP as written", "decoded, %"
MINUTES = 8.0  # of a run on a small task
TIMES = (0.5, 1, 2, 4, 8)  # of the model's κ
MARGINS = (0.2, 0.4, 0.6)  # of a sketch: a position whose interpolated prediction is less sure than this is decoded
SWEEPS: dict[str, dict[str, Any]] = {
    "compute": {
        "neighbors": (1, 4),
        "budgets": (64,),
        "starts": (4, 8, 16, 32, 64),
        "spacings": (4, 6, 8),
        "margins": MARGINS,
    },
    "sensitivity": {"neighbors": (1, 4, 9, 16), "budgets": (256, 128, 64, 32), "starts": (), "spacings": ()},
    "smoke": {"neighbors": (1,), "budgets": (), "starts": (4,), "spacings": ()},
}


def decode(sweep: str, before: str, **training: Any) -> dict[str, Any]:
    """Train Atomizer-IO, or find it trained, and measure all ways of a sweep on the test part.

    ``before`` stands before the names of rows, where there are several datasets; ``training`` are the arguments of
    :func:`networks.train`.
    """
    done = networks.train(**training)
    model = load_model(done.model)
    kappas = tuple(max(1, round(model.config.atoms_per_latent * times)) for times in TIMES)
    scenes = open_split(done.run, "test").for_evaluation()
    benchmark = DecodeBenchmark(model, scenes, None)
    choices = Sweep(atoms_per_latent=kappas if sweep != "smoke" else kappas[2:3], **SWEEPS[sweep])
    measured = benchmark.run(ways(model.config, choices, grid=benchmark.on_grids))
    numbers = {
        f"{before}{called(row)}": {
            SCORE: 100 * row["miou"],
            FOLDED: row["gflops"]["total"],
            LITERAL: row["literal_gflops"]["total"],
            DECODED: 100 * row["decoded"],
        }
        for row in measured["rows"]
    }
    return {"numbers": numbers, "decode": measured, **done.cost}


def called(row: Mapping[str, Any]) -> str:
    """Return the name of a way to decode."""
    cost = f"κ {row['atoms_per_latent']}, m {row['budget'] or 'all'}, k {row['neighbors']}"
    return f"{row['strategy'].replace('_', '-')}{settings_of(row)}, {cost}"


def point(row: str, **training: Any) -> dict[str, Any]:
    """Train a baseline, or find it trained, and return its score and FLOPs on the test part."""
    done = networks.train(**training)
    model = load_model(done.model)
    scenes = open_split(done.run, "test").for_evaluation()
    prepare, total, count = model.preparer(), 0.0, 0
    for number in range(len(scenes)):
        sample = scenes[number]
        if not isinstance(sample, Sample):
            raise AtomizerError(f"sample {number} of {scenes.info.name} cannot be read")
        total += model.flops([prepare(sample.atoms, sample.queries)])
        count += 1
    gflop = total / count / 1e9
    score = 100 * done.metrics["scores"]["test"]["miou"]
    return {"numbers": {row: {SCORE: score, FOLDED: gflop, LITERAL: gflop, DECODED: 100.0}}, **done.cost}


def tasks_of(
    sweep: str, data: Sequence[Column | PaperDataset], models: Sequence[str], length: Changes = networks.TIME
) -> networks.Runs:
    """Return what lists the runs of a figure; trainings are those of table2."""

    def task(where: Where, seed: int, column: Column | PaperDataset, model: str) -> Task:
        before = f"{column.title}: " if len(data) > 1 else ""
        document = column.document(model, seed, {}, length, where.configs)
        arguments: dict[str, Any] = {"key": column.key, "document": document}
        name, minutes = f"{before}{model}, seed {seed}", MINUTES if column.key else networks.PAPER_MINUTES
        if column.key and length is networks.TIME:
            arguments["rates"] = networks.RATES
        if model == ATOMIZER:
            arguments |= {"sweep": sweep, "before": before}
            return Task(name, decode, arguments, minutes, networks.folders(where))
        return Task(name, point, {"row": f"{before}{model}", **arguments}, minutes, networks.folders(where))

    return lambda where, seeds: [
        task(where, seed, column, model) for seed in seeds for column in data for model in models
    ]


def first_measured(results: Results) -> dict[str, Any]:
    """Return what the first run on each dataset measured, by the name of the dataset ("" where names have none)."""
    measured: dict[str, Any] = {}
    for name, result in results.items():
        if "decode" in result:
            measured.setdefault(dataset_of(name), result["decode"])
    return measured


def _rows(results: Results) -> list[tuple[str, Mapping[str, float]]]:
    return [(row, cells) for result in results.values() for row, cells in result["numbers"].items()]


def strategy_of(row: str) -> str | None:
    """Return the strategy of a row; None where it is a baseline's."""
    names = [name.replace("_", "-") for name in USUAL]
    return next((name for name in names if row.removeprefix(f"{dataset_of(row)}: ").startswith(name)), None)


def dataset_of(name: str) -> str:
    """Return the dataset that stands before the name of a row or of a run; "" where none does."""
    return name.rpartition(": ")[0]


def _spot(cells: Mapping[str, float], column: str) -> tuple[float, float]:
    return cells[column], cells[SCORE]

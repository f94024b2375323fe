"""Cost and scores of decoding strategies, from one checkpoint (paper, §4.3 and its appendix on GFLOPs).

Every row is one way to decode: a strategy with its settings, atoms per latent κ, budget m and neighbors k. Scores
come from one confusion matrix over all positions of all scenes (in a regression, from one sum of squared errors),
agreement is with dense decoding of the same latents at the same k, and of a calibrated row with the model's own dense
prediction.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample
from atomizer_io.datasets.crop import random_crops
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.decoding import dense
from atomizer_io.decoding.blocks import Scenes
from atomizer_io.decoding.predictor import Prediction
from atomizer_io.decoding.sketching import sketch_flops
from atomizer_io.errors import ConfigError
from atomizer_io.machine import machine
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.atomizer.ops.kernels.build import available
from atomizer_io.progress import watched
from atomizer_io.texts import write_output
from atomizer_io.training.metrics import scores_of_confusion
from atomizer_lab.bench.decode_ways import Way

Row = dict[str, Any]

PARTS = {"encoder": "encode", "processor": "process", "temporal": "process", "decoder": "decode", "head": "decode"}


def gflops(model: AtomizerIO, size: InputSize) -> tuple[dict[str, float], dict[str, float]]:
    """GFLOPs of encoding, processing and decoding: as computed here, and as the paper writes them."""
    folded, literal = ({"encode": 0.0, "process": 0.0, "decode": 0.0} for _ in range(2))
    for stage in stages(model, size):
        if stage.name in PARTS:
            folded[PARTS[stage.name]] += stage.flops / 1e9
            literal[PARTS[stage.name]] += stage.literal_flops / 1e9
    return folded, literal


@dataclass(slots=True)
class Tally:
    """Sums over all scenes, for one way to decode."""

    way: Way
    confusion: Tensor
    scenes: int = 0
    positions: int = 0
    decoded: int = 0
    same: int = 0
    known: int = 0
    squared_error: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    gflops: dict[str, float] = field(default_factory=dict)
    literal_gflops: dict[str, float] = field(default_factory=dict)

    def add(self, prediction: Prediction, reference: Prediction, target: Tensor) -> None:
        """Compare a prediction with that of dense decoding, the reference, and with the target."""
        self.scenes += 1
        self.positions += len(target)
        self.decoded += prediction.decoded
        self.same += int((~prediction.differs(reference, self.way.precision)).sum())
        if prediction.classes:
            kept, count = target >= 0, len(self.confusion)
            pairs = target[kept] * count + prediction.labels.flatten()[kept]
            self.confusion += pairs.bincount(minlength=count**2).reshape(count, count)
        else:
            kept = target.isfinite()
            self.squared_error += float((prediction.values.flatten()[kept] - target[kept]).double().square().sum())
        self.known += int(kept.sum())

    def spend(self, folded: dict[str, float], literal: dict[str, float], sketch: float) -> None:
        """Add the GFLOPs of a scene."""
        for sums, parts in ((self.gflops, folded), (self.literal_gflops, literal)):
            for name, value in {**parts, "sketch": sketch, "total": sum(parts.values()) + sketch}.items():
                sums[name] = sums.get(name, 0.0) + value

    def row(self, classes: bool, names: Sequence[str]) -> Row:
        """Scores over all positions, GFLOPs per scene, seconds in all."""
        if classes:
            scores = scores_of_confusion(self.confusion, names)
            score = {name: scores[name] for name in ("miou", "accuracy", "iou")}
        else:
            score = {"rmse": (self.squared_error / self.known) ** 0.5 if self.known else float("nan")}
        return {
            **asdict(self.way),
            "settings": dict(self.way.settings),
            "scenes": self.scenes,
            "positions": self.positions,
            **score,
            "agreement": self.same / self.positions,
            "decoded": self.decoded / self.positions,
            "gflops": {name: value / self.scenes for name, value in self.gflops.items()},
            "literal_gflops": {name: value / self.scenes for name, value in self.literal_gflops.items()},
            "encode_seconds": self.encode_seconds,
            "decode_seconds": self.decode_seconds,
        }


def scenes_of(dataset: Dataset, crops: int | None, size_m: float, seed: int, limit: int | None) -> Scenes:
    """The samples of a dataset as they are, or crops of ``size_m`` from anywhere in them; at most ``limit``."""
    if crops is not None:
        return list(itertools.islice(random_crops(dataset, crops, size_m, seed), limit))
    return dataset if limit is None else torch.utils.data.Subset(dataset, range(min(limit, len(dataset))))


class DecodeBenchmark:
    """Measures one encoding after the other; its rows are printed, kept and saved once all scenes have been seen."""

    def __init__(
        self, model: AtomizerIO, scenes: Scenes, output: Path | None, *, seed: int = 0, about: Row | None = None
    ) -> None:
        config = model.config
        if not model.task_spec.dense:
            raise ConfigError(f"a {model.task_spec.task} model predicts for whole scenes: there is nothing to decode")
        self.model, self.scenes, self.output, self.seed = model.eval(), scenes, output, seed
        self.classes = model.task_spec.task == "segmentation"
        self.names = model.task_spec.names
        self.score = "miou" if self.classes else "rmse"
        self.result: Row = {
            "benchmark": "decode",
            **(about or {}),
            "score": self.score,
            "atoms_per_latent": config.atoms_per_latent,
            "neighbors": config.neighbors,
            "machine": machine(),
            "compiled_kernels": available(),
            "rows": [],
        }

    def run(self, ways: Sequence[Way]) -> Row:
        """Measure and return all rows, in the order of ``ways``."""
        self._warm_up()
        print(
            f"{'strategy':<36}{'κ':>7}{'m':>6}{'k':>4}{self.score:>9}{'same':>8}{'decoded':>9}"
            f"{'GFLOPs':>9}{'decoder':>9}{'encode s':>10}{'decode s':>10}"
        )
        for encoding, group in itertools.groupby(ways, key=lambda way: way.encoding):
            for tally in self._measured(encoding, list(group)):
                row = tally.row(self.classes, self.names)
                print(line(row, self.score), flush=True)
                self.result["rows"].append(row)
            self._save()
        return self.result

    @property
    def on_grids(self) -> bool:
        """Whether the queries of all scenes lie on grids, as a quadtree needs, rather than at lists of positions."""
        return all(sample.queries is not None and sample.queries.grid is not None for _, sample in self.samples())

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """The scenes that can be read and have queries, with their numbers."""
        for number in range(len(self.scenes)):
            sample = self.scenes[number]
            if not sample:
                continue
            if sample.queries is None:
                raise ConfigError(f"{sample.meta.id} has one target for the whole scene: there is nothing to decode")
            if len(sample.queries) and sample.atoms.num_atoms:
                yield number, sample

    @torch.no_grad()
    def _warm_up(self) -> None:
        """Decode one scene: what is built or loaded on first use has no part in the times."""
        first = next(self.samples(), None)
        if first is None:
            raise ConfigError("none of the scenes could be read")
        dense(self.model, self.model.encode([first[1].atoms]), first[1].queries.positions)  # type: ignore[union-attr]

    @torch.no_grad()
    def _measured(self, encoding: tuple[int, int | None], group: Sequence[Way]) -> list[Tally]:
        model, (kappa, budget) = self.model, encoding
        count = max(len(self.names), 2)
        tallies = [Tally(way, torch.zeros(count, count, dtype=torch.long)) for way in group]
        title = f"κ {kappa}, m {budget or 'all'}"
        samples = watched(self.samples(), len(self.scenes), title=title, unit=" scenes", stay=False)
        for number, sample in samples:
            queries = sample.queries
            assert queries is not None
            where = queries.positions if queries.grid is None else queries.grid
            generator = torch.Generator().manual_seed(self.seed + number)
            start = time.perf_counter()
            latents = model.encode([sample.atoms], atoms_per_latent=kappa, budget=budget, generator=generator)
            encode_seconds = time.perf_counter() - start
            size = InputSize.of(model, sample.atoms, 0, latents.geometries[0])
            references: dict[int, Prediction] = {}  # dense decoding comes first
            own: Prediction | None = None
            for tally in tallies:
                way = tally.way
                start = time.perf_counter()
                prediction = way.decode(model, latents, where, sites=queries.sites, footprint_m=queries.footprint_m)
                tally.decode_seconds += time.perf_counter() - start
                tally.encode_seconds += encode_seconds
                if way.strategy == "dense":
                    references[way.neighbors] = prediction
                if way.alpha is not None and own is None:
                    how = {"sites": queries.sites, "footprint_m": queries.footprint_m}
                    own = dense(model, model.encode([sample.atoms]), where, **how)
                reference = references[way.neighbors] if way.alpha is None or own is None else own
                tally.add(prediction, reference, sample.target)
                decoded = replace(size, queries=prediction.decoded, neighbors=way.neighbors)
                tally.spend(*gflops(model, decoded), self._sketch_gflops(way, sample.atoms, prediction))
        return tallies

    def _sketch_gflops(self, way: Way, atoms: AtomSet, prediction: Prediction) -> float:
        if way.strategy != "sketch" or way.margin == float("inf"):  # the latter is dense decoding
            return 0.0
        outputs, spacing = prediction.outputs.shape[-1], dict(way.settings)["spacing"]
        return sketch_flops(atoms, tuple(prediction.queried.shape), outputs, self.classes, spacing=spacing) / 1e9

    def _save(self) -> None:
        if self.output is not None:
            write_output(self.output, json.dumps(self.result, indent=2) + "\n")


def settings_of(row: Mapping[str, Any]) -> str:
    """Return the settings of a strategy as text, with a space before each; a margin of zero is left out."""
    shown = {**row["settings"], **({"margin": row["margin"]} if row["margin"] else {})}
    return "".join(f" {name} {value:g}" for name, value in shown.items())


def line(row: Row, score: str) -> str:
    """Return a measurement as a row of the printed table."""
    settings = settings_of(row)
    promised = "" if row["alpha"] is None else f" alpha {row['alpha']:g}"
    return (
        f"{row['strategy'] + settings + promised:<36}{row['atoms_per_latent']:>7}{row['budget'] or 'all':>6}"
        f"{row['neighbors']:>4}{row[score]:>9.4f}{row['agreement']:>8.4f}{row['decoded']:>9.4f}"
        f"{row['gflops']['total']:>9.3f}{row['gflops']['decode']:>9.3f}"
        f"{row['encode_seconds']:>10.2f}{row['decode_seconds']:>10.2f}"
    )

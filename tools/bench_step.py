"""Measure where the time of a training step goes.

    .venv/bin/python tools/bench_step.py [NAME ...] [--steps 10] [--workers 0] [--output results/step.json]

A run of a few steps on synthetic data, in the sizes of small real tasks and filled with noise, by the same
loader, network, trainer, callbacks and logger as ``atomizer train``; samples are cached, as they are after the first
epoch. All times are CPU times of one process without loader workers, so that what else a machine does hardly shows.
With workers, the share of the time is measured in which the trainer waits for a batch.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.channels import Channel
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2, SENTINEL2_L2A
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset, Info
from atomizer_io.machine import machine
from atomizer_io.models.base import Cost, Model
from atomizer_io.models.registry import create_model
from atomizer_io.texts import write_output
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import DataSettings, ModelSettings, Run, TrainingSettings
from atomizer_io.training.data import Collate, ResumableLoader, TrainingSamples
from atomizer_io.training.draws import Draws
from atomizer_io.training.schedule import cosine
from atomizer_io.training.task import trainer_of
from atomizer_lab.bench.model_inputs import noise

PRESET = "atomizer_io_tiny"
WARM_UP = 5  # steps that do not count
COST = Cost(atoms_per_latent=256, budget=128)
REST = "trainer and logging"
STAGES = {"tokenizer": "tokens", "encoder": "encoder", "processor": "processor", "temporal": "time steps"}
PARTS = (
    *("samples: crops, rotations, dropout", "cells and nearest latents", *STAGES.values(), "decoder", "observations"),
    *("loss and what is between", "backward", "clipping", "optimizer and average", REST),
)


@dataclass(frozen=True, slots=True)
class StepInput:
    """Scenes of ``pixels`` × ``pixels``, one raster for each of ``sensors`` and dates; of each a crop is trained on."""

    name: str
    task: str
    outputs: int
    sensors: tuple[tuple[Channel, ...], ...]
    pixels: int
    gsd_m: float = 10.0
    dates: int = 1
    crop: int | None = None  # pixels; None: whole scenes
    samples: int = 4

    @property
    def dense(self) -> bool:
        """Whether there is a target for each pixel."""
        return self.task == "segmentation"

    @property
    def crop_m(self) -> float | None:
        """The side of a crop in metres."""
        return None if self.crop is None else self.crop * self.gsd_m

    def sample(self, number: int) -> Sample:
        """Return a sample of noise at the usual levels of its channels."""
        generator = torch.Generator().manual_seed(number)
        atoms = noise(self.sensors, (self.pixels, self.pixels), self.gsd_m, self.dates, generator)
        meta = Meta(f"noise-{number}")
        if self.dense:
            grid = Grid(self.pixels, self.pixels, self.gsd_m)
            classes = torch.randint(self.outputs, grid.shape, generator=generator)
            return Sample.of_map(atoms, grid, classes, meta)
        if self.task == "classification":
            return Sample.of_scene(atoms, torch.randint(self.outputs, (), generator=generator), meta)
        return Sample.of_scene(atoms, float(torch.rand((), generator=generator)), meta)


class Noise(Dataset):
    """The samples of a :class:`StepInput`."""

    def __init__(self, scene: StepInput) -> None:
        self.scene = scene
        self.info = Info(
            name="noise",
            title=scene.name,
            task="regression" if scene.task == "scene_regression" else scene.task,
            channels=tuple(channel for channels in scene.sensors for channel in channels),
            extent_m=scene.gsd_m * (scene.crop or scene.pixels),
            classes=tuple(f"class {number}" for number in range(scene.outputs)) if scene.outputs > 1 else (),
        )
        super().__init__(Path(), "train")

    @property
    def task_spec(self) -> TaskSpec:
        """What a model predicts."""
        scene = self.scene
        return TaskSpec(scene.task, scene.outputs, channels=self.info.channels, extent_m=self.info.extent_m)

    def find(self) -> Sequence[int]:
        """Return the numbers of the samples."""
        return range(self.scene.samples)

    def files(self, item: int) -> tuple[Path, ...]:
        """Return a name for messages; there are no files."""
        return (Path(f"noise-{item}"),)

    def read(self, item: int) -> Sample:
        """Return one sample."""
        return self.scene.sample(item)


_FIFTEEN = (SENTINEL1.pick("VV", "VH"), SENTINEL2.channels)
_SIX = SENTINEL2_L2A.pick("B02", "B03", "B04", "B8A", "B11", "B12")
_BANDS = tuple(Channel("noise", f"B{i}", 0.42 + 2.0 * i / 224, 0.01, mean=0.0, std=1.0) for i in range(224))
INPUTS = {
    item.name: item
    for item in (
        StepInput("radar and optical", "segmentation", 2, _FIFTEEN, 256, crop=64),
        StepInput("six dates", "segmentation", 6, (_SIX,), 128, 20.0, dates=6, crop=42),
        StepInput("224 bands", "segmentation", 6, (_BANDS,), 32, 30.0, crop=16),
        StepInput("small patches", "classification", 6, (_SIX,), 8, 20.0, samples=16),
        StepInput("series of one pixel", "scene_regression", 1, _FIFTEEN, 1, dates=12, samples=16),
    )
}


@dataclass
class Clock:
    """CPU seconds by part; a part that runs inside another stops the clock of the other."""

    now: Callable[[], float] = time.process_time
    seconds: dict[str, float] = field(default_factory=dict)
    running: list[str] = field(default_factory=lambda: [REST])
    since: float = 0.0

    def begin(self, part: str) -> None:
        """Count for ``part`` from now on."""
        self._count()
        self.running.append(part)

    def end(self) -> None:
        """Count for the part around again."""
        self._count()
        self.running.pop()

    @contextlib.contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count for ``part`` meanwhile."""
        self.begin(part)
        try:
            yield
        finally:
            self.end()

    def restart(self) -> None:
        """Forget what was counted."""
        self.seconds.clear()
        self.since = self.now()

    def stop(self) -> dict[str, float]:
        """Return what was counted."""
        self._count()
        return dict(self.seconds)

    def _count(self) -> None:
        now = self.now()
        self.seconds[self.running[-1]] = self.seconds.get(self.running[-1], 0.0) + now - self.since
        self.since = now


class _TimedDrawn(TrainingSamples):
    clock: Clock

    def __getitem__(self, draw: Any) -> Any:
        with self.clock.of(PARTS[0]):
            return super().__getitem__(draw)


class _TimedGather(Collate):
    clock: Clock

    def __call__(self, items: Any) -> Batch:
        with self.clock.of(PARTS[1]):
            return super().__call__(items)


class _TimedLoader(ResumableLoader):
    waited = 0.0  # seconds of wall time

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = super().__iter__()
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - start
            if batch is None:
                return
            yield batch


@dataclass(frozen=True, slots=True)
class Step:
    """What the parts of a training step take, in CPU milliseconds."""

    name: str
    atoms: int  # of a batch
    step_ms: float
    parts_ms: dict[str, float]

    def lines(self) -> Iterator[str]:
        """Yield the rows of the printed table."""
        yield f"{self.name}: batches of {self.atoms:,} atoms"
        for part in PARTS:
            if part in self.parts_ms:
                taken = self.parts_ms[part]
                yield f"  {part:32}{taken:9.2f} ms {100 * taken / self.step_ms:6.1f} %"
        yield f"  {'whole step':32}{self.step_ms:9.2f} ms"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long the trainer waited for batches that so many ``workers`` made: a share of the wall time of the steps."""

    name: str
    workers: int
    step_ms: float
    share: float


class Bench:
    """Trains on one synthetic input for some steps."""

    def __init__(self, scene: StepInput, *, observation_mlp: bool, steps: int, workers: int = 0) -> None:
        self.scene, self.steps, self.workers, self.clock = scene, steps, workers, Clock()
        self.settings = TrainingSettings(
            batch_size=4, queries=2000, crop_m=scene.crop_m, max_steps=WARM_UP + steps, loggers=("csv",), devices=1
        )
        self.dataset = Noise(scene)
        options = {"temporal": scene.dates > 1, "observation_mlp": observation_mlp}
        self.model: Model = create_model(PRESET, task_spec=self.dataset.task_spec, **options)

    def run(self, folder: Path) -> tuple[Batch, float, float]:
        """Train; return a batch, and the seconds of wall time of all steps and of waiting that count."""
        from lightning.pytorch.callbacks import Callback

        from atomizer_io.training.callbacks import KeepModels, SaveState
        from atomizer_io.training.task import Task

        clock, loader, total = self.clock, self._loader(), WARM_UP + self.steps
        marks: list[tuple[float, float]] = []
        batches: list[Batch] = []

        class TimedTask(Task):
            def training_step(self, batch: Batch, batch_index: int) -> Any:
                with clock.of("loss and what is between"):
                    return super().training_step(batch, batch_index)

            def backward(self, loss: Any, *arguments: Any, **more: Any) -> None:
                with clock.of("backward"):
                    super().backward(loss, *arguments, **more)

            def configure_gradient_clipping(self, *arguments: Any, **more: Any) -> None:
                with clock.of("clipping"):
                    super().configure_gradient_clipping(*arguments, **more)

            def optimizer_step(self, *arguments: Any, **more: Any) -> None:
                with clock.of("optimizer and average"):
                    super().optimizer_step(*arguments, **more)

        class Mark(Callback):
            def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
                if len(marks) + 1 == WARM_UP:
                    clock.restart()
                marks.append((time.perf_counter(), loader.waited))
                batches[:] = [batch]
                if len(marks) == total:
                    clock.stop()

        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # devices it found, products it recommends
        run = Run(DataSettings(name="noise"), ModelSettings(PRESET), self.settings, output=str(folder))
        trainer = trainer_of(run, folder)
        trainer.log_every_n_steps = 10
        trainer.callbacks += [KeepModels(folder, loader)]
        trainer.callbacks += [SaveState(folder, loader, 10 * total, steps=total), Mark()]
        self._watch()
        rate = functools.partial(cosine, steps=total, warmup=self.settings.warmup)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on few workers and no validation
            trainer.fit(TimedTask(self.model, self.settings, rate, seed=0), loader)
        (begun, waited), (ended, waited_then) = marks[WARM_UP - 1], marks[-1]
        return batches[0], ended - begun, waited_then - waited

    def _loader(self) -> _TimedLoader:
        drawn = _TimedDrawn(self.dataset, self.settings, seed=0, keep=len(self.dataset), inside=True)
        gather = _TimedGather(self.model.preparer(), [COST], seed=0)
        drawn.clock = gather.clock = self.clock
        draws = Draws(len(drawn), self.settings.batch_size or 1, 0, round=WARM_UP + self.steps)
        return _TimedLoader(drawn, draws, gather, self.workers)

    def _watch(self) -> None:
        """Let the clock run for the modules of the network."""
        modules = {name: getattr(self.model, module, None) for module, name in STAGES.items()}
        decoder = getattr(self.model, "decoder", None)
        modules |= {"decoder": decoder, "observations": getattr(decoder, "observation", None)}
        for name, module in modules.items():
            if module is not None:
                module.register_forward_pre_hook(lambda *_, name=name: self.clock.begin(name))
                module.register_forward_hook(lambda *_: self.clock.end())


def measure_step(scene: StepInput, *, observation_mlp: bool = False, steps: int = 10) -> Step:
    """Return where the time of a training step on ``scene`` goes."""
    bench = Bench(scene, observation_mlp=observation_mlp, steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        batch, _, _ = bench.run(Path(folder))
    parts = {part: 1000 * taken / steps for part, taken in bench.clock.seconds.items()}
    name = scene.name + (", a layer before observations" if observation_mlp else "")
    return Step(name, batch.num_atoms, sum(parts.values()), parts)


def measure_waiting(scene: StepInput, workers: int, *, steps: int = 10) -> Waiting:
    """Return for how much of the time the trainer waits for ``workers`` processes that make batches."""
    bench = Bench(scene, observation_mlp=False, steps=steps, workers=workers)
    with tempfile.TemporaryDirectory() as folder:
        _, seconds, waited = bench.run(Path(folder))
    return Waiting(scene.name, workers, 1000 * seconds / steps, waited / seconds)


def run(inputs: Sequence[StepInput], output: Path, *, steps: int = 10, workers: int = 0) -> list[Step]:
    """Measure, print and write as JSON; with ``workers``, how long the trainer waits for them as well."""
    measured, waiting = [], []
    for scene in inputs:
        for observation_mlp in (False, True) if scene.dense else (False,):
            measured.append(measure_step(scene, observation_mlp=observation_mlp, steps=steps))
            print("\n".join(measured[-1].lines()), flush=True)
        if workers:
            waiting.append(measure_waiting(scene, workers, steps=steps))
            share = f"{100 * waiting[-1].share:.1f} %"
            print(f"  {'waiting for ' + str(workers) + ' workers':32}{share:>12} of the wall time", flush=True)
    result = {"machine": machine(), "steps": list(map(asdict, measured)), "waiting": list(map(asdict, waiting))}
    write_output(output, json.dumps(result, indent=2) + "\n")
    return measured


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="*", metavar="NAME", help=f"of {', '.join(INPUTS)} (default: all)")
    parser.add_argument("--steps", type=int, default=10, help="that count")
    parser.add_argument("--threads", type=int, default=1, help="threads to use")
    parser.add_argument("--workers", type=int, default=0, help="also measure how long a training waits for so many")
    parser.add_argument("--output", type=Path, default=Path("results/step.json"))
    args = parser.parse_args(words)
    if unknown := [name for name in args.inputs if name not in INPUTS]:
        parser.error(f"synthetic data {unknown[0]!r} are not known; use {', '.join(INPUTS)}")
    torch.set_num_threads(args.threads)
    run([INPUTS[name] for name in args.inputs or INPUTS], args.output, steps=args.steps, workers=args.workers)
    print(f"written: {args.output}")


if __name__ == "__main__":
    main()

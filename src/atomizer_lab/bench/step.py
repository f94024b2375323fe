"""Where the time of a training step goes, beside the time of its matrix products alone.

A run of a few steps on made-up data, by the same loader, network, trainer, callbacks and logger as ``atomizer train``;
samples are kept in memory, as they are after the first epoch. All times are CPU times of one process without loader
workers, so that what else a machine does hardly shows. With workers, the share of the time is measured in which the
trainer waits for a batch.
"""

from __future__ import annotations

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

from atomizer_io.machine import machine
from atomizer_io.models.atomizer.ops.kernels.build import without_kernels
from atomizer_io.models.base import Cost, Model
from atomizer_io.models.registry import create_model
from atomizer_io.texts import write_output
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import DataSettings, ModelSettings, Run, TrainingSettings
from atomizer_io.training.data import Collate, ResumableLoader, TrainingSamples
from atomizer_io.training.draws import Draws
from atomizer_io.training.losses import loss_sum
from atomizer_io.training.schedule import cosine
from atomizer_io.training.task import trainer_of
from atomizer_lab.bench.products import Recorder
from atomizer_lab.bench.step_inputs import MadeUp, StepInput

PRESET = "atomizer_io_tiny"
WARM_UP = 5  # steps that do not count
COST = Cost(atoms_per_latent=256, budget=128)
REST = "trainer and logging"
STAGES = {"tokenizer": "tokens", "encoder": "encoder", "processor": "processor", "temporal": "time steps"}
PARTS = (
    *("samples: crops, turns, draws", "cells and nearest latents", *STAGES.values(), "decoder", "observations"),
    *("loss and what is between", "backward", "clipping", "optimizer and average", REST),
)


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
    """What a training step takes, in CPU milliseconds: its parts, and its products alone.

    ``by_vector_ms`` is what products of matrices with vectors take of ``products_ms``; torch is slow at these.
    """

    name: str
    atoms: int  # of a batch
    step_ms: float
    parts_ms: dict[str, float]
    products_ms: float
    by_vector_ms: float

    @property
    def ratio(self) -> float:
        """How many times as long as its products the step takes."""
        return self.step_ms / self.products_ms

    @property
    def strict_ratio(self) -> float:
        """The same, as if products with vectors took no time."""
        return self.step_ms / (self.products_ms - self.by_vector_ms)

    def lines(self) -> Iterator[str]:
        """Yield the rows of the printed table."""
        yield f"{self.name}: batches of {self.atoms:,} atoms"
        for part in PARTS:
            if part in self.parts_ms:
                taken = self.parts_ms[part]
                yield f"  {part:32}{taken:9.2f} ms {100 * taken / self.step_ms:6.1f} %"
        yield f"  {'whole step':32}{self.step_ms:9.2f} ms"
        yield f"  {'its products alone':32}{self.products_ms:9.2f} ms, {self.by_vector_ms:.2f} of them with vectors"
        yield f"  {'ratio':32}{self.ratio:9.2f}    {self.strict_ratio:.2f} if products with vectors took no time"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long the trainer waited for batches that so many ``workers`` made: a share of the wall time of the steps."""

    name: str
    workers: int
    step_ms: float
    share: float


class Bench:
    """Trains on one made-up input for some steps."""

    def __init__(self, given: StepInput, *, observation_mlp: bool, steps: int, workers: int = 0) -> None:
        self.given, self.steps, self.workers, self.clock = given, steps, workers, Clock()
        self.settings = TrainingSettings(
            batch_size=4, queries=2000, crop_m=given.crop_m, max_steps=WARM_UP + steps, loggers=("csv",), devices=1
        )
        self.dataset = MadeUp(given)
        options = {"temporal": given.dates > 1, "observation_mlp": observation_mlp}
        self.model: Model = create_model(PRESET, task_spec=self.dataset.task_spec, **options)

    def run(self, folder: Path) -> tuple[Batch, float, float]:
        """Train; return a batch, and the seconds of wall time of all steps and of waiting that count."""
        from lightning.pytorch.callbacks import Callback

        from atomizer_io.training.callbacks import KeepModels, SaveState, Skips
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
        run = Run(DataSettings(name="made-up"), ModelSettings(PRESET), self.settings, output=str(folder))
        trainer = trainer_of(run, folder)
        trainer.log_every_n_steps = 10
        trainer.callbacks += [KeepModels(folder, loader), Skips()]
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

    def products(self, batch: Batch) -> Recorder:
        """Return the products of a forward and backward pass for a batch."""
        model = self.model.train()
        with without_kernels(), Recorder() as recorder:
            answers = batch.outputs(model)
            total, weight = loss_sum(answers, batch.target(answers.device), model.task_spec)
            (total / weight).backward()
        model.zero_grad(set_to_none=True)
        return recorder


def measure_step(given: StepInput, *, observation_mlp: bool = False, steps: int = 10, repeats: int = 3) -> Step:
    """Return where the time of a training step on ``given`` goes."""
    bench = Bench(given, observation_mlp=observation_mlp, steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        batch, _, _ = bench.run(Path(folder))
    parts = {part: 1000 * taken / steps for part, taken in bench.clock.seconds.items()}
    products, by_vector = bench.products(batch).products.seconds(repeats)
    name = given.name + (", a layer before observations" if observation_mlp else "")
    return Step(name, batch.num_atoms, sum(parts.values()), parts, 1000 * products, 1000 * by_vector)


def measure_waiting(given: StepInput, workers: int, *, steps: int = 10) -> Waiting:
    """Return for how much of the time the trainer waits for ``workers`` processes that make batches."""
    bench = Bench(given, observation_mlp=False, steps=steps, workers=workers)
    with tempfile.TemporaryDirectory() as folder:
        _, seconds, waited = bench.run(Path(folder))
    return Waiting(given.name, workers, 1000 * seconds / steps, waited / seconds)


def run(
    inputs: Sequence[StepInput], output: Path, *, steps: int = 10, repeats: int = 3, workers: int = 0
) -> list[Step]:
    """Measure, print and write as JSON; with ``workers``, how long the trainer waits for them as well."""
    found, waiting = [], []
    for given in inputs:
        for observation_mlp in (False, True) if given.dense else (False,):
            found.append(measure_step(given, observation_mlp=observation_mlp, steps=steps, repeats=repeats))
            print("\n".join(found[-1].lines()), flush=True)
        if workers:
            waiting.append(measure_waiting(given, workers, steps=steps))
            share = f"{100 * waiting[-1].share:.1f} %"
            print(f"  {'waiting for ' + str(workers) + ' workers':32}{share:>12} of the wall time", flush=True)
    rows = [asdict(step) | {"ratio": step.ratio, "strict_ratio": step.strict_ratio} for step in found]
    result = {"machine": machine(), "steps": rows, "waiting": [asdict(each) for each in waiting]}
    write_output(output, json.dumps(result, indent=2) + "\n")
    return found

"""A whole run: read the settings, build what they name, train, choose, evaluate, and leave a folder with the result.

runs/NAME/config.yaml        the settings as they were chosen, seed included
runs/NAME/derived.yaml       what was left to the data: sizes of crops and batches
runs/NAME/state.safetensors  training state, for --resume only
runs/NAME/best, last         models, usable any time: aio.load_model("runs/NAME/best")
runs/NAME/history.jsonl      scores of each validation
runs/NAME/metrics.json       final scores with seed, versions, commit and time
runs/NAME/logs, figures      curves; input, target and prediction of some samples
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.machine import machine
from atomizer_io.models.base import Model
from atomizer_io.models.registry import preset
from atomizer_io.training import config, folder
from atomizer_io.training.batches import Grouped, explained_worker_death
from atomizer_io.training.build import build, class_weights, costs_of, fitted, initialise, inspect, notes_of
from atomizer_io.training.config import Run
from atomizer_io.training.data import (
    Collate,
    EvaluationSamples,
    ResumableLoader,
    TrainingSamples,
    evaluation_loader,
)
from atomizer_io.training.draws import Draws
from atomizer_io.training.results import conclude
from atomizer_io.training.schedule import LEAST_STEPS, OpenSchedule, cosine, validation_interval
from atomizer_io.training.splits import open_split
from atomizer_io.training.stopping import INITIALISATION, READING, TRAINING, Interrupts, Timing, seconds_of
from atomizer_io.training.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs before its first step: its settings as they were ``chosen``, and with what they left open."""

    chosen: Run
    run: Run
    folder: Path
    train: Dataset
    val: Dataset | None
    model: Model
    transfer: Transfer
    class_weights: Tensor | None
    summary: list[str]
    notes: list[str]


def prepare(run: Run, *, resume: bool = False, progress: bool = False) -> Prepared:
    """Open the data, measure what is not known, build the model, make the folder; every mistake shows here."""
    chosen, path = run, config.folder_of(run)
    run = folder.with_derived(run, path) if resume else run
    preset(run.model.preset)
    train = open_split(run, "train")
    val = None if run.data.val is None else open_split(run, "val").for_evaluation()
    inspection = inspect(run, train, progress)
    torch.manual_seed(run.seed)
    model, transfer = build(run, train, inspection)
    run = fitted(run, inspection.summary, model)
    folder.make_folder(path, model)
    weights = class_weights(run, train, inspection.statistics)
    lines, notes = [*inspection.summary.lines(), *transfer.lines], notes_of(run, train, inspection)
    return Prepared(chosen, run, path, train, val, model, transfer, weights, lines, notes)


def train(run: Run, *, resume: bool = False, progress: bool = True, began_s: float | None = None) -> dict[str, Any]:
    """Train by the settings ``run``; return the content of ``metrics.json``. Time counts from ``began_s``, or now."""
    t, path = run.training, config.folder_of(run)
    timing = Timing(time.monotonic() if began_s is None else began_s, seconds_of(t.max_time))
    folder.check_folder(run, resume)
    if t.open and t.max_time is None and run.data.val is None:
        raise ConfigError(
            "there is no limit of training: without validation data (data.val) a run needs --max-time, "
            "training.epochs or training.max_steps"
        )
    again = f"`atomizer train {path} --resume` goes on"
    try:
        with Interrupts() as interrupts:
            with repeatable(), timing.phase(READING):
                prepared = prepare(run, resume=resume, progress=progress)
            explained = explained_worker_death(f"{again}; data.workers=... may be fewer")
            with folder.exclusive(path), explained, repeatable():
                folder.check_folder(run, resume)  # another process may have been faster
                result, schedule = fit(prepared, timing, interrupts, resume=resume, progress=progress)
                task_spec = prepared.model.task_spec
                return conclude(prepared.run, task_spec, result, schedule, timing, progress) if result else {}
    except KeyboardInterrupt as interrupt:
        if not getattr(interrupt, "__notes__", ()) and (path / folder.SETTINGS).exists():
            interrupt.add_note(f"{again} from the last saved state")
        raise


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Sum in a fixed order within this context: otherwise threads add to one number in any order.

    An operation of an accelerator that has no such order is used as it is.
    """
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filling: Any = torch.utils.deterministic
    fills = filling.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    filling.fill_uninitialized_memory = False  # takes time, and nothing here reads such memory
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        filling.fill_uninitialized_memory = fills


def fit(
    prepared: Prepared, timing: Timing, interrupts: Interrupts, *, resume: bool, progress: bool
) -> tuple[dict[str, Any], OpenSchedule | None]:
    """Train with what was prepared, in a folder that no other process writes to.

    Returns what ``metrics.json`` has of the steps, nothing in all but the first process, and the schedule of early
    stopping.
    """
    from atomizer_io.training import callbacks, state
    from atomizer_io.training.task import Task, trainer_of

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # devices it found, products it recommends
    run, path, model, t = prepared.run, prepared.folder, prepared.model, prepared.run.training
    if config.first_process():
        print("\n".join([*prepared.summary, *(f"note: {note}" for note in prepared.notes)]))
    trainer = trainer_of(run, path)
    stored = state.find(path) if resume else None
    if stored is None and config.first_process():  # which refuses a folder that holds settings
        folder.write_settings(prepared.chosen, run, path)
    with timing.phase(READING):
        loader, validation = make_loaders(run, prepared, trainer.global_rank, trainer.world_size)
        timing.final_validations = final_validations(run, prepared) if timing.limit_s is not None else 1.0
    if stored is None:  # or the training state has the weights
        with timing.phase(INITIALISATION):
            initialise(run, model, loader, prepared.transfer)
    steps, schedule = steps_of(run, loader.draws), None
    rate: Callable[[int], float] = functools.partial(cosine, steps=steps or 0, warmup=t.warmup)
    if steps is None:
        limits: dict[str, Any] = {"began_s": timing.began_s, "closing_s": lambda: timing.closing_s}
        classes = not model.task_spec.regression
        schedule = OpenSchedule(t, len(loader) // t.accumulate, classes, timing.limit_s, **limits)
        rate = schedule.rate
    trainer.log_every_n_steps = max(1, min(10, len(loader)))
    task = Task(model, t, rate, run.seed, prepared.class_weights, prepared.transfer.loaded)
    keep = callbacks.KeepModels(path, loader)
    saving = callbacks.SaveState(path, loader, t.save_every, steps, schedule, timing, interrupts)
    trainer.callbacks += [keep, callbacks.Figures(path, t.figures, prepared.train.info, seldom=t.open), saving]
    trainer.callbacks += [callbacks.Progress(steps, schedule)] if progress else []
    with timing.phase(TRAINING), warnings.catch_warnings():
        # data.val may be empty; pytree: lightning 2.6 with torch 2.13; frozen stages are in evaluation mode
        expected = ".*have no `val_dataloader`|.*treespec, LeafSpec|.*in eval mode at the start"
        warnings.filterwarnings("ignore", message=expected)
        try:
            trainer.fit(task, loader, validation, ckpt_path=stored)
        except SystemExit as error:  # how Lightning reacts to an interrupt
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            interrupts.pending = True
    if interrupts.pending:
        raise interrupted(path, trainer.global_step, saving.saved)
    if not trainer.is_global_zero:
        return {}, schedule
    model.save_pretrained(path / folder.LAST)
    if keep.best is None:  # nothing was validated
        model.save_pretrained(path / folder.BEST)
    finished = schedule.ended if schedule is not None else not saving.late or trainer.global_step == steps
    result = {
        "folder": str(path),
        "finished": finished,
        "steps": trainer.global_step,
        "epochs": loader.epochs,
        "ended_by": schedule.reason if schedule is not None else "steps" if finished else "time",
        "best": {"score": keep.best, "step": keep.best_step, "of": task.scores.main},
        "scores": {},
        "scores_of": "last" if keep.best is None else "best",
        "seed": run.seed,
        "skipped": task.skipped,
        "machine": machine(),
    }
    return result, schedule


def interrupted(path: Path, step: int, saved: int) -> KeyboardInterrupt:
    """Return an interrupt that names the step at which the run stopped, and how it goes on."""
    from atomizer_io.training.state import STATE

    interrupt = KeyboardInterrupt()
    how = f"goes on from step {saved}" if (path / STATE).exists() else "begins anew, as nothing was saved yet"
    interrupt.add_note(f"stopped at step {step}: `atomizer train {path} --resume` {how}")
    return interrupt


def final_validations(run: Run, prepared: Prepared) -> float:
    """Return how many validations the scores at the end take: each κ on the validation data, and the test data."""
    if run.data.val is None or prepared.val is None:
        return 0.0
    counted = min(len(prepared.val), run.training.validation_samples or len(prepared.val))
    try:
        tested = 0 if run.data.test is None else len(open_split(run, "test"))
    except AtomizerError:
        tested = 0
    return len({cost.atoms_per_latent for cost in costs_of(run, prepared.model)}) + tested / max(1, counted)


def steps_of(run: Run, draws: Draws) -> int | None:
    """Return the number of steps of a run; None where it is open."""
    t = run.training
    if t.max_steps is not None or t.epochs is None:
        return t.max_steps
    if t.validate_steps is not None:  # validation intervals that go through the ends of epochs
        return -(-t.epochs * draws.per_epoch // t.accumulate)
    return t.epochs * -(-draws.per_epoch // t.accumulate)


def make_loaders(run: Run, prepared: Prepared, process: int, processes: int) -> tuple[ResumableLoader, Grouped | None]:
    """Return the loaders of training batches and of validation samples of one of so many processes.

    A training loader ends where a validation comes: after an epoch, or after the steps between two validations.
    """
    t, model = run.training, prepared.model
    assert t.batch_size is not None  # filled in from the data
    group: dict[str, Any] = {"process": process, "processes": processes}
    samples = TrainingSamples(prepared.train, t, run.seed, run.data.keep, inside=model.whole_maps)
    collate = Collate(model.preparer(), costs_of(run, model), run.seed)
    validation, steps = None, t.validate_steps
    if prepared.val is not None:
        held_out = EvaluationSamples(prepared.val, limit=t.validation_samples, dropout=t.channel_dropout)
        validation = evaluation_loader(held_out, model.preparer(), run.data.workers, **group)
        if t.open and steps is None:
            first = Draws(len(samples), t.batch_size, run.seed, processes=processes)  # all processes count the same
            steps = validation_interval(model, samples, first, collate, held_out)
    if t.open and steps is None:
        steps = LEAST_STEPS
    interval = None if steps is None else steps * t.accumulate
    draws = Draws(len(samples), t.batch_size, run.seed, **group, round=interval)
    return ResumableLoader(samples, draws, collate, run.data.workers), validation

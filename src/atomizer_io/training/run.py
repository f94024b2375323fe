"""A whole run: read the settings, build what they name, train, choose, evaluate, and leave a folder with the result.

runs/NAME/config.yaml        the settings as they were chosen, seed included
runs/NAME/derived.yaml       what was left to the data: sizes of crops and batches
runs/NAME/state.safetensors  training state, for --resume only
runs/NAME/best, last         models, usable any time: aio.load_model("runs/NAME/best")
runs/NAME/history.jsonl      scores of each validation
runs/NAME/metrics.json       final scores with seed, versions, commit and time
runs/NAME/logs, pictures     curves; input, target and prediction of some samples
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import AtomizerError, ConfigError, size_text
from atomizer_io.locks import lock
from atomizer_io.machine import machine
from atomizer_io.models.base import Model
from atomizer_io.models.registry import preset
from atomizer_io.models.storage import SAVING
from atomizer_io.training import config, derived
from atomizer_io.training.build import build, check_sampling, costs_of, initialise, look, notes_of, weights_of
from atomizer_io.training.closing import Trained, close
from atomizer_io.training.config import Run, TrainingSettings
from atomizer_io.training.data import Drawn, Evaluated, Gather, ResumableLoader, evaluation_loader
from atomizer_io.training.draws import Draws
from atomizer_io.training.fitting import fitted
from atomizer_io.training.interrupts import Interrupts
from atomizer_io.training.packing import told_of_workers
from atomizer_io.training.plan import Plan
from atomizer_io.training.rounds import LEAST_STEPS, steps_between
from atomizer_io.training.schedule import factor
from atomizer_io.training.splits import open_split
from atomizer_io.training.timing import INITIALISATION, READING, TRAINING, Timing
from atomizer_io.training.trainer import trainer_of

LOCK = ".lock"  # a file of the folder, held by the process that trains
SPARE_BYTES = 200 << 20  # beside the checkpoints: logs, pictures


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs before its first step: its settings as they were ``chosen``, and with what they left open."""

    chosen: Run
    run: Run
    folder: Path
    train: Dataset
    val: Dataset | None
    model: Model
    class_weights: Tensor | None
    summary: list[str]
    notes: list[str]


def prepare(run: Run, *, resume: bool = False, progress: bool = False) -> Prepared:
    """Open the data, measure what is not known, build the model, make the folder; every mistake shows here."""
    folder = config.folder_of(run)
    found = derived.read(folder) if resume else {}
    preset(run.model.preset)
    train = open_split(run, "train")
    val = None if run.data.val is None else open_split(run, "val").for_evaluation()
    looked = look(run, train, progress)
    torch.manual_seed(run.seed)
    model = build(run, train, looked)
    chosen, run = run, fitted(derived.with_found(run, found), looked.summary, model)
    check_sampling(run, train)
    make_folder(folder, model)
    weights = weights_of(run, train, looked.statistics)
    notes = notes_of(run, train, looked)
    return Prepared(chosen, run, folder, train, val, model, weights, looked.summary.lines(), notes)


def check_folder(run: Run, resume: bool) -> None:
    """Refuse a folder that holds a run, or to resume one whose training state is of no use, before all the work."""
    folder = config.folder_of(run)
    if resume:
        from atomizer_io.training import state

        state.find(folder)
    elif (folder / "config.yaml").exists() and config.first_process():
        raise ConfigError(
            f"{folder} holds a run already: --resume goes on with it, name=... or output=... makes another"
        )


def make_folder(folder: Path, model: Model) -> None:
    """Make the folder of the run and check that its checkpoints fit: better to know before the first step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # processes of one run do this at once
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from error
    # weights (best, last) and two training states (weights, average and two moments) while one replaces the other
    needed = 4 * model.num_parameters * (2 + 2 * 4) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(f"{folder}: {size_text(free)} are free, about {size_text(needed)} are needed: make room")


def train(run: Run, *, resume: bool = False, progress: bool = True, began_s: float | None = None) -> dict[str, Any]:
    """Train as ``run`` says; returns what ``metrics.json`` holds. Its time counts from ``began_s``, or from now on."""
    began_s = time.monotonic() if began_s is None else began_s
    check_folder(run, resume)
    check_length(run)
    timing = Timing(began_s, seconds(run.training.max_time))
    with Interrupts() as interrupts, told_how_to_go_on(config.folder_of(run)):
        with repeatable(), timing.phase(READING):
            prepared = prepare(run, resume=resume, progress=progress)
        again = f"`atomizer train {prepared.folder} --resume` goes on; data.workers=... may be fewer"
        with held(prepared.folder), told_of_workers(again), repeatable():
            check_folder(run, resume)  # another process may have been faster
            trained = _trained(prepared, timing, interrupts, resume=resume, progress=progress)
            return {} if trained is None else close(trained, timing, progress)


@contextlib.contextmanager
def told_how_to_go_on(folder: Path) -> Iterator[None]:
    """Add to an interrupt within this context how the run goes on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not getattr(interrupt, "__notes__", ()) and (folder / derived.SETTINGS).exists():
            interrupt.add_note(f"`atomizer train {folder} --resume` goes on from the last saved state")
        raise


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Sum in a fixed order within this context: threads that add to one place take turns as it happens otherwise.

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


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other trainings out of the folder of a run within this context; begin without what a killed one left."""
    if not config.first_process():
        yield
        return
    own = lock(folder / LOCK, wait_s=0)
    if own is None:
        raise ConfigError(f"another training writes to {folder}: wait until it ends, or choose another name=...")
    with own:
        for place in (folder, folder / "best", folder / "last"):
            for left in place.glob(f"{SAVING}*"):
                shutil.rmtree(left, ignore_errors=True)
        yield


def _trained(
    prepared: Prepared, timing: Timing, interrupts: Interrupts, *, resume: bool, progress: bool
) -> Trained | None:
    """Train with what was prepared, in a folder that no other process writes to; None in all but the first process."""
    from atomizer_io.training import callbacks, state
    from atomizer_io.training.progress import ShowProgress
    from atomizer_io.training.task import Task

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # devices it found, products it recommends
    run, folder, task_spec = prepared.run, prepared.folder, prepared.model.task_spec
    if config.first_process():
        print("\n".join([*prepared.summary, *(f"note: {note}" for note in prepared.notes)]))
    trainer = trainer_of(run, folder)
    where = state.find(folder) if resume else None
    if where is None and config.first_process():  # which refuses a folder that holds settings
        derived.begin(prepared.chosen, run, folder)
    with timing.phase(READING):
        fed = feed(run, prepared, trainer.global_rank, trainer.world_size)
        timing.final_validations = final_validations(run, prepared) if timing.limit_s is not None else 1.0
    if where is None:  # or the training state has the weights
        with timing.phase(INITIALISATION):
            initialise(run, prepared.model, fed.loader)
    t = run.training
    steps, plan = steps_of(t, fed.loader.draws), None
    if steps is None:
        rounds, higher = len(fed.loader) // t.accumulate, not task_spec.regression
        plan = Plan(t, rounds, higher, timing.limit_s, began_s=timing.began_s, closing_s=lambda: timing.closing_s)
    trainer.log_every_n_steps = max(1, min(10, len(fed.loader)))
    rate = plan.rate if plan is not None else functools.partial(factor, steps=steps or 0, warmup=t.warmup)
    keep, skips = callbacks.KeepModels(folder, fed.loader), callbacks.Skips()
    saving = callbacks.SaveState(
        folder, fed.loader, t.save_every, steps=steps, timing=timing, plan=plan, interrupts=interrupts
    )
    trainer.callbacks += [keep, callbacks.Pictures(folder, t.figures, prepared.train.info, seldom=t.open), skips]
    trainer.callbacks += [*([] if plan is None else [callbacks.FollowPlan(plan)]), callbacks.TimeValidations(timing)]
    trainer.callbacks += [saving, *([ShowProgress(steps, plan)] if progress else [])]
    task = Task(prepared.model, t, rate, run.seed, prepared.class_weights)
    with timing.phase(TRAINING), warnings.catch_warnings():
        # data.val may be empty; pytree: lightning 2.6 with torch 2.13
        warnings.filterwarnings("ignore", message=".*have no `val_dataloader`|.*treespec, LeafSpec")
        try:
            trainer.fit(task, fed.loader, fed.validation, ckpt_path=where)
        except SystemExit as error:  # Lightning's answer to an interrupt
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            raise interrupted(folder, trainer.global_step, saving.saved) from None
    if interrupts.asked:
        raise interrupted(folder, trainer.global_step, saving.saved)
    if not trainer.is_global_zero:
        return None
    task.model.save_pretrained(folder / callbacks.LAST)
    if keep.best is None:  # nothing was validated
        task.model.save_pretrained(folder / callbacks.BEST)
    finished = plan.ended if plan is not None else not saving.late or trainer.global_step == steps
    result = {
        "folder": str(folder),
        "finished": finished,
        "steps": trainer.global_step,
        "epochs": fed.loader.epochs,
        "ended_by": plan.reason if plan is not None else "steps" if finished else "time",
        "best": {"score": keep.best, "step": keep.best_step, "of": task.scores.main},
        "scores": {},
        "scores_of": "last" if keep.best is None else "best",
        "seed": run.seed,
        "skipped": skips.found,
        "machine": machine(),
    }
    return Trained(run, folder, task_spec, plan, result)


def interrupted(folder: Path, step: int, saved: int) -> KeyboardInterrupt:
    """Return an interrupt that says at which step the run stopped, and how it goes on."""
    from atomizer_io.training.state import STATE

    interrupt = KeyboardInterrupt()
    how = f"goes on from step {saved}" if (folder / STATE).exists() else "begins anew, as nothing was saved yet"
    interrupt.add_note(f"stopped at step {step}: `atomizer train {folder} --resume` {how}")
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


def check_length(run: Run) -> None:
    """Refuse an open run that nothing would end."""
    t = run.training
    if t.open and t.max_time is None and run.data.val is None:
        raise ConfigError(
            "nothing says how long to train: without validation data (data.val) a run needs --max-time, "
            "training.epochs or training.max_steps"
        )
    seconds(t.max_time)


def steps_of(training: TrainingSettings, draws: Draws) -> int | None:
    """Return the number of steps of a run; None where it is open."""
    if training.max_steps is not None or training.epochs is None:
        return training.max_steps
    if training.validate_steps is not None:  # rounds that go through the ends of epochs
        return -(-training.epochs * draws.per_epoch // training.accumulate)
    return training.epochs * -(-draws.per_epoch // training.accumulate)


@dataclass(frozen=True, slots=True)
class Fed:
    """What a process of a run reads: training batches in rounds, and validation samples."""

    loader: ResumableLoader
    validation: Any


def feed(run: Run, prepared: Prepared, process: int, processes: int) -> Fed:
    """Return the loaders of one of so many processes.

    A round of training batches, after which comes a validation, is an epoch, or as many batches as the steps between
    validations take.
    """
    t, model = run.training, prepared.model
    assert t.batch_size is not None  # filled in from the data
    group: dict[str, Any] = {"process": process, "processes": processes}
    drawn = Drawn(prepared.train, t, run.seed, run.data.keep, inside=model.whole_maps)
    gather = Gather(model.preparer(), costs_of(run, model), run.seed)
    draws = Draws(len(drawn), t.batch_size, run.seed, **group)
    validation, steps = None, t.validate_steps
    if prepared.val is not None:
        samples = Evaluated(prepared.val, limit=t.validation_samples, draws=t.channel_dropout)
        validation = evaluation_loader(samples, model.preparer(), run.data.workers, **group)
        if t.open and steps is None:
            first = Draws(len(drawn), t.batch_size, run.seed, processes=processes)  # all processes count the same
            steps = steps_between(model, drawn, first, gather, samples)
    if t.open and steps is None:
        steps = LEAST_STEPS
    if steps is not None:
        draws = Draws(len(drawn), t.batch_size, run.seed, **group, round=steps * t.accumulate)
    return Fed(ResumableLoader(drawn, draws, gather, run.data.workers), validation)


def seconds(text: str | None) -> float | None:
    """Return the seconds of ``hh:mm:ss`` or ``dd:hh:mm:ss``."""
    if text is None:
        return None
    parts = str(text).split(":")
    if len(parts) not in (3, 4) or not all(part.isdigit() for part in parts):
        raise ConfigError(f"training.max_time is {text!r}; write hh:mm:ss")
    days, hours, minutes, rest = (int(part) for part in (["0"] * (4 - len(parts)) + parts))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)

"""A whole run: read the settings, build what they name, train, choose, evaluate, and leave a folder with the result.

runs/NAME/config.yaml        the settings as they were chosen, seed included
runs/NAME/derived.yaml       what was left to the data: sizes, the learning rate, whether the warm start was kept
runs/NAME/state.safetensors  training state, for --resume only
runs/NAME/best, last         models, usable any time: aio.load_model("runs/NAME/best")
runs/NAME/history.jsonl      scores of each validation
runs/NAME/metrics.json       final scores with seed, versions, commit and time
runs/NAME/logs, pictures     curves; input, target and prediction of some samples
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import math
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
from atomizer_io.errors import ConfigError, size_text
from atomizer_io.locks import owned
from atomizer_io.machine import machine
from atomizer_io.models.contract import Model
from atomizer_io.models.registry import preset
from atomizer_io.models.storage import SAVING
from atomizer_io.texts import write_text
from atomizer_io.training import config, derived
from atomizer_io.training.beginning import settle
from atomizer_io.training.build import build, check_sampling, costs_of, look, notes_of, weights_of
from atomizer_io.training.closing import compare, finish, look_at_curve, so_far
from atomizer_io.training.config import Run, TrainingSettings
from atomizer_io.training.data import Drawn, Evaluated, Gather, ResumableLoader, evaluation_loader
from atomizer_io.training.draws import Draws
from atomizer_io.training.fitting import begins_well, fitted, settles
from atomizer_io.training.packing import told_of_workers
from atomizer_io.training.plan import Plan
from atomizer_io.training.rounds import LEAST_STEPS, steps_between
from atomizer_io.training.schedule import factor
from atomizer_io.training.splits import open_split

LOCK = ".lock"  # a file of the folder, held by the process that trains
SPARE_BYTES = 200 << 20  # beside the checkpoints: logs, pictures


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs before its first step: its settings as they were ``chosen``, and with what they left open.

    The learning rate stays open until it is known whether a warm start is kept.
    """

    chosen: Run
    run: Run
    folder: Path
    train: Dataset
    val: Dataset | None
    model: Model
    class_weights: Tensor | None
    summary: list[str]
    notes: list[str]


def prepare(run: Run, *, resume: bool = False) -> Prepared:
    """Open the data, measure what is not known, build the model, make the folder; every mistake shows here."""
    folder = config.folder_of(run)
    found = derived.read(folder) if resume else None
    preset(run.model.preset)
    train = open_split(run, "train")
    val = None if run.data.val is None else open_split(run, "val").for_evaluation()
    looked = look(run, train)
    torch.manual_seed(run.seed)
    model = build(run, train, looked)
    chosen = derived.chosen_before(run, model) if resume and found is None else run
    run = fitted(derived.with_found(chosen, found), looked.summary, model)
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


def train(run: Run, *, resume: bool = False, progress: bool = True) -> dict[str, Any]:
    """Train as ``run`` says; returns what ``metrics.json`` holds."""
    began = time.monotonic()
    check_folder(run, resume)
    check_length(run)
    with repeatable():
        prepared = prepare(run, resume=resume)
    again = f"`atomizer train {prepared.folder} --resume` goes on; data.workers=... may be fewer"
    with held(prepared.folder), told_of_workers(again), repeatable():
        check_folder(run, resume)  # another process may have been faster
        return _trained(prepared, began, resume=resume, progress=progress)


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
    lock = owned(folder / LOCK)
    if lock is None:
        raise ConfigError(f"another training writes to {folder}: wait until it ends, or choose another name=...")
    with lock:
        for place in (folder, folder / "best", folder / "last"):
            for left in place.glob(f"{SAVING}*"):
                shutil.rmtree(left, ignore_errors=True)
        yield


def _trained(prepared: Prepared, began: float, *, resume: bool, progress: bool) -> dict[str, Any]:
    """Train with what was prepared, in a folder that no other process writes to."""
    from atomizer_io.training import state
    from atomizer_io.training.callbacks import BEST, HISTORY, LAST, FollowPlan, KeepModels, Pictures, SaveState, Skips
    from atomizer_io.training.progress import ShowProgress
    from atomizer_io.training.task import Task

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # devices it found, products it recommends
    run = prepared.run
    folder, t, problem = prepared.folder, run.training, prepared.model.problem
    if config.first_process():
        print("\n".join([*prepared.summary, *(f"note: {note}" for note in prepared.notes)]))
    trainer = trainer_of(run, folder)
    where = state.find(folder) if resume else None
    found = derived.read(folder) if where is not None else None
    if where is None and config.first_process():  # which refuses a folder that holds settings
        derived.begin(prepared.chosen, run, folder)
    fed = feed(run, prepared, trainer.global_rank, trainer.world_size)
    steps, limit = steps_of(t, fed.loader.draws), seconds(t.max_time)
    # the time of a run begins to count here: where training begins is part of it
    plan = None if steps else Plan(t, len(fed.loader) // t.accumulate, not problem.regression, limit)
    began_s = time.monotonic()
    warm, kept = settles(run, prepared.model), False
    if warm and where is not None:
        kept = derived.was_kept(folder, found)
    elif warm:
        if kept := settle(run, prepared.model, fed.loader, prepared.val):
            trainer.num_sanity_val_steps = math.inf  # the warm start is validated: it may be the best
        elif config.first_process():
            print(
                "note: the warm start is worse than a constant on the validation data; training starts from random "
                "weights"
            )
    run = derived.decided(run, prepared.model, kept)
    if where is None and config.first_process():
        derived.write(prepared.chosen, run, (derived.KEPT if kept else derived.DROPPED) if warm else None, folder)
    t = run.training
    trainer.log_every_n_steps = max(1, min(10, len(fed.loader)))
    rate = plan.rate if plan is not None else functools.partial(factor, steps=steps or 0, warmup=t.warmup)
    keep, skips = KeepModels(folder, fed.loader), Skips()
    stop_s = None if t.open else limit
    saving = SaveState(folder, fed.loader, t.save_every, steps=steps, max_seconds=stop_s, began_s=began_s, plan=plan)
    trainer.callbacks += [keep, Pictures(folder, t.pictures, prepared.train.info, seldom=t.open), skips]
    trainer.callbacks += [*([] if plan is None else [FollowPlan(plan)]), saving]
    if progress:
        trainer.callbacks.append(ShowProgress(steps, plan))
    task = Task(prepared.model, t, rate, run.seed, prepared.class_weights, begins_well(run, prepared.model))
    with warnings.catch_warnings():  # data.val may be empty; pytree: lightning 2.6 with torch 2.13
        warnings.filterwarnings("ignore", message=".*have no `val_dataloader`|.*treespec, LeafSpec")
        try:
            trainer.fit(task, fed.loader, fed.validation, ckpt_path=where)
        except SystemExit as error:  # Lightning's answer to an interrupt
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            interrupt = KeyboardInterrupt()
            saved = (folder / state.STATE).exists()
            how = "goes on from the last saved state" if saved else "begins anew, as nothing was saved yet"
            interrupt.add_note(f"stopped at step {trainer.global_step}: `atomizer train {folder} --resume` {how}")
            raise interrupt from None
    if not trainer.is_global_zero:
        return {}
    task.model.save_pretrained(folder / LAST)
    if keep.best is None:  # nothing was validated
        task.model.save_pretrained(folder / BEST)
    finished = plan.ended if plan is not None else not saving.late or trainer.global_step == steps
    result = {
        "folder": str(folder),
        "finished": finished,
        "steps": trainer.global_step,
        "epochs": fed.loader.epochs,
        "ended_by": plan.reason if plan is not None else "steps" if finished else "time",
        "best": {"score": keep.best, "step": keep.best_step, "of": task.scores.main},
        "scores": finish(run, folder / BEST, progress) if finished else so_far(run, folder / BEST, progress),
        "scores_of": "last" if keep.best is None else "best",
        "curve": look_at_curve(run, folder / HISTORY, problem, plan),
        "seed": run.seed,
        "seconds": round(time.monotonic() - began, 1),
        "skipped": skips.found,
        "machine": machine(),
    }
    write_metrics(result, folder)
    if finished:  # the file is there before: the rivals take their time, and may be interrupted
        result["rivals"] = compare(run, problem, result["scores"])
        write_metrics(result, folder)
    for path, cause in skips.found.items():
        print(f"skipped {path}: {cause}")
    return result


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
        samples = Evaluated(prepared.val, limit=t.validation_samples, draws=t.channel_draws)
        validation = evaluation_loader(samples, model.preparer(), run.data.workers, **group)
        if t.open and steps is None:
            first = Draws(len(drawn), t.batch_size, run.seed, processes=processes)  # all processes count the same
            steps = steps_between(model, drawn, first, gather, samples)
    if t.open and steps is None:
        steps = LEAST_STEPS
    if steps is not None:
        draws = Draws(len(drawn), t.batch_size, run.seed, **group, round=steps * t.accumulate)
    return Fed(ResumableLoader(drawn, draws, gather, run.data.workers), validation)


def write_metrics(result: dict[str, Any], folder: Path) -> None:
    """Write what a run found."""
    write_text(folder / "metrics.json", json.dumps(result, indent=2) + "\n")


def trainer_of(run: Run, folder: Path) -> Any:
    """Return Lightning's trainer with the settings of the run; sampling, checkpoints and the end are our own."""
    import lightning
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from atomizer_io.training.state import StateIO

    t, writers = run.training, loggers(run, folder)
    try:
        return lightning.Trainer(
            accelerator=t.accelerator,
            devices=t.devices,
            num_nodes=t.nodes,
            strategy=t.strategy,
            precision=t.precision,  # type: ignore[arg-type]
            max_epochs=-1,
            accumulate_grad_batches=t.accumulate,
            gradient_clip_val=t.clip,
            check_val_every_n_epoch=1 if t.open or t.validate_steps is not None else t.validate_every,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,  # our own, which also suits a log file
            use_distributed_sampler=False,
            logger=writers,
            plugins=[StateIO()],
            default_root_dir=folder,
        )
    except (ValueError, MisconfigurationException) as error:  # devices or a strategy that are not to be had here
        raise ConfigError(f"training: {error}") from error


def loggers(run: Run, folder: Path) -> list[Any]:
    """Return the loggers that the settings name."""
    from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger

    numbered = (f"logs-{number}" for number in itertools.count(2))  # a resumed run writes beside what is there
    place = next(name for name in itertools.chain(["logs"], numbered) if not (folder / name).exists())
    known = {
        "csv": lambda: CSVLogger(folder, name=place, version=""),
        "tensorboard": lambda: TensorBoardLogger(folder, name=place, version=""),
        "wandb": lambda: WandbLogger(name=run.name, save_dir=folder, project="atomizer-io"),
        "mlflow": lambda: MLFlowLogger(run_name=run.name, experiment_name="atomizer-io"),
    }
    unknown = [name for name in run.training.loggers if name not in known]
    if unknown:
        raise ConfigError(f"training.loggers: {unknown[0]!r} is not known; use {', '.join(known)}")
    return [known[name]() for name in run.training.loggers]


def seconds(text: str | None) -> float | None:
    """Return the seconds of ``hh:mm:ss`` or ``dd:hh:mm:ss``."""
    if text is None:
        return None
    parts = str(text).split(":")
    if len(parts) not in (3, 4) or not all(part.isdigit() for part in parts):
        raise ConfigError(f"training.max_time is {text!r}; write hh:mm:ss")
    days, hours, minutes, rest = (int(part) for part in (["0"] * (4 - len(parts)) + parts))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)

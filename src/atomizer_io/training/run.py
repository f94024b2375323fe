"""A whole run: read the settings, build what they name, train, choose, evaluate, and leave a folder with the result.

runs/NAME/config.yaml        the resolved settings, seed included
runs/NAME/state.safetensors  training state, for --resume only
runs/NAME/best, last         models, usable any time: aio.load_model("runs/NAME/best")
runs/NAME/history.jsonl      scores of each validation
runs/NAME/metrics.json       final scores with seed, versions, commit and time
runs/NAME/logs, pictures     curves; input, target and prediction of some samples
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.decoding.choice import Decoding
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.machine import machine
from atomizer_io.models.contract import Cost, Model
from atomizer_io.models.registry import load_model, preset
from atomizer_io.training import config
from atomizer_io.training.build import build, check_sampling, costs_of, look, notes_of, weights_of
from atomizer_io.training.config import Run
from atomizer_io.training.data import Drawn, Evaluated, Gather, ResumableLoader, evaluation_loader
from atomizer_io.training.draws import Draws
from atomizer_io.training.evaluate import score
from atomizer_io.training.metrics import merit
from atomizer_io.training.splits import open_split

SPARE_BYTES = 200 << 20  # beside the checkpoints: logs, pictures


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs before its first step."""

    folder: Path
    train: Dataset
    val: Dataset | None
    model: Model
    class_weights: Tensor | None
    summary: list[str]
    notes: list[str]


def prepare(run: Run) -> Prepared:
    """Open the data, measure what is not known, build the model, make the folder; every mistake shows here."""
    folder = config.folder_of(run)
    preset(run.model.preset)
    train = open_split(run, "train")
    val = None if run.data.val is None else open_split(run, "val").for_evaluation()
    looked = look(run, train)
    torch.manual_seed(run.seed)
    model = build(run, train, looked)
    check_sampling(run, train)
    make_folder(folder, model)
    weights = weights_of(run, train, looked.statistics)
    return Prepared(folder, train, val, model, weights, looked.summary.lines(), notes_of(run, train, looked))


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
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from error
    # weights (best, last) and two training states (weights and two moments) while one replaces the other
    needed = 4 * model.num_parameters * (2 + 2 * 3) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(f"{folder}: {free / 1e9:.1f} GB are free, about {needed / 1e9:.1f} GB are needed: make room")


def write_settings(run: Run, folder: Path) -> None:
    """Write the resolved settings, to repeat the run with."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config.plain(run), sort_keys=False), encoding="utf-8")


def train(run: Run, *, resume: bool = False, progress: bool = True) -> dict[str, Any]:
    """Train as ``run`` says; returns what ``metrics.json`` holds."""
    began = time.monotonic()
    check_folder(run, resume)
    from atomizer_io.training import state
    from atomizer_io.training.callbacks import BEST, LAST, KeepModels, Pictures, SaveState, Skips
    from atomizer_io.training.progress import ShowProgress
    from atomizer_io.training.task import Task

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # devices it found, products it recommends
    prepared = prepare(run)
    folder, t = prepared.folder, run.training
    if config.first_process():
        print("\n".join([*prepared.summary, *(f"note: {note}" for note in prepared.notes)]))
    keep, skips = KeepModels(folder), Skips()
    drawn = Drawn(prepared.train, t, run.seed, run.data.keep)
    pictures = Pictures(folder, t.pictures, prepared.train.info)
    trainer = trainer_of(run, folder, [keep, pictures, skips], len(drawn) // t.batch_size)
    where = state.find(folder) if resume else None
    if where is None:
        write_settings(run, folder)
    group = {"process": trainer.global_rank, "processes": trainer.world_size}
    draws = Draws(len(drawn), t.batch_size, run.seed, **group)
    gather = Gather(prepared.model.preparer(), costs_of(run, prepared.model), run.seed)
    loader = ResumableLoader(drawn, draws, gather, run.data.workers)
    saving = SaveState(folder, loader, t.save_every, seconds(t.max_time))
    trainer.callbacks.append(saving)
    validation = None
    if prepared.val is not None:
        samples = Evaluated(prepared.val, limit=t.validation_samples)
        validation = evaluation_loader(samples, prepared.model.preparer(), run.data.workers, **group)
    steps = t.max_steps or t.epochs * -(-len(draws) // t.accumulate)
    if progress:
        trainer.callbacks.append(ShowProgress(steps))
    task = Task(prepared.model, t, steps, run.seed, prepared.class_weights)
    with warnings.catch_warnings():  # data.val may be empty; pytree: lightning 2.6 with torch 2.13
        warnings.filterwarnings("ignore", message=".*have no `val_dataloader`|.*treespec, LeafSpec")
        try:
            trainer.fit(task, loader, validation, ckpt_path=where)
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
    finished = not saving.late or trainer.global_step >= steps
    result = {
        "folder": str(folder),
        "finished": finished,
        "steps": trainer.global_step,
        "epochs": trainer.current_epoch,
        "best": {"score": keep.best, "step": keep.best_step, "of": task.scores.main},
        "scores": finish(run, folder / BEST, progress) if finished else so_far(run, folder / BEST, progress),
        "scores_of": "last" if keep.best is None else "best",
        "seed": run.seed,
        "seconds": round(time.monotonic() - began, 1),
        "skipped": skips.found,
        "machine": machine(),
    }
    (folder / "metrics.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for path, cause in skips.found.items():
        print(f"skipped {path}: {cause}")
    return result


def trainer_of(run: Run, folder: Path, callbacks: list[Any], batches: int) -> Any:
    """Return Lightning's trainer with the settings of the run; sampling and checkpoints are our own."""
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
            max_epochs=t.epochs if t.max_steps is None else -1,
            max_steps=-1 if t.max_steps is None else t.max_steps,
            accumulate_grad_batches=t.accumulate,
            gradient_clip_val=t.clip,
            check_val_every_n_epoch=t.validate_every,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,  # our own, which also suits a log file
            use_distributed_sampler=False,
            callbacks=callbacks,
            logger=writers,
            plugins=[StateIO()],
            log_every_n_steps=max(1, min(10, batches)),
            default_root_dir=folder,
        )
    except (ValueError, MisconfigurationException) as error:  # devices or a strategy that are not to be had here
        raise ConfigError(f"training: {error}") from error


def so_far(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Return the validation scores of a run that was stopped; nothing is chosen yet, nor tested."""
    if run.data.val is None:
        return {}
    model, validation = load_model(folder), open_split(run, "val").for_evaluation()
    limit = run.training.validation_samples
    return {"val": score(model, validation, workers=run.data.workers, limit=limit, progress=progress)}


def finish(run: Run, folder: Path, progress: bool) -> dict[str, Any]:
    """Choose κ of the best model on the validation data, store it with the model, and return its scores.

    Each κ of the training configurations is scored as the model will be used: with whole cells. The budget m is for
    training only, so it has no part in the choice.
    """
    model = load_model(folder)
    how: dict[str, Any] = {"workers": run.data.workers, "progress": progress}
    scores = {}
    if run.data.val is not None:
        validation, limit = open_split(run, "val").for_evaluation(), run.training.validation_samples
        ways = {cost.atoms_per_latent: Decoding(cost=Cost(cost.atoms_per_latent)) for cost in costs_of(run, model)}
        tried = {kappa: score(model, validation, decoding=way, limit=limit, **how) for kappa, way in ways.items()}
        chosen = max(tried, key=lambda kappa: merit(tried[kappa], model.problem))
        scores["val"] = tried[chosen]
        if chosen is not None:
            model.keep_cost(Cost(chosen))
            model.save_pretrained(folder)
    if run.data.test is not None:
        try:
            scores["test"] = score(model, open_split(run, "test").for_evaluation(), **how)
        except DataError as error:
            print(f"note: no test scores: {error}")
    return scores


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

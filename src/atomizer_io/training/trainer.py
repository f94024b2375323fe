"""Lightning's trainer and loggers, as the settings of a run want them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from atomizer_io.errors import ConfigError
from atomizer_io.training.config import Run


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
            gradient_clip_val=t.gradient_clip,
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

"""The model as Lightning trains it: the trainer, its loggers, steps, validation, scores. Needs the extra ``train``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from torch import Tensor

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models.base import Model
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import Run, TrainingSettings
from atomizer_io.training.draws import generator
from atomizer_io.training.losses import loss_sum
from atomizer_io.training.metrics import Scores
from atomizer_io.training.optimizer import EMA, adamw, clip_gradients, parameter_groups
from atomizer_io.training.state import StateIO

EMA_KEY = "average"  # of the EMA, in the training state


def trainer_of(run: Run, folder: Path) -> Any:
    """Return Lightning's trainer with the settings of the run; sampling, checkpoints and the end are our own."""
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
    numbered = (f"logs-{number}" for number in itertools.count(2))  # a resumed run writes beside what is there
    name = next(name for name in itertools.chain(["logs"], numbered) if not (folder / name).exists())
    known = {
        "csv": lambda: CSVLogger(folder, name=name, version=""),
        "tensorboard": lambda: TensorBoardLogger(folder, name=name, version=""),
        "wandb": lambda: WandbLogger(name=run.name, save_dir=folder, project="atomizer-io"),
        "mlflow": lambda: MLFlowLogger(run_name=run.name, experiment_name="atomizer-io"),
    }
    unknown = [name for name in run.training.loggers if name not in known]
    if unknown:
        raise ConfigError(f"training.loggers: {unknown[0]!r} is not known; use {', '.join(known)}")
    return [known[name]() for name in run.training.loggers]


class Task(lightning.LightningModule):
    """Trains ``model`` by the settings ``training``; ``rate`` gives the factor of the learning rate at a step (from 0).
    ``loaded`` are the names of the weights that a checkpoint gave.

    The EMA of the weights, if there is one, takes their place while the model is validated, and from the end of
    training on.
    """

    def __init__(
        self,
        model: Model,
        training: TrainingSettings,
        rate: Callable[[int], float],
        seed: int,
        class_weights: Tensor | None = None,
        loaded: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.model, self.training_settings, self.loaded = model, training, loaded
        self.rate, self.seed = rate, seed
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.scores = Scores(model.task_spec)
        self.latest: dict[str, Any] = {}
        self.skipped: dict[str, str] = {}  # what could not be read, and why
        self.atoms, self.since = 0, time.monotonic()
        self.ema: EMA | None = None
        self.stored_ema: dict[str, Any] | None = None

    def on_fit_start(self) -> None:
        """Begin the EMA of the weights, or go on with that of the training state."""
        if self.training_settings.ema:
            self.ema = EMA(self.model, self.training_settings.ema)
            if self.stored_ema is not None:
                self.ema.load_state_dict(self.stored_ema)

    def swap_ema(self) -> None:
        """Exchange the weights of the model and their EMA, where there is one."""
        if self.ema is not None:
            self.ema.swap()

    on_fit_end = on_validation_start = on_validation_end = swap_ema  # the callbacks of a validation come before its end

    def training_step(self, batch: Batch, batch_index: int) -> Tensor | None:
        """Return the mean loss over all known positions of the global batch."""
        self.skipped |= {item.path: item.cause for item in batch.skipped}
        place = (batch.draws[0].epoch, batch.draws[0].batch, self.global_rank) if batch.draws else (0, 0, 0)
        seed = generator(self.seed, "dropout", *place).initial_seed()
        if self.device.type == "cpu":  # torch.manual_seed spends milliseconds on devices that are not there
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        if batch.samples:
            outputs = batch.outputs(self.model)
            target = batch.target(outputs.device)
            total, weight = loss_sum(
                outputs, target, self.model.task_spec, self.class_weights, batch.weight(outputs.device)
            )
        else:  # nothing of this batch could be read
            total = sum((p.sum() * 0.0 for p in self.model.parameters()), torch.zeros((), device=self.device))
            weight = torch.zeros((), device=self.device)
        everywhere = self.trainer.strategy.reduce(weight.detach().float().clone(), reduce_op="sum")
        loss = total * self.trainer.world_size / torch.as_tensor(everywhere).clamp(min=1e-12)
        if not bool(torch.isfinite(loss.detach())):
            names = ", ".join(sample.meta.id for sample in batch.samples)
            raise AtomizerError(
                f"the loss became {loss.item():g} at step {self.global_step} on {names}: lower training.learning_rate, "
                "set training.gradient_clip, or look at these samples with `atomizer data show`"
            )
        self.atoms += batch.num_atoms
        # Lightning writes one step in so many; to hand it numbers takes longer than parts of a small step
        every: int = getattr(self.trainer, "log_every_n_steps", 1) or 1
        if self.global_step == 0 or (self.global_step + 1) % every == 0:
            rate = self.atoms / max(time.monotonic() - self.since, 1e-9)
            self.atoms, self.since = 0, time.monotonic()
            self.log("loss", loss.detach(), prog_bar=True, sync_dist=True, batch_size=max(1, len(batch.samples)))
            self.log("lr", self.trainer.optimizers[0].param_groups[-1]["lr"], batch_size=1)
            self.log("atoms/s", rate, prog_bar=True, batch_size=1)
        return loss

    def optimizer_step(self, *arguments: Any, **more: Any) -> None:
        """Step, then update the EMA."""
        super().optimizer_step(*arguments, **more)
        if self.ema is not None:
            self.ema.update()

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of all gradients; on a CPU in one call for all tensors, which Lightning would do one by one."""
        if gradient_clip_val is not None and self.device.type == "cpu":
            clip_gradients(self.model, gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_validation_epoch_start(self) -> None:
        """Forget the scores of the validation before."""
        self.scores.reset()
        self.scores.class_weights = self.class_weights

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add the samples of a batch to the scores."""
        self.skipped |= {item.path: item.cause for item in batch.skipped}
        if batch.samples:
            contexts = [self.model.in_context(inputs) for inputs in batch.inputs]
            self.scores.add(batch.samples, batch.outputs(self.model), contexts)

    def on_validation_epoch_end(self) -> None:
        """Compute and log the scores of the whole split."""
        self.latest = self.scores.compute()
        for name, value in self.latest.items():
            if isinstance(value, float):
                self.log(f"val/{name}", value, prog_bar=name == self.scores.main, batch_size=1)

    def configure_optimizers(self) -> Any:
        """Return AdamW, and a learning rate that changes with each step."""
        optimizer = adamw(self.model, self.training_settings, self.loaded)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.rate(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the EMA of the weights to the training state."""
        if self.ema is not None:
            checkpoint[EMA_KEY] = self.ema.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the training state of another model before anything of it is used."""
        own, stored = self.state_dict(), checkpoint["state_dict"]
        if {name: t.shape for name, t in own.items()} != {name: t.shape for name, t in stored.items()}:
            raise ConfigError(
                "the training state is of a model of another size than the settings say: resume with the model.preset "
                "and model.settings that the run began with, or train under another name"
            )
        groups = parameter_groups(self.model, self.training_settings, self.loaded)
        stored_groups = checkpoint["optimizer_states"][0]["param_groups"]
        if [len(group["params"]) for group in groups] != [len(group["params"]) for group in stored_groups]:
            raise ConfigError(
                "the training state is of a run with other model.freeze or training.layer_decay, or of an earlier "
                "version: resume with the settings that the run began with, or go on from its weights with "
                "model.checkpoint=FOLDER/last, under another name"
            )
        self.stored_ema = checkpoint.get(EMA_KEY)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Leave the batch where it is: the model moves what it needs to its device."""
        return batch

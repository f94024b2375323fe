"""The model as Lightning trains it: steps, loss, optimizer, scores. Needs the extra ``train``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import lightning
import torch
from torch import Tensor

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models.base import Model
from atomizer_io.training.averaging import Average
from atomizer_io.training.batches import Batch
from atomizer_io.training.config import TrainingSettings
from atomizer_io.training.draws import generator
from atomizer_io.training.metrics import Scores
from atomizer_io.training.objective import loss_sum
from atomizer_io.training.scoring import Scoring

AVERAGE = "average"  # of the weights, in the training state
SMALL_NORM = 1e-6  # that torch adds to a norm before it divides by it


class Task(lightning.LightningModule):
    """Trains ``model`` as ``training`` says; ``rate`` gives the factor of the learning rate at a step (from 0).

    Where weights are averaged, the model has their average while it is validated, and from the end of training on.
    """

    def __init__(
        self,
        model: Model,
        training: TrainingSettings,
        rate: Callable[[int], float],
        seed: int,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model, self.training_settings = model, training
        self.rate, self.seed = rate, seed
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.scores = Scores(model.task_spec)
        self.scoring = Scoring(model.task_spec, self.scores)
        self.latest: dict[str, Any] = {}
        self.atoms, self.since, self.log_every = 0, time.monotonic(), 1
        self.average: Average | None = None
        self.stored_average: dict[str, Any] | None = None

    def on_fit_start(self) -> None:
        """Begin the average of the weights, or go on with that of the training state."""
        if self.training_settings.ema:
            self.average = Average(self.model, self.training_settings.ema)
            if self.stored_average is not None:
                self.average.load_state_dict(self.stored_average)

    def on_fit_end(self) -> None:
        """Leave the model with the average of the weights."""
        self.swap_average()

    def swap_average(self) -> None:
        """Exchange the weights of the model and their average, where there is one."""
        if self.average is not None:
            self.average.swap()

    def on_train_start(self) -> None:
        """Learn which steps Lightning writes down."""
        self.log_every = int(getattr(self.trainer, "log_every_n_steps", 1)) or 1

    def answer(self, batch: Batch) -> Tensor:
        """Return the answers for all targets of a batch, in one row."""
        return batch.answers(self.model)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor | None:
        """Return the mean loss over all known positions of the global batch."""
        place = (batch.draws[0].epoch, batch.draws[0].batch, self.global_rank) if batch.draws else (0, 0, 0)
        seed = generator(self.seed, "dropout", *place).initial_seed()
        if self.device.type == "cpu":  # torch.manual_seed spends milliseconds on devices that are not there
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        if batch.samples:
            answers = self.answer(batch)
            target = batch.target(answers.device)
            total, weight = loss_sum(answers, target, self.model.task_spec, self.class_weights)
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
        if self.global_step == 0 or (self.global_step + 1) % self.log_every == 0:
            rate = self.atoms / max(time.monotonic() - self.since, 1e-9)
            self.atoms, self.since = 0, time.monotonic()
            self.log("loss", loss.detach(), prog_bar=True, sync_dist=True, batch_size=max(1, len(batch.samples)))
            self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"], batch_size=1)
            self.log("atoms/s", rate, prog_bar=True, batch_size=1)
        return loss

    def optimizer_step(self, *arguments: Any, **more: Any) -> None:
        """Step, then take the new weights into their average."""
        super().optimizer_step(*arguments, **more)
        if self.average is not None:
            self.average.update()

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of all gradients; on a CPU in one call for all tensors, which Lightning would do one by one."""
        if gradient_clip_val is not None and self.device.type == "cpu":
            found = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
            norm = torch.nn.utils.get_total_norm(found, foreach=True)
            if not float(norm) + SMALL_NORM <= gradient_clip_val:  # or nothing would change; NaN does
                torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), gradient_clip_val, norm, foreach=True)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_validation_start(self) -> None:
        """Validate the average of the weights."""
        self.swap_average()

    def on_validation_end(self) -> None:
        """Go on training with the weights themselves; what keeps or draws the model was called before."""
        self.swap_average()

    def on_validation_epoch_start(self) -> None:
        """Forget the scores of the validation before."""
        self.scores.reset()
        self.scoring = Scoring(self.model.task_spec, self.scores, self.class_weights)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add the samples of a batch to the scores."""
        if batch.samples:
            self.scoring.add(batch.samples, self.answer(batch), [self.model.in_context(each) for each in batch.inputs])

    def on_validation_epoch_end(self) -> None:
        """Compute and log the scores of the whole split."""
        self.scoring.finish()
        self.latest = self.scores.compute()
        for name, value in self.latest.items():
            if isinstance(value, float):
                self.log(f"val/{name}", value, prog_bar=name == self.scores.main, batch_size=1)

    def configure_optimizers(self) -> Any:
        """Return AdamW, and a learning rate that changes with each step."""
        t = self.training_settings
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=t.learning_rate,
            betas=t.betas,
            eps=t.eps,
            weight_decay=t.weight_decay,
            fused=not t.precision.startswith("16"),  # gradients of scaled losses cannot be clipped for a fused one
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.rate(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the average of the weights to the training state."""
        if self.average is not None:
            checkpoint[AVERAGE] = self.average.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the training state of another model before anything of it is used."""
        wanted, found = self.state_dict(), checkpoint["state_dict"]
        if {name: t.shape for name, t in wanted.items()} != {name: t.shape for name, t in found.items()}:
            raise ConfigError(
                "the training state is of a model of another size than the settings say: resume with the model.preset "
                "and model.settings that the run began with, or train under another name"
            )
        if len(checkpoint["optimizer_states"][0]["param_groups"]) > 1:
            raise ConfigError(
                "the training state is of an earlier version, whose per-pixel warm start had a learning rate of its "
                "own: go on from its weights with model.start=FOLDER/last, under another name"
            )
        self.stored_average = checkpoint.get(AVERAGE)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Leave the batch where it is: the model moves what it needs to its device."""
        return batch

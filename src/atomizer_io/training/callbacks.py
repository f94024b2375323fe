"""What happens beside the steps: saving state, keeping the best model, stopping in time, drawing predictions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from atomizer_io.training.data import ResumableLoader
from atomizer_io.training.metrics import better
from atomizer_io.training.state import STATE
from atomizer_io.training.task import Task

BEST, LAST, HISTORY = "best", "last", "history.jsonl"


class SaveState(Callback):
    """Writes the training state every so many steps and at the end of each epoch; the file is always a whole one.

    After the last step of an epoch it waits until the validation that follows is over: a run that is killed in between
    goes back to the state before, and so makes that validation again. How far the loader got is part of the state:
    Lightning itself restores that in the middle of an epoch, but not at its end. With accumulated batches nothing is
    saved or stopped before the optimizer has stepped: gradients that wait for their step are not part of the state.
    """

    def __init__(self, folder: Path, loader: ResumableLoader, every: int, max_seconds: float | None = None) -> None:
        self.folder, self.loader, self.every, self.max_seconds = folder, loader, every, max_seconds
        self.start, self.saved, self.step = time.monotonic(), 0, 0
        self.late, self.cut = False, False  # time is up; the epoch was cut short

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Note at which step the run begins or goes on."""
        self.saved = self.step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Save the state, or stop the run, when it is time in the middle of an epoch."""
        if trainer.global_step == self.step:
            return
        self.step = trainer.global_step
        late = self.max_seconds is not None and time.monotonic() - self.start > self.max_seconds
        self.late = bool(trainer.strategy.broadcast(late))
        last = index + 1 == trainer.num_training_batches or trainer.global_step == trainer.max_steps
        if not last and (self.late or trainer.global_step // self.every > self.saved // self.every):
            self.save(trainer)
        if self.late:
            trainer.should_stop, self.cut = True, not last
            if self.cut:  # or Lightning would validate, which a run that is not stopped does not do here
                trainer.limit_val_batches = 0

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Save the state at the end of an epoch, unless it was cut short: then the state in its middle counts."""
        if not self.cut:
            self.save(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the loader got, to be stored with the training state."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the loader go on where the stored state says."""
        self.loader.load_state_dict(state)

    def save(self, trainer: Any) -> None:
        """Write the state beside its name, then rename it: a kill in between leaves the state before."""
        beside = self.folder / f".{STATE}.new"
        trainer.save_checkpoint(beside, weights_only=False)
        if trainer.is_global_zero:
            beside.replace(self.folder / STATE)
        self.saved = trainer.global_step


class KeepModels(Callback):
    """After each validation: the model as it is (``last``) and, if its score is the best so far, ``best``.

    What the best score was is part of the training state, so that a resumed run goes on comparing, and so is the number
    of validations: lines of the history beyond it are of validations that a resumed run makes again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best: float | None = None
        self.best_step, self.validations = -1, 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Drop what the history says of validations that are not part of the state."""
        path = self.folder / HISTORY
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        if trainer.is_global_zero and len(lines) > self.validations:
            beside = path.with_name(f".{HISTORY}.new")
            beside.write_text("".join(lines[: self.validations]), encoding="utf-8")
            beside.replace(path)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Save the model, also as ``best`` if its score is the best so far, and add the scores to the history."""
        assert isinstance(module, Task)
        if trainer.sanity_checking or not module.latest:
            return
        score = float(module.latest[module.scores.main])
        improved = better(score, self.best, higher=module.scores.classes)
        if improved:
            self.best, self.best_step = score, trainer.global_step
        self.validations += 1
        if not trainer.is_global_zero:
            return
        module.model.save_pretrained(self.folder / LAST)
        if improved:
            module.model.save_pretrained(self.folder / BEST)
        line = {"step": trainer.global_step, "epoch": trainer.current_epoch, **module.latest}
        with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far and the number of validations, to be stored with the training state."""
        return {"best": self.best, "best_step": self.best_step, "validations": self.validations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the best score and the number of validations from a stored state."""
        self.best, self.best_step, self.validations = state["best"], state["best_step"], state["validations"]


class Pictures(Callback):
    """Draws the first samples of each validation: input, target, prediction."""

    def __init__(self, folder: Path, count: int, info: Any) -> None:
        self.folder, self.count, self.info = folder, count, info

    @torch.no_grad()
    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Draw the first samples of the validation data with their predictions."""
        assert isinstance(module, Task)
        if trainer.sanity_checking or not trainer.is_global_zero or not self.count or not module.model.problem.dense:
            return
        from atomizer_io.pictures.predictions import predictions

        pairs = []
        for batch in trainer.val_dataloaders:
            if batch.samples:
                pairs.append((batch.samples[0], module.answer(batch).float().cpu()))
            if len(pairs) >= self.count:
                break
        if pairs:
            path = self.folder / "pictures" / f"step-{trainer.global_step:07d}.png"
            predictions(pairs, self.info, path, module.model)


class Skips(Callback):
    """Remembers what could not be read, to list it at the end."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Note what could not be read of a training batch."""
        self.found.update({skipped.path: skipped.cause for skipped in batch.skipped})

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        """Note what could not be read of a validation batch."""
        self.found.update({skipped.path: skipped.cause for skipped in batch.skipped})

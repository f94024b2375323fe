"""Lightning callbacks: saving the state, keeping the best model, stopping in time, drawing predictions, progress."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from atomizer_io.data.sample import Sample
from atomizer_io.durable import append_line, publish
from atomizer_io.models.storage import SAVING
from atomizer_io.progress import aim, progress_bar
from atomizer_io.texts import json_text, parse_json, write_text
from atomizer_io.training.data import ResumableLoader
from atomizer_io.training.folder import BEST, HISTORY, LAST
from atomizer_io.training.metrics import better
from atomizer_io.training.schedule import OpenSchedule
from atomizer_io.training.state import STATE
from atomizer_io.training.stopping import Interrupts, Timing, clock
from atomizer_io.training.task import Task


class SaveState(Callback):
    """Follows the steps of a run: ends it in time, and writes its training state; the file is always a whole one.

    A state is written every so many steps and after each validation. After the last step of an interval (an epoch, or
    the steps between two validations) it waits until the validation is over: a run that is killed in between goes back
    to the state before, and so makes that validation again. How far the loader got is part of the state: Lightning
    itself restores that in the middle of an interval, but not at its end. With accumulated batches nothing is saved or
    stopped before the optimizer has stepped: gradients that wait for their step are not part of the state.

    A run of known length makes so many ``steps`` unless ``timing`` stops it before, to be resumed; the ``schedule`` of
    early stopping ends any other. The last step is always followed by a validation. ``interrupts`` stop the run after
    the step, or the validation, in which they come.
    """

    def __init__(
        self,
        folder: Path,
        loader: ResumableLoader,
        every: int,
        steps: int | None = None,
        schedule: OpenSchedule | None = None,
        timing: Timing | None = None,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.folder, self.loader, self.every = folder, loader, every
        self.steps, self.schedule = steps, schedule
        self.timing, self.interrupts = timing or Timing(time.monotonic(), None), interrupts or Interrupts()
        self.saved, self.step, self.stored, self.validation_began_s = 0, 0, False, 0.0
        self.late, self.cut = False, False  # time is up; the interval was cut short

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        """Train no further where the stored state is that of the last step, or its schedule has ended."""
        if self.schedule is not None:
            trainer.should_stop = not self.schedule.resume()
        elif self.steps is not None and self.step >= self.steps:
            trainer.should_stop = True

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Save the state where the run begins."""
        self.saved = self.step = trainer.global_step
        if self.schedule is not None:
            self.schedule.start(self.step)
        if not self.stored:
            self.save(trainer)
        self.interrupts.listen(waits=True)  # in place of Lightning

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Wait for no step any more."""
        self.interrupts.listen()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Save the state, or stop the run, when it is time in the middle of an interval; the first process decides."""
        if trainer.global_step == self.step:
            return
        self.step, everywhere = trainer.global_step, trainer.strategy.broadcast
        if self.schedule is not None:
            self.schedule.stepped(self.step, bool(everywhere(self.schedule.nearly_over(self.step))))
            trainer.should_stop = self.schedule.ended
        late = self.schedule is None and self.timing.out_of_time
        self.late, interrupted = everywhere((late, self.interrupts.pending))
        stops = self.late or interrupted
        ends = trainer.should_stop or self.step == self.steps
        last = ends or index + 1 == trainer.num_training_batches
        cools = self.schedule is not None and self.schedule.begun == self.step
        if not last and (stops or cools or self.step // self.every > self.saved // self.every):
            self.save(trainer)
        if ends:  # Lightning validates before it stops, if the interval is one to validate after
            trainer.should_stop, trainer.check_val_every_n_epoch = True, 1
        elif stops:
            trainer.should_stop, self.cut = True, not last
            if self.cut:  # or Lightning would validate, which a run that is not stopped does not do here
                trainer.limit_val_batches = 0

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Save the state at the end of an interval, unless it was cut short: then the state in its middle counts."""
        if not self.cut:
            self.loader.place = 0  # where the run ended before the interval did, another begins if it goes on
            self.save(trainer)
        if trainer.strategy.broadcast(self.interrupts.pending):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Record when a validation began."""
        self.validation_began_s = time.monotonic()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Report the score and the time of a validation, with drawing its figures and saving its models."""
        seconds = time.monotonic() - self.validation_began_s
        if self.schedule is not None and module.latest:
            self.schedule.validated(trainer.global_step, float(module.latest[module.scores.main]), seconds)
        self.timing.validated(seconds)

    def state_dict(self) -> dict[str, Any]:
        """Return the steps that were made, how far the loader got, and the schedule, for the training state."""
        schedule = {} if self.schedule is None else self.schedule.state_dict()
        return {"step": self.step, "loader": self.loader.state_dict(), "schedule": schedule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let loader and schedule go on where the stored state ends."""
        self.step, self.stored = state["step"], True
        self.loader.load_state_dict(state["loader"])
        if self.schedule is not None and state.get("schedule"):
            self.schedule.load_state_dict(state["schedule"])

    def save(self, trainer: Any) -> None:
        """Write the state beside its name, then rename it: a kill in between leaves the state before."""
        beside = self.folder / SAVING / STATE
        trainer.save_checkpoint(beside, weights_only=False)
        if trainer.is_global_zero:
            publish({beside: self.folder / STATE})
            beside.parent.rmdir()
        self.saved = trainer.global_step


class KeepModels(Callback):
    """After each validation: the model as it is (``last``) and, if its score is the best so far, ``best``.

    What the best score was is part of the training state, so that a resumed run goes on comparing, and so are the lines
    of the history. The file is for readers: where it differs from the state, because it was cut off or has
    validations that a resumed run makes again, it is written anew.
    """

    def __init__(self, folder: Path, loader: ResumableLoader) -> None:
        self.folder, self.loader = folder, loader
        self.best: float | None = None
        self.best_step = -1
        self.history: list[str] = []

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        """Write the history of the state, where the file differs from it."""
        path, text = self.folder / HISTORY, "".join(f"{line}\n" for line in self.history)
        if trainer.is_global_zero and path.exists() and path.read_bytes() != text.encode():
            write_text(path, text) if text else path.unlink()
        elif trainer.is_global_zero and text and not path.exists():
            write_text(path, text)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Save the model, also as ``best`` if its score is the best so far, and add the scores to the history."""
        assert isinstance(module, Task)
        if not module.latest:
            return
        score = float(module.latest[module.scores.main])
        improved = better(score, self.best, higher=module.scores.classes)
        if improved:
            self.best, self.best_step = score, trainer.global_step
        line = {"step": trainer.global_step, "epochs": self.loader.epochs, **module.latest}
        self.history.append(json_text(line))
        if not trainer.is_global_zero:
            return
        module.model.save_pretrained(self.folder / LAST)
        if improved:
            module.model.save_pretrained(self.folder / BEST)
        append_line(self.folder / HISTORY, self.history[-1])

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far and the lines of the history, to be stored with the training state."""
        return {"best": self.best, "best_step": self.best_step, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the best score and the history from a stored state; one of an earlier version only counted the lines."""
        self.best, self.best_step = state["best"], state["best_step"]
        self.history = state["history"] if "history" in state else whole_lines(self.folder / HISTORY)
        del self.history[state.get("validations", len(self.history)) :]


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a history that were not cut off; none where there is no file."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            lines += [line] if isinstance(parse_json(line), dict) else []
    return lines


class Figures(Callback):
    """Draws the first samples of each validation: input, target, prediction.

    ``seldom`` draws them after the first, second, fourth, eighth ... validation and the last, as drawing takes longer
    than some validations.
    """

    def __init__(self, folder: Path, count: int, info: Any, seldom: bool = False) -> None:
        self.folder, self.count, self.info, self.seldom = folder, count, info, seldom
        self.validations = 0

    @torch.no_grad()
    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Draw the first samples of the validation data with their predictions."""
        assert isinstance(module, Task)
        self.validations += 1
        due = not self.seldom or trainer.should_stop or self.validations.bit_count() == 1  # a power of two
        if not due or not trainer.is_global_zero or not self.count or not module.model.task_spec.dense:
            return
        from atomizer_io.figures.samples import save_predictions

        pairs = list[tuple[Sample, Tensor]]()
        for batch in trainer.val_dataloaders:
            shown = batch.first(self.count - len(pairs))
            if shown.samples:
                pairs += zip(shown.samples, shown.by_sample(shown.outputs(module.model).float().cpu()), strict=True)
            if len(pairs) >= self.count:
                break
        if pairs:
            path = self.folder / "figures" / f"step-{trainer.global_step:07d}.png"
            save_predictions(pairs, self.info, path, module.model)


class Progress(Callback):
    """Shows the steps of the whole run, from where it was resumed, and in their line each validation while it lasts.

    With early stopping it shows the time that is left at most and the validations without a better score; in the
    cool-down the steps that are left.
    """

    def __init__(self, steps: int | None, schedule: OpenSchedule | None = None) -> None:
        self.steps, self.schedule = steps, schedule
        self.bar: Any = None
        self.validation: Any = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Start the line of steps at the step that the run is at."""
        if trainer.is_global_zero:
            self.bar = progress_bar(self.steps, initial=trainer.global_step, title="training", unit=" steps")

    def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
        """Count the steps that were made, with the latest loss and score."""
        if self.bar is None:
            return
        parts = [f"{name} {float(value):.4g}" for name, value in trainer.progress_bar_metrics.items()]
        if self.schedule is not None:
            parts = [*status(self.schedule), *parts]
            if self.schedule.begun is not None:
                aim(self.bar, self.schedule.begun + self.schedule.length)
        self.bar.set_postfix_str(", ".join(parts), refresh=False)
        self.bar.update(trainer.global_step - self.bar.n)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Start a line that counts the samples of a validation."""
        if trainer.is_global_zero:
            samples = trainer.val_dataloaders.samples
            self.validation = progress_bar(samples, title="validating", unit=" samples", stay=False, over=True)

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        """Count the samples that were validated."""
        if self.validation is not None:
            self.validation.update(batch.read)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """End the line of a validation, so that the line of steps is visible again."""
        if self.validation is not None:
            self.validation.close()
            self.validation = None

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """End the line of steps, which stays to be read."""
        self.on_validation_end(trainer, module)
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """End all lines when the run fails, so that the error has a line of its own."""
        self.on_train_end(trainer, module)


def status(schedule: OpenSchedule) -> list[str]:
    """Return the status of early stopping: ``at most 04:10 left``, ``3 of 10 validations without a rise``."""
    if schedule.begun is not None:
        return ["cooling down"]
    left, waited = schedule.seconds_left, schedule.waited
    limit = [] if left is None else [f"at most {clock(left)} left"]
    return limit + ([f"{waited} of {schedule.patience} validations without a rise"] if waited else [])

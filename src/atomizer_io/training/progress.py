"""How far a run has come: steps with loss, score and time left, and the samples of each validation."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from atomizer_io.progress import aim, progress_bar
from atomizer_io.training.plan import Plan
from atomizer_io.training.timing import clock


class ShowProgress(Callback):
    """Shows the steps of the whole run, from where it was resumed, and in their place each validation while it lasts.

    Of an open run it shows how much time is left at most, and how long the score has not risen; when it cools down, the
    steps that are left.
    """

    def __init__(self, steps: int | None, plan: Plan | None = None) -> None:
        self.steps, self.plan = steps, plan
        self.bar: Any = None
        self.validation: Any = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Start the line of steps at the step that the run is at."""
        if trainer.is_global_zero:
            self.bar = progress_bar(self.steps, initial=trainer.global_step, title="training", unit=" steps")

    def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
        """Count the steps that were made, with the latest loss and score."""
        if self.bar is not None:
            if self.plan is not None and self.plan.begun is not None:
                aim(self.bar, self.plan.begun + self.plan.length)
            parts = [*(told(self.plan) if self.plan is not None else []), shown(trainer.progress_bar_metrics)]
            self.bar.set_postfix_str(", ".join(part for part in parts if part), refresh=False)
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
        """End the line of a validation, so that the line of steps is seen again."""
        self.close_validation()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """End the line of steps, which stays to be read."""
        self.close()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """End all lines when the run fails, so that the error stands on a line of its own."""
        self.close()

    def close_validation(self) -> None:
        """End the line of a validation, if there is one."""
        if self.validation is not None:
            self.validation.close()
            self.validation = None

    def close(self) -> None:
        """End the line of steps and that of a validation."""
        self.close_validation()
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def told(plan: Plan) -> list[str]:
    """How an open run stands, such as ``at most 04:10 left``, ``3 of 10 validations without a rise``."""
    if plan.begun is not None:
        return ["cooling down"]
    left = plan.seconds_left
    waited = f"{plan.waited} of {plan.patience} validations without a rise" if plan.waited else ""
    return ([] if left is None else [f"at most {clock(left)} left"]) + [waited]


def shown(metrics: dict[str, Any]) -> str:
    """Loss and scores in few characters, such as ``loss 0.412, val/miou 0.731``."""
    return ", ".join(f"{name} {float(value):.4g}" for name, value in metrics.items())

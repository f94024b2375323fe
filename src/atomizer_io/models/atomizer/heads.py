"""The last layer: classes or physical quantities, for a scene or for a position."""

from __future__ import annotations

from torch import Tensor, nn

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.base import in_units


class Head(nn.Module):
    """LN → Linear: logits of classes, or values in the physical units of the target."""

    def __init__(self, width: int, task_spec: TaskSpec) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, task_spec.num_outputs)
        self.task_spec = task_spec

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (…, outputs) for features (…, D)."""
        return in_units(self.linear(self.norm(x)), self.task_spec)

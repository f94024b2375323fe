"""What a model answers, counted: every sample once and, where samples are windows of a tile, every point once.

Windows of a tile overlap. The probabilities of all windows that a point lies in are averaged, then there is one answer
for it (of a quantity: the mean). A tile is counted when another begins, so only one is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from atomizer_io.data.sample import Sample, unknown
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomizerError
from atomizer_io.training.metrics import Scores
from atomizer_io.training.objective import loss_sum

PIECE = 1 << 20  # points of a tile that are counted at once
LEAST = 1e-12  # a probability of which the logarithm is still a number


class TileAnswers:
    """The answers for one tile so far: for each point, by its number in the tile, the sum over its windows."""

    def __init__(self, name: str, task_spec: TaskSpec) -> None:
        self.name, self.classes = name, not task_spec.regression
        self.sums = torch.zeros(0, task_spec.num_outputs)
        self.windows = torch.zeros(0, dtype=torch.int16)
        self.target = torch.zeros(0, dtype=torch.int16 if self.classes else torch.float32)
        self.context = torch.zeros(0, dtype=torch.bool)

    def add(self, members: Tensor, answers: Tensor, target: Tensor, context: Tensor) -> None:
        """Add the answers (M, outputs) of a window for the points of these numbers (M,), all with a known target.

        ``context`` (M,) marks those that were in the context of the window; being in that of one window is enough.
        """
        if not len(members):
            return
        self._reach(int(members.max()) + 1)
        target = target.to(self.target.dtype)
        if bool(((self.windows[members] > 0) & (self.target[members] != target)).any()):
            raise AtomizerError(
                f"windows of {self.name} disagree on the truth of a point: are two files of this name in the split? "
                "Give every tile a name of its own"
            )
        values = answers.float().cpu()
        self.sums.index_add_(0, members, values.softmax(dim=-1) if self.classes else values)
        self.windows.index_add_(0, members, torch.ones(len(members), dtype=torch.int16))
        self.target[members] = target
        self.context[members] |= context.cpu()

    def pieces(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield answers (n, outputs), targets and context (n,) of all points that were asked, once each, in pieces.

        The answers of classes are logarithms of mean probabilities, which is what scores and losses take.
        """
        for numbers in (self.windows > 0).nonzero()[:, 0].split(PIECE):
            mean = self.sums[numbers] / self.windows[numbers, None]
            target, context = self.target[numbers], self.context[numbers]
            yield (mean.clamp(min=LEAST).log(), target.long(), context) if self.classes else (mean, target, context)

    def _reach(self, count: int) -> None:
        """Make room for points up to this number."""
        more = count - len(self.windows)
        if more > 0:
            more = max(more, len(self.windows) // 4)  # some beforehand: points of a tile come window by window
            self.sums = torch.cat([self.sums, self.sums.new_zeros(more, self.sums.shape[1])])
            self.windows = torch.cat([self.windows, self.windows.new_zeros(more)])
            self.target = torch.cat([self.target, self.target.new_zeros(more)])
            self.context = torch.cat([self.context, self.context.new_zeros(more)])


class Scoring:
    """Adds answers to ``scores``: call :meth:`add` for all samples in the order of the dataset, then :meth:`finish`."""

    def __init__(self, task_spec: TaskSpec, scores: Scores, class_weights: Tensor | None = None) -> None:
        self.task_spec, self.scores, self.class_weights = task_spec, scores, class_weights
        self.tile: TileAnswers | None = None
        self.finished: set[str] = set()
        self.device = torch.device("cpu")

    def add(self, samples: Sequence[Sample], answers: Tensor, contexts: Sequence[Tensor | None] = ()) -> None:
        """Add the answers (M, outputs) for all targets of some samples, in one row; one of NaN is an error.

        ``contexts`` are those of ``Model.in_context``, for each sample: None, or none at all, leaves no point out.
        """
        self.device = answers.device
        parts = answers.split([sample.target.numel() for sample in samples])
        for sample, own, context in zip(samples, parts, contexts or [None] * len(parts), strict=True):
            target = sample.target.reshape(-1)
            known = ~unknown(target)
            there = known.to(own.device)
            if bool(own[there].isnan().any()):
                raise AtomizerError(f"the model answers NaN for {sample.meta.id}")
            queries = sample.queries
            if queries is None or queries.whole is None or queries.members is None:
                self._count(own, target, context)
            else:
                inside = torch.ones_like(known) if context is None else context.cpu()
                tile = self._tile(queries.whole)
                tile.add(queries.members[known], own[there], target[known], inside[known])

    def finish(self) -> None:
        """Count the points of the tile whose windows came last."""
        if self.tile is not None:
            for answers, target, context in self.tile.pieces():
                self._count(answers.to(self.device), target, context)
            self.finished.add(self.tile.name)
        self.tile = None

    def _tile(self, name: str) -> TileAnswers:
        """Return the tile of that name; if it is another than before, the one before is counted."""
        if self.tile is None or self.tile.name != name:
            self.finish()
            if name in self.finished:
                raise AtomizerError(f"the windows of {name} do not follow each other, so its points would count twice")
            self.tile = TileAnswers(name, self.task_spec)
        return self.tile

    def _count(self, answers: Tensor, target: Tensor, context: Tensor | None) -> None:
        target = target.to(answers.device)
        inside = None if context is None else context.to(answers.device)
        self.scores.update(answers, target, *loss_sum(answers, target, self.task_spec, self.class_weights), inside)

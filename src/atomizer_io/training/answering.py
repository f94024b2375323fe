"""How a model is asked in evaluation: at all positions, or as sparsely as a strategy of decoding does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Queries, Sample
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.choice import Decoding
from atomizer_io.decoding.operating_point import DENSE
from atomizer_io.decoding.scenes import SceneReader, read_out
from atomizer_io.decoding.squares import scene_of
from atomizer_io.models.base import Cost, Model, Preparer
from atomizer_io.training.batches import Batch
from atomizer_io.training.metrics import LEAST


class Answering:
    """Asks ``model`` as ``decoding`` says, with the ``calibration`` that its alpha needs; counts what it asked."""

    def __init__(self, model: Model, decoding: Decoding = Decoding(), calibration: Calibration | None = None) -> None:
        self.model, self.decoding, self.calibration = model, decoding.at(calibration), calibration
        self.scenes, self.asked, self.positions = 0, 0, 0
        self.sparse = self.decoding.strategy != DENSE
        anywhere: Any = model  # what decodes sparsely answers anywhere
        self.reader = SceneReader(anywhere) if self.sparse else None

    def preparer(self) -> Preparer:
        """Return what prepares samples in the workers; where scenes are read out sparsely, they are encoded here."""
        return NotPrepared() if self.sparse else self.model.preparer()

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        """Return the answers (M, outputs) for all targets of a batch: logits (or logarithms), or quantities."""
        if not self.sparse:
            return batch.outputs(self.model)
        return torch.cat([self._read_out(sample) for sample in batch.samples])

    def contexts(self, batch: Batch) -> list[Tensor | None]:
        """Return which queries of each sample look at a point of the context, as far as the model tells."""
        return [None if self.sparse else self.model.in_context(each) for each in batch.inputs]

    @property
    def share(self) -> float | None:
        """The share of positions at which the model was asked; None where it is asked at all."""
        return self.asked / max(1, self.positions) if self.sparse else None

    def _read_out(self, sample: Sample) -> Tensor:
        assert self.reader is not None
        atoms, where, sites, footprint_m = scene_of(sample)
        predictor = self.reader.encoded(
            atoms, where, sites=sites, cost=self.decoding.cost, seed=self.scenes, footprint_m=footprint_m
        )
        found = read_out(predictor, self.decoding.strategy.replace("-", "_"), self.calibration)
        self.scenes += 1
        self.asked += found.decoded
        self.positions += found.queried.numel()
        answers = found.outputs.reshape(found.queried.numel(), -1)
        return answers.clamp(min=LEAST).log() if found.classes else answers


class NotPrepared:
    """Prepares nothing: the sample itself is read out."""

    def __call__(
        self,
        atoms: AtomSet,
        queries: Queries | None,
        cost: Cost = Cost(),
        generator: torch.Generator | None = None,
    ) -> None:
        """Return nothing."""

"""A logistic regression of single pixels: what can be said without looking around."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from atomizer_io.errors import AtomsError
from atomizer_io.sample import Sample
from atomizer_io.training.bands import Keep, kept


class PixelRegression:
    """Fits the class of a pixel to all that was observed there, standardised; where a value is absent, to its mean.

    All acquisitions of a sample have to lie on the grid of its queries, in the same order of channels.
    """

    def __init__(self, samples: Iterable[Sample], classes: int, keep: Keep | None = None) -> None:
        self.keep = keep
        pairs = [(self._features(sample), sample.target) for sample in samples]
        x, y = torch.cat([features for features, _ in pairs]), torch.cat([target for _, target in pairs])
        x, y = x[y >= 0], y[y >= 0]
        self.mean = x.nanmean(dim=0)
        self.std = (x - self.mean).square().nanmean(dim=0).sqrt().clamp(min=1e-6)
        self.linear = torch.nn.Linear(x.shape[1], classes)
        torch.nn.init.zeros_(self.linear.weight)
        standard = self._standard(x)
        optimizer = torch.optim.LBFGS(self.linear.parameters(), max_iter=300, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = cross_entropy(self.linear(standard), y)
            value.backward()
            return value

        optimizer.step(loss)

    @torch.no_grad()
    def __call__(self, sample: Sample) -> Tensor:
        """Logits (M, classes) at the queries."""
        answers: Tensor = self.linear(self._standard(self._features(sample)))
        return answers

    def _standard(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.std).nan_to_num(0.0)

    def _features(self, sample: Sample) -> Tensor:
        atoms = sample.atoms if self.keep is None else kept(sample.atoms, self.keep)
        columns: Sequence[Tensor] = [acquisition.observed().float() for acquisition in atoms]
        if any(len(column) != len(sample.target) for column in columns):
            raise AtomsError(f"{sample.meta.id}: sensors do not lie on the grid of the queries")
        return torch.cat(list(columns), dim=1)

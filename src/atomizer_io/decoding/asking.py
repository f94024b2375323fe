"""Asking a model at some positions of a grid or a list, each position at most once.

Shapes: M positions, C outputs, R regions, k probes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atomizer_io.errors import QueryError
from atomizer_io.grid import Grid
from atomizer_io.model.atomizer import AtomizerIO, Latents
from atomizer_io.model.flops import decoder_flops
from atomizer_io.model.placing import SitesOfQueries


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Answers at all positions: probabilities of classes, or values of a quantity, (H, W, C) on a grid or (M, C).

    ``asked`` marks the positions at which the decoder was really called, ``decoded`` counts them, and ``flops`` is
    what that took (multiply-adds count twice). Elsewhere the answer is that of the region's probes.
    """

    answers: Tensor
    asked: Tensor
    decoded: int
    flops: float
    classes: bool

    @property
    def labels(self) -> Tensor:
        """The most probable class, (H, W) or (M,)."""
        if not self.classes:
            raise QueryError("the model predicts a quantity, which has no labels: use values")
        return self.answers.argmax(dim=-1)

    @property
    def probabilities(self) -> Tensor:
        """Of each class."""
        if not self.classes:
            raise QueryError("the model predicts a quantity, which has no probabilities: use values")
        return self.answers

    @property
    def values(self) -> Tensor:
        """The quantity, (H, W) or (M,)."""
        if self.classes:
            raise QueryError("the model predicts classes: use labels or probabilities")
        return self.answers[..., 0]


class Asker:
    """One scene and the positions of interest; remembers what was asked."""

    def __init__(
        self,
        model: AtomizerIO,
        latents: Latents,
        where: Grid | Tensor,
        *,
        index: int | None = None,
        sites: SitesOfQueries | None = None,
        neighbors: int | None = None,
    ) -> None:
        if index is None and len(latents) != 1:
            raise QueryError(f"the latents are of {len(latents)} scenes: say with index= which one is asked")
        self.model, self.neighbors, self.sites = model, neighbors, sites
        self.latents = latents.only(index or 0)
        self.grid = where if isinstance(where, Grid) else None
        self.positions_M2 = where.positions() if isinstance(where, Grid) else torch.as_tensor(where)
        if self.positions_M2.ndim != 2 or self.positions_M2.shape[1] != 2 or not len(self.positions_M2):
            raise QueryError(f"positions have shape {tuple(self.positions_M2.shape)}, expected (M, 2) with M ≥ 1")
        self.classes = model.config.task == "segmentation"
        self.answers_MC = torch.zeros(len(self.positions_M2), model.config.num_outputs)
        self.asked_M = torch.zeros(len(self.positions_M2), dtype=torch.bool)

    @torch.no_grad()
    def ask(self, numbers: Tensor) -> None:
        """Decode the positions of these numbers, unless that was done before."""
        new = torch.unique(numbers)
        new = new[~self.asked_M[new]]
        if not len(new):
            return
        sites = None if self.sites is None else [{a: of[new] for a, of in self.sites.items()}]
        logits = self.model.decode(self.latents, [self.positions_M2[new]], sites=sites, neighbors=self.neighbors)[0]
        answers = logits.float().softmax(dim=-1) if self.classes else logits.float()
        self.answers_MC[new] = answers.cpu()
        self.asked_M[new] = True

    def agree(self, probes_Rk: Tensor, margin: float, tolerance: float) -> Tensor:
        """Which regions (R,) can be answered by their probes; −1 stands for no probe.

        Classes: all probes are of one class and none is closer than ``margin`` to a second one. Quantities: they lie
        within ``tolerance`` of each other.
        """
        there = probes_Rk >= 0
        answers_RkC = self.answers_MC[probes_Rk.clamp(min=0)]
        if not self.classes:
            value = answers_RkC[..., 0]
            high = value.masked_fill(~there, -torch.inf).amax(dim=1)
            low = value.masked_fill(~there, torch.inf).amin(dim=1)
            return high - low <= tolerance
        label = answers_RkC.argmax(dim=-1)
        same = ((label == label[:, :1]) | ~there).all(dim=1)
        if answers_RkC.shape[-1] > 1 and margin > 0:
            top = answers_RkC.topk(2, dim=-1).values
            same &= ((top[..., 0] - top[..., 1] >= margin) | ~there).all(dim=1)
        return same

    def spread(self, probes_Rk: Tensor) -> Tensor:
        """The mean answer (R, C) of the probes of each region."""
        there = (probes_Rk >= 0)[..., None]
        answers_RkC = torch.where(there, self.answers_MC[probes_Rk.clamp(min=0)], 0.0)
        return answers_RkC.sum(dim=1) / there.sum(dim=1)

    def prediction(self) -> Prediction:
        """All answers as they stand."""
        decoded = int(self.asked_M.sum())
        shape = (len(self.asked_M),) if self.grid is None else self.grid.shape
        return Prediction(
            self.answers_MC.reshape(*shape, -1),
            self.asked_M.reshape(shape),
            decoded,
            decoder_flops(self.model, self.latents.atoms[0], self.latents.geometries[0], decoded),
            self.classes,
        )

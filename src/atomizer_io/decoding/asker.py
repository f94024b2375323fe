"""Asking at some of the positions of a grid or a list, each position at most once.

Shapes: M positions, C outputs, R regions, k probes.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from atomizer_io.data.grid import Grid
from atomizer_io.errors import QueryError, check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.flops import InputSize, atoms_seen, decoder_flops, stages
from atomizer_io.models.atomizer.geometry.neighbors import (
    Footprint,
    LocatedQueries,
    SeenSites,
    SitesOfQueries,
    local_queries,
    near_latents,
    seen_sites,
)
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.sites import Floats

ENCODING = ("encoder", "processor", "temporal")  # the stages before a scene can be asked


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
        """Return the most probable class, (H, W) or (M,)."""
        if not self.classes:
            raise QueryError("the model predicts a quantity, which has no labels: use values")
        return self.answers.argmax(dim=-1)

    @property
    def probabilities(self) -> Tensor:
        """Return the probability of each class, (H, W, C) or (M, C)."""
        if not self.classes:
            raise QueryError("the model predicts a quantity, which has no probabilities: use values")
        return self.answers

    @property
    def values(self) -> Tensor:
        """Return the quantity, (H, W) or (M,)."""
        if self.classes:
            raise QueryError("the model predicts classes: use labels or probabilities")
        return self.answers[..., 0]

    def differs(self, other: Prediction, precision: float = 0.0) -> Tensor:
        """Return where two predictions differ: another class, or a value more than ``precision`` away."""
        return different(self.answers, other.answers, self.classes, precision)


def different(found: Tensor, truth: Tensor, classes: bool, precision: float = 0.0) -> Tensor:
    """Return where answers (..., C) differ: another class, or a value more than ``precision`` away."""
    if classes:
        return found.argmax(dim=-1) != truth.argmax(dim=-1)
    return (found[..., 0] - truth[..., 0]).abs() > precision


class Asker(ABC):
    """The positions of interest of one scene, with the answers known so far.

    ``sketches`` keeps what was fitted to them, by the spacing of the probes: answers (M, C) and how sure (M,) they are.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int, classes: bool) -> None:
        self.shape, self.classes = shape, classes
        self.forget(outputs)

    def forget(self, outputs: int) -> None:
        """Forget all answers of ``outputs`` numbers each."""
        count = torch.Size(self.shape).numel()
        self.answers_MC = torch.zeros(count, outputs)
        self.asked_M = torch.zeros(count, dtype=torch.bool)
        self.sketches: dict[int, tuple[Tensor, Tensor]] = {}

    @abstractmethod
    def answer(self, numbers: Tensor) -> Tensor:
        """Return the answers (n, C) at the positions of these numbers (n,)."""

    @abstractmethod
    def cost(self, decoded: int) -> float:
        """Return the operations of decoding so many positions."""

    @property
    @abstractmethod
    def zone_M(self) -> Tensor:
        """Return the number of the nearest latent of each position."""

    @property
    @abstractmethod
    def observed_MF(self) -> Tensor:
        """Return each position and what was observed there, NaN where nothing was."""

    def ask(self, numbers: Tensor) -> None:
        """Learn the answers at the positions of these numbers; those that are known already are not asked again."""
        wanted_M = torch.zeros_like(self.asked_M)
        wanted_M[numbers] = True
        new = (wanted_M & ~self.asked_M).nonzero()[:, 0]
        if len(new):
            self.answers_MC[new] = self.answer(new)
            self.asked_M |= wanted_M

    def ask_everywhere(self) -> Prediction:
        """Ask at every position (dense decoding) and return the answers."""
        self.ask(torch.arange(len(self.asked_M)))
        return self.prediction()

    def agree(self, probes_Rk: Tensor, margin: float, tolerance: float) -> Tensor:
        """Return which regions (R,) can be answered by their probes.

        Classes: all probes are of one class and none is closer than ``margin`` to a second one. Quantities: they lie
        within ``tolerance`` of each other.
        """
        answers_RkC = self.answers_MC[probes_Rk]
        if not self.classes:
            value_Rk = answers_RkC[..., 0]
            return value_Rk.amax(dim=1) - value_Rk.amin(dim=1) <= tolerance
        label_Rk = answers_RkC.argmax(dim=-1)
        same_R = (label_Rk == label_Rk[:, :1]).all(dim=1)
        return same_R & (lead(answers_RkC) >= margin).all(dim=1) if margin > 0 else same_R

    def take_over(self, positions_M: Tensor, region_M: Tensor, probes_Rk: Tensor) -> None:
        """Answer the marked positions that were not asked with the mean of the probes of their region."""
        silent = (positions_M & ~self.asked_M).nonzero()[:, 0]
        self.answers_MC[silent] = self.answers_MC[probes_Rk].mean(dim=1)[region_M[silent]]

    def prediction(self) -> Prediction:
        """Return all answers as they stand."""
        decoded = int(self.asked_M.sum())
        answers = self.answers_MC.reshape(*self.shape, -1)
        return Prediction(answers, self.asked_M.reshape(self.shape), decoded, self.cost(decoded), self.classes)


def lead(answers: Tensor) -> Tensor:
    """Return how far the most probable class is ahead of the second; infinity where there is only one class."""
    if answers.shape[-1] == 1:
        return torch.full(answers.shape[:-1], torch.inf)
    top = answers.topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


class SceneAsker(Asker):
    """Asks a model about a scene that it has encoded; footprints are the pixels of the grid, or as given."""

    def __init__(
        self,
        model: AtomizerIO,
        latents: Latents,
        where: Grid | Tensor,
        *,
        index: int | None = None,
        sites: SitesOfQueries | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
    ) -> None:
        if index is None and len(latents) != 1:
            raise QueryError(f"the latents are of {len(latents)} scenes: say with index= which one is asked")
        self.positions_M2 = where.shared_positions() if isinstance(where, Grid) else torch.as_tensor(where)
        if self.positions_M2.ndim != 2 or self.positions_M2.shape[1] != 2 or not len(self.positions_M2):
            raise QueryError(f"positions have shape {tuple(self.positions_M2.shape)}, expected (M, 2) with M ≥ 1")
        shape = where.shape if isinstance(where, Grid) else (len(self.positions_M2),)
        super().__init__(shape, model.task_spec.num_outputs, model.task_spec.task == "segmentation")
        self.model, self.latents = model, latents.only(index or 0)
        self.atoms, self.geometry = self.latents.atoms[0], self.latents.geometries[0]
        self.neighbors = model.config.neighbors if neighbors is None else neighbors
        self.named = sites
        self.footprint_m = where.pixel_m if footprint_m is None and isinstance(where, Grid) else footprint_m

    def reading(self, neighbors: int) -> SceneAsker:
        """Return an asker of the same latents that knows no answer yet and reads so many latents at a position."""
        _ = self.seen, self.encoding_flops  # found once for all
        other = copy.copy(self)
        other.neighbors = neighbors
        other.forget(self.answers_MC.shape[1])
        return other

    @functools.cached_property
    def local_M2(self) -> Floats:
        """Return the positions (M, 2) in metres from the centre of the scene."""
        return local_queries(self.positions_M2, self.geometry)

    @functools.cached_property
    def seen(self) -> SeenSites:
        """Return the sites that each position sees, and the acquisition of each column of them."""
        return seen_sites(self.local_M2, self.atoms, self.geometry, self.named, self.footprint_m)

    @property
    def sites_MA(self) -> Tensor:
        """Return the sites that each position sees, −1 for none: one column for each acquisition, or several."""
        assert self.seen.sites_MA is not None
        return self.seen.sites_MA

    @torch.no_grad()
    def answer(self, numbers: Tensor) -> Tensor:
        """Return what the decoder answers (n, C) at the positions of these numbers (n,)."""
        check_count("neighbors", self.neighbors)
        near = near_latents(self.local_M2[numbers.numpy()], self.geometry, self.neighbors)
        seen = self.sites_MA[numbers] if self.model.config.observation_conditioning else None
        where = LocatedQueries(near, seen, self.geometry.sites, self.seen.owners)
        logits = self.model.decode(self.latents, [where])[0].float().cpu()
        return logits.softmax(dim=-1) if self.classes else logits

    def cost(self, decoded: int) -> float:
        """Return the operations of the decoder and the head for so many positions."""
        seen = atoms_seen(self.seen, self.atoms)
        return decoder_flops(self.model, self.atoms, self.geometry, decoded, neighbors=self.neighbors, seen=seen)

    @functools.cached_property
    def encoding_flops(self) -> float:
        """Return the operations that encoding the scene took."""
        size = InputSize.of(self.model, self.atoms, 0, self.geometry)
        return sum(stage.flops for stage in stages(self.model, size) if stage.name in ENCODING)

    @functools.cached_property
    def zone_M(self) -> Tensor:
        """Return the number of the nearest latent of each position."""
        return near_latents(self.local_M2, self.geometry, 1).latents_Mk[:, 0]

    @functools.cached_property
    def observed_MF(self) -> Tensor:
        """Return positions, and values and site fields of all acquisitions at the sites seen there, their mean."""
        columns = [torch.from_numpy(self.local_M2).float()]
        owners = torch.tensor(range(len(self.atoms)) if self.seen.owners is None else self.seen.owners)
        for number, acquisition in enumerate(self.atoms):
            fields_PF = [field[:, None] for field in acquisition.site_fields.values()]
            values_PF = torch.cat([acquisition.observed(), *fields_PF], dim=1).cpu()
            seen = [
                torch.where((site_M >= 0)[:, None], values_PF[site_M], torch.nan)
                for site_M in self.sites_MA[:, owners == number].T
            ]
            columns.append(seen[0] if len(seen) == 1 else torch.stack(seen).nanmean(dim=0))
        return torch.cat(columns, dim=1).float()


class RecordedAsker(Asker):
    """Shows what a strategy would do, with the answers of another asker, which asks its model only for new ones."""

    def __init__(self, asker: Asker) -> None:
        super().__init__(asker.shape, asker.answers_MC.shape[1], asker.classes)
        self.asker, self.sketches = asker, asker.sketches

    def answer(self, numbers: Tensor) -> Tensor:
        """Return the answers (n, C) of the other asker at the positions of these numbers (n,)."""
        self.asker.ask(numbers)
        return self.asker.answers_MC[numbers]

    def cost(self, decoded: int) -> float:
        """Return the operations that decoding so many positions would have taken."""
        return self.asker.cost(decoded)

    @property
    def zone_M(self) -> Tensor:
        """Return the number of the nearest latent of each position."""
        return self.asker.zone_M

    @property
    def observed_MF(self) -> Tensor:
        """Return each position and what was observed there, NaN where nothing was."""
        return self.asker.observed_MF

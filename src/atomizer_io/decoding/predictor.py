"""The one way to predict at positions: prepare or encode a scene once, then decode each position at most once.

A strategy (``strategies.py``) chooses the positions; validation, maps, point clouds, calibration and benchmarks all
predict through a :class:`Predictor`.

Shapes: M positions, C outputs, R regions, k probes, K channels, A columns of observed sites, F observed values.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import queries_at
from atomizer_io.errors import QueryError, check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.flops import InputSize, atoms_seen, decoder_flops, stages
from atomizer_io.models.atomizer.geometry.neighbors import (
    Footprint,
    LocatedQueries,
    SitesOfQueries,
    local_queries,
    near_latents,
    seen_sites,
)
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.base import Cost, Model, in_units
from atomizer_io.models.sites import Floats, colocated_sites

NO_LATENTS = "this model has no latents, by which positions could be chosen: use dense decoding"
ENCODING = ("encoder", "processor", "temporal")  # the stages before positions are decoded


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Outputs at all positions: probabilities of classes, or values of a target, (H, W, C) on a grid or (M, C).

    ``queried`` marks the positions at which the decoder was called and ``decoded`` counts them; elsewhere the output
    follows from those of other positions.
    """

    outputs: Tensor
    queried: Tensor
    decoded: int
    classes: bool
    count_flops: Callable[[int], float]

    @property
    def flops(self) -> float:
        """The FLOPs of decoding them; a multiply-add counts as two."""
        return self.count_flops(self.decoded)

    @property
    def labels(self) -> Tensor:
        """The most probable class, (H, W) or (M,)."""
        if not self.classes:
            raise QueryError("the model predicts a regression target, which has no labels: use values")
        return self.outputs.argmax(dim=-1)

    @property
    def probabilities(self) -> Tensor:
        """The probability of each class, (H, W, C) or (M, C)."""
        if not self.classes:
            raise QueryError("the model predicts a regression target, which has no probabilities: use values")
        return self.outputs

    @property
    def values(self) -> Tensor:
        """The value of the regression target, (H, W) or (M,)."""
        if self.classes:
            raise QueryError("the model predicts classes: use labels or probabilities")
        return self.outputs[..., 0]

    def differs(self, reference: Prediction, precision: float = 0.0) -> Tensor:
        """Return where two predictions differ: another class, or a value more than ``precision`` away."""
        return different(self.outputs, reference.outputs, self.classes, precision)


def different(outputs: Tensor, reference: Tensor, classes: bool, precision: float = 0.0) -> Tensor:
    """Return where outputs (..., C) differ: another class, or a value more than ``precision`` away."""
    if classes:
        return outputs.argmax(dim=-1) != reference.argmax(dim=-1)
    return (outputs[..., 0] - reference[..., 0]).abs() > precision


class Predictor(ABC):
    """The positions of one scene, with the outputs known so far.

    ``sketches`` keeps what was fitted to them, by the spacing of the probes: outputs (M, C) and confidences (M,).
    """

    def __init__(self, shape: tuple[int, ...], outputs: int, classes: bool) -> None:
        """Begin without any outputs, of which each position has so many."""
        self.shape, self.classes, count = shape, classes, torch.Size(shape).numel()
        self.outputs_MC = torch.zeros(count, outputs)
        self.queried_M = torch.zeros(count, dtype=torch.bool)
        self.sketches: dict[int, tuple[Tensor, Tensor]] = {}

    @abstractmethod
    def decode(self, indices: Tensor) -> Tensor:
        """Return the outputs (n, C) at the positions of these indices (n,)."""

    @abstractmethod
    def flops(self, decoded: int) -> float:
        """Return the FLOPs of decoding so many positions."""

    @property
    def zone_M(self) -> Tensor:
        """The number of the nearest latent of each position, for a model that has latents."""
        raise QueryError(NO_LATENTS)

    @property
    def observed_MF(self) -> Tensor:
        """Each position and what was observed there, NaN where nothing was, for a model that has latents."""
        raise QueryError(NO_LATENTS)

    def query(self, indices: Tensor) -> None:
        """Decode the positions of these indices, except those that are known already."""
        wanted_M = torch.zeros_like(self.queried_M)
        wanted_M[indices] = True
        new = (wanted_M & ~self.queried_M).nonzero()[:, 0]
        if len(new):
            self.outputs_MC[new] = self.decode(new)
            self.queried_M |= wanted_M

    def query_all(self) -> Prediction:
        """Decode every position (dense decoding)."""
        self.query(torch.arange(len(self.queried_M)))
        return self.prediction()

    def agree(self, probes_Rk: Tensor, margin: float, tolerance: float) -> Tensor:
        """Return the regions (R,) whose probes agree.

        Classes: all probes are of one class and none is closer than ``margin`` to a second one. Regression targets:
        they lie within ``tolerance`` of each other.
        """
        outputs_RkC = self.outputs_MC[probes_Rk]
        if not self.classes:
            value_Rk = outputs_RkC[..., 0]
            return value_Rk.amax(dim=1) - value_Rk.amin(dim=1) <= tolerance
        label_Rk = outputs_RkC.argmax(dim=-1)
        same_R = (label_Rk == label_Rk[:, :1]).all(dim=1)
        return same_R & (lead(outputs_RkC) >= margin).all(dim=1) if margin > 0 else same_R

    def fill(self, positions_M: Tensor, region_M: Tensor, probes_Rk: Tensor) -> None:
        """Give the marked positions that were not queried the mean of the probes of their region."""
        unknown = (positions_M & ~self.queried_M).nonzero()[:, 0]
        self.outputs_MC[unknown] = self.outputs_MC[probes_Rk].mean(dim=1)[region_M[unknown]]

    def prediction(self) -> Prediction:
        """Return all outputs as they stand."""
        outputs, queried = self.outputs_MC.reshape(*self.shape, -1), self.queried_M.reshape(self.shape)
        return Prediction(outputs, queried, int(queried.sum()), self.classes, self.flops)


def lead(outputs: Tensor) -> Tensor:
    """Return how far the most probable class is ahead of the second; infinity where there is only one class."""
    if outputs.shape[-1] == 1:
        return torch.full(outputs.shape[:-1], torch.inf)
    top = outputs.topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


class ScenePredictor(Predictor):
    """Decodes positions of a scene that a model has encoded; footprints are the pixels of the grid, or as given.

    With ``vectors`` the outputs are the features that the last layer reads, not what it makes of them.
    """

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
        vectors: bool = False,
    ) -> None:
        if index is None and len(latents) != 1:
            raise QueryError(f"the latents are of {len(latents)} scenes: say with index= which one is decoded")
        self.positions_M2 = where.shared_positions() if isinstance(where, Grid) else torch.as_tensor(where)
        if self.positions_M2.ndim != 2 or self.positions_M2.shape[1] != 2 or not len(self.positions_M2):
            raise QueryError(f"positions have shape {tuple(self.positions_M2.shape)}, expected (M, 2) with M ≥ 1")
        shape = where.shape if isinstance(where, Grid) else (len(self.positions_M2),)
        outputs = model.config.width if vectors else model.task_spec.num_outputs
        super().__init__(shape, outputs, model.task_spec.task == "segmentation" and not vectors)
        self.model, self.latents, self.vectors = model, latents.only(index or 0), vectors
        self.atoms, self.geometry = self.latents.atoms[0], self.latents.geometries[0]
        self.neighbors = model.config.neighbors if neighbors is None else neighbors
        self.named = sites
        self.footprint_m = where.pixel_m if footprint_m is None and isinstance(where, Grid) else footprint_m

    @classmethod
    @torch.no_grad()
    def encode(
        cls,
        model: AtomizerIO,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        cost: Cost = Cost(),
        seed: int = 0,
        geometry: Geometry | None = None,
        sites: SitesOfQueries | None = None,
        footprint_m: Footprint | None = None,
        vectors: bool = False,
    ) -> ScenePredictor:
        """Encode a scene at this cost; ``seed`` samples the atoms that the budget keeps of each cell."""
        if geometry is None:
            geometry = model.geometry(atoms, atoms_per_latent=cost.atoms_per_latent, max_points=cost.max_points)
        generator = None if cost.budget is None else torch.Generator().manual_seed(seed)
        latents = model.encode(
            [atoms], geometry=[geometry], budget=cost.budget, max_points=cost.max_points, generator=generator
        )
        how: dict[str, Any] = {"sites": sites, "footprint_m": footprint_m, "vectors": vectors}
        return cls(model, latents, where, neighbors=cost.neighbors, **how)

    def with_neighbors(self, neighbors: int) -> ScenePredictor:
        """Return a predictor of the same latents, without outputs, that reads so many latents at a position."""
        _ = self.seen, self.encoding_flops  # computed once for all
        twin = copy.copy(self)
        twin.neighbors = neighbors
        Predictor.__init__(twin, self.shape, self.outputs_MC.shape[1], self.classes)
        return twin

    @functools.cached_property
    def local_M2(self) -> Floats:
        """The positions (M, 2) in metres from the centre of the scene."""
        return local_queries(self.positions_M2, self.geometry)

    @functools.cached_property
    def seen(self) -> tuple[Tensor, tuple[int, ...] | None]:
        """The sites (M, A) that each position sees, −1 for none, and the acquisition of each column; None: one each."""
        return seen_sites(self.local_M2, self.atoms, self.geometry, self.named, self.footprint_m)

    def at(self, positions_M2: Tensor, footprint_m: Footprint | None) -> ScenePredictor:
        """Return a predictor of the same latents at other positions (M, 2), each with this footprint."""
        return ScenePredictor(self.model, self.latents, positions_M2, neighbors=self.neighbors, footprint_m=footprint_m)

    @torch.no_grad()
    def decode(self, indices: Tensor) -> Tensor:
        """Return the decoder's outputs (n, C), or features, at the positions of these indices (n,)."""
        if self.vectors:
            return self.embed(indices).float().cpu()
        return probabilities(self.model.decode(self.latents, [self._located(indices)])[0], self.classes)

    @torch.no_grad()
    def embed(self, indices: Tensor) -> Tensor:
        """Return the features (n, D) at the positions of these indices (n,) that the last layer reads."""
        return self.model.embed(self.latents, [self._located(indices)])[0]

    @torch.no_grad()
    def from_features(self, features_nD: Tensor) -> Tensor:
        """Return the outputs (n, C) that the last layer makes of features (n, D)."""
        head = self.model.head
        return probabilities(in_units(head.linear(features_nD), head.task_spec), self.classes)

    def _located(self, indices: Tensor) -> LocatedQueries:
        """Return the positions of these indices (n,) with the latents that they read and the sites that they see."""
        check_count("neighbors", self.neighbors)
        where = near_latents(self.local_M2[indices.numpy()], self.geometry, self.neighbors)
        if not self.model.config.observation_conditioning:
            return where
        sites_MA, owners = self.seen
        return replace(where, sites_MA=sites_MA[indices], owners=owners)

    @property
    def anchors_L2(self) -> Tensor:
        """The positions (L, 2) of the latents, in the frame of the atoms."""
        return self.geometry.anchors_L2 + torch.as_tensor(self.geometry.center_2)

    @property
    def read_Mk(self) -> Tensor:
        """The numbers (M, k) of the latents that each position reads, the nearest first."""
        return near_latents(self.local_M2, self.geometry, self.neighbors).latents_Mk

    def flops(self, decoded: int) -> float:
        """Return the FLOPs of the decoder and the head for so many positions."""
        seen = atoms_seen(*self.seen, self.atoms)
        return decoder_flops(self.model, self.atoms, self.geometry, decoded, neighbors=self.neighbors, seen=seen)

    @functools.cached_property
    def encoding_flops(self) -> float:
        """The FLOPs of encoding the scene."""
        size = InputSize.of(self.model, self.atoms, 0, self.geometry)
        return sum(stage.flops for stage in stages(self.model, size) if stage.name in ENCODING)

    @functools.cached_property
    def zone_M(self) -> Tensor:
        """The number of the nearest latent of each position."""
        return near_latents(self.local_M2, self.geometry, 1).latents_Mk[:, 0]

    @functools.cached_property
    def observed_MF(self) -> Tensor:
        """Positions, and values and site fields of all acquisitions at the sites seen there, their mean."""
        columns = [torch.from_numpy(self.local_M2).float()]
        sites_MA, numbers = self.seen
        owners = torch.tensor(range(len(self.atoms)) if numbers is None else numbers)
        for number, acquisition in enumerate(self.atoms):
            fields_PF = [field[:, None] for field in acquisition.site_fields.values()]
            values_PF = torch.cat([acquisition.observed(), *fields_PF], dim=1).cpu()
            values_PF = F.pad(values_PF, (0, 0, 0, 1), value=torch.nan)  # the last row, −1: nothing is seen
            seen = [values_PF[site_M] for site_M in sites_MA[:, owners == number].T]
            columns.append(seen[0] if len(seen) == 1 else torch.stack(seen).nanmean(dim=0))
        return torch.cat(columns, dim=1).float()

    @property
    def seen_M(self) -> NDArray[np.bool_]:
        """Whether anything was observed at each position."""
        return np.asarray((self.seen[0] >= 0).any(dim=1).numpy())

    @torch.no_grad()
    def attention(self, channels: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return how much attention each (sensor, name) of ``channels`` received (M, K), here and around."""
        located = self.model.locate(
            self.atoms,
            self.geometry,
            self.positions_M2,
            sites=self.named,
            neighbors=self.neighbors,
            footprint_m=self.footprint_m,
        )
        explanation = self.model.explain(self.latents, [located])[0]
        shares_MK = ((explanation.here + explanation.around) / 2).cpu().numpy()
        total = np.zeros((len(shares_MK), len(channels)), dtype=np.float32)
        np.add.at(total.T, [channels.index((c.sensor, c.name)) for c in explanation.channels], shares_MK.T)
        return total


class WindowPredictor(Predictor):
    """Predicts with a model that has no latents to decode: the first query predicts at all positions."""

    def __init__(
        self, model: Model, atoms: AtomSet, where: Grid | Tensor, *, sites: SitesOfQueries | None, cost: Cost
    ) -> None:
        self.positions_M2 = where.positions() if isinstance(where, Grid) else where
        shape = where.shape if isinstance(where, Grid) else (len(self.positions_M2),)
        super().__init__(shape, model.task_spec.num_outputs, not model.task_spec.regression)
        self.model, self.atoms, self.named = model, atoms, sites or {}
        self.inputs = model.preparer()(atoms, queries_at(self.positions_M2, self.named), cost)

    @torch.no_grad()
    def decode(self, indices: Tensor) -> Tensor:
        """Return the outputs (n, C) at the positions of these indices (n,)."""
        return probabilities(self.model.predict([self.inputs])[0], self.classes)[indices]

    def flops(self, decoded: int) -> float:
        """Return the FLOPs of the whole prediction, however many positions are queried."""
        return self.model.flops([self.inputs])

    @property
    def seen_M(self) -> NDArray[np.bool_]:
        """Whether anything was observed at each position."""
        seen_M = np.zeros(len(self.positions_M2), dtype=bool)
        for number, acquisition in enumerate(self.atoms):
            if number in self.named:
                seen_M |= self.named[number].numpy() >= 0
                continue
            footprint = acquisition.footprint_m or (0.0, 0.0)
            sites_P2, occupied_P = acquisition.positions.numpy(), acquisition.occupied().cpu().numpy()
            seen_M |= colocated_sites(self.positions_M2.numpy(), sites_P2, occupied_P, footprint) >= 0
        return seen_M


class RecordedPredictor(Predictor):
    """Shows what a strategy would do, with the outputs of another predictor, which decodes only what it lacks."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor.shape, predictor.outputs_MC.shape[1], predictor.classes)
        self.predictor, self.sketches = predictor, predictor.sketches

    def decode(self, indices: Tensor) -> Tensor:
        """Return the outputs (n, C) of the other predictor at the positions of these indices (n,)."""
        self.predictor.query(indices)
        return self.predictor.outputs_MC[indices]

    def flops(self, decoded: int) -> float:
        """Return the FLOPs that decoding so many positions would have taken."""
        return self.predictor.flops(decoded)

    @property
    def zone_M(self) -> Tensor:
        """The number of the nearest latent of each position."""
        return self.predictor.zone_M

    @property
    def observed_MF(self) -> Tensor:
        """Each position and what was observed there, NaN where nothing was."""
        return self.predictor.observed_MF


def probabilities(outputs: Tensor, classes: bool) -> Tensor:
    """Return logits (n, C) as probabilities; values of a regression target stay as they are."""
    outputs = outputs.float().cpu()
    return outputs.softmax(dim=-1) if classes else outputs

"""How a model is decoded, as a user chooses it, and models that predict scene after scene like that: in validation, in
this process, or in the workers of a prediction.

Shapes: M positions, C classes (or 1 regression target), K channels.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Queries
from atomizer_io.decoding.blocks import scene_of
from atomizer_io.decoding.calibration import Calibration, load
from atomizer_io.decoding.predictor import Prediction, Predictor, ScenePredictor, WindowPredictor
from atomizer_io.decoding.strategies import DENSE, STRATEGIES
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, SitesOfQueries
from atomizer_io.models.base import Cost, Model, Preparer, log_probabilities
from atomizer_io.models.registry import load_model
from atomizer_io.models.storage import WEIGHTS, seal_at

KEPT_GEOMETRIES = 4  # windows of one raster look alike
IN_MEMORY = "a model in memory"
NAMES = tuple(name.replace("_", "-") for name in STRATEGIES)
CALIBRATED = "calibrated"  # the strategy of the operating point that alpha needs, not looked up yet


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a model is decoded.

    ``alpha`` alone sets the whole cost: it is the share of positions that may differ from the model's own dense
    prediction, and needs a model that was calibrated for it. A strategy beside it takes the calibration of that
    strategy. Without alpha, the strategy ``dense``, the default, decodes every position; ``quadtree``, ``zone-probe``
    and ``sketch`` decode fewer, for models that predict at any position; ``cost`` then limits the computation.
    ``calibration`` is what alpha came to: :meth:`checked` looks it up.
    """

    strategy: str = ""
    alpha: float | None = None
    cost: Cost = field(default_factory=Cost)
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        usual = DENSE if self.alpha is None else CALIBRATED
        object.__setattr__(self, "strategy", self.strategy.replace("_", "-") or usual)
        if self.strategy not in NAMES and not (self.strategy == CALIBRATED and self.alpha is not None):
            raise ConfigError(f"decode {self.strategy!r} is not known; use {', '.join(NAMES)}")
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigError(f"alpha must lie between 0 and 1, got {self.alpha:g}")
        if self.alpha is not None and self.cost.max_points is not None:
            raise ConfigError("alpha is promised for the model's own number of points: leave out max_points, or alpha")

    @property
    def dense(self) -> bool:
        """Whether every position is decoded."""
        return self.strategy == DENSE

    def decode(self, predictor: Predictor) -> Prediction:
        """Decode where the strategy must: with the settings that were calibrated, or else its usual ones."""
        if self.calibration is not None:
            return self.calibration.point.decode(predictor)
        return STRATEGIES[self.strategy.replace("-", "_")].decode(predictor)

    def options(self) -> dict[str, Any]:
        """Return what was chosen by the names of the command line."""
        return {
            "--decode": self.strategy,
            "--alpha": self.alpha,
            "--kappa": self.cost.atoms_per_latent,
            "--budget": self.cost.budget,
            "--neighbors": self.cost.neighbors,
            "--max-points": self.cost.max_points,
        }

    def checked(self, model: Model, folder: Path | None) -> Decoding:
        """Refuse a model that cannot be decoded like this; look up the calibration in its folder that alpha needs.

        ``folder`` is None for a model in memory, which has none.
        """
        called = "alpha" if self.strategy == CALIBRATED else f"decode {self.strategy}"
        cheaper = self.strategy != DENSE or self.alpha is not None
        if cheaper and not model.capabilities.anywhere:
            also = " and alpha" if self.alpha is not None and called != "alpha" else ""
            raise ConfigError(
                f"{model.preset or model.family} predicts at all positions at once: {called}{also} is for "
                "models that encode a scene and then predict anywhere; use dense"
            )
        if cheaper and not model.task_spec.dense:
            raise ConfigError(f"{called} is for predictions at positions; a {model.task_spec.task} has one")
        model.check_cost(self.cost)
        if self.alpha is None:
            return self
        if folder is None or not folder.is_dir():
            raise ConfigError("alpha needs the calibration in the folder of a model: pass that folder as the model")
        stored = load(
            folder,
            self.alpha,
            model,  # type: ignore[arg-type]  # all that predicts anywhere
            strategy=None if self.strategy == CALIBRATED else self.strategy.replace("-", "_"),
            cost=self.cost,
        )
        if stored.warning is not None:
            warnings.warn(stored.warning, stacklevel=2)
        return Decoding(stored.point.strategy, self.alpha, stored.point.cost, stored)

    def check_no_grid(self, positions: str) -> None:
        """Refuse a quadtree where there is no grid; ``positions`` is what there is instead."""
        if self.strategy == CALIBRATED or not STRATEGIES[self.strategy.replace("-", "_")].needs_grid:
            return
        if self.alpha is not None:
            raise ConfigError(
                f"alpha {self.alpha:g} was calibrated to a {self.strategy}, which needs a grid; {positions} have none: "
                "calibrate another strategy (`atomizer calibrate --decode sketch`) and name it with --decode"
            )
        raise ConfigError(
            f"a {self.strategy} needs a grid, which {positions} do not have: use dense, zone-probe or sketch"
        )


class SceneDecoder:
    """Makes the predictor of each scene that one model is to predict; several threads may share it."""

    def __init__(self, model: Model) -> None:
        self.model, self._lock = model, threading.Lock()
        config: Any = getattr(model, "config", None)
        self._cache = GeometryCache(config, KEPT_GEOMETRIES) if model.capabilities.anywhere else None

    def predictor(
        self,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        cost: Cost = Cost(),
        seed: int = 0,
        sites: SitesOfQueries | None = None,
        footprint_m: Footprint | None = None,
        vectors: bool = False,
    ) -> ScenePredictor | WindowPredictor:
        """Encode or prepare a scene, to be decoded at ``where``; ``seed`` samples the atoms that the budget keeps.

        ``sites`` names, by acquisition, the site (M,) that each position sees, −1 for none. The footprint of a position
        is the pixel where ``where`` is a grid, unless another is given. With ``vectors`` outputs are features.
        """
        if self._cache is None:
            return WindowPredictor(self.model, atoms, where, sites=sites, cost=cost)
        with self._lock:
            geometry = self._cache.geometry(atoms, atoms_per_latent=cost.atoms_per_latent, max_points=cost.max_points)
        how: dict[str, Any] = {"cost": cost, "seed": seed, "sites": sites, "footprint_m": footprint_m}
        how["vectors"] = vectors
        model: Any = self.model
        return ScenePredictor.encode(model, atoms, where, geometry=geometry, **how)


class BatchDecoder:
    """Predicts the batches of an evaluation, and counts the positions that were decoded.

    Dense predictions are made of inputs that loader workers prepared, all samples of a batch together; other strategies
    decode sample by sample.
    """

    def __init__(self, model: Model, decoding: Decoding = Decoding()) -> None:
        self.model, self.decoding = model, decoding
        self.scenes, self.decoded, self.positions = 0, 0, 0
        self.scene_decoder = None if decoding.dense else SceneDecoder(model)

    def preparer(self) -> Preparer:
        """Return what prepares samples in the workers; those that are decoded sparsely are encoded here."""
        return self.model.preparer() if self.scene_decoder is None else prepare_nothing

    @torch.no_grad()
    def __call__(self, batch: Any) -> Tensor:
        """Return the outputs (M, C) for all targets of a batch: logits (or logarithms), or regression targets."""
        if self.scene_decoder is None:
            outputs = self.model.predict(batch.inputs)
            return torch.cat(outputs) if self.model.task_spec.dense else torch.stack(outputs)
        return torch.cat([self._decoded(self.scene_decoder, sample) for sample in batch.samples])

    def contexts(self, batch: Any) -> list[Tensor | None]:
        """Return which queries of each sample look at a point of the context, as far as the model knows."""
        return [self.model.in_context(inputs) if self.scene_decoder is None else None for inputs in batch.inputs]

    @property
    def share(self) -> float | None:
        """The share of positions that were decoded; None where all are."""
        return None if self.scene_decoder is None else self.decoded / max(1, self.positions)

    def _decoded(self, scene_decoder: SceneDecoder, sample: Any) -> Tensor:
        atoms, where, sites, footprint_m = scene_of(sample)
        how: dict[str, Any] = {"cost": self.decoding.cost, "sites": sites, "footprint_m": footprint_m}
        prediction = self.decoding.decode(scene_decoder.predictor(atoms, where, seed=self.scenes, **how))
        self.scenes += 1
        self.decoded += prediction.decoded
        self.positions += prediction.queried.numel()
        outputs = prediction.outputs.reshape(prediction.queried.numel(), -1)
        return log_probabilities(outputs) if prediction.classes else outputs


def prepare_nothing(
    atoms: AtomSet, queries: Queries | None, cost: Cost = Cost(), generator: torch.Generator | None = None
) -> None:
    """Prepare nothing: the sample itself is decoded."""


class SceneOutputs(NamedTuple):
    """Outputs (M, C) at positions: probabilities, or a regression target; ``seen_M``: where anything was observed.

    ``decoded`` counts the positions that were decoded; ``attention_MK`` is the share of each channel.
    """

    values_MC: NDArray[np.float32]
    seen_M: NDArray[np.bool_]
    decoded: int
    attention_MK: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The folder of a model and how it is decoded: small enough to be sent to every worker, which loads it once.

    ``seal`` is the digest of the folder, None for a model in memory or without one. With ``vectors`` the outputs are
    the features that the last layer reads.
    """

    folder: str
    decoding: Decoding
    seal: str | None = None
    vectors: bool = False

    @classmethod
    def of(
        cls, model: Model | str | Path, decoding: Decoding, report: Callable[[str], None] = lambda line: None
    ) -> tuple[Model, SavedModel]:
        """Load a model, check that it can be decoded like this, and report the promise of its calibration."""
        folder = Path(IN_MEMORY) if isinstance(model, Model) else Path(model)
        if folder.is_dir():
            folder = folder.absolute()  # workers may run elsewhere
        own = model if isinstance(model, Model) else loaded(str(folder))
        stored = None if isinstance(model, Model) else folder
        decoding = decoding.checked(own, stored)
        if decoding.calibration is not None:
            report(f"calibrated: {decoding.calibration.stated}")
        return own, cls(str(folder), decoding, None if stored is None else seal_at(stored))

    @property
    def model(self) -> Model:
        """The model, read once per process."""
        return loaded(self.folder)

    def maker(self) -> Mapping[str, str]:
        """Return which model makes a product, for its metadata: name and seal."""
        seal = {} if self.seal is None else {"model_seal": self.seal}
        return {"model": Path(self.folder).name, **seal}

    def stored(self, model: Model | str | Path, folder: Path) -> SavedModel:
        """Return the same with a folder that workers can load; a model in memory is saved to ``folder``."""
        if not isinstance(model, Model):
            return self
        model.save_pretrained(folder)
        return replace(self, folder=str(folder))

    def predict(
        self,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        seed: int = 0,
        attention: Sequence[tuple[str, str]] = (),
        sites: SitesOfQueries | None = None,
        footprint_m: Footprint | None = None,
    ) -> SceneOutputs:
        """Predict at the pixels of a grid or at positions (M, 2), in metres in the frame of ``atoms``.

        ``attention`` lists the channels, by (sensor, name), whose attention is wanted; for the other options see
        :meth:`SceneDecoder.predictor`.
        """
        how: dict[str, Any] = {"cost": self.decoding.cost, "seed": seed, "sites": sites, "footprint_m": footprint_m}
        predictor = scene_decoder(self.folder).predictor(atoms, where, vectors=self.vectors, **how)
        prediction = self.decoding.decode(predictor)
        values_MC = prediction.outputs.reshape(len(predictor.positions_M2), -1).numpy()
        shares_MK = predictor.attention(attention) if attention and isinstance(predictor, ScenePredictor) else None
        return SceneOutputs(values_MC, predictor.seen_M, prediction.decoded, shares_MK)


def loaded(folder: str) -> Model:
    """Return the model of a folder, read once per process as long as its file does not change."""
    return scene_decoder(folder).model


def scene_decoder(folder: str) -> SceneDecoder:
    """Return what decodes with the model of a folder; where weights come from elsewhere, they do not change."""
    weights = Path(folder) / WEIGHTS
    return _scene_decoder(folder, weights.stat().st_mtime_ns if weights.exists() else 0)


@functools.lru_cache(maxsize=2)
def _scene_decoder(folder: str, stamp: int) -> SceneDecoder:
    return SceneDecoder(load_model(folder).eval())

"""A model as the workers of a prediction use it: loaded once per process, asked as the user chose.

A model that answers anywhere encodes a window once and is then asked by a strategy; any other prepares the window and
answers at all positions.

Shapes: M positions, C classes (or 1 quantity), K channels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import queries_at
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.choice import Decoding, calibration_for
from atomizer_io.decoding.scenes import SceneReader, attention_of, read_out
from atomizer_io.models.base import Cost, Model
from atomizer_io.models.registry import load_model
from atomizer_io.models.sites import colocated_sites
from atomizer_io.models.storage import WEIGHTS, seal_at

IN_MEMORY = "a model in memory"


class WindowAnswers(NamedTuple):
    """What a worker returns of a window: its numbers, and at how many positions the model was asked for them."""

    values: NDArray[Any]
    asked: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Answers (M, C) at positions: probabilities, or a quantity in its unit; ``seen_M``: where anything was observed.

    ``asked`` counts the positions at which the model was asked; ``attention_MK`` is the share of each channel.
    """

    values_MC: NDArray[np.float32]
    seen_M: NDArray[np.bool_]
    asked: int
    attention_MK: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class ReadOut:
    """The folder of a model and how it is asked: small enough to be sent to every worker.

    ``calibration`` is the one that keeps ``decoding.alpha``, and ``decoding`` has its strategy and cost; without it a
    strategy uses its usual settings. ``seal`` is the digest of the folder, None for a model in memory or without one.
    """

    folder: str
    decoding: Decoding
    calibration: Calibration | None = None
    seal: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return how the model is asked as plain values; which model it is, its fingerprint says."""
        found = {**asdict(self), "folder": None}
        del found["seal"]  # calibrations that are added meanwhile change no prediction
        return found

    def maker(self) -> dict[str, str]:
        """Return which model makes a product, for its metadata: name and seal."""
        seal = {} if self.seal is None else {"model_seal": self.seal}
        return {"model": Path(self.folder).name, **seal}

    def stored(self, model: Model | str | Path, place: Callable[[], Path]) -> ReadOut:
        """Return the same with a folder that workers can load; a model in memory is saved to ``place()``."""
        if not isinstance(model, Model):
            return self
        folder = place()
        model.save_pretrained(folder)
        return replace(self, folder=str(folder))

    def ask(
        self,
        atoms: AtomSet,
        where: Grid | Tensor,
        *,
        sites: Mapping[int, Tensor] | None = None,
        seed: int = 0,
        attention: Sequence[tuple[str, str]] = (),
        footprint_m: tuple[float, float] | None = None,
    ) -> Reading:
        """Answer at the pixels of a grid or at positions (M, 2), in metres in the frame of ``atoms``.

        ``sites`` names, by acquisition, the site (M,) that each position sees, −1 for none. ``seed`` is for the atoms
        that a budget leaves out. ``attention`` lists the channels, by (sensor, name), whose attention is wanted.
        ``footprint_m`` is what positions stand for, along x and y; the pixels of a grid stand for themselves.
        """
        model = loaded(self.folder)
        if not model.capabilities.anywhere:
            return _answered(model, atoms, where, sites or {}, self.decoding.cost)
        predictor = reader(self.folder).encoded(
            atoms, where, sites=sites, cost=self.decoding.cost, seed=seed, footprint_m=footprint_m
        )
        found = read_out(predictor, self.decoding.strategy.replace("-", "_"), self.calibration)
        values_MC = found.outputs.reshape(len(predictor.positions_M2), -1).numpy()
        seen_M = (predictor.sites_MA >= 0).any(dim=1).numpy()
        return Reading(values_MC, seen_M, found.decoded, attention_of(predictor, attention) if attention else None)


def chosen(model: Model | str | Path, decoding: Decoding) -> tuple[Model, ReadOut]:
    """Load a model, check that it can be read out like this, and look up the calibration for ``alpha``."""
    folder = Path(IN_MEMORY) if isinstance(model, Model) else Path(model)
    if folder.is_dir():
        folder = folder.absolute()  # workers may run elsewhere
    own = model if isinstance(model, Model) else loaded(str(folder))
    stored = None if isinstance(model, Model) else folder
    calibration = calibration_for(own, decoding, stored)
    seal = None if stored is None else seal_at(stored)
    return own, ReadOut(str(folder), decoding.at(calibration), calibration, seal)


def name_of(model: Model) -> str:
    """Return what a model is called in messages."""
    return model.preset or model.family


def loaded(folder: str) -> Model:
    """Return the model of a folder, read once per process as long as its file does not change."""
    return _loaded(folder, _stamp(folder))


def reader(folder: str) -> SceneReader:
    """Return what encodes scenes with the model of a folder, made once per process."""
    return _reader(folder, _stamp(folder))


@functools.lru_cache(maxsize=2)
def _loaded(folder: str, stamp: int) -> Model:
    model: Model = load_model(folder).eval()
    return model


@functools.lru_cache(maxsize=2)
def _reader(folder: str, stamp: int) -> SceneReader:
    model: Any = _loaded(folder, stamp)
    return SceneReader(model)


def _stamp(folder: str) -> int:
    """Return when the weights were written; 0 where they come from elsewhere."""
    weights = Path(folder) / WEIGHTS
    return weights.stat().st_mtime_ns if weights.exists() else 0


@torch.no_grad()
def _answered(model: Model, atoms: AtomSet, where: Grid | Tensor, sites: Mapping[int, Tensor], cost: Cost) -> Reading:
    """Return the answers of a model that prepares a scene and answers at all positions."""
    positions_M2 = where.positions() if isinstance(where, Grid) else where
    inputs = model.preparer()(atoms, queries_at(positions_M2, sites), cost)
    answers_MC = model.predict([inputs])[0].float().cpu()
    if not model.task_spec.regression:
        answers_MC = answers_MC.softmax(dim=-1)
    return Reading(answers_MC.numpy(), _seen(positions_M2, atoms, sites), len(positions_M2))


def _seen(positions_M2: Tensor, atoms: AtomSet, sites: Mapping[int, Tensor]) -> NDArray[np.bool_]:
    """Return at which positions (M,) any acquisition observed anything."""
    seen_M = np.zeros(len(positions_M2), dtype=bool)
    for number, acquisition in enumerate(atoms):
        if number in sites:
            seen_M |= sites[number].numpy() >= 0
            continue
        footprint = acquisition.footprint_m or (0.0, 0.0)
        where, occupied = acquisition.positions.numpy(), acquisition.occupied().cpu().numpy()
        seen_M |= colocated_sites(positions_M2.numpy(), where, occupied, footprint) >= 0
    return seen_M

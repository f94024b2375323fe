"""A model as a worker of prediction uses it: loaded once per process, read out as the user chose."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from atomizer_io.atoms import AtomSet
from atomizer_io.decoding.asking import Prediction, SceneAsker
from atomizer_io.decoding.calibration import STRATEGIES, Calibration, load
from atomizer_io.errors import ConfigError
from atomizer_io.inputs import check_count
from atomizer_io.models.atomizer.atomizer import AtomizerIO, Latents
from atomizer_io.models.atomizer.cache import GeometryCache
from atomizer_io.models.storage import WEIGHTS

LOCK = threading.Lock()
NAMES = ("dense", *(name.replace("_", "-") for name in STRATEGIES))


class Answers(NamedTuple):
    """What a worker returns of a window: the numbers, and at how many positions the model was asked for them."""

    values: NDArray[Any]
    asked: int


@dataclass(frozen=True, slots=True)
class ReadOut:
    """Which model, and how it is asked: the compute controls of the paper.

    ``calibration`` fixes the strategy's settings and margin; without it they are the usual ones of the strategy.
    """

    folder: str
    strategy: str = "dense"
    calibration: Calibration | None = None
    atoms_per_latent: int | None = None
    budget: int | None = None
    neighbors: int | None = None

    @classmethod
    def of(cls, folder: Path, decode: str, alpha: float | None, **counts: int | None) -> ReadOut:
        """For the model of a folder; see :meth:`chosen`."""
        return cls.chosen(loaded(str(folder)), folder, decode, alpha, **counts)

    @classmethod
    def chosen(
        cls,
        model: AtomizerIO,
        folder: Path,
        decode: str,
        alpha: float | None,
        *,
        atoms_per_latent: int | None = None,
        budget: int | None = None,
        neighbors: int | None = None,
    ) -> ReadOut:
        """Check the choice, and look up the calibration that ``alpha`` asks for."""
        check_choice(decode, alpha, atoms_per_latent=atoms_per_latent, budget=budget, neighbors=neighbors)
        strategy, calibration = decode.replace("-", "_"), None
        if alpha is not None:
            if not folder.is_dir():
                raise ConfigError("alpha needs the calibration in the folder of a model: pass that folder as the model")
            how = {"atoms_per_latent": atoms_per_latent, "neighbors": neighbors}
            calibration = load(folder, alpha, model, strategy=strategy, **how)
        return cls(str(folder), strategy, calibration, atoms_per_latent, budget, neighbors)

    def encode(self, atoms: AtomSet, seed: int = 0) -> Latents:
        """Latents of one scene."""
        model = loaded(self.folder)
        with LOCK:  # a Dask worker may have several threads
            geometry = caches(self.folder).geometry(atoms, atoms_per_latent=self.atoms_per_latent)
        generator = None if self.budget is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            return model.encode([atoms], geometry=[geometry], budget=self.budget, generator=generator)

    def asker(self, latents: Latents, where: Any, **how: Any) -> SceneAsker:
        """For :meth:`read`."""
        return SceneAsker(loaded(self.folder), latents, where, neighbors=self.neighbors, **how)

    def read(self, asker: SceneAsker) -> Prediction:
        """Ask everywhere, or where the strategy thinks that it must."""
        if self.strategy == "dense":
            return asker.ask_everywhere()
        if self.calibration is not None:
            return self.calibration.guide(asker)
        strategy = STRATEGIES[self.strategy]
        return strategy.guide(asker, **strategy.usual, margin=0.0, tolerance=0.0)


def check_choice(decode: str, alpha: float | None, **counts: int | None) -> None:
    """Refuse what no model can be asked like, before one is loaded."""
    strategy = decode.replace("-", "_")
    if strategy != "dense" and strategy not in STRATEGIES:
        raise ConfigError(f"decode {decode!r} is not known; use {', '.join(NAMES)}")
    if alpha is not None and strategy == "dense":
        raise ConfigError(f"alpha is about cheaper ways to decode: pass decode= {' or '.join(NAMES[1:])} as well")
    for name, number in counts.items():
        if number is not None:
            check_count(name, number)
    if alpha is not None and counts.get("budget") is not None:
        raise ConfigError("alpha is promised for whole cells: leave out the budget, or alpha")


def loaded(folder: str) -> AtomizerIO:
    """The model of a folder, once per process as long as its file does not change."""
    return _loaded(folder, _stamp(folder))


def caches(folder: str) -> GeometryCache:
    """Geometry of windows that look alike, once per process."""
    return _caches(folder, _stamp(folder))


@functools.lru_cache(maxsize=2)
def _loaded(folder: str, stamp: int) -> AtomizerIO:
    return AtomizerIO.from_pretrained(folder).eval()


@functools.lru_cache(maxsize=2)
def _caches(folder: str, stamp: int) -> GeometryCache:
    return GeometryCache(_loaded(folder, stamp).config, entries=4)


def _stamp(folder: str) -> int:
    """When the weights were written; 0 where they come from elsewhere."""
    weights = Path(folder) / WEIGHTS
    return weights.stat().st_mtime_ns if weights.exists() else 0


def on_disk(model: AtomizerIO | str | Path, place: Callable[[], Path]) -> Path:
    """The folder of a model; one that is only in memory is saved to ``place()``."""
    if not isinstance(model, AtomizerIO):
        return Path(model).absolute() if Path(model).is_dir() else Path(model)
    folder = place()
    model.save_pretrained(folder)
    return folder

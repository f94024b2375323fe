"""How sure probes must be, so that cheap decoding differs from dense decoding by no more than was promised.

Conformal risk control (Angelopoulos et al., 2022). The loss of a scene at margin λ is the share of its positions whose
answer differs from dense decoding; no labels are needed. A larger margin asks more, but not always to advantage: the
quarters of a square may be wrong where the square was right. So the loss is made monotone, L̃(λ) = max over λ' ≥ λ of
L(λ'), and the smallest λ is taken with

    (ΣL̃ᵢ(λ) + 1) / (n + 1) ≤ alpha    over the n calibration scenes.

If a new scene is exchangeable with these (drawn from the same kind of scenes, in no order), its expected loss is at
most alpha. That is a promise about the mean over scenes, not about each. Where no margin keeps it, and always with
fewer than 1/alpha − 1 scenes, the answer is λ = ∞, which is dense decoding.

What else a strategy can vary (size of the first squares, number of probes, spacing) is chosen for the least work on a
third of the scenes, drawn at random, which then have no part in the choice of λ: choosing both on the same scenes would
void the promise.
"""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.atoms import AtomSet
from atomizer_io.decoding.asker import Asker, Prediction, RecordedAsker, SceneAsker
from atomizer_io.decoding.sketching import sketch_rest
from atomizer_io.decoding.strategies import probe_squares, probe_zones
from atomizer_io.errors import ConfigError
from atomizer_io.models.atomizer.atomizer import AtomizerIO, Latents
from atomizer_io.models.atomizer.queries import SitesOfQueries
from atomizer_io.models.storage import CALIBRATION, fingerprint
from atomizer_io.progress import progress_bar

STRICTNESS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
CHOOSING = 3  # one scene in three chooses between the settings

Floats = NDArray[np.float64]
Settings = Mapping[str, int]


class Scenes(Protocol):
    """The scenes to calibrate on: a list or a dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to decode: how an asker is guided through it, its usual settings, and those worth trying."""

    guide: Callable[..., Prediction]
    usual: Settings
    settings: tuple[Settings, ...]


STRATEGIES = {
    "quadtree": Strategy(
        probe_squares,
        {"start": 32, "probes": 4},
        tuple({"start": s, "probes": k} for s in (8, 16, 32) for k in (4, 9)),
    ),
    "zone_probe": Strategy(probe_zones, {"probes": 4}, tuple({"probes": k} for k in (4, 9, 13))),
    "sketch": Strategy(sketch_rest, {"spacing": 5}, tuple({"spacing": s} for s in (4, 5, 6, 8))),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One margin of the calibration curve: means over the calibration scenes."""

    margin: float
    tolerance: float
    differing: float  # share of positions, made monotone
    bound: float  # what is promised at this margin
    decoded: float  # share of positions


@dataclass(frozen=True, slots=True)
class Calibration:
    """An operating point with its promise: at most ``alpha`` of the positions differ from dense decoding on average.

    For a quantity a position differs when it is more than ``precision`` away. It holds for the numbers of atoms per
    latent and of neighbors named here, and was found on ``scenes`` scenes.
    """

    model: str  # fingerprint of its weights and settings
    alpha: float
    strategy: str
    settings: Settings
    margin: float
    tolerance: float
    precision: float | None
    scenes: int
    atoms_per_latent: int
    neighbors: int
    curve: tuple[Point, ...]

    @property
    def dense(self) -> bool:
        """Return whether nothing less than dense decoding keeps the promise."""
        return math.isinf(self.margin)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what sets one calibration apart from another of the same model."""
        return (self.strategy, self.alpha, self.precision or 0.0, self.atoms_per_latent, self.neighbors)

    def decode(self, model: AtomizerIO, latents: Latents, where: Any, **how: Any) -> Prediction:
        """Decode at this operating point; the arguments are those of :func:`~atomizer_io.decoding.dense`."""
        neighbors = how.get("neighbors") or model.config.neighbors
        if neighbors != self.neighbors:
            raise ConfigError(
                f"the calibration is for {self.neighbors} neighbors, but {neighbors} are asked for: calibrate again"
            )
        return self.guide(SceneAsker(model, latents, where, **how))

    def guide(self, asker: Asker) -> Prediction:
        """Guide an asker through the scene at this operating point and return its answers."""
        rule = {"margin": self.margin, "tolerance": self.tolerance}
        return STRATEGIES[self.strategy].guide(asker, **self.settings, **rule)

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        rule = f"tolerance {self.tolerance:.4g}" if self.precision is not None else f"margin {self.margin:.4g}"
        lines = [f"{self.strategy}: {'dense' if self.dense else rule}, {chosen}; {self.scenes} scenes"]
        lines += [f"{'margin':>10}{'tolerance':>11}{'differing':>11}{'promised':>10}{'decoded':>9}"]
        lines += [
            f"{p.margin:10.5f}{p.tolerance:11.4g}{p.differing:11.5f}{p.bound:10.5f}{p.decoded:9.3f}" for p in self.curve
        ]
        return "\n".join(lines)

    def save(self, folder: str | Path) -> None:
        """Store the calibration in the folder of its model, in place of one with the same key."""
        try:
            others = [c for c in load_all(folder) if c.key != self.key and c.model == self.model]
        except ConfigError:  # those of another version are of no use any more
            others = []
        rows = [dataclasses.asdict(c) for c in sorted([*others, self], key=lambda c: c.key)]
        document = [{**row, "margin": None if math.isinf(row["margin"]) else row["margin"]} for row in rows]
        path = Path(folder) / CALIBRATION
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        new.replace(path)


def load_all(folder: str | Path) -> list[Calibration]:
    """Return the calibrations stored in the folder of a model."""
    path = Path(folder) / CALIBRATION
    if not path.is_file():
        return []
    try:
        found = []
        for row in json.loads(path.read_text(encoding="utf-8")):
            curve = tuple(Point(**point) for point in row["curve"])
            margin = math.inf if row["margin"] is None else row["margin"]
            found.append(Calibration(**{**row, "curve": curve, "margin": margin}))
        return found
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is damaged or of another version ({error}): run `atomizer calibrate` again"
        ) from error


def load(
    folder: str | Path,
    alpha: float,
    model: AtomizerIO,
    *,
    strategy: str = "quadtree",
    atoms_per_latent: int | None = None,
    neighbors: int | None = None,
) -> Calibration:
    """Return the calibration stored with ``model`` that has the largest alpha not above ``alpha``."""
    kappa, k = atoms_per_latent or model.config.atoms_per_latent, neighbors or model.config.neighbors
    here, mark = [c for c in load_all(folder) if c.strategy == strategy], fingerprint(model)
    kept = [c for c in here if (c.atoms_per_latent, c.neighbors) == (kappa, k) and c.alpha <= alpha]
    again = f"run `atomizer calibrate {folder} --alpha {alpha:g}`"
    if kept and not any(c.model == mark for c in kept):
        raise ConfigError(f"{folder} was calibrated with other weights or settings than it has now: {again}")
    kept = [c for c in kept if c.model == mark]
    if not kept:
        stored = ", ".join(f"alpha {c.alpha:g} at κ {c.atoms_per_latent}, {c.neighbors} neighbors" for c in here)
        raise ConfigError(
            f"{folder} has no calibration of {strategy} for alpha {alpha:g} at κ {kappa} and {k} neighbors "
            f"(stored: {stored or 'none'}): {again}"
        )
    return max(kept, key=lambda c: (c.alpha, -(c.precision or 0.0)))


def calibrate(
    model: AtomizerIO,
    scenes: Scenes,
    alpha: float = 0.01,
    *,
    strategy: str = "quadtree",
    settings: Sequence[Settings] | None = None,
    precision: float | None = None,
    atoms_per_latent: int | None = None,
    neighbors: int | None = None,
    progress: bool = False,
) -> Calibration:
    """Find the cheapest setting of ``strategy`` at which at most ``alpha`` of positions differ from dense decoding.

    ``scenes`` is a list of pairs of atoms and a grid (or positions, but not for a quadtree), or a dataset. ``settings``
    are those to choose from; with a single one, all scenes choose the margin. ``precision`` says when two values of a
    quantity differ, in its unit.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha must lie between 0 and 1, got {alpha}")
    if strategy not in STRATEGIES:
        raise ConfigError(f"strategy {strategy!r} is not known; use {', '.join(STRATEGIES)}")
    if model.problem.task == "regression" and not (precision is not None and precision > 0):
        raise ConfigError("the model predicts a quantity: say with precision= when two values differ, in its unit")
    candidates = STRATEGIES[strategy].settings if settings is None else settings
    count = len(scenes)
    if not count:
        raise ConfigError("there are no scenes to calibrate on: pass a dataset, or a list of (atoms, grid)")
    bar = progress_bar(count, title=f"calibrating {strategy}", unit=" scenes", show=progress, stay=False)

    def tried(numbers: Sequence[int], candidates: Sequence[Settings]) -> Floats:
        """Return the shares (2, settings, scenes, rules) of these scenes, those that differ made monotone."""
        shares = []
        for number in numbers:
            bar.update()
            scene = scenes[number]
            if not scene:  # one that could not be read
                continue
            atoms, where, sites = scene_of(scene)
            if atoms.num_atoms:
                latents = model.encode([atoms], atoms_per_latent=atoms_per_latent)
                asker = SceneAsker(model, latents, where, sites=sites, neighbors=neighbors)
                shares.append(trial(asker, STRATEGIES[strategy], candidates, precision))
        if not shares:
            raise ConfigError(f"nothing was observed in any of {len(numbers)} scenes: pass scenes with valid atoms")
        differing, decoded = np.stack(shares, axis=2)
        return np.stack([np.maximum.accumulate(differing[..., ::-1], axis=-1)[..., ::-1], decoded])

    order = np.random.default_rng(0).permutation(count).tolist()  # the order in which scenes come must not matter
    best, first = candidates[0], count // CHOOSING if len(candidates) > 1 else 0
    with torch.no_grad():
        if first:
            pairs = zip(*tried(order[:first], candidates).mean(axis=2), strict=True)
            work = [_work(risk_V, decoded_V, alpha, count - first) for risk_V, decoded_V in pairs]
            best = candidates[int(np.argmin(work))]
        differing_SV, decoded_SV = tried(order[first:], [best])[:, 0]
    bar.close()
    n, curve = len(differing_SV), _curve(differing_SV, decoded_SV, precision)
    kept = next((point for point in curve if point.bound <= alpha), None)
    if kept is None:
        few = f"alpha {alpha:g} takes at least {math.ceil(1 / alpha - 1)} scenes that choose the margin, not {n}"
        why = few if (n + 1) * alpha < 1 else f"no margin keeps alpha {alpha:g} on these {n} scenes"
        warnings.warn(f"{why}: the calibrated decoding is dense", stacklevel=2)
    return Calibration(
        model=fingerprint(model),
        alpha=alpha,
        strategy=strategy,
        settings=dict(best),
        margin=math.inf if kept is None else kept.margin,
        tolerance=0.0 if kept is None else kept.tolerance,
        precision=precision,
        scenes=n,
        atoms_per_latent=atoms_per_latent or model.config.atoms_per_latent,
        neighbors=neighbors or model.config.neighbors,
        curve=curve,
    )


def scene_of(scene: Any) -> tuple[AtomSet, Any, SitesOfQueries | None]:
    """Return the atoms of a pair or a sample, where to ask, and the sites that are named there."""
    if isinstance(scene, tuple) and len(scene) == 2 and isinstance(scene[0], AtomSet):
        return (*scene, None)
    queries = getattr(scene, "queries", None)
    if queries is None:
        raise ConfigError(f"a scene is a pair of atoms and grid, or a sample with queries, not {type(scene).__name__}")
    return scene.atoms, queries.positions if queries.grid is None else queries.grid, queries.sites


def trial(asker: Asker, strategy: Strategy, candidates: Sequence[Settings], precision: float | None) -> Floats:
    """Return the shares (2, settings, rules) of the positions of one scene that would differ and would be decoded.

    The decoder is called once for the whole scene; the strategies then ask what it answered.
    """
    truth = asker.ask_everywhere()
    shares = np.empty((2, len(candidates), len(STRICTNESS)))
    for c, settings in enumerate(candidates):
        for v, strictness in enumerate(STRICTNESS):
            margin, tolerance = _rule(strictness, precision)
            replayed = strategy.guide(RecordedAsker(asker, truth), **settings, margin=margin, tolerance=tolerance)
            differing = replayed.differs(truth, precision or 0.0)
            shares[:, c, v] = float(differing.double().mean()), replayed.decoded / differing.numel()
    return shares


def _rule(strictness: float, precision: float | None) -> tuple[float, float]:
    """Return margin and tolerance: for classes the margin is the strictness, for a quantity the tolerance shrinks."""
    return (strictness, 0.0) if precision is None else (0.0, (1 - strictness) * precision)


def _bound(risk: Any, scenes: int) -> Any:
    """Return what can be promised after a mean loss of ``risk`` on so many scenes."""
    return (scenes * risk + 1) / (scenes + 1)


def _curve(differing_SV: Floats, decoded_SV: Floats, precision: float | None) -> tuple[Point, ...]:
    risk_V, decoded_V = differing_SV.mean(axis=0), decoded_SV.mean(axis=0)
    return tuple(
        Point(*_rule(strictness, precision), float(risk), float(_bound(risk, len(differing_SV))), float(decoded))
        for strictness, risk, decoded in zip(STRICTNESS, risk_V, decoded_V, strict=True)
    )


def _work(risk_V: Floats, decoded_V: Floats, alpha: float, scenes: int) -> float:
    """Return the share of positions to decode at the least strict rule that keeps the promise with so many scenes."""
    kept = np.flatnonzero(_bound(risk_V, scenes) <= alpha)
    return float(decoded_V[kept[0]]) if len(kept) else 1.0

"""Operating points that keep a promise, stored with their model in ``calibration.json``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.decoding.strategies import STRATEGIES, OperatingPoint, check_point, plain, point_of
from atomizer_io.errors import CheckpointError, ConfigError, check_count, listed
from atomizer_io.locks import alone
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.base import Cost
from atomizer_io.models.seal import digest, seal_of
from atomizer_io.models.storage import CALIBRATION, fingerprint
from atomizer_io.texts import parse_json, read_text, replace_text

VERSION = 3  # 1, a list, had a margin for one strategy at a given κ and k; 2 had no seal
STORED = {"blocks": "squares", "standard_error": "spread", "flops": "operations"}  # old name
SHOWN = 4  # steps that are printed before and after the chosen one
PIXELS, CLASSES = "pixels", "classes"  # promises: of all positions, or of those of every class
SHRUNK = 0.9  # a class that keeps less of its area is warned about


@dataclass(frozen=True, slots=True)
class Step:
    """One operating point that was tested: means over the blocks that tested it.

    ``differing`` is the share of positions that differ, made monotone along the steps, ``bound`` what can be promised,
    both of the worst class where the promise is for each class; ``decoded`` is the share of positions decoded,
    ``flops`` are those of the whole prediction, with the model's own as 1.
    """

    point: OperatingPoint
    differing: float
    bound: float
    decoded: float
    flops: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """An operating point with its promise: on average at most ``alpha`` of the positions differ from the model's own.

    The model's own prediction is dense, from whole cells, with its own κ and k. For a regression target a position
    differs when it is more than ``precision`` away. ``restricted`` is the strategy that was chosen; None left it open.
    The promise was tested on ``blocks`` blocks of ``scenes`` scenes, along the steps of ``curve`` from cheap to
    expensive. ``standard_error`` is that, over the scenes, of the share that differs.

    The ``promise`` is for all positions together (``pixels``), or for those that each class has in the model's own
    prediction (``classes``). ``kept`` is the area of each class on these blocks, with that of the model's own as 1.
    """

    model: str  # fingerprint of its weights and settings
    alpha: float
    restricted: str | None
    point: OperatingPoint
    precision: float | None
    blocks: int
    scenes: int
    standard_error: float
    curve: tuple[Step, ...]
    promise: str = PIXELS
    kept: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what sets one calibration apart from another of the same model."""
        return (self.restricted or "", self.alpha, self.precision or 0.0, self.promise)

    @property
    def stated(self) -> str:
        """Return the promise in words."""
        whose = "the positions of every class" if self.promise == CLASSES else "the positions"
        return f"on average at most {100 * self.alpha:g} % of {whose} differ from dense decoding"

    @property
    def warning(self) -> str | None:
        """Return which classes shrink by more than a tenth, and what to do; None where none does."""
        lost = [f"{name} to {100 * share:.0f} %" for name, share in self.kept.items() if share < SHRUNK]
        if not lost:
            return None
        hint = "--promise classes, which holds for every class, or " if self.promise == PIXELS else ""
        return (
            f"alpha {self.alpha:g} loses classes: on the calibration scenes {listed(lost)} of the area that dense "
            f"decoding gives; calibrate with {hint}a smaller alpha, or decode densely"
        )

    @property
    def step(self) -> Step:
        """Return the step of the operating point."""
        return next(step for step in self.curve if step.point == self.point)

    def __str__(self) -> str:
        lines = [f"{'differing':>10}{'promised':>10}{'decoded':>9}{'FLOPs':>12}  operating point"]
        chosen = self.curve.index(self.step)
        lines += [
            f"{s.differing:10.5f}{s.bound:10.5f}{s.decoded:9.3f}{s.flops:12.4f}  "
            f"{s.point}{'   <- chosen' if s.point == self.point else ''}"
            for number, s in enumerate(self.curve)
            if abs(number - chosen) <= SHOWN or number == len(self.curve) - 1
        ]
        step = self.step
        only = f" with {self.restricted.replace('_', '-')}" if self.restricted else ""
        lines += [
            f"alpha {self.alpha:g}{only}: {self.point}",
            f"{100 * step.flops:.1f} % of the FLOPs of the model's own prediction, from which "
            f"{100 * step.differing:.2f} % ± {100 * self.standard_error:.2f} % of the positions"
            f"{' of the worst class' if self.promise == CLASSES else ''} differ "
            f"({self.blocks} blocks of {self.scenes} scenes)",
        ]
        return "\n".join(lines)

    def save(self, folder: str | Path) -> None:
        """Store the calibration in the folder of its model, in place of one with the same key."""
        with alone(Path(folder)):  # others may calibrate the same model, and theirs are to stay
            try:
                others = [c for c in load_all(folder) if c.key != self.key and c.model == self.model]
            except ConfigError:  # those of another version are of no use any more
                others = []
            rows = []
            for c in sorted([*others, self], key=lambda c: c.key):
                curve = [{**_row(step), "point": plain(step.point)} for step in c.curve]
                rows.append({**_row(c), "point": plain(c.point), "curve": curve, "kept": dict(c.kept)})
            _write(Path(folder) / CALIBRATION, rows)


def seal_again(folder: str | Path) -> None:
    """Seal the calibrations of a model, if there are any, after a change that is meant."""
    path = Path(folder) / CALIBRATION
    if path.is_file():
        with alone(path.parent):
            load_all(folder, sealed=False)  # what is not a calibration stays unsealed
            _write(path, parse_json(read_text(path))["calibrations"])


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    document = {"version": VERSION, "calibrations": rows, "seal": _seal(rows)}
    replace_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _seal(rows: Any) -> str:
    return digest(json.dumps(rows, sort_keys=True))


def _row(values: Step | Calibration) -> dict[str, Any]:
    """Return the fields by the names that files have."""
    return {STORED.get(own.name, own.name): getattr(values, own.name) for own in dataclasses.fields(values)}


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row of a file by their own names."""
    own = {stored: name for name, stored in STORED.items()}
    return {own.get(name, name): value for name, value in row.items()} | {"point": point_of(row["point"])}


def _check(calibration: Calibration) -> None:
    """Refuse numbers that no calibration has; a ValueError names them."""
    shares = {"alpha": calibration.alpha, "standard error": calibration.standard_error}
    shares |= {f"the area of {name}": share for name, share in calibration.kept.items()}
    points = [calibration.point]
    for step in calibration.curve:
        shares |= {f"{name} of a step": getattr(step, name) for name in ("differing", "bound", "decoded", "flops")}
        points.append(step.point)
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < math.inf:
                raise ValueError(f"{name} is {share!r}")
    for point in points:
        check_point(point)
    for name, count in (("blocks", calibration.blocks), ("scenes", calibration.scenes)):
        check_count(name, count)
    if not 0 < calibration.alpha < 1 or not isinstance(calibration.model, str):
        raise ValueError(f"alpha is {calibration.alpha!r}, the model {calibration.model!r}")
    if calibration.promise not in (PIXELS, CLASSES):
        raise ValueError(f"the promise is {calibration.promise!r}")
    if calibration.restricted not in (None, *STRATEGIES):
        raise ValueError(f"the strategy is {calibration.restricted!r}")
    precision = calibration.precision
    if precision is not None and (isinstance(precision, bool) or not 0 < precision < math.inf):
        raise ValueError(f"precision is {precision!r}")
    if all(step.point != calibration.point for step in calibration.curve):
        raise ValueError("the chosen point is not a step of the curve")


def _is_sealed(folder: Path) -> bool:
    """Return whether the model of a folder has a seal: then its calibrations have one, too."""
    try:
        return seal_of(folder) is not None
    except CheckpointError:  # reported where the model is loaded
        return False


def load_all(folder: str | Path, *, sealed: bool = True) -> list[Calibration]:
    """Return the calibrations stored in the folder of a model; a broken seal is refused, version 2 had none."""
    path = Path(folder) / CALIBRATION
    if not path.is_file():
        return []
    again = f"run `atomizer calibrate {folder} --alpha"
    try:
        document = parse_json(read_text(path))
        if isinstance(document, list):
            alphas = sorted({row["alpha"] for row in document})
            raise ConfigError(
                f"{path} is of an older version, whose alpha was for one strategy and not for the whole cost of a "
                f"prediction: {again} {alphas[0] if alphas else 0.01:g}`, which replaces it"
            )
        if document["version"] not in (2, VERSION):
            raise ValueError(f"version {document['version']}")
        if (
            sealed
            and (document["version"] == VERSION or _is_sealed(Path(folder)))
            and document.get("seal") != _seal(document["calibrations"])
        ):
            raise ConfigError(
                f"{path} was changed after it was stored (its seal is broken): {again} ...` again; if the change is "
                f"meant, seal it with `atomizer info {folder} --seal`"
            )
        calibrations = []
        for row in document["calibrations"]:
            curve = tuple(Step(**_of_row(step)) for step in row["curve"])
            calibrations.append(Calibration(**{**_of_row(row), "curve": curve}))
            try:
                _check(calibrations[-1])
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return calibrations
    except ConfigError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise ConfigError(f"{path} is damaged or of another version ({error}): {again} ...` again") from error


def load(
    folder: str | Path, alpha: float, model: AtomizerIO, *, strategy: str | None = None, cost: Cost = Cost()
) -> Calibration:
    """Return the calibration stored with ``model`` that has the largest alpha not above ``alpha``.

    ``strategy`` None takes the one that left the strategy open. One that promises for every class comes before others.
    What ``cost`` names must be what was calibrated.
    """
    stored = load_all(folder)
    here = [c for c in stored if c.restricted == strategy]
    if strategy is not None:  # an open choice may have come to the same strategy
        here += [c for c in stored if c.restricted is None and c.point.strategy == strategy]
    kept = [c for c in here if c.alpha <= alpha]
    only = "" if strategy is None else f" --decode {strategy.replace('_', '-')}"
    again = f"run `atomizer calibrate {folder} --alpha {alpha:g}{only}`"
    mark = fingerprint(model)
    if kept and not any(c.model == mark for c in kept):
        raise ConfigError(f"{folder} was calibrated with other weights or settings than it has now: {again}")
    kept = [c for c in kept if c.model == mark]
    if not kept:
        suffix = "" if strategy is None else f" of {strategy.replace('_', '-')}"
        names = ", ".join(
            f"alpha {c.alpha:g}" + (f" of {c.restricted.replace('_', '-')}" if c.restricted else "") for c in stored
        )
        raise ConfigError(
            f"{folder} has no calibration{suffix} for alpha {alpha:g} (stored: {names or 'none'}): {again}"
        )
    best = max(kept, key=lambda c: (c.promise == CLASSES, c.alpha, c.restricted is not None, -(c.precision or 0.0)))
    check_cost(best, cost)
    return best


def check_cost(calibration: Calibration, cost: Cost) -> None:
    """Refuse a κ, m or k other than the calibrated one: alpha was promised for that."""
    point = calibration.point
    for option, chosen, own in (
        ("--kappa", cost.atoms_per_latent, point.atoms_per_latent),
        ("--budget", cost.budget, point.budget),
        ("--neighbors", cost.neighbors, point.neighbors),
    ):
        if chosen is not None and chosen != own:
            was = "whole cells" if own is None else str(own)
            raise ConfigError(
                f"alpha {calibration.alpha:g} sets the whole cost and was calibrated with {was} for {option}, not "
                f"{chosen}: leave out {option}, or alpha, or run `atomizer calibrate` with {option} {chosen}"
            )

"""Rasters as the page shows them: their pixels as images, and what the model predicts, window by window.

The windows are those of ``atomizer predict``, so that the map on the page is the map that it writes. Each window is
encoded once for each setting of the switches; queries and labels then only decode.

Shapes: H × W pixels of the map, M positions, C classes (or 1 regression target), D width of the features.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.decoding.predictor import ScenePredictor, WindowPredictor
from atomizer_io.decoding.scene_decoder import SceneDecoder
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.io.crs import LocalFrame, moved, shifted
from atomizer_io.io.raster_sources import RasterSource
from atomizer_io.models.base import Model
from atomizer_io.prediction.at_positions import inside
from atomizer_io.prediction.options import Decoding
from atomizer_io.prediction.raster_windows import MapGrid, RasterWindow, ramp
from atomizer_io.prediction.rasters import RasterScene, layout_of, observed
from atomizer_io.viewer.switches import Switches, date_of

LONGEST = 1024  # pixels along a side of the map
KEPT_STATES = 3  # settings of the switches whose latents stay in memory
FEATURE_BYTES = 512 << 20  # of decoded features that stay in memory; others are decoded again
LOW, HIGH = 2.0, 98.0  # percentiles between which a layer is stretched

Floats = NDArray[np.float32]


@dataclass(eq=False)
class OpenWindow:
    """A window of the map with all that was observed in it."""

    window: RasterWindow
    frame: LocalFrame
    grid: Grid
    atoms: AtomSet

    @property
    def slices(self) -> tuple[slice, slice]:
        """The rows and columns of the map that it covers."""
        w = self.window
        return slice(w.top, w.top + w.height), slice(w.left, w.left + w.width)

    @property
    def share_HW1(self) -> Floats:
        """The weight of its pixels where windows are blended."""
        down, across = (ramp(np.arange(n) + 0.5, n) for n in (self.window.height, self.window.width))
        return (down[:, None] * across)[..., None]


@dataclass(eq=False)
class State:
    """What one setting of the switches came to: the predictor of each window, and the features once decoded."""

    predictors: dict[RasterWindow, ScenePredictor | WindowPredictor] = field(default_factory=dict)
    features: dict[RasterWindow, NDArray[np.float16]] = field(default_factory=dict)
    outputs_HWC: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A map (H, W, C), where the decoder was called, how often of all positions, and how long it took."""

    outputs_HWC: Floats
    queried_HW: NDArray[np.bool_]
    decoded: int
    positions: int
    seconds: float


class RasterView:
    """Rasters that are open, with the model that predicts from them; the caller makes one call at a time."""

    def __init__(self, model: Any, rasters: Sequence[Any], bounds: tuple[float, float, float, float] | None = None):
        scene = RasterScene.of(model, rasters)
        in_memory = isinstance(model, Model)
        self.model = model if in_memory else scene.model.model
        self.folder = None if in_memory else Path(scene.model.folder)
        self.rasters, self.spec = list(rasters), scene.task_spec
        grid, self.cropped = shown_part(scene.map_grid, bounds)
        layout = layout_of(grid, float(scene.options["--window"]), float(scene.options["--overlap"]))
        self.scene = replace(scene, map_grid=grid, layout=layout)
        self.grid, self.sources, self.saved = grid, scene.sources, scene.model
        self.windows = self._open()
        self.decoder = SceneDecoder(self.model)
        self.states: OrderedDict[Switches, State] = OrderedDict()
        self.seen_HW = self._seen()

    def _open(self) -> dict[RasterWindow, OpenWindow]:
        """Read what was observed in each window."""
        windows = {}
        for window in self.scene.layout.windows(range(len(self.scene.layout.rows.starts))):
            frame, grid, atoms = observed(self.scene, window)
            if atoms.acquisitions:
                windows[window] = OpenWindow(window, frame, grid, atoms)
        if not windows:
            raise ConfigError("no raster observed anything in this part of the scene: choose another with --bounds")
        return windows

    def _seen(self) -> NDArray[np.bool_]:
        """Return where any raster observed anything."""
        seen_HW = np.zeros((self.grid.height, self.grid.width), bool)
        for source in self.sources:
            seen_HW |= np.isfinite(self.pixels(source, range(len(source.channels)))).any(axis=0)
        return seen_HW

    def state(self, switches: Switches) -> State:
        """Return the state of these switches; of several the latest stay in memory."""
        state = self.states.setdefault(switches, State())
        self.states.move_to_end(switches)
        while len(self.states) > KEPT_STATES:
            self.states.popitem(last=False)
        return state

    def predictor(self, opened: OpenWindow, switches: Switches) -> ScenePredictor | WindowPredictor | None:
        """Return the predictor of a window, which is encoded on first use; None where nothing is left on."""
        state = self.state(switches)
        if opened.window not in state.predictors:
            atoms = switches.kept(opened.atoms)
            if not atoms.num_atoms:
                return None
            seed = opened.window.top * self.grid.width + opened.window.left  # as predict
            state.predictors[opened.window] = self.decoder.predictor(atoms, opened.grid, seed=seed)
        return state.predictors[opened.window]

    def features(self, opened: OpenWindow, switches: Switches) -> Tensor | None:
        """Return the features (M, D) at the pixels of a window that the last layer reads."""
        predictor, state = self.predictor(opened, switches), self.state(switches)
        if not isinstance(predictor, ScenePredictor):
            return None
        if opened.window in state.features:
            return torch.from_numpy(state.features[opened.window]).float()
        features_MD = predictor.embed(torch.arange(len(predictor.positions_M2))).float().cpu()
        if (1 + len(state.features)) * features_MD.numel() * 2 <= FEATURE_BYTES:
            state.features[opened.window] = features_MD.numpy().astype(np.float16)
        return features_MD

    def dense(self, switches: Switches) -> Floats:
        """Return the model's own outputs (H, W, C): every position decoded, at the model's own cost."""
        state = self.state(switches)
        if state.outputs_HWC is None:

            def outputs(opened: OpenWindow) -> Tensor | None:
                predictor = self.predictor(opened, switches)
                if isinstance(predictor, ScenePredictor):
                    features_MD = self.features(opened, switches)
                    assert features_MD is not None
                    return predictor.from_features(features_MD)
                return None if predictor is None else predictor.query_all().outputs

            state.outputs_HWC = self.blended(outputs, self.spec.num_outputs)
        return state.outputs_HWC

    def blended(self, outputs: Any, count: int) -> Floats:
        """Return what ``outputs`` gives for each window (M, C), blended where windows overlap; NaN without any."""
        total = np.zeros((self.grid.height, self.grid.width, count), np.float32)
        weight = np.zeros((self.grid.height, self.grid.width, 1), np.float32)
        for opened in self.windows.values():
            if (values_MC := outputs(opened)) is None:
                continue
            share = opened.share_HW1
            total[opened.slices] += share * np.asarray(values_MC).reshape(*share.shape[:2], count)
            weight[opened.slices] += share
        if not weight.any():
            raise ConfigError("everything is switched off: switch at least one band on")
        with np.errstate(invalid="ignore"):
            return np.asarray(total / weight, np.float32)

    def decode(self, switches: Switches, decoding: Decoding) -> Decoded:
        """Return the map as the dial is set: encoded and decoded anew, so that the time is that of a prediction."""
        decoding = decoding.checked(self.model, self.folder)
        queried_HW, counts = np.zeros((self.grid.height, self.grid.width), bool), np.zeros(2, int)

        def outputs(opened: OpenWindow) -> Tensor | None:
            atoms = switches.kept(opened.atoms)
            if not atoms.num_atoms:
                return None
            seed = opened.window.top * self.grid.width + opened.window.left
            prediction = decoding.decode(self.decoder.predictor(atoms, opened.grid, cost=decoding.cost, seed=seed))
            queried_HW[opened.slices] |= prediction.queried.reshape(opened.grid.shape).numpy()
            counts[0] += prediction.decoded
            counts[1] += prediction.queried.numel()
            return prediction.outputs

        began = time.perf_counter()
        outputs_HWC = self.blended(outputs, self.spec.num_outputs)
        return Decoded(outputs_HWC, queried_HW, int(counts[0]), int(counts[1]), time.perf_counter() - began)

    def pixel_of(self, x: float, y: float) -> tuple[float, float]:
        """Return row and column, with fractions, of coordinates of the map's CRS."""
        a, _, west, _, e, north = self.grid.transform
        row, column = (y - north) / e, (x - west) / a
        if not (0 <= row <= self.grid.height and 0 <= column <= self.grid.width):
            raise QueryError(f"{x:g}, {y:g} is outside of the map")
        return row, column

    def nearest_window(self, pixel: tuple[float, float]) -> OpenWindow:
        """Return the window in whose middle a pixel lies most."""

        def share(opened: OpenWindow) -> float:
            w = opened.window
            return float(ramp(np.array(pixel[0] - w.top), w.height) * ramp(np.array(pixel[1] - w.left), w.width))

        windows = [self.windows[w] for w in inside(self.scene.layout, np.array([pixel])) if w in self.windows]
        if not windows:
            raise QueryError("nothing was observed here")
        return max(windows, key=share)

    def at(self, x: float, y: float, switches: Switches) -> dict[str, Any]:
        """Return what is predicted and observed at a position: probabilities, attention, latents and raw values.

        Outputs are rounded and blended as by ``predict_at``, so that they are the same numbers.
        """
        row, column = self.pixel_of(x, y)
        total, weight, shares = np.zeros(self.spec.num_outputs), 0.0, dict[tuple[str, str], float]()
        best: tuple[float, OpenWindow, Any] | None = None
        for window in inside(self.scene.layout, np.array([[row, column]])):
            opened = self.windows.get(window)
            predictor = None if opened is None else self.predictor(opened, switches)
            if opened is None or predictor is None:
                continue
            share = float(
                ramp(np.array(row - window.top), window.height) * ramp(np.array(column - window.left), window.width)
            )
            here = queried_at(predictor, opened, x, y, (row, column))
            total += share * here.outputs
            weight += share
            for name, value in here.attention.items():
                shares[name] = shares.get(name, 0.0) + share * value
            if best is None or share > best[0]:
                best = share, opened, here
        if best is None:
            raise ConfigError("nothing was observed here, or everything is switched off")
        outputs = total / weight
        values = outputs if self.spec.regression else outputs / outputs.sum()
        attention = [{"sensor": s, "band": n, "share": v / weight} for (s, n), v in shares.items()]
        return {
            "outputs": values.tolist(),
            "attention": attention,
            "latents": best[2].latents,
            "observed": self.observations(x, y, switches),
        }

    def observations(self, x: float, y: float, switches: Switches) -> list[dict[str, Any]]:
        """Return the raw values of each raster in the pixel that holds a position, those that are switched on."""
        rows = []
        for number, source in enumerate(self.sources):
            if date_of(source) in switches.dates:
                continue
            values_C = source_values(source, self.grid.crs, np.array([x]), np.array([y]))[:, 0]
            for channel, value in zip(source.channels, values_C.tolist(), strict=True):
                if (channel.sensor, channel.name) not in switches.channels:
                    known = value if math.isfinite(value) else None
                    rows.append({"raster": number, "sensor": channel.sensor, "band": channel.name, "value": known})
        return rows

    def pixels(self, source: RasterSource, bands: Sequence[int]) -> Floats:
        """Return bands (B, H, W) of a raster at the centres of the map's pixels, the nearest value, NaN without one."""
        a, _, west, _, e, north = self.grid.transform
        rows, columns = np.mgrid[: self.grid.height, : self.grid.width] + 0.5
        values = source_values(source, self.grid.crs, west + a * columns.ravel(), north + e * rows.ravel(), bands)
        return values.reshape(len(bands), self.grid.height, self.grid.width)

    def image(self, number: int, bands: Sequence[int]) -> NDArray[np.uint8]:
        """Return three bands of a raster as RGBA (H, W, 4), stretched between percentiles of the whole file."""
        if not 0 <= number < len(self.sources):
            raise QueryError(f"there is no raster {number}")
        source = self.sources[number]
        if len(bands) != 3 or not all(0 <= band < len(source.channels) for band in bands):
            raise QueryError("an image has three bands of its raster")
        values = self.pixels(source, bands)
        seen = np.isfinite(values).all(axis=0)
        image = np.zeros((*seen.shape, 4), np.uint8)
        for colour, band in enumerate(values):
            if seen.any():
                low, high = np.percentile(band[seen], (LOW, HIGH))
                share = (band - low) / max(high - low, 1e-12)
                image[..., colour] = np.nan_to_num(255 * np.clip(share, 0, 1)).astype(np.uint8)
        image[..., 3] = np.where(seen, 255, 0)
        return image


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One position of one window: outputs (C,), attention by (sensor, name), and the latents that were read."""

    outputs: NDArray[np.float64]
    attention: dict[tuple[str, str], float]
    latents: dict[str, Any] | None


def queried_at(predictor: Any, opened: OpenWindow, x: float, y: float, pixel: tuple[float, float]) -> Query:
    """Decode one position of a window; a model without latents has its output of the pixel."""
    if not isinstance(predictor, ScenePredictor):
        rows, columns = opened.grid.shape
        row = min(int(pixel[0] - opened.window.top), rows - 1)
        column = min(int(pixel[1] - opened.window.left), columns - 1)
        predictor.query_all()
        return Query(stored(predictor.outputs_MC[row * columns + column], predictor.classes), {}, None)
    at_x, at_y = opened.frame.metres(x, y)
    here = predictor.at(torch.tensor([[at_x, at_y]], dtype=torch.float64), opened.grid.pixel_m)
    here.query_all()
    channels = list(dict.fromkeys((c.sensor, c.name) for a in predictor.atoms for c in a.channels))
    shares = here.attention(channels)[0]
    attention = {name: float(share) for name, share in zip(channels, shares, strict=True)}
    return Query(stored(here.outputs_MC[0], predictor.classes), attention, latents_of(here, opened))


def stored(outputs_C: Tensor, classes: bool) -> NDArray[np.float64]:
    """Return outputs with the digits that products have."""
    return outputs_C.numpy().astype(np.float16 if classes else np.float32).astype(np.float64)


def latents_of(here: ScenePredictor, opened: OpenWindow) -> dict[str, Any]:
    """Return the outline of the cell of the nearest latent and the positions of those read, in units of the CRS."""
    anchors_L2, read_k = here.anchors_L2.numpy(), here.read_Mk[0].numpy()
    width, height = opened.grid.size_m
    cell = cell_of(anchors_L2, int(read_k[0]), (-width / 2, -height / 2, width / 2, height / 2))
    out = {"cell": cell, "read": anchors_L2[read_k]}
    return {
        name: np.stack(opened.frame.coordinates(*np.asarray(points).T), axis=1).tolist() for name, points in out.items()
    }


def cell_of(
    anchors_L2: NDArray[np.float64], number: int, box: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """Return the corners (P, 2) of what is nearer to one anchor than to all others, within a box.

    The box is cut along the line half-way to each other anchor, nearest first.
    """
    west, south, east, north = box
    corners = np.array([(west, south), (east, south), (east, north), (west, north)])
    own = anchors_L2[number]
    offsets = np.delete(anchors_L2, number, axis=0) - own
    for offset in offsets[np.argsort((offsets**2).sum(axis=1), kind="stable")][:64]:
        beyond = (corners - own - offset / 2) @ offset
        cut = []
        for i, corner in enumerate(corners):
            before = i - 1
            if (beyond[i] > 0) != (beyond[before] > 0):
                share = beyond[before] / (beyond[before] - beyond[i])
                cut.append(corners[before] + share * (corner - corners[before]))
            if beyond[i] <= 0:
                cut.append(corner)
        if not cut:
            break
        corners = np.array(cut)
    return corners


def source_values(
    source: RasterSource, crs: str | None, x: NDArray[Any], y: NDArray[Any], bands: Sequence[int] | None = None
) -> Floats:
    """Return bands (B, M) of a raster in the pixels that hold coordinates of ``crs``, NaN where nothing is known."""
    if source.crs != crs:
        x, y = moved(crs, source.crs, x, y)
    a, _, west, _, e, north = source.transform
    with np.errstate(invalid="ignore"):
        rows, columns = np.floor((y - north) / e), np.floor((x - west) / a)
        known = (rows >= 0) & (rows < source.height) & (columns >= 0) & (columns < source.width)
    count = len(source.channels) if bands is None else len(bands)
    values = np.full((count, len(known)), np.nan, np.float32)
    if known.any():
        at = rows[known].astype(np.int64) * source.width + columns[known].astype(np.int64)
        values[:, known] = source.values(at, range(len(source.channels)) if bands is None else bands)
    return values


def shown_part(grid: MapGrid, bounds: tuple[float, float, float, float] | None) -> tuple[MapGrid, bool]:
    """Return the part of a map that is shown: inside ``bounds``, or the middle where all of it would be too large."""
    rows, columns = (0, grid.height), (0, grid.width)
    if bounds is not None:
        a, _, west, _, e, north = grid.transform
        columns = span((bounds[0] - west) / a, (bounds[2] - west) / a, grid.width)
        rows = span((bounds[3] - north) / e, (bounds[1] - north) / e, grid.height)
        if max(rows[1] - rows[0], columns[1] - columns[0]) > LONGEST:
            raise ConfigError(f"--bounds hold more than {LONGEST} pixels along a side: choose a smaller part")
    else:
        rows, columns = middle(grid.height), middle(grid.width)
    part = MapGrid(grid.crs, shifted(grid.transform, rows[0], columns[0]), rows[1] - rows[0], columns[1] - columns[0])
    return part, (part.height, part.width) != (grid.height, grid.width)


def middle(length: int) -> tuple[int, int]:
    """Return the pixels in the middle of a side, as many as are shown at most."""
    first = max(0, (length - LONGEST) // 2)
    return first, first + min(length, LONGEST)


def span(low: float, high: float, length: int) -> tuple[int, int]:
    """Return the pixels between two positions along a side."""
    first, last = max(0, math.floor(low)), min(length, math.ceil(high))
    if not first < last:
        raise ConfigError("--bounds do not overlap the raster: write west south east north in units of its CRS")
    return first, last

"""A point cloud as the page shows it: its points, and what the model predicts for each, window by window.

The windows are those of ``atomizer predict``; the probabilities of a point are the mean over its windows. Shapes: P
points, C classes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.data.atoms import AtomSet
from atomizer_io.decoding.predictor import ScenePredictor
from atomizer_io.decoding.scene_decoder import SavedModel, SceneDecoder
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.overlays import Overlay
from atomizer_io.io.point_clouds import point_cloud_header, read_point_cloud
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_scene import PointScene
from atomizer_io.io.point_windows import Axis
from atomizer_io.prediction.las_classes import las_codes
from atomizer_io.prediction.options import Decoding, PointCloudWindows
from atomizer_io.prediction.point_input import check_points, sources_of
from atomizer_io.prediction.point_windows import Inputs
from atomizer_io.viewer.session import coloured, lead
from atomizer_io.viewer.switches import FIELD, Switches

MOST_POINTS = 1_000_000
PIXELS = 640  # along the longer side of the view from above
KEPT_STATES = 3  # settings of the switches whose predictions stay in memory

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CloudWindow:
    """The points of a window, by their indices, and what the model sees there."""

    index_P: Ints
    scene: PointScene


class CloudView:
    """A point cloud that is open, with the model that predicts from it, and images over it."""

    def __init__(self, model: str, path: Path, rasters: Sequence[Any] = (), crs: str | None = None) -> None:
        self.model, self.saved = SavedModel.of(model, Decoding())
        check_points(self.model)
        if self.model.task_spec.task != "segmentation":
            raise ConfigError(f"the model is for {self.model.task_spec.task}: points are shown with their classes")
        header = point_cloud_header(path, crs)
        if header.points > MOST_POINTS:
            raise DataError(path, f"has {header.points:,} points, and the page takes {MOST_POINTS:,}: cut a part of it")
        self.path, self.crs, self.unit_m = path, header.crs, header.unit_m
        self.sources = sources_of(rasters, path, header, self.model.task_spec.channels)
        inputs = Inputs.of(self.model.task_spec, colour=self._colour())
        cloud = read_point_cloud(path, crs=crs)
        cloud = PointCloudReference.of_point_cloud(cloud, las_standard=inputs.las_standard).complete(cloud)
        self.cloud = cloud
        self.windows = list(self._cut(inputs))
        self.decoder = SceneDecoder(self.model)
        self.states: OrderedDict[Switches, NDArray[np.float32]] = OrderedDict()

    def _colour(self) -> bool:
        known = self.model.task_spec.statistics()
        return not self.sources and any(sensor == "aerial" for sensor, _ in known)

    def _cut(self, inputs: Inputs) -> Any:
        """Yield the windows that have points."""
        west, south, east, north = self.cloud.bounds
        options = PointCloudWindows()
        axes = [Axis.over(*span, options.side_m, options.step_m) for span in ((west, east), (south, north))]
        if axes[0] is None or axes[1] is None:
            raise DataError(self.path, "is too wide for the page: cut a part of it")
        shown = self.cloud if inputs.ranked else replace(self.cloud, intensity_rank=None)
        how: dict[str, Any] = {"heights": inputs.heights, "las_standard": inputs.las_standard}
        for x0, x1, x in zip(axes[0].near, axes[0].far, axes[0].centres, strict=True):
            for y0, y1, y in zip(axes[1].near, axes[1].far, axes[1].centres, strict=True):
                inside = (shown.x >= x0) & (shown.x < x1) & (shown.y >= y0) & (shown.y < y1)
                index_P = np.flatnonzero(inside)
                if len(index_P):
                    scene = PointScene.of(shown.where(index_P), (x, y), colour=inputs.colour, **how)
                    yield CloudWindow(index_P, scene.with_images(Overlay(tuple(self.sources)), options.side_m))

    def predictor(self, window: CloudWindow, switches: Switches, at_P: Ints | None = None) -> Any:
        """Return the predictor of the points of a window, or of those at the indices ``at_P``; None without atoms."""
        atoms = switches.kept(window.scene.atoms)
        if not atoms.num_atoms:
            return None
        at_P = np.arange(len(window.index_P)) if at_P is None else at_P
        named = {0: torch.from_numpy(at_P)} if _has_points(atoms, window.scene.atoms) else None
        where = torch.from_numpy(window.scene.positions[at_P])
        return self.decoder.predictor(atoms, where, sites=named)

    def probabilities(self, switches: Switches) -> NDArray[np.float32]:
        """Return the probabilities (P, C) of all points."""
        if switches not in self.states:
            total = np.zeros((len(self.cloud), self.model.task_spec.num_outputs), np.float32)
            count = np.zeros((len(self.cloud), 1), np.float32)
            for window in self.windows:
                if (predictor := self.predictor(window, switches)) is not None:
                    total[window.index_P] += predictor.query_all().outputs.numpy()
                    count[window.index_P] += 1
            if not count.any():
                raise ConfigError("everything is switched off: switch at least one channel on")
            self.states[switches] = (total / np.maximum(count, 1)).astype(np.float32)
        self.states.move_to_end(switches)
        while len(self.states) > KEPT_STATES:
            self.states.popitem(last=False)
        return self.states[switches]


class CloudSession:
    """The requests of a page with a point cloud."""

    def __init__(self, view: CloudView) -> None:
        self.view = view

    def calls(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """Return what the page may request, by name."""
        return {"scene": lambda request: self.scene(), "points": self.points, "map": self.map, "at": self.at}

    def scene(self) -> dict[str, Any]:
        """Return all that the page shows before anything is predicted."""
        view, spec = self.view, self.view.model.task_spec
        west, south, east, north = view.cloud.bounds
        side = max(east - west, north - south, 1e-3) / PIXELS
        height, width = (max(1, round(length / side)) for length in (north - south, east - west))
        unit = view.unit_m
        kinds = dict.fromkeys(name for window in view.windows for name in kinds_of(window.scene.atoms))
        bands = [{"sensor": sensor, "name": name, "um": um} for sensor, name, um in kinds]
        return {
            "kind": "points",
            "model": {"name": view.saved.folder, "parameters": view.model.num_parameters, "task": spec.task},
            "classes": coloured(spec.names),
            "rasters": [{"name": view.path.name, "date": "", "bands": bands}],
            "grid": {
                "crs": view.crs,
                "height": height,
                "width": width,
                "transform": [side / unit, west / unit, -side / unit, north / unit],
                "pixel_m": [side, side],
            },
            "codes": list(las_codes(spec.names, None, spec.class_codes).values()),
        }

    def points(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the points in metres from the south-west corner, their heights and the classes of the file."""
        cloud = self.view.cloud
        west, south, *_ = cloud.bounds
        ground = cloud.z - cloud.z.min() if cloud.height is None else cloud.height
        codes = np.zeros(len(cloud)) if cloud.classification is None else cloud.classification
        columns = {"x": cloud.x - west, "y": cloud.y - south, "z": cloud.z - cloud.z.min(), "height": ground}
        arrays = {name: column.astype(np.float32) for name, column in columns.items()}
        return {"classified": bool(np.any(codes)), "low": float(cloud.z.min())}, {
            **arrays,
            "code": codes.astype(np.uint8),
        }

    def map(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the class of each point and how far it leads the second, 0 to 255."""
        began = time.perf_counter()
        outputs_PC = self.view.probabilities(Switches.of(request.get("off")))
        arrays = {
            "label": outputs_PC.argmax(axis=1).astype(np.uint8),
            "lead": (255 * lead(outputs_PC[None])[0]).astype(np.uint8),
        }
        return {"seconds": time.perf_counter() - began}, arrays

    def at(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is predicted for a point, and what was observed of it; ``index`` is its number."""
        number, switches = int(request["index"]), Switches.of(request.get("off"))
        if not 0 <= number < len(self.view.cloud):
            raise ConfigError(f"there is no point {number}")
        outputs_C = self.view.probabilities(switches)[number]
        shares, windows = dict[tuple[str, str], float](), 0
        for window in self.view.windows:
            at_P = np.flatnonzero(window.index_P == number)
            predictor = self.view.predictor(window, switches, at_P) if len(at_P) else None
            if not isinstance(predictor, ScenePredictor):
                continue
            windows += 1
            channels = list(dict.fromkeys((c.sensor, c.name) for a in predictor.atoms for c in a.channels))
            for name, share in zip(channels, predictor.attention(channels)[0].tolist(), strict=True):
                shares[name] = shares.get(name, 0.0) + share
        cloud = self.view.cloud
        columns: dict[str, Any] = {
            "x": cloud.x / cloud.unit_m,
            "y": cloud.y / cloud.unit_m,
            "z": cloud.z / cloud.unit_m,
        }
        columns |= {"return": cloud.return_number, "of": cloud.number_of_returns, "intensity": cloud.intensity}
        columns |= {"height": cloud.height, "class in the file": cloud.classification, **(cloud.colours or {})}
        return {
            "outputs": outputs_C.tolist(),
            "attention": [{"sensor": s, "band": n, "share": v / max(1, windows)} for (s, n), v in shares.items()],
            "observed": [[name, float(column[number])] for name, column in columns.items() if column is not None],
        }


def kinds_of(atoms: AtomSet) -> list[tuple[str, str, float | None]]:
    """Return sensor, name and wavelength of what can be switched off: channels, and fields of points."""
    kinds = [(c.sensor, c.name, c.wavelength_um) for acquisition in atoms for c in acquisition.channels]
    return [*kinds, *((a.sensor, FIELD + name, None) for a in atoms for name in a.site_fields)]


def _has_points(atoms: AtomSet, whole: AtomSet) -> bool:
    return atoms.acquisitions[0].positions is whole.acquisitions[0].positions

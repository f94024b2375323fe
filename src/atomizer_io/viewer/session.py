"""What the page can do with the rasters that are open: each method is one request, with plain values and arrays.

Arrays of maps are (H, W), row by row from the north: classes as numbers, 255 without data; values as float32.
"""

from __future__ import annotations

import base64
import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.decoding.calibration import load_all
from atomizer_io.decoding.predictor import different
from atomizer_io.decoding.scene_decoder import NAMES
from atomizer_io.errors import ConfigError
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.models.base import Model
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.viewer.labels import Labels, classes_of, imported
from atomizer_io.viewer.last_layer import LastLayer, fitted, where_next
from atomizer_io.viewer.scenes import RasterView
from atomizer_io.viewer.switches import Switches, date_of, decoding_of
from atomizer_io.viewer.training import Training, new_folder

NO_DATA = 255
Arrays = dict[str, NDArray[Any]]


class Session:
    """The rasters, the model and the labels of one page; ``output`` is where "save" writes."""

    def __init__(self, view: RasterView, output: Path, labels: Mapping[str, Any] | None = None) -> None:
        self.view, self.output, self.labels = view, output, labels
        self.training = Training(view, output)
        self.refit: tuple[tuple[str, ...], LastLayer] | None = None

    def calls(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """Return what the page may request, by name."""
        return {
            "scene": lambda request: self.scene(),
            "layer": lambda request: ({}, {"rgba": self.view.image(int(request["raster"]), request["bands"])}),
            "map": self.map,
            "at": self.at,
            "fit": self.fit,
            "import": self.imported,
            "export": lambda request: Labels.of(request.get("labels") or {}).content(self.view.grid.crs),
            "save": self.save,
            "train": self.training.begin,
            "progress": lambda request: self.training.progress(),
            "stop": lambda request: self.training.stop(),
        }

    def imported(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the labels of a vector file that the user chose on the page."""
        content = base64.b64decode(str(request["content"]), validate=True)
        return imported(content, Path(str(request["name"])).suffix.casefold(), self.view.grid.crs)

    def scene(self) -> dict[str, Any]:
        """Return all that the page shows before anything is predicted."""
        view, model = self.view, self.view.model
        (a, _, west, _, e, north), grid = view.grid.transform, view.scene.map_grid.frame(0, 0, *self.shape)[1]
        settings: Any = getattr(model, "config", None)
        own = {} if settings is None else {"kappa": settings.atoms_per_latent, "neighbors": settings.neighbors}
        return {
            "kind": "rasters",
            "model": {"name": view.saved.folder, "parameters": model.num_parameters, "task": view.spec.task},
            "target": [view.spec.target_name or "value", view.spec.target_unit or ""],
            "classes": [] if view.spec.regression else coloured(view.spec.names),
            "rasters": [described(source) for source in view.sources],
            "grid": {
                "crs": view.grid.crs,
                "height": view.grid.height,
                "width": view.grid.width,
                "transform": [a, west, e, north],
                "pixel_m": grid.pixel_m,
                "cropped": view.cropped,
            },
            "anywhere": model.capabilities.anywhere,
            "labelling": model.capabilities.anywhere and not view.spec.regression,
            "strategies": NAMES if model.capabilities.anywhere else NAMES[:1],
            "alphas": self.alphas(),
            "own": own,
            "labels": self.labels,
            "output": str(self.output),
        }

    @property
    def shape(self) -> tuple[int, int]:
        """The height and width of the map."""
        return self.view.grid.height, self.view.grid.width

    def alphas(self) -> list[float]:
        """Return the shares for which the model was calibrated."""
        if self.view.folder is None or not self.view.folder.is_dir():
            return []
        return sorted({calibration.alpha for calibration in load_all(self.view.folder)})

    def map(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """Return the map of these switches; with a dial, also where it differs from dense and what was decoded."""
        began, switches = time.perf_counter(), Switches.of(request.get("off"))
        dense_HWC = self.view.dense(switches)
        if request.get("dial") is None:
            return {"seconds": time.perf_counter() - began}, self.arrays(dense_HWC)
        decoded = self.view.decode(switches, decoding_of(request["dial"]))
        own, mine = torch.from_numpy(dense_HWC), torch.from_numpy(decoded.outputs_HWC)
        precision = 0.05 * float(np.nanstd(dense_HWC)) if self.view.spec.regression else 0.0
        differs = different(mine, own, not self.view.spec.regression, precision).numpy() & self.view.seen_HW
        facts = {
            "seconds": decoded.seconds,
            "decoded": decoded.decoded,
            "positions": decoded.positions,
            "differing": float(differs.sum() / max(1, self.view.seen_HW.sum())),
        }
        arrays = self.arrays(decoded.outputs_HWC)
        return facts, {**arrays, "queried": decoded.queried_HW.astype(np.uint8), "differs": differs.astype(np.uint8)}

    def arrays(self, outputs_HWC: NDArray[np.float32]) -> Arrays:
        """Return outputs as the page draws them: values, or the class and how far it leads the second, 0 to 255."""
        gone_HW = ~self.view.seen_HW | ~np.isfinite(outputs_HWC[..., 0])
        if self.view.spec.regression and outputs_HWC.shape[2] == 1:
            return {"value": np.where(gone_HW, np.nan, outputs_HWC[..., 0]).astype(np.float32)}
        label_HW = np.nan_to_num(outputs_HWC).argmax(axis=2).astype(np.uint8)
        return {
            "label": np.where(gone_HW, NO_DATA, label_HW).astype(np.uint8),
            "lead": np.nan_to_num(255 * lead(outputs_HWC)).astype(np.uint8),
        }

    def at(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is predicted and observed at a position."""
        x, y = (float(request[axis]) for axis in ("x", "y"))
        return self.view.at(x, y, Switches.of(request.get("off")))

    def fit(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """Refit the last layer to labels; return the map, the cross-validated score and where to label next."""
        labels, switches = Labels.of(request.get("labels") or {}), Switches.of(request.get("off"))
        names = classes_of(self.view.spec, labels)
        pixels = [self.view.pixel_of(x, y) for x, y in labels.xy_N2.tolist()]
        features_ND = self.features_at(labels.xy_N2, switches)
        target_N = torch.tensor([names.index(labels.names[number]) for number in labels.class_N])
        began = time.perf_counter()
        layer, score = fitted(features_ND, target_N, self.prior(names), labels.xy_N2, self.view.grid.crs)
        refit_s = time.perf_counter() - began
        self.refit = names, layer

        def outputs(opened: Any) -> torch.Tensor | None:
            features_MD = self.view.features(opened, switches)
            return None if features_MD is None else layer.probabilities(features_MD)

        outputs_HWC = self.view.blended(outputs, len(names))
        lead_HW = np.where(self.view.seen_HW, lead(outputs_HWC), np.nan).astype(np.float32)
        taken = [(int(row), int(column)) for row, column in pixels]
        facts = {
            "classes": coloured(names),
            "refit_seconds": refit_s,
            "accuracy": score.accuracy,
            "mean_recall": score.mean_recall,
            "why": score.why,
            "next": [self.coordinates(row, column) for row, column in where_next(lead_HW, taken)],
        }
        return facts, self.arrays(outputs_HWC)

    def features_at(self, xy_N2: NDArray[np.float64], switches: Switches) -> torch.Tensor:
        """Return the features (N, D) at positions, from the window in whose middle each is."""
        rows = []
        for x, y in xy_N2.tolist():
            pixel = self.view.pixel_of(x, y)
            opened = self.view.nearest_window(pixel)
            features_MD = self.view.features(opened, switches)
            if features_MD is None:
                raise ConfigError("a label lies where nothing is switched on, or this model has no features to refit")
            row, column = (min(int(p), n - 1) for p, n in zip(pixel, self.shape, strict=True))
            at = (row - opened.window.top) * opened.window.width + column - opened.window.left
            rows.append(features_MD[at])
        return torch.stack(rows)

    def prior(self, names: tuple[str, ...]) -> LastLayer:
        """Return the model's own weights of its classes, and zeros for new ones."""
        model: Any = self.view.model
        linear = model.head.linear
        weight_CD, bias_C = torch.zeros(len(names), linear.in_features), torch.zeros(len(names))
        for number, name in enumerate(names):
            if name in self.view.spec.names and not self.view.spec.regression:
                own = self.view.spec.names.index(name)
                weight_CD[number], bias_C[number] = linear.weight.detach()[own], linear.bias.detach()[own]
        return LastLayer(weight_CD, bias_C)

    def coordinates(self, row: int, column: int) -> list[float]:
        """Return the coordinates of the centre of a pixel."""
        a, _, west, _, e, north = self.view.grid.transform
        return [west + a * (column + 0.5), north + e * (row + 0.5)]

    def refitted(self) -> Model:
        """Return a copy of the model with the refitted layer and its classes; new ones get the next free codes."""
        assert self.refit is not None
        names, layer = self.refit
        spec, model = self.view.spec, copy.deepcopy(self.view.model)
        codes = [spec.codes[spec.names.index(name)] if name in spec.names else None for name in names]
        free = iter(code for code in range(256 * len(names)) if code not in codes)
        changed = spec.replace(
            num_outputs=len(names),
            class_names=names,
            class_codes=tuple(next(free) if code is None else code for code in codes),
            label_codes={},
        )
        head: Any = model.head
        head.linear = torch.nn.Linear(head.linear.in_features, len(names))
        with torch.no_grad():
            head.linear.weight.copy_(layer.weight_CD)
            head.linear.bias.copy_(layer.bias_C)
        model.task_spec = head.task_spec = changed
        return model

    def save(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write the labels, the refitted model and the map of all rasters that are on into a new folder."""
        labels, switches = Labels.of(request.get("labels") or {}), Switches.of(request.get("off"))
        rasters = self.left_on(switches)
        folder = new_folder(self.output, "save")
        model: Model | Path = self.view.model if self.view.folder is None else self.view.folder
        if len(labels.xy_N2):
            labels.write(folder / "labels.gpkg", self.view.grid.crs)
        if self.refit is not None:
            model = folder / "model"
            self.refitted().save_pretrained(model)
        predict_raster(model, rasters, folder / "map.tif", execution=Execution(progress=False))
        return {"folder": str(folder), "files": sorted(path.name for path in folder.iterdir())}

    def left_on(self, switches: Switches) -> list[Any]:
        """Return the rasters as the user named them that are switched on as a whole; refuse single bands."""
        left = []
        for raster, source in zip(self.view.rasters, self.view.sources, strict=True):
            on = [(channel.sensor, channel.name) not in switches.channels for channel in source.channels]
            if date_of(source) in switches.dates or not any(on):
                continue
            if not all(on):
                raise ConfigError("a saved map reads whole rasters: switch their single bands on again, then save")
            left.append(raster)
        if not left:
            raise ConfigError("everything is switched off: switch at least one raster on")
        return left


def lead(outputs_HWC: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return how far the most probable class is ahead of the second; NaN without data."""
    if outputs_HWC.shape[2] == 1:
        return np.ones(outputs_HWC.shape[:2], np.float32)
    top = np.partition(outputs_HWC, -2, axis=2)
    return np.asarray(top[..., -1] - top[..., -2], np.float32)


def coloured(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return classes with their colours."""
    return [
        {"name": name, "colour": [round(255 * part) for part in colour]}
        for name, colour in zip(names, class_colours(names), strict=True)
    ]


def described(source: Any) -> dict[str, Any]:
    """Return a raster: its name, date, sensors and bands, and the three bands that are shown first."""
    names = [channel.name for channel in source.channels]
    lengths = [channel.wavelength_um for channel in source.channels]
    visible = [min(range(len(names)), key=lambda i: abs((lengths[i] or 99) - um)) for um in (0.665, 0.56, 0.49)]
    in_colour = len({*visible}) == 3 and all(lengths[i] and lengths[i] < 0.75 for i in visible)
    first = visible if in_colour else [0, min(1, len(names) - 1), 0]
    bands = [
        {"sensor": channel.sensor, "name": channel.name, "um": channel.wavelength_um} for channel in source.channels
    ]
    date = date_of(source)
    return {"name": source.path.name, "date": date, "bands": bands, "first": first, "pixel_m": source.pixel_m}

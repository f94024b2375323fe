"""Maps from few point labels: the network of ``atomizer map`` beside forests that learn the same labels.

A scene is cut into square blocks, which are dealt to as many folds as there are draws. A draw tests on pixels of its
own fold, and labels are drawn from the blocks of the others. The network validates on a quarter of its labels, in
blocks of their own; a forest needs no validation and learns from all of them. Prediction sets are calibrated on one
half of the blocks of the tested fold, and checked on the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.spatial_folds import blocks_of, folds_of
from atomizer_io.io.raster_files import open_raster
from atomizer_io.mapping.held_out import HeldOut, held_out
from atomizer_io.mapping.label_map import MapRequest
from atomizer_io.mapping.runs import run_of, trained, with_options
from atomizer_io.prediction.options import Execution
from atomizer_io.texts import csv_text, write_text
from atomizer_io.training.baselines import FITTED, Column, Table, candidates, columns_of, known_samples
from atomizer_io.training.config import Run
from atomizer_io.training.conformal import PredictionSets
from atomizer_io.training.splits import open_split
from atomizer_lab.matrix import Task
from atomizer_lab.paper.item import SMALL, SMOKE, Item, Scale, Where
from atomizer_lab.paper.networks import Runs, folders
from atomizer_lab.paper.staging import Stage, stack_rondonia, staged
from atomizer_lab.synthetic.rasters import write_raster

COUNTS, DRAWS = (10, 30, 100, 300), (0, 1, 2, 3, 4)
TESTED = 1000  # pixels of a fold that are scored
COVERAGE = 0.9  # that prediction sets promise
RARE = 1000  # pixels: a class with fewer is not mapped
STEPS, MINUTES = 200, 1.5
WINDOW = 7  # pixels
FORESTS = {"forest of single pixels": False, f"forest of {WINDOW} × {WINDOW} pixels": True}  # mean and deviation, too
SPLIT, LEARNED = "split", "learned"  # columns of the labels: as the network splits them, and as forests do
BANDS = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B11", "B12")
DATES = ("20210704", "20210720", "20210805", "20210821", "20210906", "20210922")


@dataclass(frozen=True)
class Site:
    """A scene: its folder, its rasters, the raster of its classes, and the side of its blocks in pixels."""

    folder: str
    rasters: tuple[Mapping[str, Any], ...]
    classes: str
    block: int
    stage: Stage | None = None

    def root(self, data: str, work: str) -> Path:
        """Return the folder of its rasters."""
        place = Path(data) / self.folder
        return place if self.stage is None else staged(self.folder, self.stage, place, Path(work))


def terramind(name: str) -> Site:
    """Return a site of Sentinel-2 and Sentinel-1 of one date each."""
    optical = {"path": f"S2L2A/{name}.tif", "sensor": "sentinel2_l2a", "bands": BANDS}
    radar = {"path": f"S1RTC/{name}.tif", "sensor": "sentinel1", "bands": ("VV", "VH")}
    return Site("terramind-sites", (optical, radar), f"LULC/{name}.tif", 32)


def write_noise(_: Path, folder: Path) -> None:
    """Write a scene of two bands and two classes, one brighter than the other, for runs of seconds."""
    random = np.random.default_rng(0)
    classes = (np.indices((64, 64)).sum(axis=0) // 12 % 2).astype(np.uint8)
    place = {"crs": "EPSG:32631", "transform": (10.0, 0.0, 5e5, 0.0, -10.0, 5e6)}
    values = (classes + random.normal(0, 0.3, (2, 64, 64))).astype(np.float32)
    write_raster(folder / "image.tif", values, **place)
    write_raster(folder / "classes.tif", classes, **place)


SITES = {
    "Rondônia": Site(
        "rondonia-20llq",
        tuple({"path": f"image_{date}/20LLQ.tif", "sensor": "sentinel2_l2a"} for date in DATES),
        "mask/20LLQ.tif",
        75,
        stack_rondonia,
    ),
    "282D": terramind("282D_485L_3_3"),
    "433D": terramind("433D_629L_3_1"),
}
NOISE = Site(
    "noise", ({"path": "image.tif", "sensor": "sentinel2", "bands": ("B04", "B08")},), "classes.tif", 8, write_noise
)


def write_labels(path: Path, site: Site, root: Path, count: int, draw: int, tested: int) -> None:
    """Write ``count`` labels of each class and ``tested`` pixels of the fold of a draw, with the split of each."""
    with open_raster(root / site.classes) as raster:
        classes, transform, pixel_m = raster.read(1), raster.transform, raster.res[0]
        crs, nodata = raster.crs, raster.nodata
    number = np.where(classes == nodata, 0, np.bincount(classes.ravel(), minlength=256)[classes])
    row, column = np.nonzero(number >= min(RARE, classes.size // 4))
    value = classes[row, column].astype(np.int64)
    xy = np.stack(transform * (column + 0.5, row + 0.5), axis=1)
    block = blocks_of(xy - xy.min(axis=0), crs.to_string(), site.block * pixel_m)
    fold = dealt(block, value, len(DRAWS))
    random = np.random.default_rng([draw, count])
    test = random.permutation(np.flatnonzero(fold == draw))[:tested]
    labels = [random.permutation(np.flatnonzero((fold != draw) & (value == one)))[:count] for one in np.unique(value)]
    own = np.concatenate(labels)
    val = dealt(block[own], value[own], 4) == 0
    split = np.concatenate([np.where(val, "val", "train"), np.full(len(test), "test")])
    learned = np.concatenate([np.full(len(own), "train"), np.full(len(test), "test")])
    all_of = np.concatenate([own, test])
    columns = [xy[all_of, 0].tolist(), xy[all_of, 1].tolist(), value[all_of].tolist(), split.tolist(), learned.tolist()]
    write_text(path, csv_text([("x", "y", "class", SPLIT, LEARNED), *zip(*columns, strict=True)]))


def dealt(block: NDArray[np.int64], value: NDArray[np.int64], folds: int) -> NDArray[np.int16]:
    """Return the fold of each pixel, whole blocks in each, with even shares of all classes."""
    return folds_of(block, np.arange(len(value)), value, np.ones(len(value)), folds)[0]


def measure(
    title: str, count: int, draw: int, steps: int, tested: int, data: str, work: str, results: str
) -> dict[str, Any]:
    """Train the network and the forests on one draw of labels; return their mIoU on the pixels of its fold."""
    site = SITES.get(title, NOISE)
    root = site.root(data, work)
    folder = Path(work).absolute() / "labels" / f"{title}-{count}-{draw}-{steps}"
    folder.mkdir(parents=True, exist_ok=True)
    labels = folder / "labels.csv"
    if not labels.is_file():
        write_labels(labels, site, root, count, draw, tested)
    settings = [f"training.max_steps={steps}", "training.loggers=[csv]", "training.baselines=false", f"seed={draw}"]
    settings += [f"data.options.split_column={SPLIT}", "data.workers=0", "training.accelerator=cpu"]
    rasters = [{**raster, "path": root / raster["path"]} for raster in site.rasters]
    request = MapRequest(rasters, labels, "class", folder / "map.tif", settings=settings)
    run = run_of(request, 0)
    quiet = Execution(resume=True, overwrite=True, progress=False)
    metrics = trained(run, request, quiet, time.monotonic())
    scores = {"atomizer map": metrics["scores"]["test"]}
    scores |= forests(with_options(run, split_column=LEARNED))
    column = f"{title}, {count}"
    numbers = {name: {column: 100 * own["miou"]} for name, own in scores.items()}
    numbers[f"sets of {COVERAGE:.0%}"] = {column: 100 * covered(held_out(run, rasters, quiet), draw)}
    return {
        "numbers": numbers,
        "scores": scores,
        "steps": metrics["steps"],
        "seconds": metrics["seconds"],
    }


def covered(held: HeldOut, draw: int) -> float:
    """Return how many pixels of one half of the blocks are in their set, calibrated on the other half."""
    _, of_label = np.unique(held.label, return_inverse=True)
    half = np.random.default_rng(draw).permutation(int(held.block.max()) + 1) % 2 == 0
    own = half[held.block[of_label]]
    sets = PredictionSets.calibrated(held.probabilities[own], held.target[own], held.label[own], COVERAGE)
    members = sets.members(held.probabilities[~own])
    return float(members[np.arange(len(members)), held.target[~own]].mean())


def forests(run: Run) -> dict[str, dict[str, Any]]:
    """Return the test scores of the forests, which learn from rows of the same labels."""
    described: dict[str, list[tuple[list[Column], NDArray[Any]]]] = {}
    for use in ("train", "test"):
        split = open_split(run, use).for_evaluation()
        samples = known_samples(split, FITTED, run.seed)
        described[use] = [(columns_of(sample, (WINDOW,)), sample.target.numpy()) for sample in samples]
    info, scores = split.info, {}
    task_spec = TaskSpec(task=info.task, num_outputs=info.num_outputs, class_names=info.classes)
    target = {use: np.concatenate([own for _, own in samples]) for use, samples in described.items()}
    for name, wide in FORESTS.items():
        columns = {use: [seen_by(wide, own) for own, _ in samples] for use, samples in described.items()}
        table = Table(columns["train"])
        rows = {use: np.concatenate([table.rows(own) for own in samples]) for use, samples in columns.items()}
        model = candidates(task_spec, *rows["train"].shape, run.seed)[0]
        model.fit(rows["train"], target["train"], None, lambda: None)
        scores[name] = model.scores(rows["test"], target["test"])
    return scores


def seen_by(wide: bool, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a forest: those of a pixel itself, and of the window around it where it is ``wide``."""
    return [column for column in columns if wide or not column.name[1].endswith(f" {WINDOW}×{WINDOW}")]


def runs_of(titles: Sequence[str], counts: Sequence[int], steps: int, tested: int = TESTED) -> Runs:
    """Return what lists a run for each draw, number of labels and site."""

    def task(where: Where, title: str, count: int, draw: int) -> Task:
        arguments = {"title": title, "count": count, "draw": draw, "steps": steps, "tested": tested}
        return Task(f"{title}, {count} labels, draw {draw}", measure, arguments, MINUTES, folders(where))

    return lambda where, draws: [task(where, title, n, draw) for draw in draws for n in counts for title in titles]


LABELS = Item(
    "labels",
    {
        SMALL: Scale(
            f"three sites in {len(DRAWS)} folds of blocks, {STEPS} steps of the network; forests learn from its "
            "validation labels, too",
            runs_of(tuple(SITES), COUNTS, STEPS),
            DRAWS,
        ),
        SMOKE: Scale("two steps on a synthetic scene", runs_of(("noise",), (10,), 2, 100), reads_data=False),
    },
)

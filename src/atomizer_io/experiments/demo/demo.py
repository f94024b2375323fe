"""The demo: make scenes, train a tiny model, compare it, map a scene from files, write a report."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.decoding import dense, quadtree
from atomizer_io.errors import AtomizerError
from atomizer_io.experiments.demo.report import write_report
from atomizer_io.fixtures.content import write_raster
from atomizer_io.models.contract import Model
from atomizer_io.models.registry import load_model
from atomizer_io.models.rivals.pixels import fitted
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.sample import Sample, grid_values
from atomizer_io.training import config
from atomizer_io.training.bands import CONFIGURATIONS, kept
from atomizer_io.training.config import Run
from atomizer_io.training.evaluate import score
from atomizer_io.training.run import train
from atomizer_io.training.splits import open_split

SIZE, SCENES, UNSEEN = 48, 200, 24
COLUMNS = 48  # width of the printed map in characters
CORNER, CRS = (500_000.0, 5_000_000.0), "EPSG:32631"  # made up, as the scene is


@dataclass(frozen=True, slots=True)
class Demo:
    """What a user chooses: training steps, output folder, seed and CPU threads."""

    steps: int
    output: Path
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "threads"):
            if getattr(self, name) < 1:
                raise AtomizerError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise AtomizerError(f"--seed must not be negative, got {self.seed}")


def run_demo(demo: Demo) -> bool:
    """Run the whole demo; return whether the saved model answers as the trained one did."""
    make_room(demo.output)
    torch.set_num_threads(demo.threads)
    began = time.monotonic()
    settings = settings_of(demo)
    result = train(settings, progress=True)
    folder = Path(result["folder"])
    print(f"trained   {result['steps']} steps in {result['seconds']:.0f} s")

    model = load_model(folder / "best")
    unseen = open_split(settings, "test")
    table = compare(model, open_split(settings, "train"), unseen)
    print_table(table)

    sample = next(iter(unseen))
    assert sample.queries is not None and sample.queries.grid is not None
    grid = sample.queries.grid
    with torch.no_grad():
        latents = model.encode([sample.atoms])
    whole = dense(model, latents, grid)
    quick = quadtree(model, latents, grid, start=8)
    same = float((whole.labels == quick.labels).float().mean())
    print(
        f"\nmap       {whole.decoded:,} positions asked densely; {quick.decoded:,} by quadtree, "
        f"{100 * same:.1f} % of the pixels alike"
    )
    print_map(sample.target.reshape(whole.labels.shape), whole.labels)

    again = dense(load_model(folder / "best"), latents, grid)
    unchanged = torch.equal(again.answers, whole.answers)
    tif = map_from_files(folder / "best", sample, demo.output)
    page = write_report(demo.output / "report.html", result, table, sample, unseen.info, whole, quick)
    print(f"\nmodel     {folder / 'best'}" + ("" if unchanged else " (read back, it gives OTHER answers)"))
    print(f"map       {tif}\nreport    {page}\nin all    {time.monotonic() - began:.0f} s")
    return unchanged


def make_room(output: Path) -> None:
    """Make the output folder; what an earlier demo left there makes way."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        if (output / "run" / "config.yaml").exists():
            shutil.rmtree(output / "run")
    except OSError as error:
        raise AtomizerError(f"cannot write to --output {output}: {error.strerror}") from error


def settings_of(demo: Demo) -> Run:
    """Return the settings of the run: one scene per step, sensors and bands now and then left out."""
    return config.parse(
        {
            "data": {
                "name": "synthetic",
                "options": {"like": "sen1floods11", "size": SIZE, "length": SCENES, "seed": demo.seed},
                "val": None,
                "workers": 1,  # it prepares the next scenes while the model learns from one
                "keep": SCENES,
                "measure": min(8, SCENES),
            },
            "model": {"preset": "atomizer_io_tiny"},
            "training": {
                "max_steps": demo.steps,
                "batch_size": 1,
                "learning_rate": 3e-3,
                "betas": [0.9, 0.95],
                "configurations": [[255, 64]],
                "queries": 600,
                "channel_draws": {"scheme": "groups"},
                "loggers": ["csv"],
                "accelerator": "cpu",
                "save_every": 200,
            },
            "seed": demo.seed,
            "output": str(demo.output),
            "name": "run",
        }
    )


def compare(model: Model, training: Dataset, unseen: Dataset) -> dict[str, dict[str, float]]:
    """Return mIoU on unseen scenes by channel configuration: the model's, and a pixel regression's fitted for each."""
    learned = [item for item in (training[i] for i in range(min(len(training), 60))) if isinstance(item, Sample)]
    table = {}
    for name, keep in CONFIGURATIONS.items():
        ours = score(model, unseen, name, limit=UNSEEN, progress=False)
        seen = tuple(channel for channel in model.problem.channels if keep(channel))
        rival = fitted(model.problem.replace(channels=seen), [replace(s, atoms=kept(s.atoms, keep)) for s in learned])
        theirs = score(rival, unseen, name, limit=UNSEEN, progress=False)
        table[name] = {"atomizer-io": ours["miou"], "logistic regression": theirs["miou"]}
    return table


def map_from_files(model: Path, sample: Sample, output: Path) -> Path:
    """Write the scene as one GeoTIFF per sensor and map it from these files, as `atomizer predict` does."""
    assert sample.queries is not None and sample.queries.grid is not None
    grid, rasters = sample.queries.grid, []
    (step_x, step_y), (west, north) = grid.pixel_m, CORNER
    for number, acquisition in enumerate(sample.atoms):
        path = output / "scene" / f"{acquisition.sensor}.tif"
        names = [channel.name for channel in acquisition.channels]
        place: dict[str, Any] = {"crs": CRS, "transform": (step_x, 0.0, west, 0.0, -step_y, north)}
        values = grid_values(sample.atoms, number, grid.shape).astype("float32")
        write_raster(path, values, descriptions=names, nodata=float("nan"), **place)
        rasters.append({"path": path, "sensor": acquisition.sensor, "date": acquisition.date})
    return predict_raster(model, rasters, output / "map.tif", execution=Execution(overwrite=True, progress=False)).path


def print_table(table: dict[str, dict[str, float]]) -> None:
    """Print mIoU by channel configuration."""
    print(f"\nmIoU on {UNSEEN} unseen scenes   atomizer-io   logistic regression of pixels")
    for name, row in table.items():
        print(f"{name:26} {row['atomizer-io']:13.3f} {row['logistic regression']:20.3f}")


def print_map(target: torch.Tensor, predicted: torch.Tensor) -> None:
    """Print target and prediction side by side, thinned to fit; half as many rows, as characters are tall."""
    step = max(1, target.shape[1] // COLUMNS)
    signs = {0: "·", 1: "█", -1: " "}
    print(f"\n{'target':{COLUMNS}}   prediction        █ water  · dry  (blank: not asked)")
    for row in range(0, target.shape[0], 2 * step):
        left, right = ([signs[int(v)] for v in image[row, ::step]] for image in (target, predicted))
        print("".join(left) + "   " + "".join(right))

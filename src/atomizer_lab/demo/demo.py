"""The demo: make scenes, train a tiny model and baselines, compare them, map a scene from files, write a report."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import torch

from atomizer_io.data.sample import Sample, grid_values
from atomizer_io.errors import AtomizerError
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.texts import json_text, write_text
from atomizer_io.workers import spawned
from atomizer_lab.demo.baselines import VIEWS, Trained, trained, work_beside
from atomizer_lab.demo.findings import Findings, Scene, grid_of, measure
from atomizer_lab.demo.report import write_report
from atomizer_lab.demo.runs import TEST_SCENES, Demo, flood_run
from atomizer_lab.synthetic.rasters import write_raster

LEFT = ("run", "unet", "village", "pixels", "scene")  # folders that a demo leaves
COLUMNS = 48  # width of the printed map in characters
CORNER, CRS = (500_000.0, 5_000_000.0), "EPSG:32631"  # synthetic, as the scene is


def run_demo(demo: Demo) -> bool:
    """Run the whole demo; return whether the saved model predicts as the trained one did."""
    make_room(demo)
    torch.set_num_threads(demo.threads)
    began = time.monotonic()
    with spawned(1) as pool:
        working = pool.submit(work_beside, demo)
        model = trained(flood_run(demo, "atomizer_io_tiny", "run", workers=1), progress=True)
        print(f"trained   {model.steps} steps in {model.seconds:.0f} s; its baselines beside it ...", flush=True)
        baselines = working.result()
    findings = measure(demo, model, baselines)
    print_findings(findings)
    tif = map_from_files(model, findings.scene.sample, demo)
    page = write_report(demo.output / "report.html", findings, time.monotonic() - began)
    print(f"\nmodel     {model.folder}" + ("" if findings.unchanged else " (read back, it gives OTHER predictions)"))
    print(f"map       {tif}\nreport    {page}\nin all    {time.monotonic() - began:.0f} s")
    print(f"\nlook at it on a page of this machine (sensors off, clicks, labels): atomizer view {demo.output}")
    return findings.unchanged


def make_room(demo: Demo) -> None:
    """Make the output folder; what an earlier demo left there makes way."""
    try:
        demo.output.mkdir(parents=True, exist_ok=True)
        if (demo.output / "run" / "config.yaml").exists():
            for name in LEFT:
                shutil.rmtree(demo.output / name, ignore_errors=True)
    except OSError as error:
        raise AtomizerError(f"cannot write to --output {demo.output}: {error.strerror}") from error


def map_from_files(model: Trained, sample: Sample, demo: Demo) -> Any:
    """Write the scene as one GeoTIFF per sensor and resolution and map it from these files, as `atomizer predict` does.

    Return the path of the map.
    """
    (west, north), rasters = CORNER, list[Path]()
    width_m = grid_of(sample).shape[1] * grid_of(sample).pixel_m[0]
    for number, acquisition in enumerate(sample.atoms):
        side = round(len(acquisition.positions) ** 0.5)
        step = round(width_m / side, 6)
        path = demo.output / "scene" / f"{acquisition.sensor}-{step:g}m.tif"
        names = [channel.name for channel in acquisition.channels]
        profile: dict[str, Any] = {"crs": CRS, "transform": (step, 0.0, west, 0.0, -step, north)}
        values = grid_values(sample.atoms, number, (side, side)).astype("float32")
        write_raster(path, values, descriptions=names, nodata=float("nan"), **profile)
        date = {} if acquisition.date is None else {"date": str(acquisition.date)}
        write_text(path.with_suffix(".bands.yaml"), json_text({"sensor": acquisition.sensor, **date}) + "\n")
        rasters.append(path)
    execution = Execution(overwrite=True, progress=False)
    return predict_raster(model.folder, rasters, demo.output / "map.tif", execution=execution).path


def print_findings(findings: Findings) -> None:
    """Print the scores, one map and how it was decoded."""
    rows = findings.rows()
    heads = list(next(iter(rows.values())))
    print(f"\nmIoU on {TEST_SCENES} test scenes    " + "".join(f"{name:>13}" for name in heads))
    for name, row in rows.items():
        numbers = "".join(f"{'-' if value is None else f'{value:.3f}':>13}" for value in row.values())
        print(f"{name:26} {numbers}")
    print(f"{'mean of the six':26} " + "".join(f"{value:13.3f}" for value in findings.means().values()))
    print("\nlaser returns of a village " + "".join(f"{name:>13}" for name in (heads[0], heads[-1])))
    for view in VIEWS:
        pair = findings.baselines.village_scores[view], findings.baselines.village_pixel_scores[view]
        print(f"{view:26} " + "".join(f"{value:13.3f}" for value in pair))
    print_map(findings.scene)


def print_map(scene: Scene) -> None:
    """Print target and prediction side by side, thinned to fit; half as many rows, as characters are tall."""
    whole, quick = scene.whole, scene.quick
    same = float((whole.labels == quick.labels).float().mean())
    print(
        f"\nmap       {whole.decoded:,} positions decoded densely; {quick.decoded:,} by quadtree, "
        f"{100 * same:.1f} % of the pixels alike"
    )
    step = max(1, scene.target.shape[1] // COLUMNS)
    signs = {0: "·", 1: "█", -1: " "}
    print(f"\n{'target':{COLUMNS}}   prediction    █ water  · dry")
    for row in range(0, scene.target.shape[0], 2 * step):
        left, right = ([signs[int(v)] for v in image[row, ::step]] for image in (scene.target, whole.labels))
        print("".join(left) + "   " + "".join(right))

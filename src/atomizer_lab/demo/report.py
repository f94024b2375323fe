"""The page that the demo leaves; it needs no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.figures.class_colours import WRONG, class_colours
from atomizer_io.machine import machine
from atomizer_io.texts import write_text
from atomizer_lab.demo.baselines import NEW_SENSOR, VIEWS
from atomizer_lab.demo.findings import Findings
from atomizer_lab.demo.runs import SCENES, TEST_SCENES, TEST_VILLAGES
from atomizer_lab.report import images
from atomizer_lab.report.pages import Figure, css_colour, figure, render

CLASSES = np.array(class_colours(("dry", "water")))  # as in the map that is predicted
LOW = 0.3  # left end of the scale of scores
MEANING = {
    "all": "Sentinel-1 and Sentinel-2",
    "s2-only": "ten bands of light",
    "s1-only": "two polarisations of radar",
    "rgb-only": "red, green, blue",
    "no-swir": "without the short-wave infrared",
    "no-red-edge": "without the red edge",
    NEW_SENSOR: "other wavelengths and widths, pixels of 15 m",
}
COLOURS = {"Atomizer-IO": "ours", "UNet": "unet", "regression": "pixels"}


def write_report(path: Path, findings: Findings, seconds: float) -> Path:
    """Write the page."""
    dry, water = map(css_colour, CLASSES)
    page = render(
        "demo.html",
        demo=findings.demo,
        trained=findings.trained,
        baselines=findings.baselines,
        scenes=SCENES,
        tests=TEST_SCENES,
        village_tests=TEST_VILLAGES,
        dry=dry,
        water=water,
        wrong=WRONG,
        absent=images.ABSENT,
        decoded_colour=images.DECODED,
        machine=", ".join(f"{key} {value}" for key, value in machine().items()),
        **comparison(findings),
        **scene(findings),
        **decoding(findings),
        **attention(findings),
    )
    write_text(path, page)
    return path


def comparison(findings: Findings) -> dict[str, Any]:
    """Compare the models under each channel configuration, and the second model with a regression of points."""
    means, trained, rows, own = findings.means(), findings.trained, findings.rows(), findings.baselines
    shown = [row(name, MEANING[name], scores) for name, scores in rows.items() if name != NEW_SENSOR]
    shown.append(row("mean of the six", "", dict(means), "sum"))
    shown.append(row(NEW_SENSOR, MEANING[NEW_SENSOR], rows[NEW_SENSOR]))
    return {
        "numbers": {
            "mIoU with all channels": f"{findings.scores['all']:.3f}",
            "mean of six channel sets": f"{means['Atomizer-IO']:.3f}",
            "on a sensor it has never seen": f"{findings.scores[NEW_SENSOR]:.3f}",
            f"to train it ({trained.steps:,} steps on a CPU)": f"{trained.seconds:.0f} s",
            "parameters": f"{trained.parameters / 1e6:.2f} M",
        },
        "rows": shown,
        "colours": COLOURS,
        "compared": len(rows),
        "ahead": sum((scores["Atomizer-IO"] or 0) > (scores["regression"] or 0) for scores in rows.values()),
        "village": [(view, own.village_scores[view], own.village_pixel_scores[view]) for view in VIEWS],
    }


def row(name: str, meaning: str, scores: dict[str, float | None], style: str = "") -> dict[str, Any]:
    """Return one row of the comparison: scores as numbers, and where their dots lie on a scale, in percent."""
    known = {model: value for model, value in scores.items() if value is not None}
    at = {model: 100 * (max(value, LOW) - LOW) / (1 - LOW) for model, value in known.items()}
    left, best = min(at.values()), max(known.values())
    shown = {"name": name, "meaning": meaning, "scores": scores, "style": style, "best": best}
    return {**shown, "at": at, "left": left, "width": max(at.values()) - left}


def scene(findings: Findings) -> dict[str, Any]:
    """Show one scene: what was seen, the target, and what each model predicts; and the points of a village."""
    shown, village = findings.scene, findings.village
    radar, sharp, coarse = shown.sample.atoms.acquisitions
    points = images.point_cloud(village.sample, village.info, village.predictions)
    return {
        "inputs": [
            seen(sharp, "Sentinel-2, 10 m", "true colour; a cloud is absent"),
            seen(coarse, "Sentinel-2, 20 m", "infrared"),
            seen(radar, "Sentinel-1", "VV; wind makes water bright"),
            seen(shown.new_sensor.atoms.acquisitions[0], "new sensor, 15 m", "infrared"),
            figure(images.class_map(shown.target, CLASSES), "target"),
        ],
        "baseline_maps": [
            class_map(labels, shown.target, name, "all channels, ") for name, labels in shown.baselines.items()
        ],
        "views": [class_map(labels, shown.target, name) for name, labels in shown.maps.items()],
        "points": [figure(points, "A point cloud by height, class, prediction and error")],
    }


def seen(acquisition: Acquisition, name: str, remark: str) -> Figure:
    """Return what a sensor saw."""
    drawn = images.seen(acquisition)
    assert drawn is not None
    return figure(drawn, name, remark)


def class_map(labels: Tensor, target: Tensor, name: str, remark: str = "") -> Figure:
    """Return a map of dry and water (H, W), pink where it differs from the ``target``, with the share that is right."""
    share = 100 * float((labels == target).float().mean())
    return figure(images.class_map(labels, CLASSES, target), name, f"{remark}{share:.1f} % right")


def decoding(findings: Findings) -> dict[str, Any]:
    """Show the map decoded everywhere and adaptively."""
    whole, quick = findings.scene.whole, findings.scene.quick
    return {
        "decoded": f"{100 * quick.decoded / whole.decoded:.0f}",
        "same": f"{100 * float((whole.labels == quick.labels).float().mean()):.1f}",
        "decodings": [
            figure(images.class_map(whole.labels, CLASSES), "everywhere", f"{whole.decoded:,} positions"),
            figure(images.class_map(quick.labels, CLASSES), "quadtree", f"{quick.decoded:,} positions"),
            figure(images.decoded_map(quick.queried), "where it decoded", "dark: the model was called"),
        ],
    }


def attention(findings: Findings) -> dict[str, Any]:
    """Show how much attention each channel received, at the position itself and around it, and where radar got it."""
    shown = findings.scene
    by_channel = shown.attention.by_channel()
    shares = {name: [float(part.mean()) for part in pair] for name, pair in by_channel.items()}
    of_radar = torch.stack([here for name, (here, _) in by_channel.items() if name.startswith("sentinel1")]).sum(dim=0)
    radar, sharp, _ = shown.sample.atoms.acquisitions
    hidden = ~sharp.occupied()
    return {
        "shares": shares,
        "most": max(share for pair in shares.values() for share in pair) or 1.0,
        "radar_lit": f"{100 * float(of_radar[~hidden].mean()):.0f}",
        "radar_hidden": f"{100 * float(of_radar[hidden].mean()):.0f}" if bool(hidden.any()) else "",
        "attended": [
            figure(images.share_map(of_radar.reshape(shown.target.shape)), "attention to radar", "bright: more of it"),
            seen(sharp, "Sentinel-2, 10 m", "the cloud is absent"),
            seen(radar, "Sentinel-1", "VV"),
        ],
    }

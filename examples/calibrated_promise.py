"""Does calibrated decoding keep its promise on scenes it has not seen? Calibrates on some squares, measures on others.

    python examples/calibrated_promise.py runs/NAME/best OUT.json [--crop-m 960] [--scenes 600] [--unseen 220]

Squares of the test split of the model's run, in random order; the seconds are those of decoding alone, both ways in one
process.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import atomizer_io as aio
from atomizer_io.datasets.crop import random_crops
from atomizer_io.decoding.calibration import Calibration, calibrate
from atomizer_io.machine import machine
from atomizer_io.training.splits import open_split, settings_of


def measured(model: aio.AtomizerIO, point: Calibration, scenes: list) -> dict[str, float]:
    """Over unseen scenes: what differs from dense decoding, what was decoded, and how long both took."""
    differing, decoded, seconds = [], [], {"dense": 0.0, "calibrated": 0.0}
    with torch.no_grad():
        for scene in scenes:
            grid = scene.queries.grid
            ways = {"dense": aio.decoding.dense, "calibrated": point.decode}
            found = {}
            for name, decode in ways.items():
                latents = model.encode([scene.atoms])  # anew: nothing is kept from one way to the other
                began = time.perf_counter()
                found[name] = decode(model, latents, grid)
                seconds[name] += time.perf_counter() - began
            differing.append(float(found["calibrated"].differs(found["dense"]).double().mean()))
            decoded.append(found["calibrated"].decoded / found["dense"].decoded)
    return {
        "scenes": len(scenes),
        "differing_mean": float(np.mean(differing)),
        "differing_standard_error": float(np.std(differing) / len(scenes) ** 0.5),
        "differing_largest": float(np.max(differing)),
        "times_fewer_positions": float(1 / np.mean(decoded)),
        "times_faster": seconds["dense"] / seconds["calibrated"],
        "dense_seconds": seconds["dense"],
    }


def main() -> None:
    """Calibrate every strategy and write the results as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--decode", default="sketch,quadtree,zone_probe")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--crop-m", type=float, default=960.0)
    parser.add_argument("--scenes", type=int, default=600)
    parser.add_argument("--unseen", type=int, default=220)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*")
    args = parser.parse_intermixed_args()
    model = aio.AtomizerIO.from_pretrained(args.model).eval()
    dataset = open_split(settings_of(args.model, None, args.options), "test")
    crops = list(random_crops(dataset, args.scenes + args.unseen, args.crop_m, args.seed))
    order = np.random.default_rng(args.seed).permutation(len(crops))
    crops = [crops[number] for number in order]
    result = {"alpha": args.alpha, "crop_m": args.crop_m, "seed": args.seed, "machine": machine(), "strategies": {}}
    for name in args.decode.split(","):
        began = time.monotonic()
        point = calibrate(model, crops[: args.scenes], args.alpha, strategy=name)
        row = {"settings": dict(point.settings), "margin": point.margin, "calibrated_on": point.scenes}
        row |= {
            "calibration_seconds": round(time.monotonic() - began, 1),
            **measured(model, point, crops[args.scenes :]),
        }
        result["strategies"][name] = row
        print(name, row, flush=True)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

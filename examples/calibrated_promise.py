"""Calibrate an operating point on some scenes, and measure on held-out scenes whether its error bound holds.

    python examples/calibrated_promise.py runs/NAME/best OUT.json [--window 960] [--scenes 60] [--held-out 100]

The scenes are windows of the test split of the model's run, in random order, or whole samples. Seconds are those of
whole predictions, from atoms to outputs, at both operating points in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import atomizer_io as aio
from atomizer_io.datasets.crop import random_crops
from atomizer_io.decoding import Calibration, Choices, Sampling, calibrate
from atomizer_io.decoding.blocks import scene_of
from atomizer_io.decoding.risk_control import strategies
from atomizer_io.decoding.strategies import own_point
from atomizer_io.machine import machine
from atomizer_io.training.splits import open_split, settings_of


def measured(model: aio.AtomizerIO, calibration: Calibration, scenes: list) -> dict[str, float]:
    """Compare with full decoding on held-out scenes: share of differing outputs, share of decoded queries, seconds."""
    differing, decoded, seconds = [], [], {"own": 0.0, "calibrated": 0.0}
    for number, scene in enumerate(scenes):
        atoms, where, sites, _ = scene_of(scene)
        predictions = {}
        for name, point in (("own", own_point(model)), ("calibrated", calibration.point)):
            began = time.perf_counter()
            predictions[name] = point.predict(model, atoms, where, sites=sites, seed=number)
            seconds[name] += time.perf_counter() - began
        different = predictions["calibrated"].differs(predictions["own"], calibration.precision or 0.0)
        differing.append(float(different.double().mean()))
        decoded.append(predictions["calibrated"].decoded / predictions["own"].decoded)
    return {
        "scenes": len(scenes),
        "differing_mean": float(np.mean(differing)),
        "differing_standard_error": float(np.std(differing) / len(scenes) ** 0.5),
        "differing_largest": float(np.max(differing)),
        "decoded": float(np.mean(decoded)),
        "times_faster": seconds["own"] / seconds["calibrated"],
        "own_seconds": seconds["own"],
    }


def main() -> None:
    """Calibrate the whole cost, or each strategy by itself, and write the results as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--decode", default="", help="strategies to calibrate by themselves, at the model's own cost")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--precision", type=float)
    parser.add_argument("--window", type=float)
    parser.add_argument("--scenes", type=int, default=60)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*")
    args = parser.parse_intermixed_args()
    model = aio.AtomizerIO.from_pretrained(args.model).eval()
    dataset = open_split(settings_of(args.model, None, args.options), "test")
    count = args.scenes + args.held_out
    if args.window is not None:
        scenes = list(random_crops(dataset, count, args.window, args.seed))
    else:
        scenes = [dataset[number] for number in range(min(count, len(dataset)))]
    order = np.random.default_rng(args.seed).permutation(len(scenes))
    scenes = [scenes[number] for number in order]
    own = model.config
    ways = {"whole cost": Choices()}
    ways |= {
        name: Choices((own.atoms_per_latent,), (None,), (own.neighbors,), strategies(name))
        for name in args.decode.split(",")
        if name
    }
    sampling = Sampling(scenes=args.scenes, seed=args.seed)
    result = {"alpha": args.alpha, "window_m": args.window, "seed": args.seed, "machine": machine(), "points": {}}
    for name, choices in ways.items():
        began = time.monotonic()
        calibration = calibrate(
            model, scenes[: args.scenes], args.alpha, choices=choices, precision=args.precision, sampling=sampling
        )
        row = {"point": str(calibration.point), "flops": calibration.step.flops, "blocks": calibration.blocks}
        row |= {"calibration_scenes": calibration.scenes, "calibration_seconds": round(time.monotonic() - began, 1)}
        row |= measured(model, calibration, scenes[args.scenes :])
        result["points"][name] = row
        print(name, row, flush=True)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

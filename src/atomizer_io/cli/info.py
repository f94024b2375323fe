"""Show the stages, parameters and operations of a model for a given input; `atomizer info sensors` lists sensors."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from atomizer_io.channels import some_of
from atomizer_io.errors import ConfigError
from atomizer_io.model.atomizer import AtomizerIO
from atomizer_io.model.config import check_count
from atomizer_io.model.flops import InputSize, latents_for, stages
from atomizer_io.model.presets import PRESETS, create_model
from atomizer_io.sensors.catalogue import SENSORS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``atomizer info``."""
    parser.add_argument(
        "model", help="a preset, a folder written by save_pretrained, a name on the Hugging Face hub; or: sensors"
    )
    parser.add_argument(
        "--input",
        default="512x512x15",
        metavar="HxWxC[xT]",
        help="size of a raster input: height, width, channels and dates (default: %(default)s)",
    )
    parser.add_argument("--points", type=int, metavar="P", help="a point cloud of P returns instead")
    parser.add_argument("--queries", type=int, metavar="M", help="positions asked (default: one per pixel or point)")
    parser.add_argument("--atoms-per-latent", type=int, metavar="KAPPA", help="atoms per latent (default: the model's)")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    if args.model == "sensors":
        for name, sensor in SENSORS.items():
            print(f"{name:16} {', '.join(sensor.names)}")
        return 0
    if args.model in PRESETS or not ("/" in args.model or Path(args.model).exists()):
        model = create_model(args.model)
    else:
        model = AtomizerIO.from_pretrained(args.model)
    if args.atoms_per_latent is not None:
        model.config = model.config.replace(atoms_per_latent=args.atoms_per_latent)
    size = _size(model, args)
    rows = stages(model, size)
    c = model.config

    print(
        f"{args.model}: {c.task}, {c.num_outputs} outputs" + (f" ({', '.join(c.class_names)})" if c.class_names else "")
    )
    if c.channels:
        print(f"trained on: {some_of((f'{channel.sensor} {channel.name}' for channel in c.channels), 20)}")
    print(
        f"input: {'' if args.points else described(args.input)}{size.atoms:,} atoms "
        f"at {size.sites:,} sites, {size.steps} time step(s) → {size.latents:,} latents "
        f"(κ = {c.atoms_per_latent}) + {c.global_latents} global, {size.queries:,} queries"
    )
    print(f"\n{'stage':<10} {'parameters':>12} {'GFLOP':>10} {'as in the paper':>16}")
    for row in rows:
        print(f"{row.name:<10} {row.parameters:>12,} {row.flops / 1e9:>10,.2f} {row.literal_flops / 1e9:>16,.2f}")
    flops, literal = sum(row.flops for row in rows), sum(row.literal_flops for row in rows)
    parameters = sum(row.parameters for row in rows)
    print(f"{'total':<10} {parameters:>12,} {flops / 1e9:>10,.2f} {literal / 1e9:>16,.2f}")
    return 0


def described(raster: str) -> str:
    """``512x512x15`` in words, so that an axis in the wrong place is seen."""
    height, width, channels, *dates = raster.split("x")
    return f"{height} × {width} pixels, {channels} channels{f', {dates[0]} dates' if dates else ''}: "


def _size(model: AtomizerIO, args: argparse.Namespace) -> InputSize:
    for name in ("points", "queries", "atoms_per_latent"):
        if getattr(args, name) is not None:
            check_count(f"--{name.replace('_', '-')}", getattr(args, name))
    if args.points is not None:
        latents = latents_for(model, args.points)
        queries = args.points if args.queries is None else args.queries
        return InputSize(args.points, args.points, 1, latents, 1, queries if model.config.dense else 0, True)
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?", args.input)
    if match is None or "0" in match.groups():
        raise ConfigError(f"--input {args.input!r} is not HxWxC or HxWxCxT, such as 512x512x15")
    height, width, channels, dates = (int(group or 1) for group in match.groups())
    sites = height * width
    steps = dates if model.config.temporal else 1
    atoms = sites * channels * dates
    latents = sites if model.config.layout == "sites" else latents_for(model, atoms / steps)
    queries = (sites if args.queries is None else args.queries) if model.config.dense else 0
    return InputSize(atoms, sites * dates, channels * dates, latents, steps, queries)

"""Show what is installed; with a NAME, the stages, parameters and FLOPs of a model, or the bands of a sensor.

`atomizer info` lists models, sensors, threads, devices and extras; `atomizer info sensors` the bands of all sensors.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from atomizer_io.cli.decoding import add_atoms_per_latent
from atomizer_io.errors import ConfigError, check_count, listed

if TYPE_CHECKING:  # what brings torch is imported by the functions that work with it: help must not wait for it
    from atomizer_io.data.channels import Channel
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.flops import InputSize
    from atomizer_io.models.base import Model

WIDTH = 120
LONG_SETTINGS = ("learned_channels", "site_fields")
PIXEL_M = 10.0  # of the synthetic scenes that FLOPs are counted on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer info``."""
    add = parser.add_argument
    text = "a preset, a folder written by save_pretrained, a name on the Hugging Face hub, a sensor; or: sensors"
    add("model", nargs="?", metavar="NAME", help=text)
    text = "size of a raster input: height, width, channels and dates (default: %(default)s)"
    add("--input", default="512x512x15", metavar="HxWxC[xT]", help=text)
    add("--points", type=int, metavar="P", help="take a point cloud of P returns as input instead of a raster")
    add("--queries", type=int, metavar="M", help="number of queries (default: one for each pixel or point)")
    add_atoms_per_latent(parser)
    text = "seal the folder of a model whose files were changed on purpose, which is an error without a new seal"
    add("--seal", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Print what NAME selects, or what is installed."""
    from atomizer_io.data.sensors.catalogue import SENSORS, find

    if args.seal:
        seal(args.model or "")
    if args.model is None:
        show_installation()
    elif args.model == "sensors":
        for name, sensor in SENSORS.items():
            print(f"{name:16} {', '.join(sensor.names)}")
    elif Path(args.model).exists() or (named := find(args.model)) is None:
        show_model(args)
    else:
        from atomizer_io.cli.data import channel_lines

        print("\n".join(channel_lines(named.channels)))
    return 0


def show_installation() -> None:
    """Print versions, models, sensors, and what this machine computes with."""
    import torch

    from atomizer_io import __version__
    from atomizer_io.data.sensors.catalogue import SENSORS
    from atomizer_io.models.registry import list_models

    path, reason = kernels()
    print_row("atomizer-io", f"{__version__}, Python {platform.python_version()}")
    print_row("torch", torch.__version__)
    print_row("models", ", ".join(list_models()))
    print_row("sensors", ", ".join(SENSORS))
    print_row("kernels", f"{path} ({reason})" if reason else path)
    print_row("threads", str(torch.get_num_threads()))
    print_row("devices", ", ".join(devices()))
    for number, text in enumerate(extras()):
        print_row("" if number else "extras", text)


def kernels() -> tuple[str, str]:
    """Return which path the model takes on this CPU, ``compiled`` or ``plain``, and why."""
    from atomizer_io.models.atomizer.ops import kernels

    status = kernels.status()
    return status.path, status.reason


def devices() -> list[str]:
    """Return the devices that torch can compute on here."""
    import torch

    cuda = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    return ["cpu", *cuda] + (["mps"] if torch.backends.mps.is_available() else [])


def extras() -> Iterator[str]:
    """Yield, for each extra, its installed libraries with their versions, and how to get those that are missing."""
    from atomizer_io.extras import installed

    for extra, (there, missing) in installed().items():
        parts = [", ".join(there.values())] if there else []
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            parts.append(f"{', '.join(missing)} {verb} missing: pip install 'atomizer-io[{extra}]'")
        yield f"{extra:8}{'; '.join(parts)}"


def print_row(name: str, text: str) -> None:
    """Print a name and a text in two columns."""
    print(textwrap.fill(text, WIDTH, initial_indent=f"{name:14}", subsequent_indent=" " * 14, break_on_hyphens=False))


def show_model(args: argparse.Namespace) -> None:
    """Print the task of a model, what it was trained on, its settings and its cost."""
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.base import Cost
    from atomizer_io.models.registry import list_models
    from atomizer_io.models.storage import seal_at

    for name in ("points", "queries", "atoms_per_latent"):
        if getattr(args, name) is not None:
            check_count(f"--{name.replace('_', '-')}", getattr(args, name))
    model = find_model(args.model)
    task_spec, cost = model.task_spec, Cost(args.atoms_per_latent)
    model.check_cost(cost)
    model.keep_cost(cost)
    coded = [f"{code} {name}" for code, name in zip(task_spec.class_codes, task_spec.names, strict=False)]
    classes = f" ({', '.join(coded or task_spec.class_names)})" if task_spec.class_names else ""
    print(f"{args.model}: {task_spec.task}, {task_spec.num_outputs} outputs{classes}")
    if args.model not in list_models():
        print_row("seal", seal_text(args.model, seal_at(args.model)))
    if task_spec.channels:
        print_row("trained on", listed([f"{channel.sensor} {channel.name}" for channel in task_spec.channels]))
    names = {None: "none", True: "yes", False: "no"}
    settings = {
        name: names[value] if value is None or isinstance(value, bool) else value
        for name, value in model.settings().items()
        if name not in LONG_SETTINGS
    }
    print_row("settings", ", ".join(f"{name} {text}" for name, text in settings.items()) or "none")
    present = {name: value for name, value in dataclasses.asdict(model.capabilities).items() if value}
    named = (f"{name} ({', '.join(value)})" if name == "cost" else name for name, value in present.items())
    capabilities = ", ".join(named).replace("_", " ")
    print_row("capabilities", capabilities or "none beyond predicting at the queries of a sample")
    if isinstance(model, AtomizerIO):
        show_stages(model, args)
    else:
        show_cost(model, args)


def show_stages(model: AtomizerIO, args: argparse.Namespace) -> None:
    """Print parameters and FLOPs of each stage of Atomizer-IO, as computed here and as the paper writes them."""
    from atomizer_io.models.atomizer.flops import stages

    size, c = size_of(model, args), model.config
    rows = stages(model, size)
    print_row(
        "input",
        f"{'' if args.points else described(*raster_size(args.input))}{size.atoms:,} atoms "
        f"at {size.sites:,} sites, {size.steps} time step(s) → {size.latents:,} latents "
        f"(κ = {c.atoms_per_latent}) + {c.global_latents} global, {size.queries:,} queries",
    )
    print(f"\n{'stage':<10} {'parameters':>12} {'GFLOP':>10} {'as in the paper':>16}")
    for row in rows:
        print(f"{row.name:<10} {row.parameters:>12,} {row.flops / 1e9:>10,.2f} {row.literal_flops / 1e9:>16,.2f}")
    flops, literal = sum(row.flops for row in rows), sum(row.literal_flops for row in rows)
    parameters = sum(row.parameters for row in rows)
    print(f"{'total':<10} {parameters:>12,} {flops / 1e9:>10,.2f} {literal / 1e9:>16,.2f}")


def show_cost(model: Model, args: argparse.Namespace) -> None:
    """Print parameters and FLOPs of any model, for a synthetic scene of the size that the options describe."""
    import torch

    from atomizer_io.data.atoms import AtomSet
    from atomizer_io.data.grid import Grid
    from atomizer_io.data.sample import queries_at

    if args.points is not None:
        raise ConfigError(f"--points: {args.model} is measured on rasters; use --input")
    height, width, count, dates = raster_size(args.input)
    if model.task_spec.channels and len(model.task_spec.channels) < count:
        count = len(model.task_spec.channels)
    channels = model.task_spec.channels[:count] or optical_channels(count)
    if not model.task_spec.channels:
        task_spec = model.task_spec.replace(channels=channels, pixel_m=PIXEL_M)
        model = type(model).build(task_spec, model.settings(), preset=model.preset)
    values = torch.zeros(count, height, width)
    atoms = sum((AtomSet.from_raster(values, channels, PIXEL_M, day) for day in range(1, dates + 1)), AtomSet())
    positions = Grid(height, width, gsd_m=PIXEL_M).positions()[: args.queries]
    inputs = [model.preparer()(atoms, queries_at(positions) if model.task_spec.dense else None)]
    sensors = len({channel.sensor for channel in channels})
    of = f"{sensors} sensor{'s' if sensors > 1 else ''}"
    print_row("input", f"{described(height, width, count, dates)}{atoms.num_atoms:,} atoms of {of}")
    print(f"\n{model.num_parameters:,} parameters, {model.flops(inputs) / 1e9:,.2f} GFLOP")


def optical_channels(count: int) -> tuple[Channel, ...]:
    """Return so many synthetic channels, from blue to short-wave infrared."""
    from atomizer_io.data.channels import Channel

    waves = (0.4 + 2.0 * i / max(count, 2) for i in range(count))
    return tuple(Channel("synthetic", f"B{i}", wave, 0.02, mean=0.0, std=1.0) for i, wave in enumerate(waves))


def find_model(name: str) -> Model:
    """Return the model of a preset, a folder or the Hugging Face hub; the error lists similar names."""
    from atomizer_io.data.channels import fold
    from atomizer_io.data.sensors.catalogue import SENSORS
    from atomizer_io.data.sensors.sensor import near_matches
    from atomizer_io.models.registry import create_model, list_models, load_model

    if name in list_models():
        return create_model(name)
    if "/" in name or Path(name).exists():
        return load_model(name)
    near = near_matches(name, {fold(known): known for known in (*list_models(), *SENSORS, "sensors")})
    raise ConfigError(f"{name!r} is neither a model, a folder nor a sensor; {near}")


def size_of(model: AtomizerIO, args: argparse.Namespace) -> InputSize:
    """Return the size of the input that the options describe."""
    from atomizer_io.models.atomizer.flops import InputSize, latents_for

    if args.points is not None:
        latents = latents_for(model, args.points)
        queries = args.points if args.queries is None else args.queries
        return InputSize(args.points, args.points, 1, latents, 1, queries if model.task_spec.dense else 0, True)
    height, width, channels, dates = raster_size(args.input)
    sites = height * width
    steps = dates if model.config.temporal else 1
    atoms = sites * channels * dates
    latents = sites if model.config.layout == "sites" else latents_for(model, atoms, steps)
    queries = (sites if args.queries is None else args.queries) if model.task_spec.dense else 0
    return InputSize(atoms, sites * dates, channels * dates, latents, steps, queries)


def described(height: int, width: int, channels: int, dates: int) -> str:
    """Return the size of a raster in words, so that a wrong order of axes is seen."""
    return f"{height} × {width} pixels, {channels} channels{f', {dates} dates' if dates > 1 else ''}: "


def raster_size(text: str) -> tuple[int, int, int, int]:
    """Return height, width, channels and dates of ``512x512x15`` or ``512x512x15x6``."""
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?", text)
    if match is None or "0" in match.groups():
        raise ConfigError(f"--input {text!r} is not HxWxC or HxWxCxT, such as 512x512x15")
    height, width, channels, dates = (int(group or 1) for group in match.groups())
    return height, width, channels, dates


def model_line(source: str) -> str:
    """Return the line about a saved model: its digest, or that it has none; a broken seal is an error."""
    from atomizer_io.decoding.scene_decoder import loaded
    from atomizer_io.models.storage import seal_at

    loaded(str(Path(source).absolute() if Path(source).is_dir() else source))  # kept for the prediction
    return f"model {source}: {seal_text(source, seal_at(source))}"


def seal_text(source: str, seal: str | None) -> str:
    """Return the seal of a model in words."""
    if seal is not None:
        return f"sealed as {seal}"
    return f"not sealed, as it was saved by an older version (`atomizer info {source} --seal` seals it)"


def seal(source: str) -> None:
    """Seal a folder again, after a change that is meant; its calibrations too."""
    from atomizer_io.decoding.calibration import seal_again as seal_calibrations
    from atomizer_io.models.storage import seal_again

    folder = Path(source)
    if not folder.is_dir():
        raise ConfigError(f"--seal is for the folder of a model, and {source} is none")
    seal_again(folder)
    seal_calibrations(folder)

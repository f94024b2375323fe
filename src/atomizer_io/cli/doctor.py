"""Check the installation: Python, torch, compiled kernels, extras, cache folder, memory and disk; one line each.

A line begins with ok, note (it works, but not as well as it could) or broken; the exit code is 1 if anything is broken.
With --run it builds the model of a training instead, initialises it as the training would, and prints a line per stage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from atomizer_io.cli.info import devices, kernels
from atomizer_io.extras import installed, version

AGREEMENT = 1e-9  # in float64, between the path in use and the reference
LITTLE_BYTES = 2e9
IMPORTING = """
import sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    print("begin", name, flush=True)
    try:
        __import__(name)
    except BaseException as error:
        words = f"{type(error).__name__}: {error}".split("\\n")[0]
        print("bad", name, words, flush=True)
    else:
        print("fine", name, flush=True)
"""


State = Literal["ok", "note", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of the part of the installation that is called ``name``."""

    state: State
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:8}{self.name:13}{self.text}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer doctor``."""
    text = "YAML file of a training, and settings to change: what reaches the stages of its model before the first step"
    parser.add_argument("--run", dest="training", nargs="+", metavar=("CONFIG", "key=value"), help=text)


def run(args: argparse.Namespace) -> int:
    """Check one thing after the other; 1 if something that is needed is broken."""
    if args.training:
        print_stages(*args.training)
        return 0
    broken = 0
    for check in CHECKS:
        for finding in check():
            print(finding, flush=True)
            broken += finding.state == "broken"
    print("all is well" if not broken else f"{broken} broken: see above what to do")
    return 1 if broken else 0


def print_stages(path: str, *changes: str) -> None:
    """Print what reaches the stages of the model of a training, for its first batch, before the first step."""
    import torch
    from torch import Tensor

    from atomizer_io.errors import ConfigError
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.diagnostics import HEADER, diagnose
    from atomizer_io.training import config
    from atomizer_io.training.build import initialise
    from atomizer_io.training.losses import loss_sum
    from atomizer_io.training.run import make_loaders, prepare, repeatable

    with tempfile.TemporaryDirectory() as folder, repeatable():
        prepared = prepare(replace(config.load(path, changes), output=folder))
        model, loader = prepared.model, make_loaders(prepared.run, prepared, 0, 1)[0]
        if not isinstance(model, AtomizerIO):
            raise ConfigError(f"{path} trains {model.preset or model.family}: only Atomizer-IO has these stages")
        initialise(prepared.run, model, loader, prepared.transfer)
        batch = next(iter(loader))

    def loss(predictions: list[Tensor]) -> Tensor:
        outputs = torch.cat(predictions) if model.task_spec.dense else torch.stack(predictions)
        total, weight = loss_sum(outputs, batch.target(outputs.device), model.task_spec, prepared.class_weights)
        return total / weight.clamp(min=1e-12)

    print(HEADER, *diagnose(model, batch.inputs, loss), sep="\n")


def check_python() -> Iterator[Finding]:
    """The interpreter and the system it runs on."""
    yield Finding("ok", "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_torch() -> Iterator[Finding]:
    """Whether torch can be imported, and what it computes on."""
    if failed := failures(["torch"]):
        text = f"cannot be imported ({failed['torch']}): install it as described at https://pytorch.org/get-started"
        yield Finding("broken", "torch", text)
        return
    import torch

    yield Finding("ok", "torch", f"{torch.__version__}, {torch.get_num_threads()} threads, {', '.join(devices())}")


def check_torchvision() -> Iterator[Finding]:
    """Whether an installed torchvision fits torch: Lightning and torchmetrics import it if it is there."""
    if importlib.util.find_spec("torchvision") is None:
        yield Finding("ok", "torchvision", "is not installed, and is not needed")
    elif failed := failures(["torchvision"]):
        state: State = "note" if importlib.util.find_spec("lightning") is None else "broken"
        text = f"cannot be imported beside torch {version('torch')} ({failed['torchvision']}), which breaks lightning "
        text += "and torchmetrics: pip uninstall torchvision, or install the build for this torch"
        yield Finding(state, "torchvision", f"{version('torchvision')} {text}")
    else:
        yield Finding("ok", "torchvision", version("torchvision"))


def check_kernels() -> Iterator[Finding]:
    """Which path the model takes, and whether it agrees with the reference on a tiny scene."""
    try:
        path, reason = kernels()
        off = disagreement()
    except Exception as error:  # whatever it is, it is reported
        yield Finding("broken", "kernels", f"the model fails on a tiny scene: {type(error).__name__}: {error}")
        return
    shown = f"{path} ({reason})" if reason else path
    if not off < AGREEMENT:
        text = f"{shown}, predictions are off by {off:.1e}: set ATOMIZER_KERNELS=off, and report this"
        yield Finding("broken", "kernels", text)
        return
    text = f"{shown}, right to {off:.0e} on a tiny scene"
    slower = "; slower than compiled kernels, which need a C compiler (cc, gcc or clang)"
    yield Finding("ok", "kernels", text) if path == "compiled" else Finding("note", "kernels", text + slower)


def disagreement() -> float:
    """The largest difference between the path in use and the reference, in float64, with kernels of both precisions."""
    import torch

    import atomizer_io as aio
    from atomizer_io.models.atomizer.reference import Reference

    generator = torch.Generator().manual_seed(0)
    values = torch.rand(3, 12, 12, generator=generator, dtype=torch.float64) * 3000
    atoms = aio.AtomSet.from_raster(values, aio.sensors.SENTINEL2.pick("B02", "B04", "B08"))
    where = [torch.rand(20, 2, generator=generator, dtype=torch.float64) * 100 - 50]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = aio.create_model("atomizer_io_tiny", width=24, depth=1, atoms_per_latent=40, extent_m=120.0).eval()
        rough = model([atoms], where)[0]
        exact = model.double()([atoms], where)[0]
        expected = Reference(model)([atoms], where)[0]
    if not torch.allclose(rough.double(), expected, atol=1e-3):
        return float((rough - expected).abs().max())
    return float((exact - expected).abs().max())


def check_extras() -> Iterator[Finding]:
    """Whether the libraries of the extras that are installed can be imported."""
    failed = failures([library for there, _ in installed().values() for library in there])
    for extra, (there, missing) in installed().items():
        broken = [library for library in there if library in failed]
        for library in broken:
            yield Finding("broken", extra, f"{there[library]} cannot be imported ({failed[library]}): install it again")
        if missing:
            text = f"without {', '.join(missing)}: pip install 'atomizer-io[{extra}]' if you need it"
            yield Finding("note", extra, text)
        elif not broken:
            yield Finding("ok", extra, ", ".join(there.values()))


def failures(libraries: Sequence[str]) -> dict[str, str]:
    """Which of the libraries cannot be imported, and why; tried in another process, which may even crash."""
    command = [sys.executable, "-c", IMPORTING, *libraries]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(libraries, "importing it takes more than five minutes")
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith(("begin ", "bad ", "fine "))]
    failed = {line[1]: line[2] for line in lines if line[0] == "bad"}
    if lines and lines[-1][0] == "begin":
        failed[lines[-1][1]] = f"Python crashed with exit code {done.returncode}"
    return failed


def check_cache() -> Iterator[Finding]:
    """Whether compiled kernels can be kept for the next time."""
    from atomizer_io.models.atomizer.ops.kernels.cache import user_folder

    try:
        folder = user_folder()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:
        text = f"cannot be written to ({error}): set XDG_CACHE_HOME to a folder of yours, or kernels are not kept"
        yield Finding("note", "cache", text)
    else:
        yield Finding("ok", "cache", f"{folder} can be written to")


def check_space() -> Iterator[Finding]:
    """Free disk where the command runs, and memory that programs can have without swapping, where Linux reports it."""
    spaces = {"disk": shutil.disk_usage(Path.cwd()).free}
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        spaces["memory"] = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    for name, free in spaces.items():
        yield Finding("ok" if free > LITTLE_BYTES else "note", name, f"{free / 1e9:.1f} GB are free")


CHECKS = (check_python, check_torch, check_torchvision, check_kernels, check_extras, check_cache, check_space)

"""All models on the same inputs in one run: parameters, FLOPs, memory, time to prepare, predict and train a step.

Every cell of the table runs in a process of its own, with a limit of time and of memory: what does not fit is marked,
and what was measured until then is kept.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.machine import machine
from atomizer_io.models.base import Model
from atomizer_io.models.registry import create_model, preset
from atomizer_io.texts import parse_json, read_text, write_output
from atomizer_lab.baselines.dates import LINEAR
from atomizer_lab.bench.measure import peak_extra_bytes, resident_bytes, seconds
from atomizer_lab.bench.model_inputs import PAPER_INPUTS, ModelInput

LONG_S = 5.0  # calls that take longer are repeated once only
POLL_S = 0.1
PATCH_PX = 16  # sides of images are multiples of this for the vision transformers
SMALL_PX = 64  # scenes up to this size are read in patches of 8 pixels instead of 16
# the models of the paper's tables, by task
SCENES = ("atomizer_io_cls", "resnet50", "vit_small", "perceiver_io_cls", "ramen", "universat")
MAPS = ("atomizer_io_seg", "resnet50", "vit_small", "unet", "perceiver_io_seg", "ramen", "universat")
SERIES = (
    "atomizer_io_seg_temporal",
    "resnet50_temporal",
    "vit_small_temporal",
    "perceiver_io_seg",
    "ramen",
    "universat",
)
POINT_CLOUDS = ("atomizer_io_3d", "perceiver_io_seg")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What one model took on one input, None what was not measured; ``stopped`` is the reason.

    Seconds are the shortest of the calls: a first one, which also builds what is kept, and ``repeats`` more, or a
    single one more where it takes longer than :data:`LONG_S` (none where the limit of time ends it).
    """

    input: str
    model: str
    parameters: int | None = None
    gflops: float | None = None  # a multiply-add counts as two FLOPs
    prepare_s: float | None = None
    answer_s: float | None = None  # old name
    answer_mb: float | None = None  # beyond what was there before; # old name
    step_s: float | None = None  # forward and backward, without optimizer
    step_mb: float | None = None
    stopped: str | None = None

    def line(self) -> str:
        """Return this measurement as a row of the printed table."""

        def number(value: float | None, scale: float = 1.0, digits: int = 1) -> str:
            return f"{'–':>12}" if value is None else f"{value * scale:12,.{digits}f}"

        macs = None if self.gflops is None else self.gflops / 2
        columns = [
            number(self.parameters, 1e-6, 2),
            number(self.gflops),
            number(macs),
            *(number(value, 1e3) for value in (self.prepare_s, self.answer_s, self.step_s)),  # old name
            *(number(value, 1.0, 0) for value in (self.answer_mb, self.step_mb)),  # old name
        ]
        return f"{self.model:26}" + "".join(columns) + (f"   {self.stopped}" if self.stopped else "")


def usual_models(scene: ModelInput) -> tuple[str, ...]:
    """Return the models of the paper for an input."""
    if scene.points:
        return POINT_CLOUDS
    if scene.task == "classification":
        small = max(scene.pixels) <= SMALL_PX
        return tuple("vit_small_patch8" if name == "vit_small" and small else name for name in SCENES)
    return SERIES if scene.dates > 1 else MAPS


def settings_for(name: str, scene: ModelInput) -> dict[str, Any]:
    """Return the settings that a model of the paper has for an input."""
    model, _ = preset(name)
    settings: dict[str, Any] = {}
    if model.family == "ramen":
        settings["encoding_m"] = scene.encoding_m
    if model.family == "universat":
        settings |= {"patch_m": scene.encoding_m, "stride": scene.stride}
    if name == "resnet50_temporal":
        settings["num_dates"] = scene.dates
    if name.startswith("vit_small"):
        settings["image_px"] = -(-max(scene.pixels) // PATCH_PX) * PATCH_PX
    if name == "vit_small_temporal" and scene.dates == 2:  # before and after: an L-TAE could not distinguish them
        settings |= {"temporal": LINEAR, "num_dates": scene.dates}
    if scene.points and model.family in ("atomizer_io", "perceiver_io"):
        settings["max_points"] = 40_000
    return settings


def measure(name: str, scene: ModelInput, repeats: int, report: Callable[[Mapping[str, Any]], None]) -> None:
    """Measure one model on one input, and report each figure as it is known."""
    if scene.points and not preset(name)[0].capabilities.points:
        raise ConfigError(f"{name} does not read points")
    torch.manual_seed(0)
    atoms, queries = scene.made()
    model: Model = create_model(name, task_spec=scene.task_spec, **settings_for(name, scene)).eval()
    report({"parameters": model.num_parameters})
    prepare = model.preparer()
    began = time.perf_counter()
    inputs = [prepare(atoms, queries)]
    report({"prepare_s": time.perf_counter() - began, "gflops": model.flops(inputs) / 1e9})

    def predict() -> None:
        with torch.no_grad():
            model.predict(inputs)

    def step() -> None:
        model.predict(inputs)[0].float().logsumexp(dim=-1).mean().backward()
        model.zero_grad(set_to_none=True)

    for kind, call in (("answer", predict), ("step", step)):  # old name
        model.train(kind == "step")
        began = time.perf_counter()
        extra = peak_extra_bytes(call)  # the first call: it also builds what is kept
        first = time.perf_counter() - began
        report({f"{kind}_s": first, f"{kind}_mb": extra / 1e6})
        report({f"{kind}_s": min(first, seconds(call, repeats if first < LONG_S else 1))})
    fresh = model.preparer()
    began = time.perf_counter()
    fresh(atoms, queries)
    report({"prepare_s": time.perf_counter() - began})


def in_child(name: str, scene: ModelInput, repeats: int, threads: int, pipe: Connection) -> None:
    """Measure in a process of its own; what a model cannot do comes back as the reason why it stopped."""
    torch.set_num_threads(threads)
    try:
        measure(name, scene, repeats, pipe.send)
    except AtomizerError as error:
        pipe.send({"stopped": str(error).splitlines()[0]})
    except MemoryError:
        pipe.send({"stopped": "does not fit into memory"})
    pipe.close()


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a cell of the table may take, and how much memory its process may have."""

    seconds: float = 300.0
    bytes: int = 16 << 30
    repeats: int = 3


def cell(name: str, scene: ModelInput, limits: Limits) -> ModelRow:
    """Measure one model on one input within limits."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    threads = torch.get_num_threads()
    child = context.Process(target=in_child, args=(name, scene, limits.repeats, threads, there), daemon=True)
    row, until = ModelRow(scene.name, name), time.monotonic() + limits.seconds
    child.start()
    there.close()
    try:
        while True:
            if here.poll(POLL_S):
                row = replace(row, **here.recv())
            elif time.monotonic() > until:
                return replace(row, stopped=f"stopped after {limits.seconds:g} s")
            elif resident_bytes(child.pid) > limits.bytes:
                return replace(row, stopped=f"needs more than {limits.bytes / 2**30:.0f} GB")
    except EOFError:
        child.join()
        failed = row.stopped is None and child.exitcode != 0
        return replace(row, stopped=f"the process ended with code {child.exitcode}") if failed else row
    finally:
        child.kill()
        child.join()


def run(
    inputs: Sequence[ModelInput], names: Sequence[str], output: Path, limits: Limits, *, merge: bool = False
) -> dict[str, Any]:
    """Measure models on inputs one after the other; each row is printed and written as it comes.

    Every row has the limits and the machine of its measurement. ``merge`` keeps those of the file that are
    not measured again.
    """
    rows: list[ModelRow] = []
    measured = {"limits": asdict(limits), "machine": machine()}
    result: dict[str, Any] = kept(output, inputs, names) if merge else {"benchmark": "models", "rows": []}
    others = result["rows"]
    for scene in inputs:
        size = (
            ""
            if not scene.sensors
            else f"{scene.pixels[0]} × {scene.pixels[1]} × {len(scene.channels)} × {scene.dates}"
        )
        points = f"{scene.points:,} points" if scene.points else ""
        print(f"\n{scene.name} ({scene.task}): {', '.join(part for part in (size, points) if part)}")
        heads = ("M params", "GFLOP", "GMAC", "prepare ms", "predict ms", "step ms", "predict MB", "step MB")
        print(f"{'model':26}" + "".join(f"{head:>12}" for head in heads))
        for name in names or usual_models(scene):
            rows.append(cell(name, scene, limits))
            print(rows[-1].line(), flush=True)
            result["rows"] = in_order([*others, *({**asdict(row), **measured} for row in rows)])
            write_output(output, json.dumps(result, indent=1) + "\n")
    return result


def kept(output: Path, inputs: Sequence[ModelInput], names: Sequence[str]) -> dict[str, Any]:
    """Return what a result file holds, without the rows that are measured again; a missing file holds nothing.

    These are the rows of ``names`` on the inputs, or all rows of the inputs where no model is named.
    """
    if not output.exists():
        return {"benchmark": "models", "rows": []}
    try:
        saved = parse_json(read_text(output))
        shared = {key: saved.pop(key) for key in ("limits", "machine") if key in saved}  # of files of a single run
        rows = [{**row, **shared} for row in saved["rows"]]
        again = {scene.name for scene in inputs}
        others = [row for row in rows if row["input"] not in again or (names and row["model"] not in names)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"--merge: {output} is no table of models; name another file with --output") from error
    whole = {"whole": {**saved["whole"], **shared}} if "whole" in saved else {}
    return {"benchmark": "models", "rows": others, **whole}


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in the order of the paper's inputs, then all others by the names of their inputs."""
    order = {name: number for number, name in enumerate(PAPER_INPUTS)}
    return sorted(rows, key=lambda row: (order.get(row["input"], len(order)), row["input"]))

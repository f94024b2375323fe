"""Writing a model to a file: ONNX for any runtime, or a saved torch.export program (.pt2)."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.durable import make_folder, publish
from atomizer_io.errors import CheckpointError, ConfigError
from atomizer_io.export.network import Description, Input, Network, inputs_of
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.texts import parse_json

FORMATS = ("onnx", "pt2")
FORMAT_VERSION = 3  # 3: a query may see several atoms of a kind
DESCRIPTION = "atomizer_io.json"  # under this name it lies in a .pt2 file
UNITS = "positions, anchors and GSD in metres, wavelengths in micrometres, days of the year from 1, values in raw units"
# two sets of sizes, no two alike: one to trace the network with, one to try the file with
DIMENSIONS = ("rows", "slots", "kinds", "sites", "latents", "steps", "queries", "neighbors", "views")
TRACED = dict(zip(DIMENSIONS, (7, 5, 3, 11, 6, 2, 8, 4, 9), strict=True))
TRIED = dict(zip(DIMENSIONS, (13, 9, 5, 17, 10, 3, 21, 2, 6), strict=True))
ALLOWED_ERROR = 1e-4  # largest accepted difference between file and network, relative to the largest output


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written; ``error`` is the largest difference from the network's outputs when it was tried."""

    path: Path
    format: str
    bytes: int
    error: float


def write(model: AtomizerIO, path: str | Path, format: str = "onnx") -> Written:
    """Write ``model`` to ``path`` and try the file; what was there before stays until the new file is complete.

    Weights of half precision are written as float32.
    """
    if format not in FORMATS:
        raise ConfigError(f"cannot export to {format!r}; choose one of {', '.join(FORMATS)}")
    if format == "onnx":  # missing libraries are named before the work, not after it
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    return write_networks({Path(path): Network(model)}, format)[0]


def write_networks(networks: Mapping[Path, Network], format: str = "onnx") -> list[Written]:
    """Write networks to their paths and try the files; what was there before stays until all are complete."""
    save, errors = _save_onnx if format == "onnx" else _save_pt2, {}
    folder = next(iter(networks)).parent
    make_folder(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".exporting-") as parts, _quiet():
        made = {Path(parts, path.name): path for path in networks}
        for part, path in made.items():
            network = networks[path]
            save(network, part, {**description(network.model), "inputs": described(network.inputs)})
            errors[path] = _try(network, outputs_of(part))
        publish(made)
    return [Written(path, format, path.stat().st_size, error) for path, error in errors.items()]


def capture(network: Network) -> ExportedProgram:
    """Return the network as a graph; numbers of atoms, kinds, sites, latents and queries may differ from run to run."""
    dims = {name: Dim(name, min=1) for name in TRACED}
    shapes = {name: {axis: dims[dim] for axis, dim in named.items()} for name, named in dynamic_axes(network).items()}
    with torch.no_grad():
        return torch.export.export(
            network, (), kwargs=random_inputs(network, TRACED), dynamic_shapes=shapes, strict=False
        )


def dynamic_axes(network: Network) -> dict[str, dict[int, str]]:
    """Return, for each input by name, the axes whose length may differ from run to run, and what they count."""
    return {i.name: {axis: dim for axis, dim in enumerate(i.dims) if isinstance(dim, str)} for i in network.inputs}


def runner(path: str | Path) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """Return a function from the inputs of an exported file to its outputs, which torch or onnxruntime computes."""
    run = outputs_of(path)
    return lambda inputs: run(inputs)[0]


def outputs_of(path: str | Path) -> Callable[[Mapping[str, Tensor]], list[Tensor]]:
    """Return a function from the inputs of an exported file to all of its outputs."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    if zipfile.is_zipfile(path):
        program = torch.export.load(path).module()
        return lambda inputs: [program(**inputs)]
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Tensor]) -> list[Tensor]:
        return [torch.from_numpy(out) for out in session.run(None, {name: t.numpy() for name, t in inputs.items()})]

    return run


def description(model: AtomizerIO) -> dict[str, str]:
    """Return the description that a file holds: texts by name, lists and settings as JSON."""
    from atomizer_io import __version__

    task_spec = model.task_spec
    return {
        "model_type": "atomizer_io",
        "format_version": str(FORMAT_VERSION),
        "library_version": __version__,
        "preset": model.preset or "",
        "task": task_spec.task,
        "class_names": json.dumps(task_spec.class_names, ensure_ascii=False),
        "class_codes": json.dumps(task_spec.codes if task_spec.class_names else ()),
        "units": UNITS,
        "inputs": described(inputs_of(model)),
        "problem": json.dumps(task_spec.to_dict(), ensure_ascii=False),  # old name
        "config": json.dumps(model.settings(), ensure_ascii=False),
    }


def described(inputs: Sequence[Input]) -> str:
    """Return inputs as JSON."""
    rows = [
        {"name": i.name, "shape": i.dims, "dtype": str(i.dtype).removeprefix("torch."), "meaning": i.meaning}
        for i in inputs
    ]
    return json.dumps(rows)


def read_description(path: str | Path) -> dict[str, str]:
    """Return the description that the exported file ``path`` holds, as texts by name."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    texts: dict[str, str] = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(f"/extra/{DESCRIPTION}"):
                    texts = parse_json(archive.read(name))
    else:
        import onnx

        model = onnx.load(path, load_external_data=False)
        texts = {entry.key: entry.value for entry in model.metadata_props}
    if texts.get("model_type") != "atomizer_io":
        raise CheckpointError(f"{path} was not written by atomizer export")
    return texts


def read_model(path: str | Path) -> Description:
    """Return the settings and task specification of the exported file ``path``, for :func:`scene_inputs`."""
    texts = read_description(path)
    if "problem" not in texts:  # format 1, whose settings held the specification  # old name
        raise CheckpointError(f"{path} was exported by an earlier version of atomizer-io: export the model again")
    config, task_spec = (parse_json(texts[name]) for name in ("config", "problem"))  # old name
    return Description(AtomizerConfig.from_dict(config), TaskSpec.from_dict(task_spec))


def random_inputs(network: Network, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Return inputs of the given sizes with random numbers, and indices within their bounds."""
    generator, model = torch.Generator().manual_seed(0), network.model
    indices = {
        "kind": sizes["kinds"],
        "site": sizes["sites"],
        "cell": sizes["latents"] * (sizes["steps"] if model.config.temporal else 1),
        "learned": len(model.config.learned_channels),
        "site_cell": sizes["latents"],
        "neighbor": sizes["latents"],
        "seen": sizes["rows"] * sizes["slots"],
    }
    inputs = {}
    for i in network.inputs:
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in i.dims]
        if i.name in indices:
            low = -1 if i.name in ("learned", "seen") else 0
            inputs[i.name] = torch.randint(low, max(1, indices[i.name]), shape, generator=generator)
        else:
            inputs[i.name] = torch.rand(shape, generator=generator, dtype=i.dtype) + 0.5
    if "kind" in inputs:
        inputs["kind"][1:, -1] = -1
    return inputs


def _try(network: Network, run: Callable[[Mapping[str, Tensor]], list[Tensor]]) -> float:
    inputs = random_inputs(network, TRIED)
    with torch.no_grad():
        expected = network(**inputs)
    worst = 0.0
    for out, own in zip(run(inputs), expected if isinstance(expected, tuple) else (expected,), strict=True):
        error = float((out - own).abs().max())
        if not error <= ALLOWED_ERROR * max(1.0, float(own.abs().max())):
            raise CheckpointError(f"the exported file differs from the model, by {error:g}: nothing was written")
        worst = max(worst, error)
    return worst


def _save_pt2(network: Network, path: Path, texts: dict[str, str]) -> None:
    program = capture(network)
    for node in program.graph.nodes:  # its text names folders of the machine
        node.meta.pop("stack_trace", None)
    torch.export.save(program, path, extra_files={DESCRIPTION: json.dumps(texts, ensure_ascii=False)})


def _save_onnx(network: Network, path: Path, texts: dict[str, str]) -> None:
    axes = dynamic_axes(network)
    exported = torch.onnx.export(
        capture(network), dynamo=True, dynamic_shapes=axes, output_names=[*network.outputs], verbose=False
    )
    assert exported is not None
    for node in exported.model.graph:  # stack traces, which name folders of the machine
        node.metadata_props.clear()
    exported.model.metadata_props.update(texts)
    exported.save(path)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings and logs in which the exporters address their own developers."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

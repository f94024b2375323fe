"""A STAC item for an exported model, with the Machine Learning Model (MLM) extension.

The network takes raw values, and standardises them by the ``mean`` and ``std`` it is given beside them. So the item
has no ``value_scaling``, which would leave it to the caller: the statistics stand with the bands.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.export.formats import UNITS, Written
from atomizer_io.export.network import OUTPUT, inputs_of
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.texts import write_output

if TYPE_CHECKING:
    import pystac
    from pystac.extensions.mlm import ModelInput, ModelOutput

EO = "https://stac-extensions.github.io/eo/v2.0.0/schema.json"
FILE = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
TASKS = {
    "segmentation": "semantic-segmentation",
    "regression": "regression",
    "classification": "scene-classification",
    "scene_regression": "regression",
}
_ARTIFACTS = {"onnx": "onnx", "pt2": "torch.export.save"}
_SHA256 = "1220"  # how a multihash marks that 32 bytes of SHA-256 follow


def write_item(
    model: AtomizerIO,
    written: Written,
    path: str | Path,
    *,
    when: datetime.datetime | None = None,
    seal: str | None = None,
) -> None:
    """Describe the file ``written`` of ``model`` in the STAC item ``path``; the asset's address is relative to it.

    ``seal`` is the digest of the folder that the model was loaded from.
    """
    path = Path(path)
    href = os.path.relpath(written.path.resolve(), path.resolve().parent)
    described = item(model, written, Path(href).as_posix(), when=when)
    described.properties |= {} if seal is None else {"atomizer_io:model_seal": seal}
    write_output(path, json.dumps(described.to_dict(), indent=2, ensure_ascii=False) + "\n")


def item(model: AtomizerIO, written: Written, href: str, *, when: datetime.datetime | None = None) -> pystac.Item:
    """Return the STAC item, without a geometry; ``when`` the model was exported is now by default."""
    import pystac
    from pystac.extensions.classification import SCHEMA_URI_PATTERN as CLASSIFICATION
    from pystac.extensions.mlm import AssetGeneralMLMExtension, Hyperparameters, MLMExtension, TaskType

    task_spec = model.task_spec
    described = pystac.Item(
        id=written.path.stem,
        geometry=None,
        bbox=None,
        datetime=datetime.datetime.now(datetime.UTC).replace(microsecond=0) if when is None else when,
        properties={"description": f"Atomizer-IO for {task_spec.task.replace('_', ' ')}: {UNITS}."},
        stac_extensions=[EO, FILE, CLASSIFICATION.format(version="2.0.0")],
    )
    asset = pystac.Asset(
        href=href,
        title=f"Atomizer-IO as {'ONNX' if written.format == 'onnx' else 'a torch.export program'}",
        media_type=f"application/octet-stream; framework={'onnx' if written.format == 'onnx' else 'pytorch'}",
        roles=["mlm:model"],
        extra_fields={
            "file:size": written.bytes,
            "file:checksum": _SHA256 + hashlib.sha256(written.path.read_bytes()).hexdigest(),
            **({"bands": [_band(channel) for channel in task_spec.channels]} if task_spec.channels else {}),
        },
    )
    described.add_asset("model", asset)
    MLMExtension.ext(described, add_if_missing=True).apply(
        name=model.preset or "atomizer_io",
        architecture="Atomizer-IO",
        tasks=[TaskType(TASKS[task_spec.task])],
        input=_inputs(model),
        output=[_output(task_spec)],
        framework="ONNX" if written.format == "onnx" else "PyTorch",
        framework_version=version("onnx" if written.format == "onnx" else "torch"),
        memory_size=4 * model.num_parameters,
        total_parameters=model.num_parameters,
        hyperparameters=Hyperparameters.create(**json.loads(json.dumps(model.settings()))),
    )
    del described.properties["mlm:pretrained_source"]  # null would mean that the model was trained from scratch
    AssetGeneralMLMExtension.ext(asset).apply(artifact_type=_ARTIFACTS[written.format])
    return described


def _band(channel: Channel) -> dict[str, Any]:
    """Return a channel as a band of STAC 1.1 with the statistics of training."""
    numbers = {"mean": channel.mean, "stddev": channel.std, "minimum": channel.min, "maximum": channel.max}
    fields = {
        "name": f"{channel.sensor} {channel.name}",  # two sensors may have bands of the same name
        "gsd": channel.gsd_m,
        "eo:center_wavelength": channel.wavelength_um,
        "eo:full_width_half_max": channel.bandwidth_um,
        "statistics": {name: number for name, number in numbers.items() if number is not None} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _inputs(model: AtomizerIO) -> list[ModelInput]:
    from pystac.extensions.mlm import InputStructure, ModelInput
    from pystac.extensions.raster import DataType

    bands = [f"{channel.sensor} {channel.name}" for channel in model.task_spec.channels]
    described = []
    for i in inputs_of(model):
        names = ["bands" if dim == "kinds" else dim if isinstance(dim, str) else _FIXED[i.name] for dim in i.dims]
        sizes = [dim if isinstance(dim, int) else -1 for dim in i.dims]
        structure = InputStructure.create(sizes, names, DataType(str(i.dtype).removeprefix("torch.")))
        described.append(ModelInput.create(i.name, bands if "bands" in names else [], structure, i.meaning))
    return described


_FIXED = {"site_position": "xy", "anchor": "xy", "query_position": "xy", "site_field": "fields"}


def _output(task_spec: TaskSpec) -> ModelOutput:
    from pystac.extensions.classification import Classification
    from pystac.extensions.mlm import ModelOutput, ResultStructure, TaskType
    from pystac.extensions.raster import DataType

    classes = not task_spec.regression
    return ModelOutput.create(
        name=OUTPUT,
        tasks=[TaskType(TASKS[task_spec.task])],
        result=ResultStructure.create(
            [-1 if task_spec.dense else 1, task_spec.num_outputs],
            ["queries" if task_spec.dense else "batch", "class" if classes else "variable"],
            DataType.FLOAT32,
        ),
        description="Logits of the classes in the order below, each with the value that stands for it in labels and "
        "maps: softmax gives probabilities."
        if classes
        else f"{task_spec.target_name or 'Values'} in {task_spec.target_unit or 'the units of the target'}.",
        classes=[
            # names without spaces, as the classification extension wants them
            Classification.create(code, description=name, name=re.sub(r"[^0-9A-Za-z_-]+", "_", name))
            for code, name in zip(task_spec.codes, task_spec.class_names, strict=False)
        ]
        or None,
    )

"""Saving and loading models of any kind: a folder with ``config.json`` and ``model.safetensors``, never a pickle."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from atomizer_io.data.task_spec import FIELDS, TaskSpec
from atomizer_io.durable import make_folder, publish
from atomizer_io.errors import CheckpointError, first_line
from atomizer_io.models import card, seal
from atomizer_io.models.base import Model
from atomizer_io.models.registry import family, list_models
from atomizer_io.models.seal import CALIBRATION, CONFIG, WEIGHTS
from atomizer_io.texts import parse_json, read_text, write_text

__all__ = ["CALIBRATION", "CONFIG", "WEIGHTS", "fingerprint", "load", "save", "seal_again", "seal_at"]

FORMAT_VERSION = 3  # since 3 there is a seal; in 1 the task specification was part of the settings
SAVING = ".saving"  # how folders begin that hold a file until it is complete


def save(model: Model, folder: Path) -> None:
    """Write a model and its card."""
    _save(model, folder)
    card.write(model, folder)


def _save(model: Model, folder: Path) -> None:
    """Write both files completely beside their final names, then rename: what was there before stays until then.

    The weights hold the seal, so that they may be replaced as often as a run improves, as long as the text is the same.
    """
    from atomizer_io import __version__

    description = {
        "model_type": model.family,
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "preset": model.preset,
        "parameters": model.num_parameters,
        "problem": model.task_spec.to_dict(),  # old name
        "config": model.settings(),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    make_folder(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{SAVING}-") as temporary:
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        seal.save(tensors, Path(temporary, WEIGHTS), {}, of=seal.digest(text))
        write_text(Path(temporary, CONFIG), text)
        publish({Path(temporary, name): folder / name for name in (WEIGHTS, CONFIG)})


def push(model: Model, repo_id: str, *, private: bool | None, token: str | None, revision: str | None) -> str:
    """Save a model as a repository of the Hugging Face hub; return the address of the commit."""
    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            save(model, Path(folder))
            commit = api.upload_folder(
                repo_id=repo_id, folder_path=folder, revision=revision, commit_message=f"{model.family} by atomizer-io"
            )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(f"the Hugging Face hub did not take the model as {repo_id!r}: {error}") from error
    return str(commit.commit_url)


def load(source: str | Path, *, revision: str | None = None) -> Any:
    """A model in evaluation mode, with the settings and weights found at ``source``; a broken seal is refused."""
    return _load(_folder(source, revision))


def seal_at(source: str | Path) -> str | None:
    """Return the digest over config, weights and calibrations of a saved model; None if it was never sealed."""
    return seal.seal_of(_folder(source, None))


def seal_again(folder: Path) -> None:
    """Seal a model whose files were changed on purpose, or that is older than seals."""
    _save(_load(folder, sealed=False), folder)


def _load(folder: Path, *, sealed: bool = True) -> Any:
    config, weights = folder / CONFIG, folder / WEIGHTS
    text, description, version = _description(config)
    header = _header(weights)
    if sealed:
        seal.check(folder, text, version)
    kind = family(description["model_type"])
    try:
        task_spec = TaskSpec.from_dict(description["problem"])  # old name
        build = functools.partial(kind.build, task_spec, description["config"], preset=description.get("preset"))
        _check_fits(build, header, config, weights)
        model = build()
    except CheckpointError:
        raise
    except (TypeError, KeyError, AttributeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        cause = first_line(error)  # some errors of torch go on with the functions of C++ that they came through
        raise CheckpointError(f"{config} does not describe a model of this version: {cause}") from error
    tensors = load_file(weights)
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    model = model.to(dtypes.pop() if len(dtypes) == 1 else torch.float32)
    model.load_state_dict(tensors)
    return model.eval()


def fingerprint(model: Model) -> str:
    """A digest that distinguishes one model from another."""
    task_spec = model.task_spec.to_dict()
    # a model predicts the same without them
    for name in ("target_name", "target_unit", "label_codes", "complete", "complete_fields", "thinning"):
        del task_spec[name]
    if task_spec["las_standard"]:
        del task_spec["las_standard"]
    for name in ("timesteps", "class_codes"):  # calibrations of models that were saved before there were any still hold
        if not task_spec[name]:
            del task_spec[name]
    settings = [model.family, model.settings(), task_spec]
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=12)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _folder(source: str | Path, revision: str | None) -> Path:
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    hub_name = isinstance(source, str) and source.count("/") == 1 and not source.startswith((".", "/", "~"))
    if path.exists() or not hub_name:
        preset = f" {source!r} is a preset: use create_model." if source in list_models() else ""
        wrong = "is not a folder" if path.exists() else "does not exist: it should be a folder"
        raise CheckpointError(
            f"{source} {wrong} with {CONFIG} and {WEIGHTS}; pass such a folder, or the name of a model on the "
            f"Hugging Face hub as 'owner/name'.{preset}"
        )
    try:
        return Path(
            snapshot_download(str(source), revision=revision, allow_patterns=[CONFIG, WEIGHTS, CALIBRATION, card.CARD])
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"there is no folder {path.absolute()}, and the Hugging Face hub could not give a model {source!r}: {error}"
        ) from error


def _description(config: Path) -> tuple[str, dict[str, Any], int]:
    """Return a ``config.json``: its text, the description in the present format, and the version that it has."""
    if not config.is_file():
        raise CheckpointError(f"{config.parent} has no {CONFIG}: is it a folder written by save_pretrained?")
    try:
        text = read_text(config)
        description = parse_json(text)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{config} is not readable as JSON: {error}") from error
    if not isinstance(description, dict) or not isinstance(description.get("model_type"), str):
        raise CheckpointError(f"{config} is not the description of a model of atomizer-io: it has no model_type")
    version = description.get("format_version")
    if version == 1 and isinstance(description.get("config"), dict):
        return text, _upgraded(description), 1
    if version not in (2, FORMAT_VERSION):
        raise CheckpointError(
            f"{config} has format version {version} (written by atomizer-io "
            f"{description.get('library_version')}); this version reads {FORMAT_VERSION}: use a matching atomizer-io"
        )
    return text, description, version


def _upgraded(description: dict[str, Any]) -> dict[str, Any]:
    """Return a description of format 1, where the task was part of the settings, in the present format."""
    config = description["config"]
    task_spec = {name: config[name] for name in FIELDS if name in config}
    settings = {name: value for name, value in config.items() if name not in task_spec}
    return {**description, "problem": task_spec, "config": settings, "format_version": FORMAT_VERSION}  # old name


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type of the tensors in a file of weights; refuse one that is missing or damaged.

    Weights without a checksum were written before there were any.
    """
    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no {WEIGHTS}: pickled weights (.bin, .pt, .ckpt) are never read")
    try:
        if seal.matches(path) is False:
            raise CheckpointError(f"{path} is damaged or incomplete: its checksum does not fit; get the file anew")
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
            return {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {error}") from error


def _check_fits(
    build: Callable[[], nn.Module], header: Mapping[str, tuple[tuple[int, ...], str]], config: Path, weights: Path
) -> None:
    """Refuse settings that describe other tensors than those of a file, before anything is allocated for them.

    A ``config.json`` may come from anybody. The model is built on torch's meta device first, where tensors have shapes
    but no content, and that ends as soon as there are more parameters than the file could fill.
    """
    with torch.device("meta"), _at_most(2 * len(header), config, weights):  # twice: some are replaced while building
        expected = build().state_dict()
    differences = [f"{name} is missing" for name in expected.keys() - header.keys()]
    differences += [f"{name} is not part of this model" for name in header.keys() - expected.keys()]
    for name in expected.keys() & header.keys():
        (shape, kind), tensor = header[name], expected[name]
        if shape != tuple(tensor.shape):
            differences.append(f"{name} is {shape} in {weights.name}, {tuple(tensor.shape)} by {config.name}")
        elif kind.startswith(("F", "BF")) != tensor.is_floating_point():
            own = str(tensor.dtype).removeprefix("torch.")
            differences.append(f"{name} is of type {kind} in {weights.name}, {own} by {config.name}")
    if differences:
        shown = "; ".join(sorted(differences)[:5])
        more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
        raise CheckpointError(
            f"{weights.parent}: {weights.name} and {config.name} are of different models: {shown}{more}"
        )


@contextmanager
def _at_most(count: int, config: Path, weights: Path) -> Iterator[None]:
    """End the construction of a network in this thread when it has more than so many parameters."""
    thread, numbers = threading.get_ident(), itertools.count(1)

    def counted(module: nn.Module, name: str, parameter: object) -> None:
        if threading.get_ident() == thread and next(numbers) > count:
            raise CheckpointError(
                f"{config} describes a model with more than {count} tensors, but {weights.name} has {count // 2}: "
                "they are of different models"
            )

    handle = register_module_parameter_registration_hook(counted)
    try:
        yield
    finally:
        handle.remove()

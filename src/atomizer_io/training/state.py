"""The training state in one file without pickle: reading it cannot run code, and a damaged one is noticed.

The tensors of Lightning's checkpoint (weights, moments of the optimizer) are entries of a safetensors file; everything
else is JSON in the header of that file. The header also holds a checksum over every byte of the file.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from safetensors import SafetensorError, safe_open
from torch import Tensor

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.models import seal

STATE, PICKLED = "state.safetensors", "state.ckpt"  # the second is of earlier versions, and never read
PLAIN = (type(None), bool, int, float, str)


class StateIO(CheckpointIO):
    """Makes ``trainer.save_checkpoint`` and ``trainer.fit(ckpt_path=...)`` use :func:`write` and :func:`read`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write the state of a run."""
        write(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the state of a run; tensors are on the CPU."""
        return read(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        """Delete a state."""
        Path(path).unlink(missing_ok=True)


def write(state: dict[str, Any], path: Path) -> None:
    """Write ``state`` to ``path``; a part that is neither a tensor nor a plain value is an error that names it."""
    tensors: dict[str, Tensor] = {}
    structure = json.dumps(_plain(state, "", tensors, path))
    seen: set[int] = set()
    for key, tensor in tensors.items():  # safetensors refuses two tensors in one piece of memory
        place = tensor.untyped_storage().data_ptr()
        tensors[key] = tensor.clone() if place in seen else tensor
        seen.add(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    seal.save(tensors, path, {"structure": structure})


def read(path: Path) -> dict[str, Any]:
    """The state that :func:`write` wrote, with the same types; a file of which any byte changed is refused."""
    verify(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
            state = _restored(json.loads(file.metadata()["structure"]), tensors)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(state, dict):
        raise _damaged(path)
    callbacks = state.get("callbacks", {})
    if "FollowSchedule" in callbacks:  # of an earlier version
        callbacks["SaveState"]["schedule"] = callbacks.pop("FollowSchedule")
    return state


def verify(path: Path) -> None:
    """Refuse a file whose checksum does not fit its content; nothing of the content is interpreted."""
    try:
        if not seal.matches(path):
            raise _damaged(path)
    except OSError as error:
        raise DataError(path, f"the training state cannot be read: {error.strerror or error}") from error


def find(folder: Path) -> Path | None:
    """The state in the folder of a run, checked, or None where training has not got that far."""
    if (folder / STATE).exists():
        verify(folder / STATE)
        return folder / STATE
    if (folder / PICKLED).exists():
        raise ConfigError(
            f"{folder / PICKLED} is the training state of an earlier version: a pickle, which can run code and is not "
            f"read any more. {_instead(folder)}"
        )
    return None


def _instead(folder: Path) -> str:
    return (
        "To go on from its weights, start a run of another name from them: "
        f"name=... model.settings={{}} model.checkpoint={folder / 'last'}"
    )


def _damaged(path: Path) -> DataError:
    return DataError(path, f"the training state is damaged or incomplete, and is not used. {_instead(path.parent)}")


def _plain(value: Any, key: str, tensors: dict[str, Tensor], path: Path) -> Any:
    """``value`` as JSON can hold it; tensors go into ``tensors`` under a number and ``key``.

    The number distinguishes ``{"a.b": …}`` from ``{"a": {"b": …}}``, which have the same ``key``. JSON has neither
    tuples nor keys that are numbers, so these and tensors are written as ``{kind: content}``.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, Tensor) and value.layout is torch.strided:
        name = f"{len(tensors)} {key}"
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if type(value) in (dict, OrderedDict) and all(type(inner) in (str, int) for inner in value):
        inside = [
            [inner, _plain(part, f"{key}.{inner}" if key else str(inner), tensors, path)]
            for inner, part in value.items()
        ]
        return {"dict": inside}
    if type(value) in (list, tuple):
        items = [_plain(part, f"{key}.{i}", tensors, path) for i, part in enumerate(value)]
        return {"tuple": items} if type(value) is tuple else items
    raise DataError(path, f"a training state cannot hold {key}, which is a {type(value).__name__}")


def _restored(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value that :func:`_plain` was given."""
    if isinstance(value, list):
        return [_restored(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_restored(part, tensors) for part in content)
    return {name: _restored(part, tensors) for name, part in content}

"""What tensors a model of some settings has, determined without memory for them and compared with a file of weights.

A ``config.json`` may come from anybody. Before a model is built from it, it is built on torch's meta device, where
tensors have shapes but no content, and that ends as soon as there are more parameters than the file could fill.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from atomizer_io.errors import CheckpointError


class Entry(NamedTuple):
    """The shape and type of a tensor in a file, as its header has them."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def floating(self) -> bool:
        """Whether the numbers have fractions."""
        return self.dtype.startswith(("F", "BF"))


def header_of(path: Path) -> dict[str, Entry]:
    """Return the tensors that the header of a safetensors file lists; none of them is read."""
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        return {name: Entry(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def check_fits(build: Callable[[], nn.Module], header: Mapping[str, Entry], config: Path, weights: Path) -> None:
    """Refuse settings that describe other tensors than those of a file, before anything is allocated for them."""
    with torch.device("meta"), _at_most(2 * len(header), config, weights):  # twice: some are replaced while building
        expected = build().state_dict()
    differences = [f"{name} is missing" for name in expected.keys() - header.keys()]
    differences += [f"{name} is not part of this model" for name in header.keys() - expected.keys()]
    for name in expected.keys() & header.keys():
        differences += _difference(name, expected[name], header[name], config, weights)
    if differences:
        shown = "; ".join(sorted(differences)[:5])
        more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
        raise CheckpointError(
            f"{weights.parent}: {weights.name} and {config.name} are of different models: {shown}{more}"
        )


def _difference(name: str, expected: Tensor, stored: Entry, config: Path, weights: Path) -> list[str]:
    if stored.shape != tuple(expected.shape):
        return [f"{name} is {stored.shape} in {weights.name}, {tuple(expected.shape)} by {config.name}"]
    if stored.floating != expected.is_floating_point():
        kind = str(expected.dtype).removeprefix("torch.")
        return [f"{name} is of type {stored.dtype} in {weights.name}, {kind} by {config.name}"]
    return []


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

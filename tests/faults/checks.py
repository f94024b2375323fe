"""What an answer must be like, whatever file it came from: finite where it says to be valid, and within its classes."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Sample
from atomizer_io.io.point_clouds import PointCloud


class Wrong(Exception):
    """An answer that cannot be right."""


def check_atoms(atoms: AtomSet) -> None:
    """Refuse valid values and positions that are not finite in float32."""
    for acquisition in atoms:
        values = acquisition.values.float().numpy()[acquisition.valid_mask().numpy()]
        if not np.isfinite(values).all():
            raise Wrong("a value that is called valid is not finite")
        if not np.isfinite(acquisition.positions.numpy()).all():
            raise Wrong("a position is not finite")


def check_sample(sample: Sample, classes: int) -> None:
    """Refuse a sample whose answers are no class, or that is asked at no place."""
    check_atoms(sample.atoms)
    target = sample.target
    if classes and (target.is_floating_point() or int(target.min()) < -1 or int(target.max()) >= classes):
        raise Wrong(f"a label is not among {classes} classes")
    if not classes and bool(target.isinf().any()):
        raise Wrong("a quantity is infinite")
    if sample.queries is not None and not bool(sample.queries.positions.isfinite().all()):
        raise Wrong("a query is at no place")


def check_cloud(cloud: PointCloud) -> None:
    """Refuse points that are nowhere."""
    if not len(cloud) or not all(np.isfinite(axis).all() for axis in (cloud.x, cloud.y, cloud.z)):
        raise Wrong("a cloud has no points, or points that are nowhere")


def digest(value: Any) -> str:
    """Return what tells one answer from another."""
    found = hashlib.blake2b(digest_size=8)
    _add(found, value)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            found.update(str(key).encode())
            _add(found, value[key])
    elif isinstance(value, list | tuple | AtomSet):
        for part in value:
            _add(found, part)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            _add(found, getattr(value, part.name))
    elif not isinstance(value, Path):
        found.update(repr(value).encode())

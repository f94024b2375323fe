"""What the result of reading any file must be: finite where it is marked as valid, and within its classes."""

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
    """A result that cannot be right."""


def check_atoms(atoms: AtomSet) -> None:
    """Refuse valid values and positions that are not finite in float32."""
    for acquisition in atoms:
        values = acquisition.values.float().numpy()[acquisition.valid_mask().numpy()]
        if not np.isfinite(values).all():
            raise Wrong("a value that is marked as valid is not finite")
        if not np.isfinite(acquisition.positions.numpy()).all():
            raise Wrong("a position is not finite")


def check_sample(sample: Sample, classes: int) -> None:
    """Refuse a sample whose labels are no class, or whose queries have no finite position."""
    check_atoms(sample.atoms)
    target = sample.target
    if classes and (target.is_floating_point() or int(target.min()) < -1 or int(target.max()) >= classes):
        raise Wrong(f"a label is not among {classes} classes")
    if not classes and bool(target.isinf().any()):
        raise Wrong("a regression target is infinite")
    if sample.queries is not None and not bool(sample.queries.positions.isfinite().all()):
        raise Wrong("a query has no finite position")


def check_points(points: PointCloud) -> None:
    """Refuse a point cloud without points, or with coordinates that are not finite."""
    if not len(points) or not all(np.isfinite(axis).all() for axis in (points.x, points.y, points.z)):
        raise Wrong("a point cloud has no points, or coordinates that are not finite")


def digest(value: Any) -> str:
    """Return a hash of a result."""
    total = hashlib.blake2b(digest_size=8)
    _add(total, value)
    return total.hexdigest()


def _add(total: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        total.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            total.update(str(key).encode())
            _add(total, value[key])
    elif isinstance(value, list | tuple | AtomSet):
        for part in value:
            _add(total, part)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            _add(total, getattr(value, part.name))
    elif not isinstance(value, Path):
        total.update(repr(value).encode())

"""What Python and the C sources must agree on: structures, the arrays they point to, and the largest sizes.

Every pointer of a task is declared with the type and the sides of its array. A side is one letter, the same size
wherever it occurs in a task; a digit is that size. ``build.py`` compares structures and limits with those of a library
when it is loaded, ``calls.py`` the arrays with their declaration before C sees an address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

ABI = 4  # as in vectors.h; another number where the meaning of a structure or function changes, not its size
MAX_HEADS, MAX_FEATURES, MAX_NEIGHBORS = 32, 256, 64  # as in vectors.h


@dataclass(frozen=True, slots=True)
class Array:
    """The type of the numbers, None for the precision of the library, and the sides of the array."""

    dtype: torch.dtype | None
    sides: str


def _arrays(dtype: torch.dtype | None, **sides: str) -> dict[str, Array]:
    return {name: Array(dtype, side) for name, side in sides.items()}


def _gradients(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{name}_grad": array for name, array in arrays.items()}


def _fields(kind: type[ctypes.c_int32 | ctypes.c_int64 | ctypes.c_double], *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


def _pointers(arrays: Mapping[str, Array]) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in arrays]


class Task(ctypes.Structure):
    """What one thread is to do. ``limits`` are the largest sizes of some sides, ``whole`` a side in whole vectors."""

    arrays: ClassVar[Mapping[str, Array]]
    limits: ClassVar[Mapping[str, int]]
    whole: ClassVar[str | None] = None


# Sides: A atoms by natural number, N atoms by cell, G segments, S sites, L cells, K kinds, H heads, D width, V value
# features, F site features, O offset features.
_ATOMS = (
    _arrays(None, value="A")
    | _arrays(torch.int64, order="N")
    | _arrays(torch.int32, site="N", kind="N")
    | _arrays(torch.int64, cell="G", begin="G", length="G")
    | _arrays(torch.float64, position="S2", anchor="L2")
    | _arrays(None, site_field="SF")
)
CELL_WEIGHTS = _arrays(
    None, value_weight="VD", kind_weight="KD", site_weight="FD", offset_weight="OD", logit_weight="HD"
)
_CELL_RESULTS = _arrays(None, lse="GH", pooled="HGD")
_CELL_PULL = _arrays(None, lse_grad="GH")


class Cells(Task):
    """``Cells`` of cells.c."""

    arrays: ClassVar[Mapping[str, Array]] = {
        **_ATOMS,
        **CELL_WEIGHTS,
        **_CELL_RESULTS,
        **_CELL_PULL,
        **_gradients(CELL_WEIGHTS),
    }
    limits: ClassVar[Mapping[str, int]] = {"H": MAX_HEADS, "V": MAX_FEATURES, "F": MAX_FEATURES, "O": MAX_FEATURES}
    whole = "D"
    _fields_ = [
        *_pointers(_ATOMS),
        *_pointers(CELL_WEIGHTS),
        *_fields(ctypes.c_int64, "atoms", "ordered", "sites", "kinds", "cells", "segments"),
        *_fields(ctypes.c_int32, "width", "heads", "value_frequencies", "offset_frequencies", "site_features", "axes"),
        *_fields(ctypes.c_double, "value_step", "offset_step", "offset_scale"),
        *_pointers(_CELL_RESULTS),
        *_pointers(_CELL_PULL),
        ("pooled_grad", ctypes.c_void_p),  # to an entry for each head
        *_pointers(_gradients(CELL_WEIGHTS)),
    ]


# Sides: M queries, A acquisitions, K kinds, H heads, V value features, J kind features, F site features, T all features
# of a token.
_SITES = _arrays(torch.int64, site="MA")
OBSERVED = _arrays(None, kind="KJ", kind_logit="KH", value_logit="VH", site_logit="FH", nothing="T")
_POOLED = _arrays(None, pooled="HMT")


class Observing(Task):
    """``Observing`` of queries.c; the first five fields point to one entry for each acquisition."""

    arrays: ClassVar[Mapping[str, Array]] = {
        **_SITES,
        **OBSERVED,
        **_POOLED,
        **_gradients(_POOLED),
        **_gradients(OBSERVED),
    }
    limits: ClassVar[Mapping[str, int]] = {"H": MAX_HEADS, "V": MAX_FEATURES, "J": MAX_FEATURES, "F": MAX_FEATURES}
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "valid", "site_field", "channels", "sites")),
        *_fields(ctypes.c_int32, "acquisitions", "kinds", "heads", "frequencies", "value_features"),
        *_fields(ctypes.c_int32, "kind_features", "site_features"),
        *_fields(ctypes.c_double, "step"),
        *_fields(ctypes.c_int64, "queries"),
        *_pointers(_SITES),
        *_pointers(OBSERVED),
        *_pointers(_POOLED),
        *_pointers(_gradients(_POOLED)),
        *_pointers(_gradients(OBSERVED)),
    ]


# Sides: M queries, k neighbours, L latents, H heads, E head dim, O offset features.
ATTENDED = _arrays(None, query="MHE", turned="HMO", key="LHE", value="LHE")
_NEAR = _arrays(torch.int64, neighbor="Mk") | _arrays(torch.float64, position="M2", anchor="L2")
_POOLED_LATENTS = _arrays(None, attended="MHE", pooled="HMO")


class Attending(Task):
    """``Attending`` of queries.c."""

    arrays: ClassVar[Mapping[str, Array]] = {
        **ATTENDED,
        **_NEAR,
        **_POOLED_LATENTS,
        **_gradients(_POOLED_LATENTS),
        **_gradients(ATTENDED),
    }
    limits: ClassVar[Mapping[str, int]] = {"H": MAX_HEADS, "O": MAX_FEATURES, "k": MAX_NEIGHBORS}
    whole = "E"
    _fields_ = [
        *_pointers(ATTENDED),
        *_pointers(_NEAR),
        *_fields(ctypes.c_int64, "queries", "latents"),
        *_fields(ctypes.c_int32, "neighbors", "heads", "dim", "frequencies", "axes"),
        *_fields(ctypes.c_double, "step", "scale"),
        *_pointers(_POOLED_LATENTS),
        *_pointers(_gradients(_POOLED_LATENTS)),
        *_pointers(_gradients(ATTENDED)),
    ]


TASKS: Mapping[str, tuple[type[Task], ...]] = {"cells": (Cells,), "queries": (Observing, Attending)}  # of each source


def facts(source: str, dtype: torch.dtype) -> tuple[int, ...]:
    """What a library of ``source``.c must say of itself, in the order of ``FACTS`` in vectors.h."""
    sizes = (ctypes.sizeof(task) for task in TASKS[source])
    return (ABI, dtype.itemsize, MAX_HEADS, MAX_FEATURES, MAX_NEIGHBORS, *sizes)

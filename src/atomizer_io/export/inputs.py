"""From a scene to the tensors that an exported network takes. Needs the settings of the model, not its weights.

Shapes: N atoms, R rows of n slots, P sites and C channels of one acquisition, K kinds, S sites, L latents, M queries.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from atomizer_io.atoms import Acquisition, AtomSet
from atomizer_io.errors import QueryError
from atomizer_io.export.description import Described
from atomizer_io.export.network import inputs_of
from atomizer_io.models.atomizer.geometry import Geometry, check_scene, geometry_of
from atomizer_io.models.atomizer.queries import SitesOfQueries, locate
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.atomizer.tokens import Tokenizer, numbers

LONGEST_ROW = 128  # short enough to waste little on padding, long enough to be pooled in one product


def scene_inputs(
    model: Described,
    atoms: AtomSet,
    positions: Tensor | None = None,
    *,
    atoms_per_latent: int | None = None,
    anchors: Tensor | None = None,
    sites: SitesOfQueries | None = None,
    neighbors: int | None = None,
) -> dict[str, Tensor]:
    """Return the inputs, by name, with which an exported model answers for one scene, or at ``positions`` (M, 2) of it.

    ``model`` is the model itself, or what :func:`~atomizer_io.export.read_model` reads from the exported file.

    ``tensor.numpy()`` of each is what onnxruntime takes. Keywords as in ``AtomizerIO.encode`` and ``decode``.
    """
    check_scene(atoms, 0)
    config, problem = model.config, model.problem
    if problem.dense != (positions is not None):
        wants = "answers at positions: pass them" if problem.dense else "answers for whole scenes: pass no positions"
        raise QueryError(f"a {problem.task} model {wants}")
    with torch.device("meta"):  # only what it knows of names and statistics is wanted
        tokenizer = Tokenizer(config, problem)
    atoms = atoms.to("cpu")
    geometry = geometry_of(config, atoms, atoms_per_latent=atoms_per_latent, anchors=anchors)
    order_Rn, site_Rn, kind_Rn, cell_R = _rows(geometry)
    places, site_Rn = torch.unique(site_Rn, return_inverse=True)
    latent_Rn = (cell_R % len(geometry.anchors_L2))[:, None].expand_as(site_Rn)
    padding = kind_Rn < 0
    raw_N = torch.cat([a.values.to(torch.float32)[a.valid_mask()] for a in atoms])
    given = {
        "value": torch.where(padding, 0.0, raw_N[order_Rn]),
        "kind": kind_Rn,
        "site": site_Rn.masked_fill(padding, 0),
        "cell": cell_R,
        **_kinds(tokenizer, atoms),
        "site_position": torch.cat([a.positions for a in atoms])[places] - geometry.center_2,
        "site_cell": torch.empty_like(places).scatter(0, site_Rn.flatten(), latent_Rn.flatten()),
        "site_field": torch.cat([_fields(tokenizer, a) for a in atoms])[places],
        "anchor": geometry.anchors_L2,
    }
    if config.temporal:
        given["step_day"] = time_steps(atoms)[1]
    if positions is not None:
        located = locate(config, atoms, geometry, positions, sites=sites, neighbors=neighbors)
        given |= {"query_position": located.near.queries_MX, "neighbor": located.near.latents_Mk}
        if located.sites_MA is not None:
            slot_N = torch.empty(len(raw_N), dtype=torch.long)
            slot_N[order_Rn[~padding]] = torch.nonzero(~padding.flatten())[:, 0]
            given["seen"] = _seen(atoms, located.sites_MA, slot_N)
    return {i.name: given[i.name].to(i.dtype).contiguous() for i in inputs_of(model)}


def _rows(geometry: Geometry) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return atom, site and kind (R, n) of every slot, with kind −1 where padded, and the cell (R,) of every row."""
    latents = len(geometry.anchors_L2)
    segments = [cells.segments(LONGEST_ROW) for cells in geometry.cells]
    slots = max(int(part.length_G.max()) for part in segments)
    rows = []
    for step, (cells, part) in enumerate(zip(geometry.cells, segments, strict=True)):
        real_Rn = torch.arange(slots) < part.length_G[:, None]
        atom_Rn = part.begin_G[:, None] + torch.where(real_Rn, torch.arange(slots), 0)
        kind_Rn = cells.kind_N[atom_Rn].long().masked_fill(~real_Rn, -1)
        rows.append((cells.order_N[atom_Rn], cells.site_N[atom_Rn].long(), kind_Rn, step * latents + part.cell_G))
    order, site, kind, cell = zip(*rows, strict=True)
    return torch.cat(order), torch.cat(site), torch.cat(kind), torch.cat(cell)


def _kinds(tokenizer: Tokenizer, atoms: AtomSet) -> dict[str, Tensor]:
    """Return what each kind (K,) is, in physical numbers: the channels of all acquisitions, one after the other."""
    rows = []
    for acquisition in atoms:
        columns = (acquisition.channels, acquisition.observed_channels().tolist(), *tokenizer.statistics(acquisition))
        for channel, seen, mean, std in zip(*columns, strict=True):
            band, learned = tokenizer.describe(channel) if seen else (None, None)
            rows.append(
                {
                    "wavelength_um": None if band is None else channel.wavelength_um,
                    "bandwidth_um": channel.bandwidth_um,
                    "learned": -1 if learned is None else learned,
                    "gsd_m": channel.gsd_m,
                    "day_of_year": acquisition.day_of_year,
                    "mean": mean,
                    "std": std,
                }
            )
    return {name: numbers([row[name] for row in rows]) for name in rows[0]}


def _fields(tokenizer: Tokenizer, acquisition: Acquisition) -> Tensor:
    """Return the raw site fields (P, fields) of one acquisition, NaN where unknown."""
    tokenizer.site_features(acquisition)  # refuses fields that the model has no place for
    nothing_P = torch.full((acquisition.values.shape[0],), math.nan)
    columns = [acquisition.site_fields.get(field.name, nothing_P) for field in tokenizer.fields]
    return torch.stack([column.to(torch.float32) for column in columns], dim=1) if columns else nothing_P[:, None]


def _seen(atoms: AtomSet, sites_MA: Tensor, slot_N: Tensor) -> Tensor:
    """Return the slot (M, K) of the atom of each kind that each query sees, −1 where it sees none."""
    columns, first = [], 0
    for acquisition, site_M in zip(atoms, sites_MA.T, strict=True):
        slot_PC = torch.full(acquisition.values.shape, -1)
        slot_PC[acquisition.valid_mask()] = slot_N[first : first + acquisition.num_atoms]
        first += acquisition.num_atoms
        columns.append(torch.where((site_M >= 0)[:, None], slot_PC[site_M.clamp(min=0)], -1))
    return torch.cat(columns, dim=1)

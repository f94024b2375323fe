"""From a scene to the tensors that an exported network takes. Needs the settings of the model, not its weights.

Shapes: N atoms, R rows of n slots, P sites and C channels of one acquisition, K kinds, S sites, L latents, M queries.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.errors import QueryError
from atomizer_io.export.network import Described, inputs_of
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, LocatedQueries, SitesOfQueries, locate
from atomizer_io.models.atomizer.geometry.partition import Geometry, check_scene, geometry_of
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.atomizer.tokenizer import Tokenizer
from atomizer_io.models.atomizer.tokens import numbers

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
    footprint_m: Footprint | None = None,
) -> dict[str, Tensor]:
    """Return the inputs, by name, of an exported model for one scene, or at ``positions`` (M, 2) of it.

    ``model`` is the model itself, or what :func:`~atomizer_io.export.read_model` reads from the exported file.

    Point clouds with more points than the model's ``max_points`` are subsampled as in evaluation.

    ``tensor.numpy()`` of each is what onnxruntime takes. Keywords as in ``AtomizerIO.encode`` and ``decode``.
    """
    check_scene(atoms, 0)
    config, task_spec = model.config, model.task_spec
    if task_spec.dense != (positions is not None):
        wants = (
            "predicts at positions: pass them" if task_spec.dense else "predicts for whole scenes: pass no positions"
        )
        raise QueryError(f"a {task_spec.task} model {wants}")
    with torch.device("meta"):  # only what it knows of names and statistics is wanted
        tokenizer = Tokenizer(config, config.learned_channels, task_spec)
    atoms = atoms.to("cpu")
    geometry = geometry_of(config, atoms, atoms_per_latent=atoms_per_latent, anchors=anchors)
    context, seen_MW, located = geometry.sample(None, max_points=config.max_points), None, None
    if positions is not None:
        located = locate(config, atoms, geometry, positions, sites=sites, neighbors=neighbors, footprint_m=footprint_m)
        seen_MW = None if located.sites_MA is None else _seen(atoms, located)
    order_Rn, site_Rn, kind_Rn, cell_R = _rows(geometry, context, seen_MW)
    used_sites, site_Rn = torch.unique(site_Rn, return_inverse=True)
    latent_Rn = (cell_R % len(geometry.anchors_L2))[:, None].expand_as(site_Rn)
    padding = kind_Rn < 0
    raw_N = torch.cat([a.values.to(torch.float32)[a.valid_mask()] for a in atoms])
    inputs = {
        "value": torch.where(padding, 0.0, raw_N[order_Rn]),
        "kind": kind_Rn,
        "site": site_Rn.masked_fill(padding, 0),
        "cell": cell_R,
        **_kinds(tokenizer, atoms),
        "site_position": torch.cat([a.positions for a in atoms])[used_sites] - geometry.center_2,
        "site_cell": torch.empty_like(used_sites).scatter(0, site_Rn.flatten(), latent_Rn.flatten()),
        "site_field": torch.cat([_fields(tokenizer, a) for a in atoms])[used_sites],
        "anchor": geometry.anchors_L2,
    }
    if config.temporal:
        inputs["step_day"] = time_steps(atoms)[1]
    if located is not None:
        inputs |= {"query_position": located.queries_M2, "neighbor": located.latents_Mk}
    if seen_MW is not None:
        slot_N = torch.full((len(raw_N),), -1)
        slot_N[order_Rn[~padding]] = torch.nonzero(~padding.flatten())[:, 0]
        inputs["seen"] = torch.where(seen_MW >= 0, slot_N[seen_MW.clamp(min=0)], -1)
    return {i.name: inputs[i.name].to(i.dtype).contiguous() for i in inputs_of(model)}


def _rows(geometry: Geometry, context: Geometry, seen_MW: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return atom, site and kind (R, n) of every slot, with kind −1 where padded, and the cell (R,) of every row.

    Rows hold the atoms of the ``context``, then those of the whole ``geometry`` that are only seen by queries; the cell
    of the latter is one more than there are.
    """
    latents = len(geometry.anchors_L2)
    parts = [(cells, cells.segments(LONGEST_ROW), step * latents) for step, cells in enumerate(context.cells)]
    outside = _seen_only(geometry, context, seen_MW)
    if outside is not None:
        parts.append((outside, outside.segments(LONGEST_ROW), latents * len(context.cells)))
    slots = max(int(segments.length_G.max()) for _, segments, _ in parts)
    rows = []
    for cells, part, first in parts:
        real_Rn = torch.arange(slots) < part.length_G[:, None]
        atom_Rn = part.begin_G[:, None] + torch.where(real_Rn, torch.arange(slots), 0)
        kind_Rn = cells.kind_N[atom_Rn].long().masked_fill(~real_Rn, -1)
        rows.append((cells.order_N[atom_Rn], cells.site_N[atom_Rn].long(), kind_Rn, first + part.cell_G))
    order, site, kind, cell = zip(*rows, strict=True)
    return torch.cat(order), torch.cat(site), torch.cat(kind), torch.cat(cell)


def _seen_only(geometry: Geometry, context: Geometry, seen_MW: Tensor | None) -> Cells | None:
    """Return one cell of the atoms that queries see and the subsampled ``context`` lacks, if there are any."""
    if seen_MW is None:
        return None
    seen_N = torch.zeros(geometry.atoms, dtype=torch.bool)
    seen_N[seen_MW[seen_MW >= 0]] = True
    for cells in context.cells:
        seen_N[cells.order_N] = False
    kept = [(cells, seen_N[cells.order_N]) for cells in geometry.cells]
    order_N = torch.cat([cells.order_N[mask] for cells, mask in kept])
    if not len(order_N):
        return None
    site_N, kind_N = (torch.cat([getattr(c, name)[mask] for c, mask in kept]) for name in ("site_N", "kind_N"))
    return Cells(torch.tensor([0, len(order_N)]), order_N, site_N, kind_N)


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
    tokenizer.site_features(acquisition)  # refuses site fields that the model does not have
    nothing_P = torch.full((acquisition.values.shape[0],), math.nan)
    columns = [acquisition.site_fields.get(field.name, nothing_P) for field in tokenizer.fields]
    return torch.stack([column.to(torch.float32) for column in columns], dim=1) if columns else nothing_P[:, None]


def _seen(atoms: AtomSet, located: LocatedQueries) -> Tensor:
    """Return the numbers (M, W) of the atoms that each query sees, by column of sites and channel; −1 for none."""
    numbers, first = [], 0
    for acquisition in atoms:
        number_PC = torch.full(acquisition.values.shape, -1)
        number_PC[acquisition.valid_mask()] = torch.arange(first, first + acquisition.num_atoms)
        first += acquisition.num_atoms
        numbers.append(number_PC)
    assert located.sites_MA is not None
    owners = range(len(numbers)) if located.owners is None else located.owners
    columns = [
        torch.where((site_M >= 0)[:, None], numbers[a][site_M.clamp(min=0)], -1)
        for a, site_M in zip(owners, located.sites_MA.T, strict=True)
    ]
    return torch.cat(columns, dim=1)

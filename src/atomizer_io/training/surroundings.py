"""Whether a model looks around: what changes when all but the co-located observations come from another place.

At some positions of validation samples the model predicts twice: from the sample as it is, and with the values of every
site that no footprint of these positions holds drawn from the sites of another sample, or of the same one where no
other has these channels. A network that reads single positions predicts the same, so that its score is exactly 0.

Shapes: P sites of an acquisition, M queries, 2 = (x, y) in metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.sample import Queries, Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.models.base import Model
from atomizer_io.models.sites import POINT_RADIUS_M, TIE_M
from atomizer_io.training.data import subsampled
from atomizer_io.training.draws import generator

SAMPLES = 8  # from all over the validation data
QUERIES, SHARE = 64, 64  # of a sample at most so many, and one in so many: else too much of it would stay


@torch.no_grad()
def surroundings(model: Model, dataset: Dataset, seed: int) -> dict[str, Any] | None:
    """Return how much predictions ``changed`` when the surroundings did, and how many there were.

    ``changed`` is the share of positions that get another class, or the RMS difference in standard deviations of a
    regression target. None where nothing lies around a position, or where a scene has one prediction.
    """
    if not model.task_spec.dense:
        return None
    numbers = sorted({number * (len(dataset) - 1) // max(1, SAMPLES - 1) for number in range(SAMPLES)})
    items = [dataset[number] for number in numbers] if len(dataset) else []
    samples = [item for item in items if isinstance(item, Sample) and item.queries is not None and len(item.queries)]
    prepare, total, count = model.eval().preparer(), 0.0, 0
    for number, sample in enumerate(samples):
        own = generator(seed, "surroundings", number)
        queries = subsampled(sample, max(1, min(QUERIES, len(sample.target) // SHARE)), own).queries
        assert queries is not None
        donors = [donor.atoms for donor in (*samples[number + 1 :], *samples[:number])]
        elsewhere = exchanged(sample.atoms, queries, donors, own)
        if elsewhere is None:
            continue
        before, after = model.predict([prepare(atoms, queries) for atoms in (sample.atoms, elsewhere)])
        total, count = total + float(change(before, after, model.task_spec).sum()), count + len(queries)
    if not count:
        return None
    return {"changed": (total / count) ** 0.5 if model.task_spec.regression else total / count, "predictions": count}


def change(before_MC: Tensor, after_MC: Tensor, task_spec: TaskSpec) -> Tensor:
    """Return which predictions (M,) are of another class, or squared differences in standard deviations."""
    if task_spec.regression:
        return ((after_MC - before_MC)[:, 0] / task_spec.target_std).square()
    return before_MC.argmax(dim=1) != after_MC.argmax(dim=1)


def exchanged(
    atoms: AtomSet, queries: Queries, donors: Sequence[AtomSet], generator: torch.Generator
) -> AtomSet | None:
    """Return ``atoms`` with the values of all sites outside the footprints drawn from elsewhere; None if none is."""
    parts, moved, places = list[Acquisition](), False, dict[int, Tensor]()
    for number, acquisition in enumerate(atoms):
        own = len(acquisition.positions)
        if own not in places:  # acquisitions of one grid get the same places, so that a series stays one
            places[own] = torch.rand(own, generator=generator, dtype=torch.float64)
        donor = donor_of(acquisition, number, donors)
        joined = replace(
            acquisition,
            values=torch.cat([acquisition.values, donor.values]),
            positions=torch.cat([acquisition.positions, donor.positions]),
            site_fields={name: torch.cat([f, donor.site_fields[name]]) for name, f in acquisition.site_fields.items()},
            valid=torch.cat([acquisition.valid_mask(), donor.valid_mask()]),
        )
        seen_P = seen(acquisition, queries, number)
        moved |= not bool(seen_P.all())
        drawn_P = own + (places[own] * len(donor.positions)).long()
        parts.append(joined.with_sites(torch.where(seen_P, torch.arange(own), drawn_P), acquisition.positions))
    return AtomSet(tuple(parts)) if moved else None


def donor_of(acquisition: Acquisition, number: int, donors: Sequence[AtomSet]) -> Acquisition:
    """Return where other values come from: the same acquisition of another sample, one like it, or the same one."""
    same = [donor.acquisitions[number] for donor in donors if number < len(donor)]
    return next((a for a in (*same, *(a for donor in donors for a in donor)) if alike(a, acquisition)), acquisition)


def alike(a: Acquisition, b: Acquisition) -> bool:
    """Return whether sites of one acquisition could be sites of the other."""
    same = a.channels == b.channels and a.site_fields.keys() == b.site_fields.keys()
    return same and len(a.positions) > 0 and a.values.dtype == b.values.dtype


def seen(acquisition: Acquisition, queries: Queries, number: int) -> Tensor:
    """Return the sites (P,) of which any query could see something: in its footprint, around it, or named by it."""
    size_2 = torch.tensor(acquisition.footprint_m, dtype=torch.float64).clamp(min=2 * POINT_RADIUS_M)
    footprint_M2 = torch.zeros(len(queries), 2, dtype=torch.float64)
    if queries.footprint_m is not None:
        footprint_M2 = queries.footprint_m.to(footprint_M2).expand_as(footprint_M2)
    seen_P = torch.zeros(len(acquisition.positions), dtype=torch.bool)
    for where_2, footprint_2 in zip(queries.positions, footprint_M2, strict=True):
        reach_2 = torch.maximum(size_2, footprint_2) / 2 + TIE_M
        seen_P |= ((acquisition.positions - where_2).abs() <= reach_2).all(dim=1)
    if number in queries.sites:
        seen_P[queries.sites[number][queries.sites[number] >= 0]] = True
    return seen_P


def sentence(measured: dict[str, Any] | None, task_spec: TaskSpec) -> str:
    """Return what :func:`surroundings` measured in words."""
    if measured is None:
        return "surroundings: not measured, as nothing lies around a prediction (scenes, single sites)"
    count, changed = measured["predictions"], measured["changed"]
    by = f"by {changed:.2g} standard deviations" if task_spec.regression else f"in {changed:.1%} of cases"
    where = "when all around a position comes from another place (0 by a network of single positions)"
    return f"surroundings: {count:,} validation predictions change {by} {where}"

"""Images of larger pixels in training, so that a model learns to read a sensor of another resolution."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from atomizer_io.atoms import Acquisition
from atomizer_io.sample import Sample
from atomizer_io.training.bands import with_acquisitions

FACTOR = 2  # pixels along each side that become one


def with_larger_pixels(sample: Sample, generator: torch.Generator) -> Sample:
    """Return ``sample`` with the means of 2 × 2 pixels of every image; points stay as they are.

    Which pixels come together is drawn, and the same for all images. What is absent takes no part in a mean.
    """
    begin = torch.rand(2, generator=generator, dtype=torch.float64)
    parts, places = {}, {}
    for number, acquisition in enumerate(sample.atoms):
        parts[number], places[number] = merged(acquisition, begin)
    queries = sample.queries
    if queries is not None and queries.sites:
        sites = {number: places[number][found] for number, found in queries.sites.items()}
        sample = replace(sample, queries=replace(queries, sites=sites))
    return with_acquisitions(sample, parts)


def merged(acquisition: Acquisition, begin: Tensor) -> tuple[Acquisition, Tensor]:
    """Return an acquisition of larger pixels, and in which of them each site lies; one of points is returned as it is.

    ``begin`` is where the larger pixels begin, as a share of their size.
    """
    footprint = torch.tensor(acquisition.footprint_m, dtype=torch.float64)
    sites = len(acquisition.values)
    if not bool((footprint > 0).all()) or not sites:
        return acquisition, torch.arange(sites)
    # a first site in the middle of its pixel lies a half pixel from a corner, and corners are where squares may begin
    low = acquisition.positions.amin(dim=0) - footprint / 2
    steps = torch.floor(begin * FACTOR)
    cells = torch.floor((acquisition.positions - low) / footprint + steps).div(FACTOR, rounding_mode="floor").long()
    width = int(cells[:, 0].max()) + 1
    _, place = torch.unique(cells[:, 1] * width + cells[:, 0], return_inverse=True)
    count = int(place.max()) + 1

    def mean(values: Tensor, known: Tensor) -> Tensor:
        total = torch.zeros(count, *values.shape[1:], dtype=torch.float64)
        total.index_add_(0, place, torch.where(known, values.double(), 0.0))
        number = torch.zeros_like(total).index_add_(0, place, known.double())
        return total / number  # NaN where nothing is known

    values = acquisition.values
    valid = acquisition.valid if acquisition.valid is not None else torch.ones_like(values, dtype=torch.bool)
    fields = {name: mean(value, ~value.isnan()) for name, value in acquisition.site_fields.items()}
    larger = replace(
        acquisition,
        values=mean(values, valid).float(),
        positions=mean(acquisition.positions, torch.ones_like(acquisition.positions, dtype=torch.bool)),
        channels=tuple(
            channel if channel.gsd_m is None else replace(channel, gsd_m=FACTOR * channel.gsd_m)
            for channel in acquisition.channels
        ),
        site_fields=fields,
        valid=None,
        footprint_m=tuple((FACTOR * footprint).tolist()),
    )
    return larger, place

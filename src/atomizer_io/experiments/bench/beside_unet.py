"""A whole prediction of one scene, from atoms to a map, beside a plain UNet on an image of that size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.operating_point import OperatingPoint, own_point
from atomizer_io.errors import ConfigError
from atomizer_io.experiments.bench.measure import seconds
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.rivals.unet import Trunk
from atomizer_io.sample import Sample

MULTIPLE = 16  # of the sides of an image that the UNet takes


@torch.no_grad()
def beside_unet(model: AtomizerIO, sample: Sample, points: Sequence[Calibration], repeats: int = 3) -> dict[str, Any]:
    """Shortest times of dense and of calibrated predictions (geometry, encoding, read-out), and of the UNet."""
    grid = None if sample.queries is None else sample.queries.grid
    if grid is None:
        raise ConfigError(f"{sample.meta.id} is no raster scene: there is nothing to compare a UNet on")
    channels = sum(len(a.channels) for a in sample.atoms)
    height, width = (-(-side // MULTIPLE) * MULTIPLE for side in grid.shape)
    unet, image = Trunk(channels, model.problem.num_outputs).eval(), torch.randn(1, channels, height, width)
    ways: list[tuple[str, OperatingPoint, float]] = [("dense", own_point(model), 0.0)]
    ways += [(f"{c.point.strategy}, alpha {c.alpha:g}", c.point, c.precision or 0.0) for c in points]
    truth = ways[0][1].predict(model, sample.atoms, grid)
    rows: list[dict[str, Any]] = []
    for name, point, precision in ways:
        found = point.predict(model, sample.atoms, grid)
        taken = seconds(lambda point=point: point.predict(model, sample.atoms, grid), repeats)  # type: ignore[misc]
        rows.append(
            {
                "way": name,
                "seconds": taken,
                "decoded": found.decoded / found.asked.numel(),
                "differing": float(found.differs(truth, precision).double().mean()),
            }
        )
    plain = seconds(lambda: unet(image), repeats)
    for row in rows:
        row["times_unet"] = row["seconds"] / plain
        print(
            f"whole prediction, {row['way']:24} {row['seconds']:8.2f} s = {row['times_unet']:.2f} × UNet, "
            f"{100 * row['decoded']:.1f} % decoded, {100 * row['differing']:.2f} % differ from dense"
        )
    size = {"shape": [*grid.shape], "channels": channels, "unet_seconds": plain, "unet_image": [height, width]}
    return {**size, "rows": rows}

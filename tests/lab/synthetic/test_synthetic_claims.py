"""What the probes promise, proved with small classifiers: the one capability decides, and nothing else helps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

from atomizer_io.data.sample import Sample
from atomizer_lab.synthetic import task_scene

Features = Callable[[Sample], NDArray[np.float64]]  # (pixels, features)
TRAINING, HELD_OUT = range(60), range(1000, 1020)


@cache
def sampled(name: str, seed: int) -> Sample:
    return task_scene(name, seed)


def bands(sample: Sample, acquisition: int) -> NDArray[np.float64]:
    """(H, W, C) of one acquisition."""
    side = sample.queries.grid.height
    return sample.atoms.acquisitions[acquisition].values.numpy().astype(np.float64).reshape(side, side, -1)


def score(name: str, features: Features, training: range = TRAINING, neighbours: int = 15) -> float:
    """Balanced accuracy on held-out scenes of the vote of the nearest training pixels in standardised features."""

    def collect(seeds: range, thin: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        x, y = [], []
        for seed in seeds:
            sample = sampled(name, seed)
            known = np.flatnonzero(sample.target.numpy() >= 0)[seed % thin :: thin]
            x.append(features(sample)[known])
            y.append(sample.target.numpy()[known])
        return np.concatenate(x), np.concatenate(y)

    (x, y), (held_out, target) = collect(training, 7), collect(HELD_OUT, 11)
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-9
    _, near = cKDTree((x - mean) / std).query((held_out - mean) / std, k=neighbours)
    voted = y[near].mean(axis=1) > 0.5
    return float(np.mean([(voted[target == k] == k).mean() for k in (0, 1)]))


def flat(image: NDArray[np.float64]) -> NDArray[np.float64]:
    return image.reshape(-1, image.shape[-1])


def texture(sample: Sample) -> NDArray[np.float64]:
    """Local standard deviation, and how much gradients within 5 × 5 pixels agree in their direction."""
    red = bands(sample, 0)[..., 0]

    def local(field: NDArray[np.float64]) -> NDArray[np.float64]:
        return ndimage.uniform_filter(field, 5)

    down, right = np.gradient(red)
    xx, yy, xy = local(right**2), local(down**2), local(right * down)
    agreement = np.hypot(xx - yy, 2 * xy) / (xx + yy)
    std = np.sqrt(np.maximum(local(red**2) - local(red) ** 2, 0))
    return np.stack([std, agreement, ndimage.uniform_filter(agreement, 3)], axis=-1).reshape(-1, 3)


def test_texture_is_not_in_single_pixels() -> None:
    assert score("texture", lambda s: flat(bands(s, 0))) < 0.55
    assert score("texture", texture) > 0.85


def test_season_is_not_in_single_dates() -> None:
    for date in range(6):
        assert score("season", lambda s, date=date: flat(bands(s, date)), range(200)) < 0.58
    assert score("season", lambda s: np.concatenate([flat(bands(s, d)) for d in range(6)], axis=1), range(200)) > 0.9


def test_radar_is_not_in_the_optical_bands() -> None:
    assert score("radar", lambda s: flat(bands(s, 0)), range(200)) < 0.56
    assert score("radar", lambda s: flat(bands(s, 1))) > 0.9
    assert score("radar", lambda s: np.concatenate([flat(bands(s, 0)), flat(bands(s, 1))], axis=1)) > 0.9


def place(sample: Sample) -> NDArray[np.float64]:
    return sample.queries.positions.numpy()


def distances(sample: Sample) -> NDArray[np.float64]:
    """Distances to the darkest and to the brightest spot in the red band: the wood and the bare patch."""
    smooth = ndimage.uniform_filter(bands(sample, 0)[..., 0], 3).ravel()
    where = place(sample)
    marks = where[[smooth.argmin(), smooth.argmax()]]
    away = np.linalg.norm(where[:, None] - marks, axis=2)
    return np.concatenate([away[:, :1] - away[:, 1:], away], axis=1)


def test_spatial_is_neither_in_pixels_nor_in_places() -> None:
    assert score("spatial", lambda s: flat(bands(s, 0))) < 0.55
    assert score("spatial", place, range(200)) < 0.58
    around = score(
        "spatial",
        lambda s: np.concatenate([flat(bands(s, 0)), flat(ndimage.uniform_filter(bands(s, 0), (7, 7, 1)))], axis=1),
    )
    assert around < 0.62  # the landmark separates what is near it
    assert score("spatial", distances) > 0.95


def test_spatial_has_as_much_of_one_class_as_of_the_other() -> None:
    shares = [
        float((sampled("spatial", seed).target == 1).sum() / (sampled("spatial", seed).target >= 0).sum())
        for seed in TRAINING
    ]
    assert min(shares) > 0.4 and max(shares) < 0.6


def series(sample: Sample) -> NDArray[np.float64]:
    """(pixels, steps) of the red band."""
    return np.stack([bands(sample, step)[..., 0].ravel() for step in range(3)], axis=1)


def test_order_is_not_in_the_values_without_their_order() -> None:
    assert score("order", lambda s: np.sort(series(s), axis=1), range(200)) < 0.55
    assert score("order", lambda s: series(s)[:, 1:2], range(200)) < 0.55
    assert score("order", series) > 0.95


def around(sample: Sample) -> NDArray[np.float64]:
    """Mean of the eight neighbours of a pixel."""
    image = bands(sample, 0)
    return flat(ndimage.uniform_filter(image, (3, 3, 1)) * 9 - image)


def test_detail_is_in_the_pixel_and_not_around_it() -> None:
    assert score("detail", around) < 0.55
    assert score("detail", lambda s: flat(bands(s, 0))) > 0.95

"""The simple rival for points: a random forest of height above ground, return numbers and local height spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atomizer_io.io.ground import height_above_ground
from atomizer_io.io.point_clouds import PointCloud, read_point_cloud
from atomizer_io.training.metrics import scores_of_confusion
from atomizer_lab.lidar.tiles import class_names, labels

SQUARE_M = 1.0  # neighbours are the points of the 3 × 3 squares around
LEAVES = (5, 20, 50)  # smallest leaves tried; the validation tile chooses
TREES = 100
POINTS = 100_000  # most points that a tree is fitted on
SHARES = (1.0, 1 / 2, 1 / 10, 1 / 50)  # densities of the forest that has seen thinned clouds


def features(cloud: PointCloud) -> NDArray[np.float64]:
    """Return what the forest reads of each point: height, two return numbers, and how heights spread around it."""
    height = height_above_ground(np.column_stack([cloud.x, cloud.y, cloud.z]))
    squares = np.floor(np.column_stack([cloud.x, cloud.y]) / SQUARE_M).astype(np.int64)
    squares -= squares.min(axis=0) - 1  # an empty square all around
    shape = squares.max(axis=0) + 2
    place = squares[:, 0] * shape[1] + squares[:, 1]
    z = cloud.z - cloud.z.mean()

    def around(values: NDArray[np.float64]) -> NDArray[np.float64]:
        table = np.bincount(place, weights=values, minlength=shape[0] * shape[1]).reshape(shape)
        total = sum(np.roll(table, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))
        found: NDArray[np.float64] = np.asarray(total).reshape(-1)[place]
        return found

    def extreme(kind: Any, start: float) -> NDArray[np.float64]:
        table = np.full(shape[0] * shape[1], start)
        kind.at(table, place, z)
        table = table.reshape(shape)
        turned = [np.roll(table, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        found: NDArray[np.float64] = kind.reduce(turned).reshape(-1)[place]
        return found

    count = around(np.ones(len(z)))
    mean = around(z) / count
    spread = np.sqrt(np.maximum(around(z * z) / count - mean**2, 0))
    low, high = extreme(np.minimum, np.inf), extreme(np.maximum, -np.inf)
    one = np.ones(len(z))
    returns = [one if column is None else column for column in (cloud.return_number, cloud.number_of_returns)]
    return np.column_stack([height, *returns, spread, z - low, high - z])


def read(folder: Path, share: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return features and classes of all points of a folder that have one, thinned to a share of them."""
    rows, classes = [], []
    for number, path in enumerate(sorted(folder.glob("*.laz"))):
        cloud = read_point_cloud(path)
        if share < 1:
            draw = np.random.default_rng(number)
            count = max(1, round(share * len(cloud)))
            cloud = cloud.where(np.sort(draw.choice(len(cloud), count, replace=False)))
        rows.append(features(cloud))
        classes.append(labels(np.asarray(cloud.classification)))
    x, y = np.concatenate(rows), np.concatenate(classes)
    return x[y >= 0], y[y >= 0]


def forest(plain: str, tests: dict[str, str], seed: int = 0, thinning: bool = False) -> dict[str, Any]:
    """Fit on the training tiles, choose the size of leaves on the validation tile, score on each of ``tests``.

    With ``thinning`` the forest also learns from thinned copies of the training tiles, a part of each density.
    """
    from sklearn.ensemble import RandomForestClassifier

    root = Path(plain)
    parts = [read(root / "train", share) for share in (SHARES if thinning else SHARES[:1])]
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    weights = np.concatenate([np.full(len(part[1]), 1 / len(part[1])) for part in parts])
    found: dict[int, tuple[float, Any]] = {}
    for leaf in LEAVES:
        options = {"min_samples_leaf": leaf, "random_state": seed, "max_samples": min(POINTS, len(x))}
        fitted = RandomForestClassifier(TREES, **options)
        fitted.fit(x, y, sample_weight=weights * len(weights))
        found[leaf] = (scores(fitted, *read(root / "val"))["miou"], fitted)
    leaf = max(found, key=lambda size: found[size][0])
    return {
        "leaf": leaf,
        "val": found[leaf][0],
        "scores": {name: scores(found[leaf][1], *read(Path(folder) / "test")) for name, folder in tests.items()},
    }


def scores(fitted: Any, x: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, Any]:
    """Return the scores of a fitted forest."""
    names = class_names()
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (y, fitted.predict(x)), 1)
    return scores_of_confusion(torch.from_numpy(confusion), names)

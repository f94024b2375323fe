"""Claims are judged from the numbers: what holds, what does not, and what is not known yet."""

from __future__ import annotations

import pytest

from atomizer_lab.lidar.tiles import OTHERS
from atomizer_lab.paper.experiments import MULTI_SCENE
from atomizer_lab.paper.registry import item
from atomizer_lab.report.claims import CLAIMS, Means

BY_ITEM = {claim.item: claim for claim in CLAIMS}
OWN, PERCEIVER, HEIGHT = "Atomizer-IO", "Perceiver-IO", "canopy height, new sites"


def digits(own: float, vit: float, quarter: float) -> Means:
    levels = ("100%", "75%", "50%", "25%", "10%")
    return {OWN: {**dict.fromkeys(levels, own), "25%": quarter}, "ViT 1×1": dict.fromkeys(levels, vit)}


def decoded_at(*spots: tuple[float, float]) -> Means:
    return {f"dense, κ {n}": {"GFLOP": cost, "mIoU": score} for n, (cost, score) in enumerate(spots)}


def by_dates(*gains: float) -> Means:
    """Gains with six and twelve dates on three sets; with three dates nothing is gained, which does not count."""
    cells = {f"{data}, T = {count}": gain for data, gain in zip("abc", gains, strict=True) for count in (6, 12)}
    return {"gain by aggregation": {**cells, "a, T = 3": -9.0}}


def on_sets(own: float, height: float, baselines: Means) -> Means:
    """Scores on the six sets, the same on all but canopy height, of which the error in metres is given."""
    sets = dict.fromkeys(MULTI_SCENE, own) | {HEIGHT: height}
    rows = {
        row: {name: cells["height" if name == HEIGHT else "all"] for name in MULTI_SCENE}
        for row, cells in baselines.items()
    }
    return {OWN: sets, **rows}


BASELINES: Means = {
    PERCEIVER: {"all": 70.0, "height": 5.0},
    "ViT": {"all": 79.0, "height": 4.0},
    "random forest": {"all": 75.0, "height": 4.2},
    "Rondônia": {"all": 99.0, "height": 1.0},
}


def points(own: float, best: float) -> Means:
    rows = {OWN: own, PERCEIVER: best, "random forest": 63.6}
    return {row: dict.fromkeys(("LiDAR HD", *OTHERS), score) for row, score in rows.items()}


CASES: dict[str, tuple[Means, Means]] = {  # what holds, and what does not
    "rope": (
        {OWN: {"MNIST": 98.0}, "Atomizer-IO without RoPE": {"MNIST": 30.0}},
        {OWN: {"MNIST": 98.0}, "Atomizer-IO without RoPE": {"MNIST": 60.0}},
    ),
    "mnist-sparse": (digits(90, 80, 91), digits(90, 80, 85)),
    "table3": (
        {OWN: {"MARIDA average": 80.0}, "ViT": {"MARIDA average": 79.0}, "UNet": {"MARIDA average": 70.0}},
        {OWN: {"MARIDA average": 80.0}, "ViT": {"MARIDA average": 79.0}, "UNet": {"MARIDA average": 81.0}},
    ),
    "table2": (on_sets(80.0, 4.05, BASELINES), on_sets(80.0, 5.5, BASELINES)),
    "compute": (decoded_at((1, 84.5), (10, 85)), decoded_at((1, 83), (5, 84.5), (10, 85))),
    "temporal": (by_dates(-0.5, 0.0, 4.0), by_dates(-0.5, -2.0, 4.0)),
    "local-observations": (
        {"full model": {"a": 80.0, "b": 80.0}, "without local observations": {"a": 79.0, "b": 70.0}},
        {"full model": {"a": 80.0, "b": 80.0}, "without local observations": {"a": 81.0, "b": 70.0}},
    ),
    "lidar": (points(68, 55), points(68, 65)),
    "hyperspectral": (
        {OWN: {"all bands": 50.0, "every 2nd band": 46.0}},
        {OWN: {"all bands": 50.0, "every 2nd band": 40.0}},
    ),
}


@pytest.mark.parametrize("name", BY_ITEM)
def test_numbers_decide(name: str) -> None:
    holds, fails = CASES[name]
    for means, expected in ((holds, True), (fails, False)):
        verdict = BY_ITEM[name].judge(means)
        assert verdict is not None and verdict.holds is expected, verdict
    assert BY_ITEM[name].judge({}) is None
    for row in holds:  # what is half done is not judged, or judged by what is there
        BY_ITEM[name].judge({row_name: cells for row_name, cells in holds.items() if row_name != row})


@pytest.mark.parametrize("name", ["rope", "mnist-sparse", "local-observations"])
def test_the_papers_own_numbers_hold(name: str) -> None:
    verdict = BY_ITEM[name].judge(item(name).paper)
    assert verdict is not None and verdict.holds, verdict

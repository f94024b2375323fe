"""Scores of a model decoded as in prediction: at some cost, and at fewer positions than all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.models.base import Cost
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_io.training.data import EvaluationSamples
from atomizer_io.training.evaluate import compare, score
from scenes import SMALL
from strips import CLASSES, Strips, model_of


@pytest.fixture(scope="module")
def data() -> Dataset:
    return aio.datasets.create("synthetic", split="test", size=24, length=3)


@pytest.fixture(scope="module")
def model(data: Dataset) -> aio.AtomizerIO:
    torch.manual_seed(0)
    names = data.info.classes
    how = {**SMALL, "num_outputs": len(names), "class_names": names, "atoms_per_latent": 400}
    made = aio.create_model("atomizer_io_tiny", **how).eval()
    with torch.no_grad():
        for parameter in made.head.parameters():
            parameter.mul_(4)
    return made


def brute_force(model: aio.AtomizerIO, data: Dataset, strategy: str) -> tuple[float, float]:
    """mIoU and the share of positions decoded, by the functions of aio.decoding."""
    confusion, decoded, positions = np.zeros((2, 2)), 0, 0
    for sample in data:
        with torch.no_grad():
            latents = model.encode([sample.atoms])
        prediction = getattr(aio.decoding, strategy)(model, latents, sample.queries.grid)
        target = sample.target.numpy()
        np.add.at(confusion, (target[target >= 0], prediction.labels.flatten().numpy()[target >= 0]), 1)
        decoded, positions = decoded + prediction.decoded, positions + target.size
    hits = confusion.diagonal()
    return float(np.nanmean(hits / (confusion.sum(0) + confusion.sum(1) - hits))), decoded / positions


@pytest.mark.parametrize("strategy", ["zone_probe", "quadtree", "sketch"])
def test_scores_of_sparse_decoding(strategy: str, model: aio.AtomizerIO, data: Dataset) -> None:
    result = score(model, data, decoding=Decoding(strategy), progress=False)
    miou, share = brute_force(model, data, strategy)
    assert result["miou"] == pytest.approx(miou) and result["asked"] == pytest.approx(share)  # old name
    assert 0 < share < 1 and "asked" not in score(model, data, limit=1, progress=False)  # old name


def test_each_part_of_the_cost_counts(tmp_path: Path, model: aio.AtomizerIO, data: Dataset) -> None:
    plain = score(model, data, progress=False)
    for cost in (Cost(atoms_per_latent=200), Cost(budget=5), Cost(neighbors=1)):
        for strategy in ("dense", "sketch"):
            own = score(model, data, decoding=Decoding(strategy), progress=False) if strategy != "dense" else plain
            result = score(model, data, decoding=Decoding(strategy, cost=cost), progress=False)
            assert result["loss"] != own["loss"]
            assert result == score(model, data, decoding=Decoding(strategy, cost=cost), progress=False)
    cloud, strips = model_of(class_names=CLASSES), Strips(tmp_path)
    few = Decoding(cost=Cost(max_points=20))
    assert score(cloud, strips, decoding=few, progress=False)["loss"] != score(cloud, strips, progress=False)["loss"]


def test_tiles_are_averaged_also_with_sparse_decoding(tmp_path: Path) -> None:
    cloud, strips = model_of(class_names=CLASSES), Strips(tmp_path)
    result = score(cloud, strips, decoding=Decoding("zone-probe"), progress=False)
    assert result["positions"] == score(cloud, strips, progress=False)["positions"]
    assert 0 < result["asked"] <= 1  # old name
    with pytest.raises(QueryError, match="a quadtree needs a grid"):
        score(cloud, strips, decoding=Decoding("quadtree"), progress=False)


def test_a_configuration_without_channels_is_refused_before_anything_is_scored(
    model: aio.AtomizerIO, data: Dataset
) -> None:
    compare(model, data, ["all"])
    with pytest.raises(ConfigError, match="'no-lidar' matches no channel"):
        compare(model, data, ["all", "no-lidar"])


def test_what_cannot_be_decoded_like_this_is_refused(tmp_path: Path, model: aio.AtomizerIO) -> None:
    unet = aio.create_model("unet_small", channels=model.task_spec.channels or aio.sensors.SENTINEL2.channels)
    with pytest.raises(ConfigError, match="predicts at all positions at once: decode sketch is for models"):
        Decoding("sketch").checked(unet, tmp_path)
    with pytest.raises(ConfigError, match="has a fixed cost"):
        Decoding(cost=Cost(neighbors=3)).checked(unet, tmp_path)
    scene = aio.create_model("atomizer_io_tiny", **SMALL, task="classification")
    with pytest.raises(ConfigError, match="decode sketch is for predictions at positions; a classification has one"):
        Decoding("sketch").checked(scene, tmp_path)
    with pytest.raises(ConfigError, match=r"no calibration of sketch for alpha 0\.1"):
        Decoding("sketch", 0.1).checked(model, tmp_path)
    assert Decoding("sketch").checked(model, None) == Decoding("sketch")
    with pytest.raises(ConfigError, match="leave out max_points, or alpha"):
        Decoding("sketch", 0.1, Cost(max_points=100))


def test_evaluate_on_the_command_line(
    tmp_path: Path, model: aio.AtomizerIO, data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, settings, out = tmp_path / "run" / "best", tmp_path / "run" / "config.yaml", tmp_path / "scores.json"
    model.save_pretrained(folder)
    settings.write_text("data: {name: synthetic, workers: 0, options: {size: 24, length: 3}}")
    arguments = ["evaluate", str(folder), "-o", str(out)]

    def scores(*more: str) -> dict:
        assert main([*arguments, *more]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(out.read_text())["scores"]
        return json.loads(out.read_text())

    dense = scores()
    assert dense["scores"]["all"]["miou"] == pytest.approx(score(model, data, progress=False)["miou"])
    cost = ["--kappa", "100", "--budget", "20", "--neighbors", "2", "--max-points", "50"]
    result = scores(*cost, "--decode", "zone-probe")
    decoding = Decoding("zone-probe", cost=Cost(100, 20, 2, 50))
    assert result["scores"]["all"]["loss"] == score(model, data, decoding=decoding, progress=False)["loss"]
    assert result["decoding"]["strategy"] == "zone-probe" and result["decoding"]["cost"]["neighbors"] == 2
    assert main([*arguments, "--decode", "sketch", "--alpha", "0.3"]) == 2
    assert "atomizer calibrate" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="the calibrated decoding is dense"):
        assert main(["calibrate", str(folder), "--decode", "sketch", "--alpha", "0.2", "--blocks", "3"]) == 0
    capsys.readouterr()
    promised = scores("--decode", "sketch", "--alpha", "0.2")["scores"]["all"]
    assert "asked" not in promised and promised["miou"] == pytest.approx(dense["scores"]["all"]["miou"])  # old name


def test_channel_dropout_shows_each_validation_sample_whole_and_with_hidden_channels(data: Dataset) -> None:
    views = EvaluationSamples(data, dropout=ChannelDropout("groups"))
    assert len(EvaluationSamples(data)) == 3 == len(EvaluationSamples(data, dropout=ChannelDropout(wavelengths=0.1)))
    assert len(views) == 3 * 4 and len(EvaluationSamples(data, limit=1, dropout=ChannelDropout("groups"))) == 8

    def channels(index: int) -> int:
        return sum(int(part.observed_channels().sum()) for part in views[index][0].atoms)

    whole = [channels(4 * number) for number in range(3)]
    hidden = [channels(index) for index in range(len(views)) if index % 4]
    assert whole == [channels(0)] * 3 and all(0 < count <= whole[0] for count in hidden)
    assert min(hidden) < whole[0] / 2 and hidden == [channels(index) for index in range(len(views)) if index % 4]
    dealt = [views.dealt(process, 2) for process in range(2)]
    assert dealt == [[*range(4), *range(8, 12)], [*range(4, 8)]]


def test_values_unlike_the_training_data_are_warned_about(model: aio.AtomizerIO, data: Dataset) -> None:
    statistics = [replace(c, mean=(c.mean or 0) + 1, std=c.std or 1) for c in data.channels]
    known = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2, "channels": tuple(statistics)})
    compare(known, data)  # as the data are: no warning
    divided = [replace(c, mean=(c.mean or 0) / 1e4, std=(c.std or 1) / 1e4) for c in data.channels]
    scaled = aio.create_model("atomizer_io_tiny", **{**SMALL, "num_outputs": 2, "channels": tuple(divided)})
    with pytest.warns(UserWarning, match="seems to be in other units than the training data: B"):
        compare(scaled, data)

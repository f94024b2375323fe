"""Perceiver-IO goes through the same commands as all models: trained, stopped, resumed, scored, mapped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import LIDAR
from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost
from atomizer_io.training import task
from atomizer_lab.synthetic.rasters import write_raster

pytest.importorskip("lightning")
CONFIG = Path(__file__).parents[2] / "configs" / "synthetic.yaml"
TINY = "model.settings={latents: 8, width: 24, depth: 1, heads: 2, head_dim: 12, budget: 300}"
SMALL = (
    "model.preset=perceiver_io_small",
    "data.workers=0",
    "training.max_steps=5",
    "training.batch_size=2",
    "training.save_every=2",
    "training.queries=100",
    "training.figures=0",
    "training.loggers=[]",
    "training.accelerator=cpu",
    "training.validation_samples=1",
    TINY,
)
FLOODS = "data.options={like: sen1floods11, size: 16, length: 6}"


class Stopped(Exception):
    """Stands for a kill."""


def test_trained_stopped_resumed_scored_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rasterio = pytest.importorskip("rasterio")
    monkeypatch.chdir(tmp_path)
    options = ["train", str(CONFIG), *SMALL, FLOODS, "--quiet"]
    assert main([*options, "name=whole"]) == 0
    plain = task.Task.training_step

    def stopping(self: task.Task, batch: object, index: int) -> object:
        if self.global_step == 3:
            raise Stopped
        return plain(self, batch, index)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(task.Task, "training_step", stopping)
        with pytest.raises(Stopped):
            main([*options, "name=stopped"])
    assert main(["train", "runs/stopped", "--resume", "--quiet"]) == 0
    one, two = (load_file(Path("runs", name, "last", "model.safetensors")) for name in ("whole", "stopped"))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)

    capsys.readouterr()
    for command in ("evaluate", "info"):
        assert main([command, "runs/whole/best", "--kappa", "300"]) == 2
        assert "has no atoms_per_latent: of the cost, budget and max_points can be chosen" in capsys.readouterr().err
    assert main(["calibrate", "runs/whole/best", "--kappa", "300"]) == 2
    assert "nothing to calibrate: choose --budget and --max-points of evaluate" in capsys.readouterr().err
    assert main(["evaluate", "runs/whole/best", "--budget", "100"]) == 0
    fewer = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert main(["evaluate", "runs/whole/best", "--channels", "all,s1-only,no-swir"]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(scores) == {"all", "s1-only", "no-swir"} and all(0 <= row["miou"] <= 1 for row in scores.values())
    assert fewer["loss"] != scores["all"]["loss"]

    scene = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=16)[0]
    inputs = []
    for acquisition in scene.atoms:
        values = acquisition.observed().T.reshape(-1, 16, 16).numpy().astype(np.float32)
        place = {"crs": "EPSG:32631", "transform": (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0)}
        names = [channel.name for channel in acquisition.channels]
        write_raster(Path(f"{acquisition.sensor}.tif"), values, descriptions=names, nodata=float("nan"), **place)
        inputs += ["--raster", f"{acquisition.sensor}.tif", "--sensor", acquisition.sensor]
    assert main(["predict", "--model", "runs/whole/best", *inputs, "-o", "map.tif", "--workers", "0"]) == 0
    with rasterio.open("map.tif") as file:
        assert file.shape == (16, 16) and file.crs.to_epsg() == 32631 and set(file.read(1).flat) <= {0, 1, 255}


def test_clouds_are_learned_and_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clouds = "data.options={like: dales, size: 16, length: 4}"
    assert main(["train", str(CONFIG), *SMALL, clouds, "--quiet", "name=cloud"]) == 0
    model = aio.load_model("runs/cloud/best")
    assert model.chosen.point_tokens and model.capabilities.points


def test_a_cost_reaches_the_model(tmp_path: Path) -> None:
    """Of a cloud that is classified, only some points are read as context; other kinds of cost are refused."""
    laspy = pytest.importorskip("laspy")
    rng = np.random.default_rng(0)
    cloud = laspy.LasData(laspy.LasHeader(version="1.4", point_format=6))
    cloud.x, cloud.y, cloud.z = rng.uniform(0, 30, 300), rng.uniform(0, 20, 300), rng.uniform(0, 20, 300)
    cloud.return_number = cloud.number_of_returns = np.ones(300, np.uint8)
    cloud.write(tmp_path / "in.las")
    torch.manual_seed(0)
    model = aio.create_model(
        "perceiver_io_small",
        channels=LIDAR.pick("elevation"),
        num_outputs=3,
        class_names=("a", "b", "c"),
        extent_m=20.0,
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    how = {"windows": aio.PointCloudWindows(20.0), "execution": aio.Execution(progress=False)}
    values = {}
    for name, cost in (("all", Cost()), ("few", Cost(max_points=10)), ("again", Cost(max_points=10))):
        decoding = aio.Decoding(cost=cost)
        product = aio.predict_points(model, tmp_path / "in.las", tmp_path / f"{name}.las", decoding=decoding, **how)
        assert sum(product.counts.values()) == 300
        values[name] = np.asarray(laspy.read(tmp_path / f"{name}.las").a)
    np.testing.assert_array_equal(values["few"], values["again"])
    assert (values["all"] != values["few"]).any()
    with pytest.raises(ConfigError, match="has no neighbors: of the cost, budget and max_points can be chosen"):
        decoding = aio.Decoding(cost=Cost(neighbors=3))
        aio.predict_points(model, tmp_path / "in.las", tmp_path / "x.las", decoding=decoding, **how)

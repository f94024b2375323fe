"""Other models go through the same commands as Atomizer-IO: trained, killed, resumed, scored, mapped."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import LIDAR
from atomizer_io.errors import ConfigError, UnknownChannelError
from atomizer_io.models.base import Cost
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_lab.synthetic.rasters import write_raster
from runs import kill_at, killed

pytest.importorskip("lightning")
from atomizer_io.training.task import Task

TINY = "{latents: 8, width: 24, depth: 1, heads: 2, head_dim: 12, budget: 300}"  # a Perceiver-IO
CONFIG = Path(__file__).parents[2] / "configs" / "synthetic.yaml"
SMALL = (
    "data.options={like: sen1floods11, size: 24, length: 12}",
    "data.workers=0",
    "training.max_steps=6",
    "training.save_every=2",
    "training.figures=0",
    "training.baselines=false",
    "training.loggers=[]",
    "training.accelerator=cpu",
    "training.validation_samples=2",
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "last" / "model.safetensors")


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        *(
            (name, "{}")
            for name in ("unet_small", "pixels", "resnet_small", "vit_tiny", "ramen_small", "universat_small")
        ),
        ("perceiver_io_small", TINY),
    ],
)
def test_trained_killed_resumed_scored_and_mapped(
    preset: str, settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rasterio = pytest.importorskip("rasterio")
    monkeypatch.chdir(tmp_path)
    options = ["train", str(CONFIG), f"model.preset={preset}", f"model.settings={settings}", *SMALL, "--quiet"]
    assert main([*options, "name=whole", "training.figures=1"]) == 0 and list(Path("runs/whole/figures").iterdir())
    assert killed(partial(kill_at, Task, "training_step", 4), *options, "name=killed")
    assert main(["train", "runs/killed", "--resume", "--quiet"]) == 0
    whole, resumed = weights(Path("runs/whole")), weights(Path("runs/killed"))
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)

    capsys.readouterr()
    assert main(["evaluate", "runs/whole/best", "--channels", ",".join(CONFIGURATIONS)]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(scores) == set(CONFIGURATIONS) and all(0 <= row["miou"] <= 1 for row in scores.values())

    if preset == "perceiver_io_small":
        check_costs(capsys, scores["all"]["loss"])

    scene = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=24)[0]
    for number, acquisition in enumerate(scene.atoms):
        values = acquisition.observed().T.reshape(-1, 24, 24).numpy().astype(np.float32)
        place = {"crs": "EPSG:32631", "transform": (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0)}
        names = [channel.name for channel in acquisition.channels]
        write_raster(Path(f"{number}.tif"), values, descriptions=names, nodata=float("nan"), **place)
    inputs = [word for n, a in enumerate(scene.atoms) for word in ("--raster", f"{n}.tif", "--sensor", a.sensor)]
    assert main(["predict", "--model", "runs/whole/best", *inputs, "-o", "map.tif", "--workers", "0"]) == 0
    with rasterio.open("map.tif") as file:
        assert file.shape == (24, 24) and file.crs.to_epsg() == 32631 and set(file.read(1).flat) <= {0, 1, 255}


def check_costs(capsys: pytest.CaptureFixture[str], loss: float) -> None:
    """A model without cells names what can be chosen of its cost, which changes its scores."""
    for command in ("evaluate", "info"):
        assert main([command, "runs/whole/best", "--kappa", "300"]) == 2
        assert "has no atoms_per_latent: of the cost, budget and max_points can be chosen" in capsys.readouterr().err
    assert main(["calibrate", "runs/whole/best", "--kappa", "300"]) == 2
    assert "nothing to calibrate: choose --budget and --max-points of evaluate" in capsys.readouterr().err
    assert main(["evaluate", "runs/whole/best", "--budget", "100"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["all"]["loss"] != loss


@pytest.mark.parametrize(
    ("preset", "series"),
    [
        ("resnet_small", "{temporal: linear, num_dates: 2}"),
        ("vit_tiny", "{temporal: ltae}"),
        ("perceiver_io_small", "{budget: 500}"),
        ("ramen_small", "{}"),
        ("universat_small", "{}"),
    ],
)
def test_baselines_train_on_scenes_regression_and_classes_of_series(
    preset: str, series: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps of one date are above; the configurations (κ, m) of the file are left out by all of them."""
    monkeypatch.chdir(tmp_path)
    families = {"eurosat": "{}", "biomassters": series, "pastis-r": series}
    of_series = {"biomassters": ", dates: 2", "pastis-r": ", dates: 2, sensor: sentinel2_l2a"}
    for like, settings in families.items():
        data = f"data.options={{like: {like}, size: 16, length: 4{of_series.get(like, '')}}}"
        few = ["training.max_steps=2", "training.batch_size=2", "training.queries=100"]
        words = [f"model.preset={preset}", f"model.settings={settings}", *SMALL, data, *few, f"name={like}"]
        assert main(["train", str(CONFIG), *words, "--quiet"]) == 0
        scores = json.loads(Path(f"runs/{like}/metrics.json").read_text())["scores"]["test"]
        metric = {"eurosat": "macro_f1", "biomassters": "rmse", "pastis-r": "miou"}[like]
        assert np.isfinite(scores[metric]) and aio.load_model(f"runs/{like}/best").preset == preset


def test_a_unet_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["training.max_steps=60", "training.learning_rate=0.01", "training.channel_dropout={}"]
    options += ["training.save_every=60", "training.validate_every=5"]
    assert main(["train", str(CONFIG), "model.preset=unet_small", *SMALL, *options, "--quiet", "name=unet"]) == 0
    metrics = json.loads(Path("runs/unet/metrics.json").read_text())
    assert metrics["scores"]["test"]["miou"] > 0.6


def test_what_a_unet_cannot_do_is_named() -> None:
    channels = aio.sensors.SENTINEL2.pick("B02", "B03")
    with pytest.raises(ConfigError, match="a UNet predicts at positions, but the task is classification"):
        aio.create_model("unet", task="classification", channels=channels)
    with pytest.raises(ConfigError, match="create it with channels="):
        aio.create_model("unet_small").preparer()
    model = aio.create_model("unet_small", channels=channels)
    stranger = aio.AtomSet.from_raster(np.zeros((1, 8, 8)), aio.sensors.SENTINEL2.pick("B11"), 10.0)
    with pytest.raises(UnknownChannelError, match="no input for sentinel2 B11"):
        model([stranger], [torch.zeros(1, 2)])


def test_a_sample_of_a_batch_does_not_depend_on_the_others() -> None:
    torch.manual_seed(0)
    channels = aio.sensors.SENTINEL2.pick("B02", "B03")
    model = aio.create_model("unet_small", channels=channels).eval()
    rng = np.random.default_rng(0)
    scenes = [aio.AtomSet.from_raster(rng.normal(1000, 300, (2, side, side)), channels, 10.0) for side in (16, 20, 16)]
    positions = [aio.Grid(side, side, gsd_m=10.0).positions() for side in (16, 20, 16)]
    with torch.no_grad():
        together = model(scenes, positions)
        alone = [model([scene], [where])[0] for scene, where in zip(scenes, positions, strict=True)]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(together, alone, strict=True))


def test_clouds_are_learned_and_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clouds = "data.options={like: dales, size: 16, length: 4}"
    perceiver = ("model.preset=perceiver_io_small", f"model.settings={TINY}", "training.queries=100")
    assert main(["train", str(CONFIG), *SMALL, *perceiver, clouds, "--quiet", "name=cloud"]) == 0
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
    task = {"channels": LIDAR.pick("elevation"), "num_outputs": 3, "class_names": ("a", "b", "c"), "extent_m": 20.0}
    model = aio.create_model("perceiver_io_small", **task)
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

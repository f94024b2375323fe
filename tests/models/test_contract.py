"""The recipe of CONTRIBUTING: a new model in one file, which every command then knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch
from torch import Tensor, nn

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sample import Queries
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomizerError, CheckpointError, ConfigError, UnknownChannelError
from atomizer_io.models import registry
from atomizer_io.models.base import Cost, Model, Preset, in_units

FLOODS = """
data: {name: synthetic, options: {like: sen1floods11, size: 16, length: 6}, workers: 0}
training: {max_steps: 4, batch_size: 2, learning_rate: 0.1, loggers: [], figures: 0, accelerator: cpu}
"""


# --- the shortest complete model ---


class Count:
    """Prepares a sample: only the number of queries counts."""

    def __call__(
        self,
        atoms: aio.AtomSet,
        queries: Queries | None,
        cost: Cost = Cost(),
        generator: torch.Generator | None = None,
    ) -> int:
        return 1 if queries is None else len(queries)


class MeanPredictor(Model):
    """Gives the same prediction everywhere: the one that was right most often."""

    family = "mean"
    presets: ClassVar = {"mean": Preset()}

    def __init__(self, task_spec: TaskSpec, preset: str | None = None) -> None:
        super().__init__(task_spec, preset)
        self.logits = nn.Parameter(torch.zeros(task_spec.num_outputs))

    @classmethod
    def build(cls, task_spec: TaskSpec, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        return cls(task_spec, preset)

    def settings(self) -> dict[str, Any]:
        return {}

    def preparer(self) -> Count:
        return Count()

    def predict(self, inputs: Sequence[int]) -> list[Tensor]:
        rows = [in_units(self.logits.expand(count, -1), self.task_spec) for count in inputs]
        return rows if self.task_spec.dense else [row[0] for row in rows]

    def flops(self, inputs: Sequence[int]) -> float:
        return 0.0


# --- what it gets for it ---


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_added", {})
    aio.register_model(MeanPredictor)
    yield


def test_a_new_model_is_trained_evaluated_and_mapped_by_the_commands(
    registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rasterio = pytest.importorskip("rasterio")
    pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    Path("floods.yaml").write_text(FLOODS)
    assert main(["train", "floods.yaml", "model.preset=mean", "name=mean", "--quiet"]) == 0
    best = aio.load_model("runs/mean/best")
    assert isinstance(best, MeanPredictor) and best.logits[0] > best.logits[1]  # there is more land than water
    with pytest.warns(UserWarning, match="channels s1-only: 13 of the 15 channels that each training sample had"):
        assert main(["evaluate", "runs/mean/best", "--channels", "all,s1-only"]) == 0
    assert main(["info", "runs/mean/best"]) == 0
    scene = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=16)[0]
    optical = next(a for a in scene.atoms if a.sensor == "sentinel2")
    with rasterio.open(
        "s2.tif", "w", driver="GTiff", height=16, width=16, count=len(optical.channels), dtype="float32",
        crs="EPSG:32631", transform=rasterio.Affine(10, 0, 500_000, 0, -10, 5_000_000),
    ) as file:  # fmt: skip
        file.write(optical.observed().nan_to_num(1000.0).float().T.reshape(-1, 16, 16).numpy())
        file.descriptions = [channel.name for channel in optical.channels]
    command = ["predict", "--model", "runs/mean/best", "--raster", "s2.tif", "--sensor", "sentinel2", "-o", "map.tif"]
    with pytest.warns(UserWarning, match="2 of the 15 channels .* are missing: sentinel1 VV, sentinel1 VH"):
        assert main([*command, "--workers", "0"]) == 0
    with rasterio.open("map.tif") as file:
        assert (file.read(1) == 0).all() and file.crs.to_epsg() == 32631


def test_a_fixed_cost_is_refused_by_name(registered: None) -> None:
    model = aio.create_model("mean", num_outputs=3)
    atoms = aio.AtomSet.from_raster(torch.zeros(1, 4, 4), aio.sensors.SENTINEL2.pick("B02"), 10.0)
    assert model([atoms], [torch.zeros(5, 2)])[0].shape == (5, 3)
    with pytest.raises(ConfigError, match="mean has a fixed cost"):
        model([atoms], [torch.zeros(5, 2)], atoms_per_latent=10)


def test_names_are_taken_once(registered: None) -> None:
    class Other(MeanPredictor):
        family = "other"

    with pytest.raises(ConfigError, match="there is a model called 'mean' already"):
        aio.register_model(Other)


def test_a_saved_model_of_an_unknown_kind_is_refused(
    registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aio.create_model("mean").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="holds a mean model, not a AtomizerIO"):
        aio.AtomizerIO.from_pretrained(tmp_path)
    monkeypatch.setattr(registry, "_added", {})
    with pytest.raises(CheckpointError, match="'mean' is no kind of model that is known here"):
        aio.load_model(tmp_path)


@pytest.mark.parametrize("name", ["atomizer_io_tiny", "unet_small", "pixels", "resnet_small", "vit_tiny"])
@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_every_model_predicts_saves_and_counts(name: str, task: str, tmp_path: Path) -> None:
    scene = aio.datasets.create("synthetic", like="sen1floods11", split="train", size=20)[0]
    outputs = 2 if task == "segmentation" else 1
    torch.manual_seed(0)
    task_spec = TaskSpec(
        task, outputs, target_mean=100.0, target_std=5.0, channels=scene.atoms.channels, extent_m=200.0
    )
    model = aio.create_model(name, task_spec=task_spec).eval()
    inputs = [model.preparer()(scene.atoms, scene.queries)]
    with torch.no_grad():
        (predictions,) = model.predict(inputs)
        (again,) = model([scene.atoms], [scene.queries.positions])
    assert predictions.shape == (400, outputs) and torch.equal(predictions, again)
    if task == "regression":
        assert 80 < float(predictions.mean()) < 120  # in the unit of the target
    assert model.flops(inputs) > 0
    model.save_pretrained(tmp_path)
    loaded = aio.load_model(tmp_path)
    assert type(loaded) is type(model) and loaded.task_spec == task_spec and loaded.preset == name
    with torch.no_grad():
        assert torch.equal(loaded.predict(inputs)[0], predictions)


@pytest.mark.parametrize("name", ["unet_small", "pixels", "resnet_small", "vit_tiny"])
def test_an_absent_ability_is_refused(name: str) -> None:
    channels = aio.sensors.SENTINEL2.pick("B02", "B03")
    model = aio.create_model(name, channels=channels)
    atoms = aio.AtomSet.from_raster(torch.zeros(1, 4, 4), channels[:1], 10.0)
    with pytest.raises(ConfigError, match="has a fixed cost"):
        model([atoms], [torch.zeros(1, 2)], neighbors=3)
    with pytest.raises(ConfigError, match="has a fixed cost"):
        model.keep_cost(Cost(budget=5))
    stranger = aio.AtomSet.from_raster(torch.zeros(1, 4, 4), aio.sensors.SENTINEL2.pick("B11"), 10.0)
    with pytest.raises(UnknownChannelError, match="no input for sentinel2 B11"):
        model([stranger], [torch.zeros(1, 2)])


@pytest.mark.parametrize(
    ("batch", "positions", "words"),
    [
        ("atoms", [torch.zeros(1, 2)], "a batch is a list of AtomSets"),
        ([], [], "the batch is empty"),
        (["atoms"], torch.zeros(1, 2), "positions come as a list"),
        (["atoms"], [torch.zeros(1, 2)] * 2, "2 lists of positions for 1 samples"),
        (["atoms"], None, "predicts at positions"),
    ],
)
def test_mistakes_are_named_alike_by_every_model(batch: Any, positions: Any, words: str) -> None:
    channels = aio.sensors.SENTINEL2.pick("B02")
    atoms = aio.AtomSet.from_raster(torch.zeros(1, 4, 4), channels, 10.0)
    samples = atoms if batch == "atoms" else [atoms for _ in batch]
    for name in ("atomizer_io_tiny", "unet_small", "pixels", "resnet_small", "vit_tiny"):
        with pytest.raises(AtomizerError, match=words):
            aio.create_model(name, channels=channels)(samples, positions)


def test_installed_packages_add_models(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def __init__(self, name: str, load: Any) -> None:
            self.name, self.load = name, load

    def broken() -> None:
        raise ImportError("no module named elsewhere")

    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(registry, "_installed", lambda: (Point("mean", lambda: MeanPredictor), Point("bad", broken)))
    with pytest.warns(UserWarning, match="the installed model 'bad' cannot be used: no module named elsewhere"):
        assert "mean" in aio.list_models()
    with pytest.warns(UserWarning, match="'bad'"):
        assert isinstance(aio.create_model("mean"), MeanPredictor)


def test_a_small_scene_and_half_precision_suit_a_unet(tmp_path: Path) -> None:
    channels = aio.sensors.SENTINEL2.pick("B02")
    model = aio.create_model("unet_small", channels=channels).train()
    atoms = aio.AtomSet.from_raster(torch.zeros(1, 2, 2), channels, 10.0)
    model([atoms], [torch.zeros(1, 2)])[0].sum().backward()  # one pixel on the deepest level would be too few
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    assert next(aio.load_model(tmp_path).parameters()).dtype == torch.bfloat16

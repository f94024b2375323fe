"""Whole runs on a small folder: what they leave, that they can be stopped anywhere, and that two processes agree."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import atomizer_io as aio
import data as fixtures
from atomizer_io.cli import main
from atomizer_io.decoding.scene_decoder import Decoding
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.models.base import Cost
from atomizer_io.training import config
from atomizer_io.training.evaluate import score
from atomizer_io.training.splits import open_split
from atomizer_io.training.task import Task
from processes import command, exit_code, start
from runs import history, kill_at, killed, result, started, trained, write_floods


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    costs = {"configurations": [[500, 200], [800, 300]], "queries": 300, "learning_rate": 1e-3}
    data, shown = {"measure": 3, "test": "test"}, {"loggers": ["csv"], "figures": 1}
    return write_floods(tmp_path_factory.mktemp("run"), 32, data, **costs, **shown, epochs=2, save_every=2)


@pytest.fixture(scope="module")
def whole(settings: Path) -> Path:
    """A run that nobody disturbed."""
    return trained(settings, "whole")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "last" / "model.safetensors")


def same(a: Path, b: Path) -> bool:
    first, second = weights(a), weights(b)
    return all(torch.equal(first[name], second[name]) for name in first)


def test_what_a_run_leaves(whole: Path) -> None:
    metrics = result(whole)
    assert metrics["finished"] and metrics["steps"] == 6 and metrics["seed"] == 0
    assert set(metrics["scores"]) == {"val", "test"} and 0 <= metrics["scores"]["test"]["miou"] <= 1
    assert metrics["machine"]["torch"] == torch.__version__ and "commit" in metrics["machine"]
    resolved = config.load(whole / "config.yaml")
    assert resolved.training.epochs == 2 and resolved.seed == 0
    best = aio.AtomizerIO.from_pretrained(whole / "best")
    assert best.task_spec.class_names == ("dry", "water") and best.task_spec.channels[0].mean is not None
    assert len(history(whole)) == 2  # two epochs
    assert list((whole / "figures").glob("*.png")) and (whole / "logs" / "metrics.csv").is_file()


def test_what_is_stored_is_what_was_scored(whole: Path, settings: Path) -> None:
    """The κ of the best model is the one that does best with whole cells, as the model is used; m has no part in it."""
    model, run = aio.load_model(whole / "best"), config.load(settings)
    validation, scores = open_split(run, "val"), result(whole)["scores"]
    costs = {kappa: Decoding(cost=Cost(kappa)) for kappa in (500, 800)}
    tried = {kappa: score(model, validation, decoding=how, progress=False)["miou"] for kappa, how in costs.items()}
    assert model.config.atoms_per_latent == max(tried, key=tried.get)
    assert score(model, validation, progress=False)["miou"] == pytest.approx(scores["val"]["miou"])
    assert scores["val"]["miou"] == pytest.approx(max(tried.values()))
    assert model.config.budget == 300  # that of the last configuration, with which a training would go on


def kill_when_the_state_is_replaced() -> None:
    plain = os.replace

    def replace(source: Path, target: Path) -> None:
        if str(target).endswith("state.safetensors") and Path(target).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        plain(source, target)

    os.replace = replace


@pytest.mark.parametrize(
    "kill",
    [kill_when_the_state_is_replaced, *(partial(kill_at, Task, "training_step", step) for step in (2, 4, 6))],
    ids=["while the state is written", "in the second step", "in the fourth", "in the sixth"],
)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    kill: Callable[[], None], whole: Path, settings: Path, request: pytest.FixtureRequest
) -> None:
    name = f"killed-{request.node.callspec.id.replace(' ', '-')}"
    words = ["train", str(settings), "--quiet", f"name={name}", "training.figures=0"]
    assert killed(kill, *words)
    assert exit_code(start(command, (*words, "--resume"))) == 0
    assert same(whole, whole.parent / name)
    assert (whole.parent / name / "logs").is_dir() and (whole.parent / name / "logs-2").is_dir()


@pytest.mark.slow
def test_two_processes_train_as_one(settings: Path) -> None:
    options = ["data.val=null", "data.test=null", "training.repeat=2", "training.save_every=100"]
    assert main(["train", str(settings), "--quiet", "name=one", "training.batch_size=2", *options]) == 0
    ddp = ["training.batch_size=1", "training.devices=2", "training.strategy=ddp"]
    two = started(settings.parent, "train", str(settings), "--quiet", "name=two", *ddp, *options)
    assert two.returncode == 0, two.stderr
    first, second = (weights(settings.parent / "runs" / name) for name in ("one", "two"))
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=2e-4)


def test_evaluate_by_channels(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "all,s2-only,s1-only,rgb-only,no-swir,no-red-edge"
    with pytest.warns(UserWarning, match=r"channels s2-only: 2 of the 15 .*; likewise with s1-only, .*no-red-edge"):
        assert main(["evaluate", str(whole / "best"), "--channels", names, "-o", str(tmp_path / "e.json")]) == 0
    shown = capsys.readouterr().out
    scores = json.loads((tmp_path / "e.json").read_text())["scores"]
    assert list(scores) == names.split(",") and all(f"{name:14}" in shown for name in scores)
    assert json.loads(shown.splitlines()[-1]) == json.loads(json.dumps(scores))
    before = result(whole)["scores"]["test"]
    assert scores["all"]["miou"] == pytest.approx(before["miou"])
    assert main(["evaluate", str(whole / "best"), "--channels", "s3-only"]) == 2
    assert main(["evaluate", str(tmp_path), "--config", str(whole / "config.yaml")]) == 2
    assert main(["evaluate", str(whole / "best" / "x")]) == 2


def test_evaluate_any_split(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scores(*words: str) -> str:
        assert main(["evaluate", str(whole / "best"), *words]) == 0
        return capsys.readouterr().out

    assert scores() == scores("--split", "test") != scores("--split", "bolivia")
    assert scores("--use", "val") == scores("--split", "validation"), "the old name of the option"
    assert main(["evaluate", str(whole / "best"), "--split", "name"]) == 2
    assert "sen1floods11 has no split 'name'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    assert "--use" not in capsys.readouterr().out


def test_mistakes_show_before_the_first_step(settings: Path, tmp_path: Path) -> None:
    def fails(*options: str) -> None:
        trained(settings, "wrong", *options)

    with pytest.raises(ConfigError, match="cannot write"):
        (tmp_path / "file").write_text("")
        fails(f"output={tmp_path / 'file'}")
    with pytest.raises(ConfigError, match=r"data\.name is missing"):
        fails("data.name=''")
    with pytest.raises(DataError, match="no sample of split"):
        (settings.parent / "data/v1.1/splits/flood_handlabeled/flood_bolivia_data.csv").write_text("")
        fails("data.val=bolivia")
    with pytest.raises(ConfigError, match="class_weights"):
        fails("training.class_weights=[1, 2, 3]")
    with pytest.raises(ConfigError, match="is not known; use csv"):
        fails("training.loggers=[paper]")
    with pytest.raises(ConfigError, match=r"fsdp.* requires a GPU"):
        fails("training.strategy=fsdp", "training.accelerator=cpu")


def test_a_full_disk_is_noticed(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atomizer_io.training import folder

    monkeypatch.setattr(folder.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ConfigError, match="make room"):
        trained(settings, "full")


def test_a_loss_that_is_no_number_stops_with_the_samples(settings: Path) -> None:
    with pytest.raises(AtomizerError, match=r"the loss became nan at step \d+ on (Ghana|Mekong)_\d+"):
        trained(settings, "nan", "training.learning_rate=1e30", "training.gradient_clip=null")


def test_a_class_that_never_occurs_is_reported(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import rasterio

    root = settings.parent / "dry"
    fixtures.write("sen1floods11", root, size=32)
    for path in (root / "v1.1/data/flood_events/HandLabeled/LabelHand").iterdir():
        with rasterio.open(path, "r+") as target:
            target.write((target.read() * 0).astype("int16"))
    trained(settings, "dry", f"data.root={root}", "training.epochs=1", "data.val=null", "data.test=null")
    assert "class 'water' does not occur in the 3 training samples" in capsys.readouterr().out

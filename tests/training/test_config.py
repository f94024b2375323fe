"""Settings: what is written wrong is named, with what was probably meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from atomizer_io.datasets.registry import canonical
from atomizer_io.errors import ConfigError
from atomizer_io.models.registry import create_model, preset
from atomizer_io.training import config
from atomizer_io.training.config import Run
from atomizer_io.training.splits import open_split
from atomizer_io.training.stopping import seconds_of
from atomizer_lab.paper.columns import DATASETS, INPUTS, PaperDataset

CONFIGS = Path(__file__).parents[2] / "configs"
BATCH = {
    **{"forestnet": 8, "burnscars": 8, "eurosat": 8, "m-cashew-plant": 8, "sen1floods11": 4, "xview2": 8},
    **{"m-eurosat": 8, "m-forestnet": 8, "xview2-pangaea": 8},
    **{"biomassters": 16, "pastis-r": 4, "dales": 32, "fractal": 20, "mnist": 64},
}
KAPPAS = {
    "pastis-r": ((100, 100), (250, 250), (350, 350)),
    "mnist": (),
    "dales": ((1000, 1000),),
    "fractal": ((1000, 1000),),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    document = {"data": {"name": "mnist", "root": "x"}, "training": {"learning_rate": "1e-4", "epochs": 3}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "a.yaml"


def test_values_and_overrides(path: Path) -> None:
    run = config.load(
        path, ["training.epochs=5", "model.settings.rope=false", "training.gradient_clip=null", "data.val=null"]
    )
    assert (run.training.epochs, run.training.learning_rate) == (5, 1e-4)
    assert run.model.settings == {"rope": False} and run.training.gradient_clip is None and run.data.val is None
    again = config.parse(config.plain(run))
    assert again == run


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epoch=3", "unknown setting training.epoch; did you mean training.epochs?"),
        ("trainig.epochs=3", "unknown setting trainig; did you mean training?"),
        ("training.channel_dropout.shar=0.1", "did you mean training.channel_dropout.share?"),
        ("training.epochs=many", "training.epochs"),
        ("training.epochs=1.5", "training.epochs"),
        ("training.epochs=0", "training.epochs must be at least 1"),
        ("training.cooldown=15", "training.cooldown must be a share from 0 to 1"),
        ("training.configurations=[[1]]", "training.configurations"),
        ("training.channel_dropout.share=3", "from 0 to 1"),
        ("data.options=3", "data.options"),
        ("data.name.x=3", "name is no group of settings"),
        ("training.epochs", "write key=value"),
        ("training.epochs=[", "cannot read the value"),
    ],
)
def test_mistakes_are_named(path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?").replace("[", r"\[")):
        config.load(path, [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.betas=3", "setting training.betas is 3; it has to be a list of 2 numbers"),
        ("training.learning_rate=fast", "setting training.learning_rate is 'fast'; it has to be a number"),
        ("training.crop_m=wide", "setting training.crop_m is 'wide'; it has to be a number, or auto, or null"),
        ("training.query_sampling=some", "setting training.query_sampling is 'some'; it has to be even or classes"),
        ("training.flips=maybe", "setting training.flips is 'maybe'; it has to be true or false"),
        ("data.parts={train: west}", "it has to be a mapping from texts to lists of 4 numbers"),
        ("data.parts={train: 0.8, val: 0.4}", "shares have to be above 0, and no more than 1 together"),
        ("data=3", "setting data is 3; it is a group: write data.NAME=VALUE"),
    ],
)
def test_a_value_of_the_wrong_kind_is_explained_in_plain_words(path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(path, [override])
    assert message in str(caught.value) and not re.search("class '|typing|Union|Sequence", str(caught.value))


def test_shares_of_the_width_go_from_west_to_east(path: Path) -> None:
    parts = config.load(path, ["data.parts={train: 0.5, val: 0.25, test: 0.25}"]).data.parts
    assert parts == {"train": (0, 0, 0.5, 1), "val": (0.5, 0, 0.75, 1), "test": (0.75, 0, 1, 1)}


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no such file"), ("[1, 2]", "holds no settings"), ("a: [", "YAML")]
)
def test_files_that_are_none(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        config.load(tmp_path / "a.yaml")


@pytest.mark.parametrize(("name", "batch"), BATCH.items())
def test_the_protocol_of_the_paper(name: str, batch: int) -> None:
    run = config.load(CONFIGS / f"{name}.yaml")
    t = run.training
    assert run.data.name == canonical(name.removesuffix("-pangaea")) and t.batch_size == batch
    assert (t.learning_rate, t.betas, t.eps, t.warmup, t.queries) == (1e-4, (0.9, 0.999), 1e-8, 0.05, 100_000)
    assert (t.ema, t.gradient_clip, t.weight_decay) == (0.0, 1.0, 1e-3 if name == "mnist" else 0.01)
    assert (run.data.statistics, t.crop_m) == ("published", None)
    assert not t.open and t.max_steps is None and t.flips == t.rotations == (name != "mnist")
    assert t.epochs == {"sen1floods11": 150, "biomassters": 150, "mnist": 50}.get(name, 100)
    assert t.configurations == KAPPAS.get(name, ((1000, 1000), (1500, 1500), (2000, 2000)))
    assert preset(run.model.preset)[1].settings.get("temporal", False) == (
        name in ("xview2", "xview2-pangaea", "biomassters", "pastis-r")
    )


@pytest.mark.parametrize("name", BATCH)
def test_the_protocol_of_the_paper_is_written_out(name: str) -> None:
    """What the defaults are makes no difference to it."""
    written = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["training"]
    keys = {
        "epochs",
        "batch_size",
        "learning_rate",
        "weight_decay",
        "warmup",
        "gradient_clip",
        "ema",
        "crop_m",
        "queries",
    }
    assert keys <= set(written)


def test_the_defaults_are_the_recipe_for_small_data(path: Path) -> None:
    t = config.parse({"data": {"name": "synthetic"}}).training
    assert t.open and (t.learning_rate, t.weight_decay, t.ema, t.gradient_clip) == (2e-3, 0.05, 0.999, 1.0)
    assert (t.batch_size, t.patience, t.flips, t.rotations, t.baselines) == (None, 10, True, True, True)
    assert not config.load(path).training.open and not config.parse({"training": {"max_steps": 3}}).training.open


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_file_is_right(path: Path) -> None:
    run = config.load(path)
    assert isinstance(run, Run)
    create_model(run.model.preset, **{**run.model.settings, "width": 8, "depth": 1})


def test_times() -> None:
    assert seconds_of("00:20:00") == 1200 and seconds_of("1:00:00:01") == 86401 and seconds_of(None) is None
    with pytest.raises(ConfigError, match="hh:mm:ss"):
        seconds_of("20 minutes")


def test_parts_of_an_unknown_use_are_refused() -> None:
    run = config.parse({"data": {"name": "synthetic", "parts": {"trian": [0, 0, 0.5, 1]}}})
    with pytest.raises(ConfigError, match=r"data\.parts has 'trian', which is none of train, val, test"):
        open_split(run, "train")


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=lambda dataset: dataset.config)
def test_the_files_of_the_paper_suit_all_its_models(dataset: PaperDataset) -> None:
    """Another model is one word on the command line, ``model.preset=ramen``: no setting of a file is in its way."""
    run, task_spec = config.load(CONFIGS / f"{dataset.config}.yaml"), INPUTS[dataset.input].task_spec
    for name in dataset.presets.values():
        with torch.device("meta"):
            assert create_model(name, task_spec=task_spec, **run.model.settings).preset == name


def test_earlier_names_of_settings_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("training: {averaging: 0.5, clip: 2.0}")  # old name
    t = config.load(path).training
    assert (t.ema, t.gradient_clip) == (0.5, 2.0)
    assert config.load(path, ["training.averaging=0.25"]).training.ema == 0.25  # old name
    with pytest.raises(ConfigError, match=r"training\.averaging and training\.ema are the same"):  # old name
        config.parse({"training": {"averaging": 0.5, "ema": 0.5}})  # old name


def test_settings_of_the_earlier_warm_start_are_ignored_with_a_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("training: {settle: false, warm_start_rate: 0.3, learning_rate: null}")  # old name
    assert config.load(path, ["training.warm_start=true"]) == config.parse({})
    lines = sorted(record.getMessage() for record in caplog.records)
    assert [line.split()[1].removeprefix("training.") for line in lines] == [
        *("learning_rate", "settle", "warm_start", "warm_start_rate")  # old name
    ]
    assert "null and ignored: it is 0.002, and not derived any more" in lines[0]
    assert all("there is no per-pixel warm start any more" in line for line in lines[1:])


@pytest.mark.parametrize("old", config.OLD_KEYS)
def test_every_earlier_name_names_a_setting(old: str) -> None:
    new = config.OLD_KEYS[old]
    value: Any = config.Run()
    for part in new.split("."):
        value = getattr(value, part)
    if isinstance(value, bool | int | float):
        run = config.parse({"training": {old.split(".")[1]: value}})
        assert getattr(run.training, new.split(".")[1]) == value

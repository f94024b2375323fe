"""No code from data: a hostile file for each way into the program, and a witness that would exist had it run."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import atomizer_io as aio
import data as fixtures
from atomizer_io.datasets.registry import create
from atomizer_io.errors import AtomizerError, CheckpointError, ConfigError, DataError
from atomizer_io.io.tables import read_array
from atomizer_io.models.atomizer.ops.kernels import cache
from atomizer_io.prediction.bulk import check_name
from atomizer_io.training import config, state
from faults.targets import make_parts, model_in, predicted
from scenes import forge


class Hostile:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.witness),)


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """The folder that exists once code of a file has run; the trap itself works."""
    (tmp_path / "trap").mkdir()
    pickle.loads(pickle.dumps(Hostile(tmp_path / "trap" / "works")))
    assert (tmp_path / "trap" / "works").is_dir()
    return tmp_path / "trap" / "code-ran"


def test_a_checkpoint(tmp_path: Path, witness: Path) -> None:
    folder = model_in(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(pickle.dumps(Hostile(witness)))
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        aio.load_model(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": Hostile(witness)}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="never read"):
        aio.load_model(folder)
    assert not witness.exists()


def test_a_training_state(tmp_path: Path, witness: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes(pickle.dumps(Hostile(witness)))
    with pytest.raises(DataError, match="damaged or incomplete"):
        state.read(tmp_path / "state.safetensors")
    (tmp_path / "state.safetensors").unlink()
    (tmp_path / state.PICKLED).write_bytes(pickle.dumps(Hostile(witness)))
    with pytest.raises(ConfigError, match="can run code and is not read"):
        state.find(tmp_path)
    assert not witness.exists()


def test_an_attribute_of_hdf5(tmp_path: Path, witness: Path) -> None:
    fixtures.write("geobench", tmp_path / "data")
    for path in (tmp_path / "data").rglob("*.hdf5"):
        with h5py.File(path, "r+") as file:
            file.attrs["pickle"] = repr(pickle.dumps({"label": Hostile(witness)}, protocol=4))
    with pytest.raises(DataError):
        for sample in create("geobench", tmp_path / "data", "train"):
            assert sample.meta.id
        raise DataError("geobench", "was read: labels are arrays of their own there, and the attribute only describes")
    assert not witness.exists()


def test_an_array(tmp_path: Path, witness: Path) -> None:
    np.save(tmp_path / "array.npy", np.array([Hostile(witness)], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="pickled, which is never opened"):
        read_array(tmp_path / "array.npy", "iuf")
    assert not witness.exists()


@pytest.mark.parametrize("tag", ["apply:os.mkdir", "new:os.mkdir"])
def test_a_tag_of_yaml(tmp_path: Path, witness: Path, tag: str) -> None:
    text = f"!!python/object/{tag} [{witness}]"
    (tmp_path / "run.yaml").write_text(f"data: {text}\n")
    with pytest.raises(ConfigError, match=r"run\.yaml cannot be read as YAML"):
        config.load(tmp_path / "run.yaml")
    (tmp_path / "run.yaml").write_text("data: {name: synthetic}\n")
    with pytest.raises(ConfigError, match="cannot read the value"):
        config.load(tmp_path / "run.yaml", [f"data.name={text}"])
    assert not witness.exists()


def test_the_cache_of_kernels(tmp_path: Path) -> None:
    """A library that was put there by others, or changed, is not loaded: loading alone would run it."""
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    library = folder / "cells-0.so"
    library.write_bytes(b"\x7fELF not what was compiled")
    library.chmod(0o700)
    library.with_suffix(".sha256").write_text(hashlib.sha256(b"what was compiled").hexdigest())
    library.with_suffix(".sha256").chmod(0o600)
    with pytest.raises(OSError, match="is not as it was compiled"):
        cache.load(library)
    folder.chmod(0o777)
    with pytest.raises(OSError, match="can be written to by other users"):
        cache.load(library)
    folder.chmod(0o700)
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        cache.load(library)


def test_a_folder_to_resume_from(tmp_path: Path, witness: Path) -> None:
    """Pickles in place of parts, and a link to a file outside: the map comes out right, and the file stays."""
    make_parts(tmp_path)
    parts = tmp_path / "map.tif.parts"
    outside = tmp_path / "outside.npy"
    outside.write_bytes(b"not to be touched")
    for path in sorted(parts.glob("*.npy"))[:1]:
        np.save(path, np.array([Hostile(witness)], dtype=object), allow_pickle=True)
    (parts / "window-9-9.npy").symlink_to(outside)
    with pytest.warns(UserWarning, match="damaged parts are computed again"):
        predicted(tmp_path, tmp_path / "map.tif", resume=True)
    predicted(tmp_path, tmp_path / "plain.tif")
    assert (tmp_path / "map.tif").read_bytes() == (tmp_path / "plain.tif").read_bytes()
    assert outside.read_bytes() == b"not to be touched" and not witness.exists()


@pytest.mark.parametrize("name", ["../secret", "a/../../b", "owner/..", "../..", "~/model", "/etc/passwd", "a\0b/c"])
def test_a_model_to_start_from_is_a_folder_or_a_name_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AtomizerError):
        aio.load_model(name)


@pytest.mark.parametrize("name", ["../map", "a/b", "..", ".hidden", "a\\b", "C:x", "a\0b", ""])
def test_the_name_of_a_scene_cannot_lead_elsewhere(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a scene"):
        check_name(name)


def test_malicious_releases_are_excluded() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (lightning,) = [requirement for requirement in extras["train"] if requirement.startswith("lightning")]
    assert "!=2.6.2" in lightning and "!=2.6.3" in lightning


def test_settings_of_a_model_name_no_code(tmp_path: Path) -> None:
    folder = model_in(tmp_path)
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**described, "model_type": "os:system"}))
    forge(folder)
    with pytest.raises(CheckpointError, match="no kind of model"):
        aio.load_model(folder)

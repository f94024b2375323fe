"""A prediction that is killed continues where it was, and ends with the same bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Cost
from atomizer_io.prediction.options import Decoding, Windows
from chips import model_folder, scene, values, write
from predicting import Breaks, Killed, predict_raster


def run(raster: dict, output: Path, layers: Sequence[str] = ("confidence",), **how):
    return predict_raster(model_folder(), raster, output, layers=layers, **how)


def contents(folder: Path, stem: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(f"{stem}.*") if path.is_file()}


def renamed(files: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {new + name.removeprefix(old): data for name, data in files.items()}


def test_killed_at_each_change_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each of the moments at which a part or a file gets its name."""
    raster = scene(tmp_path, 12, 20)
    whole = run(raster, tmp_path / "whole.tif")
    real, left = os.replace, [0]

    def replace(source, target) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    for allowed in range(40):
        left[0] = allowed
        try:
            run(raster, tmp_path / "map.tif", overwrite=True)
        except Killed:
            left[0] = 1000
            again = run(raster, tmp_path / "map.tif", resume=True)
            assert again.hectares == whole.hectares
            assert {name: path.name for name, path in again.files.items()} == {
                name: path.name.replace("whole", "map") for name, path in whole.files.items()
            }
            assert renamed(contents(tmp_path, "map"), "map", "whole") == contents(tmp_path, "whole")
            assert not (tmp_path / "map.tif.parts").exists()
        else:
            break
        for path in tmp_path.glob("map*"):
            path.unlink()
    assert 8 < allowed < 39


def test_killed_while_cleaning_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raster = scene(tmp_path, 12, 12)
    whole = run(raster, tmp_path / "whole.tif")

    def rmtree(path: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil, "rmtree", rmtree)
        run(raster, tmp_path / "map.tif")
    assert (tmp_path / "map.tif").exists()
    assert run(raster, tmp_path / "map.tif", resume=True).hectares == whole.hectares
    assert not (tmp_path / "map.tif.parts").exists()
    with pytest.raises(ConfigError, match=r"map\.tif exists: --overwrite"):
        run(raster, tmp_path / "map.tif", resume=True)


def interrupted(raster: dict, output: Path, after: int = 2, **how) -> None:
    with pytest.raises(Killed):
        run(raster, output, engine=Breaks(after), **how)


def test_only_what_is_missing_is_computed(tmp_path: Path) -> None:
    raster, counts = scene(tmp_path, 30, 20), Breaks(None)
    interrupted(raster, tmp_path / "map.tif", after=5)
    product = run(raster, tmp_path / "map.tif", resume=True, engine=counts)
    assert len(counts.seen) == product.windows - 5


def test_another_plan_cannot_go_on(tmp_path: Path) -> None:
    raster, output = scene(tmp_path, 20, 20), tmp_path / "map.tif"
    interrupted(raster, output)
    with pytest.raises(
        ConfigError, match=r"unfinished prediction of .* with the model .*--resume continues.*--overwrite starts again"
    ):
        run(raster, output)
    with pytest.raises(ConfigError, match="--layers was confidence, now it is none"):
        run(raster, output, resume=True, layers=[])
    with pytest.raises(ConfigError, match="--neighbors was not given, now it is 4; --overwrite"):
        run(raster, output, resume=True, decoding=Decoding(cost=Cost(neighbors=4)))
    with pytest.raises(ConfigError, match=r"parts: --overlap was 0\.25, now it is 0\.5; --overwrite"):
        run(raster, output, resume=True, windows=Windows(120, 0.5))
    with pytest.raises(ConfigError, match=r"--window was 120, now it is 60; --overlap was 0\.25, now it is 0\.5; --ov"):
        run(raster, output, resume=True, windows=Windows(60, 0.5))
    with pytest.raises(ConfigError, match="raster 0 date was None, now it is 2020-02-02"):
        run(raster | {"date": "2020-02-02"}, output, resume=True)
    os.utime(raster["path"], (1, 1))
    with pytest.raises(ConfigError, match="raster 0 time of change was"):
        run(raster, output, resume=True)
    write(raster["path"], values(20, 20, 7))
    run(raster, output, overwrite=True)
    assert output.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        run(scene(tmp_path, 12, 12), tmp_path / "file" / "map.tif")

"""What is in a folder of parts is not trusted: whatever happened to it, the result is right or the error is clear."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models import storage
from atomizer_io.prediction.options import Decoding, Execution
from atomizer_io.prediction.parts_folder import PartsFolder
from chips import model_folder, regression_folder, scene
from predicting import Breaks, Killed, predict_at, predict_points, predict_raster, write_las
from predicting import command as predicted
from processes import start

laspy = pytest.importorskip("laspy")


def raster(source: dict, output: Path, strategy: str = "dense", **how):
    return predict_raster(model_folder(), source, output, decoding=Decoding(strategy), **how)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def unfinished(folder: Path, source: dict, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Real folders of parts: killed while windows were computed, and while the finished files were moved."""
    (folder / "half").mkdir(parents=True)
    with pytest.raises(Killed):
        raster(source, folder / "half" / "map.tif", engine=Breaks(5))
    (folder / "late").mkdir()
    real, moved = os.replace, []

    def replace(source, target) -> None:
        if Path(target).parent.name == "late":
            moved.append(target)
            if len(moved) > 2:
                raise Killed
        real(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", replace)
        raster(source, folder / "late" / "map.tif")
    return {"half": folder / "half", "late": folder / "late"}


def mutate(folder: Path, rng: random.Random) -> str:
    """Damage one file, or two."""
    files = sorted(path for path in folder.iterdir() if path.name != "lock")
    victim, second = rng.sample(files, 2)
    data = bytearray(victim.read_bytes())
    kind = rng.choice(["cut", "flip", "delete", "swap", "garbage", "empty", "link", "folder", "longer"])
    if kind == "swap":
        victim.rename(folder / "between")
        second.rename(victim)
        (folder / "between").rename(second)
        return f"{kind} {victim.name} {second.name}"
    victim.unlink()
    if kind == "cut":
        victim.write_bytes(data[: rng.randrange(max(1, len(data)))])
    elif kind == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        victim.write_bytes(data)
    elif kind == "garbage":
        victim.write_bytes(rng.randbytes(len(data)))
    elif kind == "empty":
        victim.write_bytes(b"")
    elif kind == "longer":
        victim.write_bytes(bytes(data) + b"\0" * 7)
    elif kind == "link":
        victim.symlink_to(second)
    elif kind == "folder":
        victim.mkdir()
        (victim / "inside").write_text("something")
    return f"{kind} {victim.name}"


def check_mutations(
    state: Path, again: Callable[[Path], object], whole: dict[str, bytes], tmp_path: Path, seeds: range
) -> None:
    """Whatever happened, the same files as without it, or a clear error and nothing new."""
    refused = 0
    for seed in seeds:
        place = tmp_path / "again"
        shutil.copytree(state, place, symlinks=True)
        folder = next(place.glob("*.parts"))
        what = mutate(folder, random.Random(seed))
        before = contents(place)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that something was damaged
                again(place)
        except AtomizerError as error:
            refused += 1
            assert "--overwrite starts again" in str(error), what
            assert contents(place) == before, what
        else:
            assert contents(place) == whole, what
            assert not folder.exists(), what
        shutil.rmtree(place)
    assert refused < len(seeds) / 2, "most damage can be repaired"


@pytest.mark.parametrize("state", ["half", "late"])
def test_a_damaged_folder_of_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    source = scene(tmp_path, 30, 20)
    (tmp_path / "whole").mkdir()
    raster(source, tmp_path / "whole" / "map.tif")
    folders = unfinished(tmp_path / "states", source, monkeypatch)
    check_mutations(
        folders[state],
        lambda place: raster(source, place / "map.tif", resume=True),
        contents(tmp_path / "whole"),
        tmp_path,
        range(30),
    )


def cloud(path: Path) -> Path:
    return write_las(path, np.random.default_rng(0).uniform((0, 0, 100), (50, 30, 120), (400, 3)))


def test_a_damaged_folder_of_a_cloud(tmp_path: Path) -> None:
    points = cloud(tmp_path / "in.las")

    def again(place: Path, **how):
        return predict_points(model_folder(), points, place / "out.las", **{"resume": True, **how})

    for name in ("whole", "state"):
        (tmp_path / name).mkdir()
    again(tmp_path / "whole")
    with pytest.raises(Killed):
        again(tmp_path / "state", engine=Breaks(6))
    assert list((tmp_path / "state" / "out.las.parts").glob("window-*"))
    assert np.fromfile(tmp_path / "state" / "out.las.parts" / "finished.bin", np.uint8).any()
    check_mutations(tmp_path / "state", again, contents(tmp_path / "whole"), tmp_path, range(30))


def test_a_planted_list_of_files_moves_nothing_elsewhere(tmp_path: Path) -> None:
    source, precious = scene(tmp_path, 20, 20), tmp_path / "precious.txt"
    raster(source, tmp_path / "whole.tif")
    precious.write_text("precious")
    with pytest.raises(Killed):
        raster(source, tmp_path / "map.tif", engine=Breaks(2))
    folder = tmp_path / "map.tif.parts"
    (folder / "x.bin").write_text("planted")
    planted = {"files": {"x.bin": str(precious)}, "summary": {"files": {}, "hectares": {}, "mean": None}}
    (folder / "finished.json").write_text(json.dumps(planted))
    with pytest.warns(UserWarning, match=r"finished\.json is damaged"):
        raster(source, tmp_path / "map.tif", resume=True)
    assert precious.read_text() == "precious"
    assert (tmp_path / "map.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()


def test_links_in_the_folder_lead_nowhere(tmp_path: Path) -> None:
    """Not even those that have the name of a file that is about to be written."""
    source, precious = scene(tmp_path, 20, 20), tmp_path / "precious.txt"
    precious.write_text("precious")
    with pytest.raises(Killed):
        raster(source, tmp_path / "map.tif", engine=Breaks(2))
    folder = tmp_path / "map.tif.parts"
    names = [
        "plan.json.new",
        "finished.json.new",
        "map.tif",
        "map.tif.plain",
        "preview.png",
        "areas.json",
        "decoded.txt",
    ]
    names += [f"window-{row:05d}-{column:05d}.new.npy" for row in range(3) for column in range(3)]
    names += [f"strip-{row:05d}.new.npy" for row in range(3)]
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(precious)
    with pytest.warns(UserWarning, match="is damaged"):
        raster(source, tmp_path / "map.tif", resume=True)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"inputs": 1}', "[" * 100_000, "\0\1"])
def test_a_damaged_plan(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = scene(tmp_path, 20, 20), tmp_path / "map.tif"
    with pytest.raises(Killed):
        raster(source, output, engine=Breaks(2))
    (tmp_path / "map.tif.parts" / "plan.json").write_text(content)
    line = ("--window", 120, "--raster", source["path"], "--sensor", "sentinel2", "-o", output)
    assert predicted(*line, "--resume") == 2
    assert "plan.json is damaged or missing" in capsys.readouterr().err
    assert predicted(*line) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert predicted(*line, "--overwrite") == 0


def test_an_error_after_the_first_window_names_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = scene(tmp_path, 20, 20), tmp_path / "map.tif"
    with pytest.raises(AtomizerError, match="broken") as caught:
        raster(source, output, engine=Breaks(2, AtomizerError("broken")))
    assert "map.tif.parts keeps the finished parts: --resume continues, --overwrite" in caught.value.__notes__[0]
    words = ("--raster", source["path"], "--sensor", "sentinel2", "-o", output)
    assert predicted(*words, model=regression_folder()) == 2
    printed = capsys.readouterr().err
    assert f"unfinished prediction of {time.strftime('%Y-')}" in printed
    assert f"with the model {model_folder()}" in printed
    assert "--resume continues" in printed
    assert "--overwrite starts again" in printed
    with pytest.raises(ConfigError, match="model was"):
        predict_raster(regression_folder(), source, output, resume=True)
    assert raster(source, output, resume=True).path == output


def test_existing_files_are_refused_before_the_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(storage, "load", refuse)
    source, output = scene(tmp_path, 20, 20), tmp_path / "map.tif"

    def wrong(match: str, path: Path = output, **how: object) -> None:
        with pytest.raises(AtomizerError, match=match):
            predict_raster(tmp_path, source, path, **how)

    wrong("is an input of the prediction", source["path"], overwrite=True)
    (tmp_path / "map.png").write_text("a preview")
    wrong(r"map\.png exists: --overwrite replaces it")
    (tmp_path / "map.png").unlink()
    output.mkdir()
    wrong(r"map\.tif is a folder", overwrite=True)
    output.rmdir()
    output.write_text("a map")
    wrong(r"map\.tif exists: --overwrite replaces it")
    with pytest.raises(ConfigError, match=r"out\.csv exists"):
        (tmp_path / "out.csv").write_text("predictions")
        predict_at(tmp_path, source, tmp_path / "places.csv", tmp_path / "out.csv")
    with pytest.raises(ConfigError, match=r"out\.las exists"):
        (tmp_path / "out.las").write_text("points")
        predict_points(tmp_path, tmp_path / "in.las", tmp_path / "out.las")


def test_little_room_is_reported_in_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=12_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ConfigError, match=r"12\.0 MB are free, but about 67\.\d MB are needed"):
        raster(scene(tmp_path, 20, 20), tmp_path / "map.tif")
    assert not (tmp_path / "map.tif.parts").exists()


def hold(output: Path, sign: Path) -> None:
    with PartsFolder(output, Execution(overwrite=True)):
        sign.touch()
        time.sleep(60)


def test_one_prediction_at_a_time(tmp_path: Path) -> None:
    source, output = scene(tmp_path, 20, 20), tmp_path / "map.tif"
    second, sign = start(hold, output, tmp_path / "held"), tmp_path / "held"
    try:
        while not sign.exists():
            assert second.is_alive()
            time.sleep(0.01)
        for how in ({"overwrite": True}, {"resume": True}, {}):
            with pytest.raises(ConfigError, match=rf"another prediction is writing .*\(process {second.pid} on "):
                raster(source, output, **how)
    finally:
        second.kill()
        second.join()
    assert (tmp_path / "map.tif.parts" / "lock").exists(), "of a process that is dead"
    assert raster(source, output).path.exists()
    assert not (tmp_path / "map.tif.parts").exists()

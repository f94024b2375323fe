"""Finished outputs: on the disk before their parts are removed, and kept by ``--resume`` only if still whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atomizer_io.prediction.bulk import RECORD
from chips import model_folder, scene, values, write
from power import Disk
from predicting import command, predict_raster, write_las

DAMAGES = {"empty": lambda size: 0, "half": lambda size: size // 2, "last byte": lambda size: size - 1}
NAMES = ("hill", "lake")


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a list of two scenes and their maps, each with a file beside it."""
    folder = tmp_path_factory.mktemp("finished")
    for number, name in enumerate(NAMES):
        write(folder / f"{name}.tif", values(14, 14, number))
    lines = [f'{name},{name}.tif,sentinel2,"B02,B03,B08"' for name in NAMES]
    (folder / "scenes.csv").write_text("\n".join(["scene,path,sensor,bands", *lines]) + "\n")
    assert predicted(folder) == 0
    return folder


def predicted(folder: Path, *options: str) -> int:
    return command("--window", 120, "--list", folder / "scenes.csv", "-o", folder / "maps", *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != RECORD}


@pytest.mark.parametrize("name", ["lake.tif", "lake.areas.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_output_that_was_cut_off_is_computed_again(
    maps: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(maps / "maps")
    path = maps / "maps" / name
    path.write_bytes(path.read_bytes()[: DAMAGES[damage](len(path.read_bytes()))])
    assert predicted(maps, "--resume") == 0
    assert contents(maps / "maps") == before
    text = capsys.readouterr().out
    assert "(computed again, because a file was not as it had been written)" in text and "hill: done before" in text
    assert "1 written, 1 done before, 0 failed" in text
    assert predicted(maps, "--resume") == 0
    assert "0 written, 2 done before, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("torn", [0.0, 0.6, None])
def test_without_a_record_an_output_is_kept_if_it_can_be_read(
    maps: Path, torn: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    record, before = maps / "maps" / RECORD, contents(maps / "maps")
    if torn is None:
        record.unlink()
    else:
        record.write_bytes(record.read_bytes()[: int(torn * len(record.read_bytes().splitlines()[0]))])
    lake = maps / "maps" / "lake.tif"
    lake.write_bytes(lake.read_bytes()[: len(before["lake.tif"]) // 2])
    assert predicted(maps, "--resume") == 0
    text = capsys.readouterr().out
    assert "hill.tif (there is no record of it, but it can be read to its end)" in text
    assert "(computed again, because it could not be read to its end)" in text
    assert contents(maps / "maps") == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_point_cloud_that_was_cut_off_is_computed_again(tmp_path: Path, damage: str, recorded: bool) -> None:
    write_las(tmp_path / "in" / "tile.laz", np.random.default_rng(0).uniform(0, 30, (60, 3)))
    words = ("--points", tmp_path / "in", "-o", tmp_path / "out", "--resume")
    assert command(*words) == 0
    whole, path = contents(tmp_path / "out"), tmp_path / "out" / "tile.laz"
    path.write_bytes(path.read_bytes()[: DAMAGES[damage](len(path.read_bytes()))])
    if not recorded:
        (tmp_path / "out" / RECORD).unlink()
    assert command(*words) == 0
    assert contents(tmp_path / "out") == whole


def test_a_map_is_on_the_disk_before_its_parts_are_removed(tmp_path: Path, disk: Disk) -> None:
    raster, output = scene(tmp_path), tmp_path / "new" / "folder" / "map.tif"
    predict_raster(model_folder(), raster, output)
    assert output.exists() and disk.named and not disk.unsafe()
    assert not output.with_name("map.tif.parts").exists()

"""``atomizer data check`` names what one split has of another."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from rasterio.transform import Affine

from atomizer_io.cli import main
from atomizer_io.datasets.leaks import equal_files, overlaps
from chips import CORNER, values, write


def image(root: Path, split: str, name: str, east: float, seed: int, **how: object) -> None:
    """An image of 400 m, ``east`` metres from the others, and its mask."""
    place = Affine(10, 0, CORNER[0] + east, 0, -10, CORNER[1])
    for folder in ("image", "mask"):
        (root / split / folder).mkdir(parents=True, exist_ok=True)
    array = values(40, 40, seed)
    write(root / split / f"image/{name}.tif", array, transform=place, **how)
    write(root / split / f"mask/{name}.tif", (array[:1] > 1300).astype(np.uint8), transform=place, names=None)


def looks(capsys: pytest.CaptureFixture[str], *line: str) -> list[str]:
    assert main(["data", "check", *line]) == 0
    return [text.split("look     ")[1] for text in capsys.readouterr().out.splitlines() if "  look " in text]


def test_rasters_in_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("geotiff-folder", str(tmp_path), "sensor=sentinel2", "classes=2")
    for number, east in enumerate((0, 400, 800)):
        image(tmp_path, "train", f"a{number}", east, number)
    image(tmp_path, "val", "b", 1200, 5)  # beside the others
    image(tmp_path, "test", "c", 5000, 6)
    assert looks(capsys, *line) == []
    image(tmp_path, "val", "b", 1100, 5)
    shutil.copy(tmp_path / "train/image/a1.tif", tmp_path / "test/image/d.tif")
    shutil.copy(tmp_path / "train/mask/a1.tif", tmp_path / "test/mask/d.tif")
    result = looks(capsys, *line)
    assert result[0].startswith("lies over split 'train': val/image/b.tif and train/image/a2.tif share 25 %; scores")
    assert result[1] == "has the same content as in split 'train': test/image/d.tif is train/image/a1.tif"
    assert len(result) == 2
    assert looks(capsys, *line, "--split", "test") == []  # nothing to compare with


def test_rasters_in_other_coordinate_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rasterio.warp import transform

    image(tmp_path, "train", "a", 0, 0)
    lon, lat = (axis[0] for axis in transform("EPSG:32631", "EPSG:4326", [CORNER[0]], [CORNER[1]]))
    image(tmp_path, "val", "b", 0, 1, crs="EPSG:4326")
    for folder, count in (("image", 3), ("mask", 1)):
        array = values(40, 40, 1)[:count] if folder == "image" else (values(40, 40, 1)[:1] > 1300).astype(np.uint8)
        place, names = Affine(1e-4, 0, lon, 0, -1e-4, lat), None if folder == "mask" else ("B02", "B03", "B08")
        write(tmp_path / f"val/{folder}/b.tif", array, crs="EPSG:4326", transform=place, names=names)
    (text,) = looks(capsys, "geotiff-folder", str(tmp_path), "sensor=sentinel2", "classes=2")
    assert text.startswith("lies over split 'train': val/image/b.tif and train/image/a.tif share 9")


def test_point_clouds_in_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laspy = pytest.importorskip("laspy")

    def point_cloud(name: str, east: float) -> None:
        rng = np.random.default_rng(int(east))
        las = laspy.LasData(laspy.LasHeader(version="1.4", point_format=6))
        las.header.offsets, las.header.scales = (600000, 5000000, 0), (0.001, 0.001, 0.001)
        las.x, las.y, las.z = 600000 + east + 40 * rng.random(900), 5000000 + 40 * rng.random(900), rng.random(900)
        las.classification = rng.integers(1, 3, 900).astype(np.uint8)
        las.return_number = las.number_of_returns = np.ones(900, np.uint8)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        las.write(tmp_path / name)

    point_cloud("train/a.las", 0)
    point_cloud("val/b.las", 30)
    point_cloud("test/c.las", 90)
    line = ("las-folder", str(tmp_path), "classes={1: a, 2: b}", "window_m=20")
    shown = [text for text in looks(capsys, *line) if "split" in text]
    assert len(shown) == 1
    assert shown[0].startswith("lies over split 'train': val/b.las and train/a.las share 2")
    shutil.copy(tmp_path / "train/a.las", tmp_path / "test/d.las")
    shown = [text for text in looks(capsys, *line) if "split" in text]
    assert "has the same content as in split 'train': test/d.las is train/a.las" in shown
    (tmp_path / "all.txt").write_text("")
    (tmp_path / "train.txt").write_text("train/a.las\ntest/c.las\n")
    (tmp_path / "val.txt").write_text("test/c.las\n")
    assert "also in split 'train': test/c.las" in looks(capsys, *line, "--split", "train", "--split", "val")


def test_ten_thousand_files_are_quick(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    low = rng.random((10000, 2)) * 1e6
    boxes = [(str(i), "EPSG:32631", (x, y, x + 900, y + 900)) for i, (x, y) in enumerate(low.tolist())]
    began = time.process_time()
    result = overlaps(boxes[:5000], boxes[5000:])
    assert time.process_time() - began < 5
    for one, two, share in result:
        sides = 900 - np.abs(low[int(one)] - low[int(two)])
        assert share == pytest.approx(sides.prod() / 900**2)
    one = low[0]
    near = np.clip(900 - np.abs(low[5000:] - one), 0, None).prod(axis=1) / 900**2
    assert (near > 0.01).sum() == sum(pair[0] == "0" for pair in result)
    for number in range(200):
        (tmp_path / f"{number}.bin").write_bytes(bytes(1000) + bytes([number % 150]))
    paths = sorted(tmp_path.iterdir(), key=lambda path: int(path.stem))
    assert len(equal_files(paths[150:], paths[:150])) == 50

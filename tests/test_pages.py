"""Every block of every page: Python runs on small files, commands are accepted by the parser and settings are known."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import shapely
import torch

import atomizer_io as aio
import chips
import data
import predicting
import scenes
from atomizer_io.cli import build_parser, modules
from atomizer_io.data.sensors import LIDAR_HEIGHT, SENTINEL1, SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_io.training import config
from data.vectors import write_vector

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# pages whose Python is not run here, and why
ELSEWHERE = {
    "learn": "test_the_notebooks_run runs the examples that these pages are made of",
    "how-to/export.md": "tests/export/test_formats.py runs it, with the other tests of exported files",
    "how-to/labels.md": "tests/test_docs.py runs it, with its commands",
    "how-to/dask.md": "needs a cluster: SLURM, Kubernetes",
    "lab": "notes on what was run",
}
NOTEBOOKS = sorted(path.stem for path in (ROOT / "docs" / "learn").glob("*.md"))
# stands for what a page has just spoken of
PLACEHOLDERS = {"ITEM": "table2", "NAME": "model", "DATA": "data", "$SLURM_ARRAY_TASK_ID": "1"}


def blocks(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[list[str]]:
    for block in blocks(page, "sh", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and (words[0] in ("srun", "./run") or "=" in words[0]):
                words = words[1:]
            if words[:1] == ["atomizer"]:
                yield [PLACEHOLDERS.get(word, word) for word in words[1:] if PLACEHOLDERS.get(word, word)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_commands_and_settings_are_known(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(page):
        assert words[0] in modules(), words
        parser = build_parser(words)
        try:
            args, rest = parser.parse_known_args(words)
        except SystemExit:
            raise AssertionError(f"{shlex.join(words)}: {capsys.readouterr().err}") from None
        assert all("=" in word for word in rest), words
        if words[0] == "train" and str(args.config).startswith("configs/"):
            settings = [text for text in (*args.options, *rest) if not text.startswith("data.options.")]
            try:
                config.load(ROOT / args.config, settings)
            except ConfigError as error:
                raise AssertionError(f"{shlex.join(words)}: {error}") from None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files that the pages name."""
    folder = tmp_path_factory.mktemp("files")
    channels = (*SENTINEL2.pick("B02", "B03", "B08"), *SENTINEL1.pick("VV", "VH"))
    heights = LIDAR_HEIGHT.pick("height")
    regression = {"task": "regression", "num_outputs": 1, "class_names": ()}
    for name, settings in {
        "runs/flood/best": {"channels": channels, "class_codes": (0, 1, 2)},
        "runs/lidar/best": {"channels": heights, "class_names": ("ground", "tree", "house")},
        "runs/canopy/best": {"channels": heights, **regression},
        "canopy/best": {"channels": heights, **regression},
    }.items():
        shutil.copytree(chips.model_folder(**settings), folder / name)
    chips.write(folder / "s2.tif", chips.values(64, 64))
    radar = np.random.default_rng(0).normal(-12, 3, (2, 64, 64)).astype("float32")
    chips.write(folder / "s1.tif", radar, names=("VV", "VH"))
    for name in ("train/image/a", "s2/lake", "s2/hill", "s1/lake"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        chips.write(folder / f"{name}.tif", radar[:, :9, :9] if "s1" in name else chips.values(9, 9), names=None)
    xyz = np.random.default_rng(1).uniform(0, (20, 20, 6), (400, 3)) + np.array((500000, 4600000, 100))
    for name in ("tile.laz", "more.laz", "tiles/a.laz", "mytiles/train/a.laz"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        predicting.write_las(folder / name, xyz, epsg=32631, offsets=(500000, 4600000, 0), classification=2)
    data.write("sen1floods11", folder / "sen1floods11")
    for name in ("image", "mask"):
        values = chips.values(9, 9) if name == "image" else np.ones((1, 9, 9), np.uint8)
        (folder / "mydata/train" / name).mkdir(parents=True)
        chips.write(folder / f"mydata/train/{name}/a.tif", values, names=chips.NAMES if name == "image" else None)
    assets = {name: {"href": f"{name}.tif"} for name in chips.NAMES}
    for name, band in zip(chips.NAMES, chips.values(16, 16), strict=True):
        chips.write(folder / f"{name}.tif", band[None], names=(name,))
    item = {"type": "Feature", "id": "a", "properties": {"platform": "sentinel-2b"}, "assets": assets}
    (folder / "item.json").write_text(json.dumps(item))
    (folder / "myfields").mkdir()
    chips.write(folder / "myfields/s2_20210704.tif", chips.values(64, 64), crs="EPSG:32632")
    xy = np.random.default_rng(2).uniform((500000, 4649360), (500640, 4650000), (120, 2))
    write_vector(folder / "myfields/fields.gpkg", shapely.points(xy), {"crop": ["maize", "wheat"] * 60})
    (folder / "scenes.csv").write_text('scene,path,sensor,bands\nlake,s2/lake.tif,sentinel2,"B02,B03,B08"\n')
    (folder / "myseries").mkdir()
    rows = [f"{n},2021-0{month}-01,{n},{n + 1},{n + 2}" for n in range(20) for month in (4, 5, 6)]
    (folder / "myseries/series.csv").write_text("\n".join(["series,date,B02,B04,B08", *rows]))
    rows = [f"{n},{'ab'[n % 2]},{n},{n}" for n in range(20)]
    (folder / "myseries/labels.csv").write_text("\n".join(["series,label,longitude,latitude", *rows]))
    return folder


@pytest.mark.filterwarnings("ignore:alpha 0.01")  # the model of these tests has random weights
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_python_runs(page: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
    code = [re.sub(r'"/data/(\w+)"', r'"\1"', block) for block in blocks(page, "python")]
    if name.partition("/")[0] in ELSEWHERE or name.rpartition("/")[0] in ELSEWHERE or name in ELSEWHERE:
        for block in code:
            compile(block, name, "exec")
        return
    monkeypatch.chdir(files)
    atoms, grid = scenes.raster(0, size=(24, 24)), aio.Grid(24, 24, gsd_m=10.0)
    image = torch.from_numpy(chips.values(9, 9, names=("B04", "B08")).astype("float32"))
    item = {"image": image, "mask": torch.zeros(9, 9, dtype=torch.int64)}
    known = {"np": np, "torch": torch, "aio": aio, "model": aio.load_model("runs/flood/best").eval(), "atoms": atoms}
    known |= {"grid": grid, "positions": grid.positions(), "scenes": [(atoms, grid)] * 16, **item, "other": [item]}

    for block in code:
        compiled = compile(block, name, "exec")
        if "map_from_labels" not in block:  # examples/labels_to_map.py runs it, with a limit
            exec(compiled, known)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few steps: `tools/notebooks.py` runs them whole, at night."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "learn" / f"{name}.md").read_text(encoding="utf-8")
    cells = re.split(r"^# %%(.*)\n", code, flags=re.MULTILINE)[1:]
    for kind, cell in zip(cells[::2], cells[1::2], strict=True):
        assert "markdown" in kind or re.sub(r"\n{3,}", "\n\n", cell.strip()) in page, (
            f"run tools/notebooks.py {name}: its page is older"
        )
    few = re.sub(r"(max_steps\W+|STEPS = )\d+", r"\g<1>8", code).replace("900_020", "900_002")
    exec(compile(few, name, "exec"), {"__name__": name})

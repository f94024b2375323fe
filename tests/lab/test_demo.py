"""The demo from end to end in small, and its page in a browser."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import atomizer_io
from atomizer_io.cli import main
from atomizer_io.training.bands import CONFIGURATIONS
from atomizer_lab.demo import demo as demo_module
from atomizer_lab.demo import runs
from atomizer_lab.demo.baselines import NEW_SENSOR, VIEWS
from atomizer_lab.demo.runs import FLOODS, Demo, scenes
from browser import opened

SMALL = {"SIZE": 24, "SCENES": 4, "TEST_SCENES": 2, "VILLAGE_M": 16, "VILLAGES": 3, "TEST_VILLAGES": 2, "FITTED": 3}


class Here:
    """A pool of no process: what is submitted runs at once, so that a test can make the demo small."""

    def __init__(self, *rest: object) -> None:
        pass

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *rest: object) -> None:
        pass

    def submit(self, work, *arguments):
        self.found = work(*arguments)
        return self

    def result(self):
        return self.found


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a small demo and what it printed; it runs twice, the second time over the first."""
    import contextlib
    import io

    folder, printed, threads = tmp_path_factory.mktemp("demo"), io.StringIO(), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(runs, name, value)
        patch.setattr(demo_module, "spawned", Here)
        try:
            with contextlib.redirect_stdout(printed):
                for _ in range(2):
                    assert main(["demo", "--steps", "6", "--output", str(folder)]) == 0
        finally:
            torch.set_num_threads(threads)
    yield folder, printed.getvalue()


def test_it_leaves_a_model_a_map_and_a_page(small_demo: tuple[Path, str]) -> None:
    import rasterio

    folder, _ = small_demo
    assert atomizer_io.AtomizerIO.from_pretrained(folder / "run" / "best").task_spec.class_names == ("dry", "water")
    with rasterio.open(folder / "map.tif") as source:
        assert source.shape == (24, 24) and source.crs.to_epsg() == 32631 and source.nodata == 255
        assert set(source.read(1).flat) <= {0, 1} and source.colormap(1)[1] == (33, 102, 192, 255)
    assert {path.name for path in (folder / "scene").iterdir()} >= {"sentinel1-10m.tif", "sentinel2-20m.tif"}
    assert (folder / "report.html").exists()


def test_it_prints_every_score_and_the_map(small_demo: tuple[Path, str]) -> None:
    lines = small_demo[1].splitlines()
    for name in (*CONFIGURATIONS, NEW_SENSOR, "mean of the six", *VIEWS):
        shown = next(line for line in lines if line.startswith(f"{name} "))
        scores = [word for word in shown.removeprefix(name).split() if word != "-"]
        assert len(scores) == (2 if name in (*VIEWS, NEW_SENSOR) else 3)
        assert all(0 <= float(score) <= 1 for score in scores)
    assert any("by quadtree" in line for line in lines) and not any("OTHER" in line for line in lines)


def test_the_page_needs_no_other_file(small_demo: tuple[Path, str]) -> None:
    page = (small_demo[0] / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) > 15 and all(source.startswith("data:image/png;base64,") for source in sources)
    for source in sources:
        assert base64.b64decode(source.partition(",")[2]).startswith(b"\x89PNG")
    assert not re.search(r"https?://", page) and "prefers-color-scheme" in page and "viewport" in page
    assert page.count("<section>") == 5
    for name in (*CONFIGURATIONS, NEW_SENSOR, *VIEWS):
        assert f"<td>{name}" in page


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_whole(small_demo: tuple[Path, str], tmp_path: Path, width: int) -> None:
    """On a phone and on a desk: no error on the console, no broken image, nothing wider than the window."""
    shown = opened(small_demo[0] / "report.html", tmp_path, width)
    assert shown.whole and shown.counts["images"] > 15, (shown.counts, shown.log)


def test_scenes_stay_in_memory_and_test_scenes_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(runs, name, value)
    demo = Demo(10, Path("nowhere"))
    train_set, test_set = scenes(demo, FLOODS, "train"), scenes(demo, FLOODS, "test")
    assert train_set[0].atoms is train_set[0].atoms
    assert not set(train_set.items) & set(test_set.items)

"""Items that train networks: each from synthetic scenes to its table, with trainings that items share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from atomizer_lab.paper import columns, networks
from atomizer_lab.paper.item import SMOKE, Where
from atomizer_lab.paper.registry import item

CONFIGS = Path(__file__).parents[3] / "configs"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of runs for all tests: what was trained once is not trained again."""
    yield tmp_path_factory.mktemp("work")


def smoke(name: str, work: Path, folder: Path) -> dict[str, Any]:
    """Run an item and return its result file."""
    output = folder / f"{name}-smoke.json"
    shown = item(name).run(SMOKE, Where(folder, work, folder), output, jobs=0)
    assert "here (smoke)" in shown
    document: dict[str, Any] = json.loads(output.read_text())
    return document


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, 2) for name in ("table3", "local-observations", "lidar")), ("hyperspectral", 4), ("table2", 6)],
)
def test_items_end_with_a_table(name: str, rows: int, work: Path, tmp_path: Path) -> None:
    document = smoke(name, work, tmp_path)
    scores = [cell["mean"] for columns in document["found"].values() for cell in columns.values()]
    assert len(document["found"]) == rows and all(0 <= score <= 100 for score in scores)
    assert str(tmp_path) not in json.dumps(document) and str(work) not in json.dumps(document)


def document(column: columns.Column, model: str) -> dict[str, Any]:
    return column.document(model, 0, {}, networks.TIME, CONFIGS)

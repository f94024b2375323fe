"""The small copies of published datasets: a module of tests names its own as ``DATASET``, and GEO-Bench's copy of it.

They are written once for each module; ``folder`` and ``geobench`` are copies of them to break.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import data as fixtures


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.write(request.module.DATASET, tmp_path_factory.mktemp("written") / "data")


@pytest.fixture(scope="module")
def written_geobench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.write(request.module.GEOBENCH, tmp_path_factory.mktemp("geobench") / "data")


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "data")


@pytest.fixture
def geobench(written_geobench: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written_geobench, tmp_path / "data")

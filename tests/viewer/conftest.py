"""A scene and a model whose names hold markup, open in the viewer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.viewer.scenes import RasterView
from atomizer_io.viewer.server import Server
from atomizer_io.viewer.session import Session
from chips import NAMES, model_folder, values, write

MARKUP = "<img src=x onerror=alert(1)>"
CLASSES = ("dry", MARKUP, "bare")
HEIGHT, WIDTH = 32, 40
FIELD = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH)) % 24 < 9  # brighter than the rest


def observed(date: int) -> np.ndarray:
    """What the sensor saw on a date."""
    seen = values(HEIGHT, WIDTH, date)
    seen += (4000 * FIELD).astype(np.uint16)
    return seen


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Two dates of a small scene."""
    folder = tmp_path_factory.mktemp("scene")
    paths = [write(folder / f"{n}{MARKUP}.tif", observed(n), names=NAMES) for n in range(2)]
    dates = ("2021-05-03", "2021-07-04")
    return [{"path": path, "sensor": "sentinel2", "date": date} for path, date in zip(paths, dates, strict=True)]


@pytest.fixture(scope="package")
def model() -> Path:
    """A model with random weights; one window covers the scene."""
    return model_folder(class_names=CLASSES, rope_scale_m=120.0)


@pytest.fixture
def session(files: list[dict[str, object]], model: Path, tmp_path: Path) -> Session:
    """The scene, open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Session(RasterView(str(model), files), tmp_path / "saved")


@pytest.fixture
def server(session: Session) -> Iterator[Server]:
    """The scene, served."""
    pytest.importorskip("starlette", reason="the extra `view` is not installed")
    pytest.importorskip("uvicorn", reason="the extra `view` is not installed")
    with Server(session) as running:
        yield running

"""What the viewer predicts is what the commands write."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import AtomizerError
from atomizer_io.prediction.at_positions import predict_at
from atomizer_io.prediction.options import Execution
from atomizer_io.prediction.rasters import predict_raster
from atomizer_io.viewer.labels import imported
from atomizer_io.viewer.session import Session
from chips import CORNER, read
from conftest import observed as seen

QUIET = Execution(progress=False)


def test_the_map_and_a_click_are_what_predict_writes(
    session: Session, files: list, model: Path, tmp_path: Path
) -> None:
    predict_raster(model, files, tmp_path / "map.tif", execution=QUIET)
    _, arrays = session.map({})
    np.testing.assert_array_equal(arrays["label"], read(tmp_path / "map.tif")[0])
    x, y = CORNER[0] + 137.0, CORNER[1] - 211.0  # not the centre of a pixel
    (tmp_path / "at.csv").write_text(f"x,y\n{x},{y}\n")
    predict_at(model, files, tmp_path / "at.csv", tmp_path / "out.csv", execution=QUIET)
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    click = session.at({"x": x, "y": y})
    written = [float(row[f"p_{name}"]) for name in session.view.spec.names]
    np.testing.assert_allclose(click["outputs"], written, atol=5e-5 + 1e-9)  # the table has four decimals
    assert sum(click["outputs"]) == pytest.approx(1, abs=1e-9)
    assert sum(bar["share"] for bar in click["attention"]) == pytest.approx(1, abs=1e-5)
    pixel = seen(1)[:, 21, 13].tolist()
    assert [observed["value"] for observed in click["observed"][3:]] == pixel
    cell = np.array(click["latents"]["cell"])
    assert (cell.min(axis=0) <= (x, y)).all() and (cell.max(axis=0) >= (x, y)).all()


def test_what_is_switched_off_is_as_if_never_observed(
    session: Session, files: list, model: Path, tmp_path: Path
) -> None:
    predict_raster(model, files[:1], tmp_path / "map.tif", execution=QUIET)
    _, arrays = session.map({"off": {"dates": ["2021-07-04"]}})
    np.testing.assert_array_equal(arrays["label"], read(tmp_path / "map.tif")[0])
    with pytest.raises(AtomizerError, match="everything is switched off"):
        session.map({"off": {"dates": ["2021-07-04", "2021-05-03"]}})


def test_labels_come_back_from_a_geopackage(session: Session) -> None:
    labels = {
        "classes": ["dry", "neu"],
        "points": [[CORNER[0] + 5, CORNER[1] - 5, 0], [CORNER[0] + 50, CORNER[1] - 9, 1]],
    }
    content = session.calls()["export"]({"labels": labels})
    assert imported(content, ".gpkg", session.view.grid.crs) == labels
    with pytest.raises(AtomizerError, match=r"\.gpkg"):
        imported(content, ".exe", None)

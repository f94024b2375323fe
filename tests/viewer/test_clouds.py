"""Point clouds in the viewer: the classes are those that predict writes, and switches leave channels out."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.errors import AtomizerError
from atomizer_io.prediction.options import PointCloudWindows
from atomizer_io.viewer.clouds import CloudSession, CloudView
from atomizer_io.viewer.switches import Switches
from predicting import predict_points, write_las
from scenes import SMALL

CLASSES = ("ground", "building", "tree")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "class_names": CLASSES})
    with torch.no_grad():  # as drawn, all predictions are nearly alike
        model.head.linear.weight.mul_(50)
        model.head.linear.bias.zero_()
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return folder


def test_points_get_the_classes_that_predict_writes(model: Path, tmp_path: Path) -> None:
    rng, (x, y) = np.random.default_rng(0), (700000, 6000000)
    xyz = np.column_stack([rng.uniform(x, x + 70, 900), rng.uniform(y, y + 40, 900), rng.uniform(0, 9, 900)])
    intensity = rng.integers(1, 900, 900)
    cloud = write_las(tmp_path / "cloud.las", xyz, epsg=2154, offsets=(700000, 6000000, 0), intensity=intensity)
    predict_points(model, cloud, tmp_path / "out.las", windows=PointCloudWindows())
    written = laspy.read(tmp_path / "out.las")
    session = CloudSession(CloudView(str(model), cloud))
    scene = session.scene()
    _, arrays = session.map({})
    same = np.array(scene["codes"])[arrays["label"]] == written["PredictedClassification"]
    assert same.mean() > 0.99  # windows have 16 bits there
    outputs = session.view.probabilities(Switches())
    np.testing.assert_allclose(outputs, np.stack([written[name] for name in CLASSES], axis=1), atol=2e-3)
    _, points = session.points({})
    np.testing.assert_allclose(points["z"], xyz[:, 2] - xyz[:, 2].min(), atol=2e-3)
    click = session.at({"index": 5})
    assert sum(click["outputs"]) == pytest.approx(1, abs=1e-5)
    assert dict(click["observed"])["intensity"] == intensity[5]
    field = [["lidar", "field intensity_rank"]]
    session.map({"off": {"channels": field}})
    assert np.abs(session.view.probabilities(Switches.of({"channels": field})) - outputs).max() > 1e-3
    with pytest.raises(AtomizerError, match="everything is switched off"):
        session.map({"off": {"channels": [["lidar", "height"]]}})

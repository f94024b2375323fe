"""The preview of a classified point cloud, by its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

import atomizer_io as aio
from atomizer_io.errors import ConfigError
from atomizer_io.figures.class_colours import BROWNS, GREENS, REDS, WRONG, rgb
from atomizer_io.io.point_clouds import point_cloud_header
from atomizer_io.prediction import point_preview
from atomizer_io.prediction.options import PointCloudClasses, PointCloudWindows
from predicting import command, predict_points, write_las
from scenes import SMALL

laspy = pytest.importorskip("laspy")

CODES = {"ground": 2, "vegetation": 5, "building": 6}


def classified(path: Path, points: int = 5000, extra: bool = True) -> Path:
    """Ground with a house in the east, as in the file; predicted as it is, but vegetation in the far west."""
    x, y = np.random.default_rng(0).uniform(0, (60, 30), (points, 2)).T
    house = x > 45
    label = np.where(house, 6, 2)
    more = {"PredictedClassification": np.where(x < 10, 5, label)} if extra else {}
    xyz = np.stack([x, y, np.where(house, 8.0, 0.0)], axis=1)
    return write_las(path, xyz, extra=[(name, "u1") for name in more], classification=label, **more)


def share(image: np.ndarray, colour: str) -> float:
    return float((np.abs(image - rgb(colour)).max(axis=-1) < 0.02).mean())


def thirds(image: np.ndarray, colour: str) -> tuple[float, ...]:
    """How much of a column of the preview has a colour, in its west, middle and east."""
    return tuple(share(part, colour) for part in np.array_split(image, 3, axis=1))


def test_prediction_reference_and_difference_side_by_side(tmp_path: Path) -> None:
    cloud = classified(tmp_path / "cloud.laz")
    point_preview.draw(cloud, tmp_path / "cloud.png", point_cloud_header(cloud), CODES)
    image = imread(tmp_path / "cloud.png")[..., :3]
    image = image[: image.shape[0] * 5 // 6]  # without the legends
    prediction, before, differs = np.array_split(image, 3, axis=1)
    west, middle, east = thirds(prediction, GREENS["high"])
    assert west > 0.02 and middle == east == 0
    assert thirds(prediction, REDS[0])[2] > 0.02 and thirds(prediction, REDS[0])[0] == 0
    assert thirds(before, BROWNS[0])[0] > 0.05 and share(before, GREENS["high"]) == 0
    assert thirds(differs, WRONG)[0] > 0.02 and thirds(differs, WRONG)[2] == 0


def model(folder: Path) -> Path:
    torch.manual_seed(0)
    aio.create_model("atomizer_io_tiny", **SMALL, class_names=tuple(CODES)).save_pretrained(folder)
    return folder


def test_a_preview_beside_classified_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud, own = classified(tmp_path / "in.laz", 400, extra=False), model(tmp_path / "model")
    words = ("--points", cloud, "--layers", "picture", "-o", tmp_path / "out.laz")  # old name
    assert command(*words, model=own) == 0
    assert f"{tmp_path / 'out.png'}" in capsys.readouterr().out
    image = imread(tmp_path / "out.png")[..., :3]
    assert share(image, BROWNS[0]) > 0.002, "the class in the file is drawn too"
    assert not list(tmp_path.glob("*.parts"))
    plain = {"windows": PointCloudWindows(50.0)}
    predict_points(own, cloud, tmp_path / "plain.laz", **plain)
    assert (tmp_path / "plain.laz").read_bytes() == (tmp_path / "out.laz").read_bytes()
    assert not (tmp_path / "plain.png").exists()
    (tmp_path / "new.png").write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"new\.png exists"):
        predict_points(own, cloud, tmp_path / "new.laz", classes=PointCloudClasses(preview=True), **plain)
    replaced = PointCloudClasses(replace=True, probabilities=False, preview=True)
    predict_points(own, cloud, tmp_path / "replaced.laz", classes=replaced, **plain)
    assert (tmp_path / "replaced.png").stat().st_size > 1000


def layers_drawn(
    path: Path, monkeypatch: pytest.MonkeyPatch, task_spec: dict, **how: object
) -> list[dict[str, object]]:
    """The legends of the layers that a prediction draws."""
    torch.manual_seed(0)
    own = aio.create_model("atomizer_io_tiny", **SMALL, class_names=tuple(CODES), **task_spec)
    seen = list[dict[str, object]]()
    drawn = point_preview.point_clouds.draw

    def draw(figure: object, view: object, layers: list) -> None:
        seen.extend({"title": layer.title, "legend": list(layer.legend)} for layer in layers)
        drawn(figure, view, layers)

    with monkeypatch.context() as patch:
        patch.setattr(point_preview.point_clouds, "draw", draw)
        chosen, output = PointCloudClasses(preview=True, **how), path.with_suffix(".out.las")
        predict_points(own, path, output, classes=chosen, overwrite=True)
    return seen


@pytest.mark.parametrize("most", [60_000, 300])
def test_the_share_that_differs_is_of_all_points_by_trained_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Codes 3 and 4 were trained as vegetation, whose code is 5; noise was ignored, other codes had no class."""
    cloud = laspy.read(classified(tmp_path / "made.las", 3000, extra=False))
    cloud.classification[:] = np.random.default_rng(1).choice([2, 3, 4, 5, 6, 7, 9], 3000)
    cloud.write(tmp_path / "in.las")
    trained = {2: 0, 3: 1, 4: 1, 5: 1, 6: 2, -1: -1}
    for module in (point_preview, point_preview.point_clouds):
        monkeypatch.setattr(module, "POINTS", most)
    (last,) = layers_drawn(tmp_path / "in.las", monkeypatch, {"label_codes": trained})[3:]
    points = laspy.read(tmp_path / "in.out.las")
    label = np.array([trained.get(code, -1) for code in points.classification])
    known = label >= 0
    predicted = np.array([list(CODES.values()).index(code) for code in points.PredictedClassification])
    share = 100 * (label != predicted)[known].mean()
    assert last["legend"] == ["same", f"different: {share:.1f} %", "not known"]
    before = layers_drawn(tmp_path / "in.las", monkeypatch, {})[
        3
    ]  # models that were saved before know their own codes only
    known = np.isin(points.classification, list(CODES.values()))
    wrong = (np.array(points.classification) != points.PredictedClassification)[known].mean()
    assert f"different: {100 * wrong:.1f} %" in before["legend"]


def test_a_prediction_in_place_of_the_class_is_drawn_and_not_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = classified(tmp_path / "in.las", 300)
    seen = layers_drawn(cloud, monkeypatch, {}, replace=True, probabilities=False)
    points = laspy.read(tmp_path / "in.out.las")
    names = [name for name, code in CODES.items() if code in set(points.classification)]
    assert seen == [{"title": "prediction", "legend": names}]

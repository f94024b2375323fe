"""Point clouds: the readers, windows, and a folder of one's own files."""

from __future__ import annotations

import datetime
import functools
import pickle
from pathlib import Path

import laspy
import numpy as np
import pyproj
import pytest
import torch

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.datasets.checking import check
from atomizer_io.datasets.las_folder import LasFolder
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io import point_clouds
from atomizer_io.io import point_windows as windows
from atomizer_io.io.point_clouds import point_cloud_header, read_point_cloud
from data import fractal
from data.fractal import GPS_TIME_S
from scenes import data_folder

POINT = "property float x\nproperty float y\nproperty float z\n"
write_laz = functools.partial(fractal.write_laz, standard_time=True)
CLASSES = {2: "ground", 3: "vegetation", 5: "vegetation", 6: "building"}


def table(count: int = 400, seed: int = 0, size: float = 120.0, **more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    total = rng.integers(1, 4, count)
    return (
        {
            "x": 500000 + np.round(rng.uniform(0, size, count), 2),
            "y": 4000000 + np.round(rng.uniform(0, size / 2, count), 2),
            "z": np.round(rng.uniform(100, 130, count), 2),
            "intensity": rng.integers(1, 3000, count).astype(np.uint16),
            "number_of_returns": total.astype(np.uint8),
            "return_number": (1 + rng.integers(0, 3, count) % total).astype(np.uint8),
            "classification": rng.choice([0, 1, 2, 3, 5, 6], count).astype(np.uint8),
            "gps_time": GPS_TIME_S + rng.uniform(0, 9, count),
        }
        | {name: rng.integers(1, 256, count).astype(np.uint16) * 256 for name in point_clouds.COLOURS}
        | more
    )


def write_ply(path: Path, columns: dict[str, np.ndarray], kind: str, element: str = "vertex") -> Path:
    types = {"f8": "double", "f4": "float", "u1": "uchar", "i4": "int", "u2": "ushort"}
    count = len(next(iter(columns.values())))
    order = ">" if kind == "binary_big_endian" else "<"
    array = np.zeros(count, dtype=[(n, order + c.dtype.str[1:]) for n, c in columns.items()])
    for name, column in columns.items():
        array[name] = column
    lines = ["ply", f"format {kind} 1.0", "comment synthetic", f"element {element} {count}"]
    lines += [f"property {types[c.dtype.str[1:]]} {n}" for n, c in columns.items()]
    lines += ["element face 2", "property list uchar int vertex_indices", "end_header", ""]
    text = "".join(" ".join(map(str, row.tolist())) + "\n" for row in array).encode()
    path.write_bytes("\n".join(lines).encode() + (text if kind == "ascii" else array.tobytes()))
    return path


@pytest.mark.parametrize("name", ["a.laz", "a.las", "a.copc.laz"])
def test_las_is_read_as_stored(tmp_path: Path, name: str) -> None:
    write_laz(tmp_path / name, table(), epsg=32610)
    point_cloud, direct = read_point_cloud(tmp_path / name), laspy.read(tmp_path / name)
    for axis in "xyz":
        np.testing.assert_array_equal(getattr(point_cloud, axis), direct[axis])
    for field in ("intensity", "return_number", "number_of_returns", "classification", "gps_time"):
        np.testing.assert_array_equal(getattr(point_cloud, field), direct[field])
    for colour in point_clouds.COLOURS:
        np.testing.assert_array_equal(point_cloud.colours[colour], direct[colour])
    assert (point_cloud.crs, point_cloud.unit_m, point_cloud.date) == ("EPSG:32610", 1.0, datetime.date(2021, 5, 28))
    header = point_cloud_header(tmp_path / name)
    assert header.points == len(point_cloud) == 400 and header.crs == point_cloud.crs
    assert header.bounds == pytest.approx(point_cloud.bounds, abs=1e-6)


def test_bounds_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_laz(tmp_path / "a.laz", table())
    monkeypatch.setattr(point_clouds, "CHUNK", 97)
    whole = read_point_cloud(tmp_path / "a.laz")
    box = (500010.0, 4000005.0, 500060.0, 4000050.0)
    part = read_point_cloud(tmp_path / "a.laz", bounds=box)
    inside = (whole.x >= box[0]) & (whole.x < box[2]) & (whole.y >= box[1]) & (whole.y < box[3])
    assert 0 < len(part) == inside.sum() < 400
    np.testing.assert_array_equal(part.z, whole.z[inside])  # in the same order
    np.testing.assert_array_equal(part.colours["nir"], whole.colours["nir"][inside])
    np.testing.assert_array_equal(part.gps_time, whole.where(inside).gps_time)


@pytest.mark.parametrize(
    ("seconds", "flag", "date"),
    [
        (GPS_TIME_S, 0, None),  # the header does not promise that clock
        (GPS_TIME_S, 1, datetime.date(2021, 5, 28)),
        (-3e8, 1, datetime.date(2002, 3, 12)),
        (5e7, 0, None),  # too little to be sure
        (400000.0, 0, None),  # seconds of a week
        (0.0, 1, None),  # never written
        (-8e8, 1, None),  # 1986
        (9e8, 1, None),  # in the future
        (1.3e9, 1, None),  # not adjusted
        (np.nan, 1, None),
        (np.inf, 1, None),
    ],
)
def test_the_date_is_that_of_gps_time(tmp_path: Path, seconds: float, flag: int, date: datetime.date | None) -> None:
    points = laspy.LasData(laspy.LasHeader(point_format=6, version="1.4"))
    points.x, points.gps_time = np.arange(5.0), np.full(5, seconds)
    points.header.global_encoding.gps_time_type = laspy.header.GpsTimeType(flag)
    points.write(tmp_path / "a.laz")
    assert read_point_cloud(tmp_path / "a.laz").date == date


@pytest.mark.parametrize(("code", "z_m"), [("EPSG:2263", 0.3048006), ("EPSG:2263+5703", 1.0), ("EPSG:2154+5720", 1.0)])
def test_feet_become_metres(tmp_path: Path, code: str, z_m: float) -> None:
    points = laspy.LasData(laspy.LasHeader(point_format=6, version="1.4"))
    points.header.add_crs(pyproj.CRS.from_user_input(code))
    points.x, points.y, points.z = np.array([[980000.0, 980100], [200000, 200100], [10, 20]])
    points.write(tmp_path / "a.las")
    point_cloud = read_point_cloud(tmp_path / "a.las")
    unit = 1.0 if "2154" in code else 1200 / 3937
    np.testing.assert_allclose(point_cloud.x, np.array([980000, 980100]) * unit, rtol=1e-12)
    np.testing.assert_allclose(point_cloud.z, np.array([10, 20]) * z_m, rtol=1e-6)
    assert point_cloud.unit_m == pytest.approx(unit)
    assert point_cloud.crs == code.split("+")[0]
    assert point_cloud_header(tmp_path / "a.las").bounds == pytest.approx(point_cloud.bounds)
    (sample,) = LasFolder(tmp_path, classes={0: "any"}, ignore=(), window_m=None)
    assert sample.meta.origin == pytest.approx((980050.0, 200050.0))  # in units of the CRS
    assert sample.queries.positions[0].tolist() == pytest.approx([-50 * unit, -50 * unit])


@pytest.mark.parametrize(
    ("crs", "unit", "unit_z"),
    [
        ("EPSG:2154", 1.0, 1.0),
        ("EPSG:2263", 1200 / 3937, 1200 / 3937),  # US survey feet, and so are its heights
        ("EPSG:2263+5703", 1200 / 3937, 1.0),  # heights in metres
        ("EPSG:2222+8228", 0.3048, 0.3048),  # international feet, both
    ],
)
@pytest.mark.parametrize("name", ["a.laz", "a.ply"])
def test_a_coordinate_system_is_named_where_the_file_has_none(
    tmp_path: Path, name: str, crs: str, unit: float, unit_z: float
) -> None:
    columns = {axis: table()[axis] for axis in "xyz"} | {"classification": table()["classification"]}
    if name == "a.ply":
        write_ply(tmp_path / name, columns, "binary_little_endian")
    else:
        write_laz(tmp_path / name, columns)
    assert point_cloud_header(tmp_path / name).metres_assumed
    point_cloud, header = read_point_cloud(tmp_path / name, crs=crs), point_cloud_header(tmp_path / name, crs)
    assert not header.metres_assumed and point_cloud.crs == header.crs == crs.split("+")[0]
    np.testing.assert_allclose(point_cloud.x, columns["x"] * unit, rtol=1e-9)
    np.testing.assert_allclose(point_cloud.z, columns["z"] * unit_z, rtol=1e-9)
    assert header.bounds == pytest.approx(point_cloud.bounds, rel=1e-9)
    (sample,) = LasFolder(tmp_path, classes=CLASSES, window_m=None, crs=crs)
    assert np.ptp(sample.queries.positions[:, 0].numpy()) == pytest.approx(np.ptp(columns["x"]) * unit)
    windowed = LasFolder(tmp_path, classes=CLASSES, crs=crs)
    assert len(windowed) < len(LasFolder(tmp_path, classes=CLASSES)) or unit == 1
    assert sum(len(sample.queries) for sample in windowed) == 400
    assert windowed.warnings() == []
    (note,) = LasFolder(tmp_path, classes=CLASSES).warnings()
    assert note.startswith(f"{name} has no coordinate system; coordinates are taken as metres")


def test_a_coordinate_system_that_does_not_fit(tmp_path: Path) -> None:
    write_laz(tmp_path / "a.laz", table(), epsg=2154)
    assert read_point_cloud(tmp_path / "a.laz", crs="EPSG:2154").crs == "EPSG:2154"
    with pytest.raises(DataError, match=r"a\.laz: has a coordinate system of its own \(RGF93 .*leave crs out"):
        read_point_cloud(tmp_path / "a.laz", crs="EPSG:2263")
    with pytest.raises(ConfigError, match="crs is 'feet', which is no coordinate system"):
        LasFolder(tmp_path, classes=CLASSES, crs="feet")


def test_a_check_reads_every_file(tmp_path: Path) -> None:
    for number in range(5):
        write_laz(tmp_path / f"{number}.laz", table(seed=number))
    for number in (1, 3):
        data = (tmp_path / f"{number}.laz").read_bytes()
        (tmp_path / f"{number}.laz").write_bytes(data[: len(data) // 2])
    report = next(check("las-folder", str(tmp_path), ["train"], classes=CLASSES))
    assert [Path(fault.path).name for fault in report.faults] == ["1.laz", "3.laz"]
    assert report.read == 3 * 6
    assert any(text.startswith("0.laz and 2 more have no coordinate system") for text in report.warnings)


def test_a_model_knows_the_density_it_was_trained_on(tmp_path: Path) -> None:
    from atomizer_io.training.config import DataSettings, ModelSettings, Run
    from atomizer_io.training.run import prepare

    write_laz(tmp_path / "a.laz", table(2000, size=100.0), epsg=2154)
    data = DataSettings("las-folder", str(tmp_path), {"classes": CLASSES}, val=None, test=None, workers=0)
    run = Run(data=data, model=ModelSettings("atomizer_io_tiny"), output=str(tmp_path / "runs"))
    mean, std = prepare(run).model.task_spec.point_density
    assert mean == pytest.approx(0.4, rel=0.1) and 0 <= std < 0.1


def test_degrees_are_refused(tmp_path: Path) -> None:
    points = laspy.LasData(laspy.LasHeader(point_format=6, version="1.4"))
    points.header.add_crs(pyproj.CRS.from_epsg(4326))
    points.x, points.y = np.array([2.1, 2.2]), np.array([48.0, 48.1])
    points.write(tmp_path / "a.las")
    with pytest.raises(DataError, match=r"a\.las: has coordinates in degrees .*WGS 84.*project it to metres first"):
        read_point_cloud(tmp_path / "a.las")


@pytest.mark.parametrize("kind", ["binary_little_endian", "binary_big_endian", "ascii"])
def test_ply_of_all_kinds(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "x": rng.uniform(5e5, 5.001e5, 50),
        "y": rng.uniform(0, 100, 50),
        "z": rng.uniform(0, 9, 50).astype(np.float32),
        "red": rng.integers(0, 255, 50).astype(np.uint8),
        "Intensity": rng.integers(0, 60000, 50).astype(np.uint16),
        "sem_class": rng.integers(0, 8, 50).astype(np.int32),
    }
    monkeypatch.setattr(point_clouds, "CHUNK", 20)
    point_cloud = read_point_cloud(write_ply(tmp_path / "a.ply", columns, kind, "testing"))
    np.testing.assert_array_equal(point_cloud.x, columns["x"])
    np.testing.assert_array_equal(point_cloud.z, columns["z"].astype(np.float64))
    np.testing.assert_array_equal(point_cloud.classification, columns["sem_class"])
    np.testing.assert_array_equal(point_cloud.intensity, columns["Intensity"])
    np.testing.assert_array_equal(point_cloud.colours["red"], columns["red"])
    assert point_cloud.return_number is None and point_cloud.date is None and point_cloud.crs is None
    box = (5e5, 0.0, 500050.0, 60.0)
    part = read_point_cloud(tmp_path / "a.ply", bounds=box)
    np.testing.assert_array_equal(part.y, point_cloud.y[point_clouds.within(point_cloud.x, point_cloud.y, box)])


def ply(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plx\n", "is not a PLY file"),
        ("ply\nformat ascii 1.0\nelement vertex 1\n", "its header has no end"),
        ("ply\nformat morse 1.0\nend_header\n", "header line that is not PLY: b'format morse"),
        ("ply\nelement vertex 1\n" + POINT + "end_header\n1 2 3\n", "a header without format"),
        (
            "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n",
            "no element with x, y and z; it",
        ),
        ("ply\nformat ascii 1.0\nelement vertex 0\n" + POINT + "end_header\n", "has no points"),
        ("ply\nformat ascii 1.0\nelement vertex 3\n" + POINT + "end_header\n1 2 3\n", "truncated: it holds 1 of 3"),
        ("ply\nformat ascii 1.0\nelement vertex 1\n" + POINT + "end_header\n1 two 3\n", "does not fit its header"),
        ("ply\nformat ascii 1.0\nelement vertex 1\n" + POINT + "end_header\n1 nan 3\n", "1 points have no finite y"),
        (
            "ply\nformat binary_little_endian 1.0\nelement v 9\n" + POINT + "end_header\n1234567890123456",
            "holds 1 of 9",
        ),
        ("ply\nformat ascii 1.0\nelement v 1\nproperty float x\nproperty float x\nend_header\n1\n", "not PLY: b'prop"),
        (
            "ply\nformat ascii 1.0\nelement f 1\nproperty list int int i\nelement v 1\n" + POINT + "end_header\n",
            "lists",
        ),
        ("ply\nformat ascii 1.0\nelement v 1\n" + POINT + "property list int int i\nend_header\n", "a list among"),
    ],
)
def test_broken_ply_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.ply: .*{message}"):
        read_point_cloud(ply(tmp_path / "a.ply", text))


@pytest.mark.parametrize("name", ["a.laz", "a.las"])
@pytest.mark.parametrize("left", [0, 3, 100, 230, 400, 0.5, 0.999])
def test_truncated_files_are_named(tmp_path: Path, name: str, left: float) -> None:
    path = tmp_path / name
    write_laz(path, table(), epsg=2154)
    data = path.read_bytes()
    path.write_bytes(data[: left if isinstance(left, int) else int(left * len(data))])
    with pytest.raises(DataError, match=r"a\.la[sz]: (is empty \(0 bytes\)|cannot be read|is truncated|has no points)"):
        read_point_cloud(path)


def test_other_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.laz: no such file"):
        read_point_cloud(tmp_path / "none.laz")
    laspy.LasData(laspy.LasHeader(point_format=6, version="1.4")).write(tmp_path / "void.laz")
    with pytest.raises(DataError, match=r"void\.laz: has no points"):
        point_cloud_header(tmp_path / "void.laz")
    (tmp_path / "text.las").write_text("version https://git-lfs.github.com/spec/v1\n" * 20)
    with pytest.raises(DataError, match=r"text\.las: cannot be read: truncated or not a LAS or LAZ file"):
        read_point_cloud(tmp_path / "text.las")
    for name, place in (("vlr.las", 103), ("evlr.las", 246)):  # the highest byte of a number of records
        write_laz(tmp_path / name, table(9))
        data = bytearray((tmp_path / name).read_bytes())
        data[place] = 0x7F  # two billion: laspy would look for all of them
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}: cannot be read: truncated, or its header is broken"):
            read_point_cloud(tmp_path / name)
    write_laz(tmp_path / "crs.las", table(), epsg=2154)
    data = (tmp_path / "crs.las").read_bytes()
    (tmp_path / "crs.las").write_bytes(data.replace(b'PROJCS["', b'PROJXX["').replace(b'PROJCRS["', b'PROJXXX["'))
    with pytest.raises(DataError, match=r"crs\.las: has a coordinate system that cannot be understood"):
        read_point_cloud(tmp_path / "crs.las")


@pytest.mark.parametrize(("window", "stride"), [(50.0, 50.0), (50.0, 25.0), (30.0, 20.0), (7.0, 3.0), (500.0, 500.0)])
@pytest.mark.parametrize("keep", [True, False])
def test_windows_hold_every_point(
    tmp_path: Path, window: float, stride: float, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "KEPT_POINTS", 1000 if keep else 10)
    monkeypatch.setattr(point_clouds, "CHUNK", 150)
    write_laz(tmp_path / "a.laz", table(300))
    point_cloud = read_point_cloud(tmp_path / "a.laz")
    tile_windows = windows.find_windows([tmp_path / "a.laz"], window, stride)
    assert [w.number for w in tile_windows] == list(range(len(tile_windows))) and len(
        {w.id for w in tile_windows}
    ) == len(tile_windows)
    expected = set()  # the plain way: every window of a lattice from the corner of the points
    x, y = point_cloud.x - point_cloud.x.min(), point_cloud.y - point_cloud.y.min()
    for row in range(60):
        for column in range(60):
            inside = (x >= column * stride) & (x < column * stride + window)
            if (inside & (y >= row * stride) & (y < row * stride + window)).any():
                expected.add((row, column))
    seen = np.zeros(300, dtype=int)
    for item in tile_windows:
        part = windows.read_window(item)
        assert len(part)
        seen += np.isin(point_cloud.gps_time, part.gps_time)
        off = np.abs([part.x - item.centre[0], part.y - item.centre[1]]).max()
        assert off <= window / 2 + windows.SLIVER * window + 1e-6
    assert (seen >= 1).all() and (stride < window or (seen == 1).all())
    numbers = {tuple(int(p[1:]) for p in w.id.split("_")[-2:]) for w in tile_windows}
    assert numbers <= expected  # strips too thin for a window of their own are in the one before


def test_a_wrong_header_does_not_lose_points(tmp_path: Path) -> None:
    for name, maximum in (("small.las", 500010.0), ("huge.las", 1e200)):
        write_laz(tmp_path / name, table())
        data = bytearray((tmp_path / name).read_bytes())
        data[179:187] = np.float64(maximum).tobytes()  # the largest x of the header
        (tmp_path / name).write_bytes(data)
        tile_windows = windows.find_windows([tmp_path / name], 50.0)
        assert len(tile_windows) == 6 and sum(len(windows.read_window(w)) for w in tile_windows) == 400
    stray = table()
    stray["x"][7] = 1.9e7
    write_laz(tmp_path / "stray.las", stray)
    with pytest.raises(DataError, match=r"stray\.las: reaches over 18500000 m × 60 m, too far"):
        windows.find_windows([tmp_path / "stray.las"], 50.0)


def folder(tmp_path: Path) -> Path:
    (tmp_path / "train").mkdir()
    for number in range(2):
        write_laz(tmp_path / "train" / f"area{number}.laz", table(seed=number), epsg=32610)
    write_laz(tmp_path / "beside.laz", table(seed=5), epsg=32610)
    return tmp_path


def test_a_folder_of_point_clouds(tmp_path: Path) -> None:
    dataset = LasFolder(folder(tmp_path), classes=CLASSES, heights="elevation")
    assert len(dataset) == 12 and dataset.info.classes == ("ground", "vegetation", "building")
    assert dataset.info.num_outputs == 3 and LasFolder.info.classes == ()
    direct = laspy.read(tmp_path / "train" / "area0.laz")
    sample, total = dataset[1], sum(len(s.queries) for s in dataset)
    assert sample.meta.id == "area0_r00_c01" and total == 800
    assert (sample.meta.crs, sample.meta.dates) == ("EPSG:32610", (datetime.date(2021, 5, 28),))
    x, y = np.array(direct.x) - sample.meta.origin[0], np.array(direct.y) - sample.meta.origin[1]
    inside = (np.abs(x) <= 25) & (np.array(direct.y) < direct.y.min() + 50)
    np.testing.assert_allclose(sample.queries.positions, np.stack([x, y], 1)[inside], atol=1e-9)
    codes = np.array(direct.classification)[inside]
    expected = [{2: 0, 3: 1, 5: 1, 6: 2}.get(int(code), -1) for code in codes]
    assert sample.target.tolist() == expected and torch.equal(sample.queries.ignore, sample.target == -1)
    (points,) = sample.atoms
    z = np.array(direct.z)[inside]
    np.testing.assert_allclose(points.values[:, 0], z - z.min(), atol=1e-5)
    assert sample.meta.extra["datum_m"] == pytest.approx(z.min())
    assert sample.queries.whole == "train/area0.laz"
    np.testing.assert_array_equal(sample.queries.members, np.flatnonzero(inside))
    strength = np.array(direct.intensity, dtype=float)  # ranks are those of the whole file
    rank = [((strength < one).mean() + (strength <= one).mean()) / 2 for one in strength[inside]]
    np.testing.assert_allclose(points.site_fields["intensity_rank"], rank, atol=1e-6)
    total_returns, number = np.array(direct.number_of_returns)[inside], np.array(direct.return_number)[inside]
    np.testing.assert_allclose(points.site_fields["echo_before"], (number - 1) / total_returns, rtol=1e-6)
    assert [c.name for c in points.channels] == ["elevation", "R", "G", "B", "NIR"]
    red = np.where(number > 1, np.nan, np.array(direct.red)[inside] / 256)  # later returns were not photographed
    np.testing.assert_allclose(points.values[:, 1], red)
    assert sample.atoms.num_atoms == inside.sum() + 4 * (number == 1).sum()
    assert torch.equal(sample.queries.sites[0], torch.arange(len(sample.queries)))
    again = pickle.loads(pickle.dumps(dataset))[1]
    assert torch.equal(again.target, sample.target) and again.meta == sample.meta


def test_other_codes_and_ignored_ones(tmp_path: Path) -> None:
    root = folder(tmp_path)
    dataset = LasFolder(root, classes=CLASSES, other="rest", ignore=(0,), window_m=None)
    assert dataset.info.classes == ("ground", "vegetation", "building", "rest") and len(dataset) == 2
    codes = laspy.read(root / "train" / "area0.laz").classification
    assert torch.equal(dataset[0].target == 3, torch.from_numpy(np.array(codes) == 1))
    assert torch.equal(dataset[0].queries.ignore, torch.from_numpy(np.array(codes) == 0))
    merged = LasFolder(root, classes=CLASSES, other="ground", window_m=None)
    assert merged.info.num_outputs == 3 and (merged[0].target == 0).sum() == np.isin(codes, (1, 2)).sum()


def test_splits_are_folders_or_lists(tmp_path: Path) -> None:
    root = folder(tmp_path)
    with pytest.raises(DataError, match=r"val: no such folder, nor val\.txt: the files of split 'val'"):
        LasFolder(root, "val", classes=CLASSES)
    (root / "val.txt").write_text("beside.laz\n")
    (only,) = LasFolder(root, "val", classes=CLASSES, window_m=None)
    assert only.meta.id == "beside"
    assert len(LasFolder(root, "all", classes=CLASSES, window_m=None)) == 3
    assert len(LasFolder(root / "train", classes=CLASSES, window_m=None)) == 2
    (root / "test.txt").write_text("lost.laz\n")
    with pytest.raises(DataError, match=r"lost\.laz: no such file"):
        LasFolder(root, "test", classes=CLASSES)
    (root / "none").mkdir()
    with pytest.raises(DataError, match="no sample of split 'train'"):
        LasFolder(root / "none", classes=CLASSES)


@pytest.mark.parametrize("name", ["a.laz", "a.ply"])
def test_longitude_and_latitude_are_not_taken_for_metres(tmp_path: Path, name: str) -> None:
    points = table()
    points["x"], points["y"] = 3 + (points["x"] - 500000) / 1e5, 45 + (points["y"] - 4000000) / 1e5
    if name == "a.ply":
        write_ply(tmp_path / name, {axis: points[axis] for axis in "xyz"}, "binary_little_endian")
    else:
        fine = laspy.LasHeader(version="1.4", point_format=6)
        fine.scales, fine.offsets = [1e-7, 1e-7, 0.01], [3, 45, 0]
        point_cloud = laspy.LasData(fine)
        point_cloud.x, point_cloud.y, point_cloud.z = (points[axis] for axis in "xyz")
        point_cloud.write(tmp_path / name)
    with pytest.raises(DataError, match=r"x 3 to 3\.001.* look like longitude and latitude: project it to metres"):
        point_cloud_header(tmp_path / name)


def test_splits_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder(tmp_path)
    (root / "train").rename(root / "Valley")
    (root / "beside.laz").rename(root / "Valley" / "beside.laz")
    assert len(LasFolder(root, "Valley", classes=CLASSES, window_m=None)) == 3
    assert main(["data", "check", "las-folder", str(root), f"classes={CLASSES}", "window_m=null"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Valley: nothing is missing or broken"
    (root / "hills.txt").write_text("Valley/beside.laz\n")
    (root / "notes.txt").write_text("flown in May\n")
    (only,) = LasFolder(root, "hills", classes=CLASSES, window_m=None)
    assert only.meta.id == "beside"
    with pytest.raises(ConfigError, match=r"has no split 'notes'; .* has hills, train, val, test, all"):
        LasFolder(root, "notes", classes=CLASSES)


@pytest.mark.parametrize("code", [7, 18, 65, 66])  # of the standard, and of IGN
def test_noise_does_not_set_the_height(tmp_path: Path, code: int) -> None:
    points = table()
    points["z"][3], points["classification"][3] = -500.0, code
    write_laz(tmp_path / "a.laz", points)
    (sample,) = LasFolder(tmp_path, classes=CLASSES, window_m=None, heights="both")
    lowest = np.delete(points["z"], 3).min()
    assert sample.meta.extra["datum_m"] == pytest.approx(lowest)
    point_cloud = sample.atoms.acquisitions[0]
    assert point_cloud.values[3, 0] == pytest.approx(-500 - lowest) and sample.target[3] == -1
    assert point_cloud.values[:, 1].sort().values[1] > -10  # nor is the ground anywhere near it


def test_colours_that_were_never_recorded_are_absent(tmp_path: Path) -> None:
    zero = np.zeros(400, dtype=np.uint16)
    first = np.ones(400, dtype=np.uint8)
    points = table(nir=zero, return_number=first, intensity=zero)
    for colour in ("red", "green", "blue"):
        points[colour][5] = 0
    write_laz(tmp_path / "rgb.laz", points)
    write_laz(tmp_path / "zero.laz", table(red=zero, green=zero, blue=zero, nir=zero))
    write_laz(tmp_path / "eight.laz", table(red=first.astype(np.uint16) * 200, green=zero, blue=zero, nir=zero))
    eight, rgb, none = LasFolder(tmp_path, classes=CLASSES, window_m=None)
    (point_cloud,) = rgb.atoms
    assert [c.name for c in point_cloud.channels] == ["height", "R", "G", "B"]
    assert not [name for name in point_cloud.site_fields if "intensity" in name]
    assert rgb.atoms.num_atoms == 4 * 400 - 3 and not point_cloud.valid[5, 1:].any()
    assert [c.name for c in none.atoms.channels] == ["height"]
    assert eight.atoms.acquisitions[0].values[:, 1].nan_to_num(200).unique().tolist() == [200.0]
    plain = LasFolder(tmp_path, classes=CLASSES, window_m=None, colour=False)
    assert plain.channels == aio.sensors.LIDAR_HEIGHT.channels == plain[1].atoms.channels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_m": 0}, "window_m is 0"),
        ({"window_m": 50.0, "stride_m": 60.0}, "stride_m is 60.0 with windows of 50.0 m"),
        ({"window_m": None, "stride_m": 10.0}, "stride_m is 10.0 with windows of None"),
        ({"grid_m": -1.0}, "grid_m is -1.0"),
        ({"heights": "sea"}, "heights is 'sea'; it has to be ground or elevation or both"),
        ({"classes": None}, "las-folder needs the option classes"),
        ({"classes": {}}, "no class is named"),
        ({"classes": {"ground": 2}}, "give code: name"),
        ({"classes": {300: "x"}}, "300 is not a class of LAS"),
        ({"classes": {7: "noise"}}, r"code 7 \(noise\) is among the classes and among the ignored"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LasFolder(tmp_path, **({"classes": CLASSES} | options))


@pytest.mark.realdata
def test_real_tiles() -> None:
    root = data_folder("lidar-hd") / "tiles"
    dataset = LasFolder(root, classes=CLASSES | {4: "vegetation"}, other="rest")
    assert len(dataset) == 6  # each is one window, although points lie on both edges
    for sample, path in zip(dataset, sorted(root.glob("*.laz")), strict=True):
        direct = laspy.read(path)
        assert len(sample.queries) == sample.atoms.num_atoms == len(direct.x)  # their colours are all 0
        assert (sample.target == 2).sum() == (np.array(direct.classification) == 6).sum()
        assert sample.meta.crs == "EPSG:2154" and sample.meta.dates == ()  # IGN's header promises no clock
        assert sample.meta.origin[0] % 50 == pytest.approx(25) and sample.queries.positions.abs().max() <= 25.0001
        rank = sample.atoms.acquisitions[0].site_fields["intensity_rank"].numpy()
        assert np.array_equal(np.argsort(rank, kind="stable"), np.argsort(direct.intensity, kind="stable"))
        above = sample.atoms.acquisitions[0].heights_m.numpy()
        assert np.percentile(np.abs(above[np.array(direct.classification) == 2]), 90) < 0.5


def test_check_prints_the_shares_of_classes_and_reads_each_file_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    codes = np.repeat(np.array([2, 5, 1], np.uint8), (200, 100, 100))  # nobody named code 1
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        write_laz(tmp_path / split / f"{split}.laz", table(classification=codes), epsg=2154)
    command = ["data", "check", "las-folder", str(tmp_path), "classes={2: ground, 5: vegetation}"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("  classes  ground 50 %, vegetation 25 %, ignored 25 %\n") == 2
    assert shown.endswith("train, val: nothing is missing or broken\n")  # all has the same files
    write_laz(tmp_path / "more.laz", table(seed=1), epsg=2154)
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("train, val, all: nothing is missing or broken\n")


def geokeys(points: laspy.LasData, **values: int) -> None:
    """Old GeoTIFF keys: k1024 is the model, k3072 the projected CRS, k2048 the geographic one, k3076 the unit."""
    vlr = laspy.vlrs.known.GeoKeyDirectoryVlr()
    entry = laspy.vlrs.known.GeoKeyEntryStruct
    vlr.geo_keys = [entry(int(key[1:]), 0, 1, value) for key, value in values.items()]
    vlr.geo_keys_header.number_of_keys = len(values)
    points.header.vlrs.append(vlr)


def test_units_of_a_projection_without_code(tmp_path: Path) -> None:
    points = laspy.LasData(laspy.LasHeader(point_format=1, version="1.2"))
    points.x, points.y = np.array([1000.0, 2000.0]), np.array([1000.0, 1000.0])
    geokeys(points, k1024=1, k2048=4269, k3072=32767, k3076=9002)
    points.write(tmp_path / "a.las")
    point_cloud = read_point_cloud(tmp_path / "a.las")
    assert (point_cloud.crs, point_cloud.unit_m) == (None, 0.3048)  # and not the degrees of NAD83
    assert point_cloud.x.tolist() == pytest.approx([304.8, 609.6])

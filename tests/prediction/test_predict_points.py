"""Classes for one's own point clouds: all that was in the file is kept, every point gets the mean of its windows."""

from __future__ import annotations

import functools
import json
import struct
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.data.sensors import AERIAL, LIDAR, LIDAR_HEIGHT
from atomizer_io.decoding import Calibration, OperatingPoint, dense, zone_probe
from atomizer_io.decoding.calibration import Step
from atomizer_io.decoding.strategies import STRATEGIES
from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.io.point_atoms import one_per_cube, point_cloud_atoms
from atomizer_io.io.point_clouds import read_point_cloud, within
from atomizer_io.io.point_reference import PointCloudReference
from atomizer_io.io.point_windows import windows_of
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import CLOUD_FIELDS
from atomizer_io.models.base import Cost
from atomizer_io.models.storage import fingerprint, seal_at
from atomizer_io.prediction import las
from atomizer_io.prediction.engines import Dask, Processes
from atomizer_io.prediction.las_classes import las_codes
from atomizer_io.prediction.options import Decoding, PointCloudClasses, PointCloudWindows
from atomizer_io.prediction.point_windows import interpolated
from chips import write
from predicting import command, interrupted_at_every_step, predict_points, write_las
from scenes import SMALL, data_folder

laspy = pytest.importorskip("laspy")

CLASSES = ("ground", "vegetation", "cars")
WHOLE = PointCloudWindows(60, 60)


def tiny(**changes: Any) -> AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "class_names": CLASSES, **changes})
    for parameter in model.parameters():  # as drawn, all predictions are nearly alike
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny().save_pretrained(folder)
    return folder


def made(
    path: Path,
    *,
    points: int = 900,
    version: str = "1.4",
    point_format: int = 6,
    epsg: int | None = 2154,
    extra: bool = True,
    seed: int = 0,
) -> Path:
    """A cloud of 60 × 40 m in which every fourth return lies exactly below the one before it."""
    import pyproj

    rng = np.random.default_rng(seed)
    header = laspy.LasHeader(version=version, point_format=point_format)
    header.scales, header.offsets = np.full(3, 0.01), np.array([700_000.0, 6_600_000.0, 0.0])
    header.generating_software, header.system_identifier = "by hand", "nowhere"
    if epsg is not None:
        header.add_crs(pyproj.CRS.from_epsg(epsg))
    header.vlrs.append(laspy.vlrs.VLR("someone", 7, "what nobody knows", b"\1\2\3"))
    if extra:
        header.add_extra_dim(laspy.ExtraBytesParams("height", "f8"))
        header.add_extra_dim(laspy.ExtraBytesParams("tree", "u4"))
    cloud = laspy.LasData(header)
    x, y = rng.uniform(0, 60, points), rng.uniform(0, 40, points)
    x[3::4], y[3::4] = x[2::4][: len(x[3::4])], y[2::4][: len(x[3::4])]
    cloud.x, cloud.y, cloud.z = 700_000 + x, 6_600_000 + y, rng.uniform(100, 120, points)
    cloud.number_of_returns = rng.integers(1, 5, points)
    cloud.return_number = 1 + rng.integers(0, 4, points) % cloud.number_of_returns
    cloud.intensity = rng.integers(1, 3000, points)
    cloud.classification = rng.integers(0, 20, points)
    cloud.synthetic = rng.integers(0, 2, points)
    cloud.user_data = rng.integers(0, 256, points)
    if "red" in cloud.point_format.dimension_names:
        cloud.red, cloud.green, cloud.blue = rng.integers(0, 65536, (3, points))
    if extra:
        cloud.height, cloud.tree = rng.normal(size=points), rng.integers(0, 99, points)
    if version == "1.4":
        cloud.evlrs = laspy.vlrs.vlrlist.VLRList([laspy.vlrs.VLR("someone", 8, "behind the points", bytes(300))])
    cloud.write(path)
    return path


def raw_points(path: Path) -> tuple[las.Original, np.ndarray]:
    original = las.Original.read(path)
    return original, np.concatenate([original.bytes_of(chunk) for chunk in original.chunks()])


def behind(path: Path, original: las.Original) -> list[bytes]:
    content = path.read_bytes()
    return [content[record.start : record.start + record.size] for record in original.tail]


def assert_kept(before: Path, after: Path, *, but: tuple[int, ...] = ()) -> None:
    """Header, records and points are those of ``before`` to the bit, but for what must differ and bytes ``but``."""
    old, old_points = raw_points(before)
    new, new_points = raw_points(after)
    masked = []
    for original in (old, new):
        head = bytearray(original.head[: struct.unpack_from("<H", original.head, 94)[0]])
        head[96:107] = bytes(11)  # where points begin, number of records, compression, bytes per point
        if original.minor >= 4:
            head[235:247] = bytes(12)  # records behind the points
        masked.append(bytes(head))
    assert masked[0] == masked[1]
    assert old.point_format == new.point_format
    kept = [i for i in range(old.record_length) if i not in but]
    assert np.array_equal(old_points[:, kept], new_points[:, kept])

    def others(original: las.Original) -> list[bytes]:
        own = (las.LASZIP, las.EXTRA, las.MAKER)
        records = (r for r in original.records if (r.owner, r.number) not in own and r.owner != "copc")
        return [original.copied_record(record) for record in records]

    def described(original: las.Original) -> bytes:
        classified = [original.copied_record(r) for r in original.records if (r.owner, r.number) == las.EXTRA]
        return classified[0][54:] if classified else b""

    assert others(old) == others(new)
    assert described(new).startswith(described(old))
    assert behind(before, old) == behind(after, new)
    with laspy.open(before) as a, laspy.open(after) as b:
        assert a.header.parse_crs() == b.header.parse_crs()


FORMATS = [("1.2", 1), ("1.2", 3), ("1.3", 4), ("1.4", 6), ("1.4", 7), ("1.4", 8)]


@pytest.mark.parametrize(("version", "point_format"), FORMATS)
@pytest.mark.parametrize("suffixes", [(".las", ".laz"), (".laz", ".las"), (".laz", ".laz")])
def test_all_that_was_there_is_kept(
    model: Path, tmp_path: Path, version: str, point_format: int, suffixes: Any
) -> None:
    cloud = made(tmp_path / f"in{suffixes[0]}", points=60, version=version, point_format=point_format)
    output = tmp_path / f"out{suffixes[1]}"
    product = predict_points(model, cloud, output, windows=PointCloudWindows(60, 60))
    assert_kept(cloud, output)
    classified = laspy.read(output)
    names = ["height", "tree", "PredictedClassification", "entropy", *CLASSES]
    assert list(classified.point_format.extra_dimension_names) == names
    probabilities = np.stack([classified[name] for name in CLASSES], axis=1)
    assert probabilities.dtype == np.float32 and np.allclose(probabilities.sum(axis=1), 1, atol=2e-3)
    assert np.array_equal(classified.PredictedClassification, np.array([2, 5, 66], "u1")[probabilities.argmax(axis=1)])
    assert np.allclose(classified.entropy, -(probabilities * np.log(probabilities)).sum(axis=1), atol=1e-4)
    assert product.codes == {"ground": 2, "vegetation": 5, "cars": 66}
    assert sum(product.counts.values()) == product.points == 60 and not product.untouched
    (maker,) = [vlr for vlr in classified.header.vlrs if vlr.user_id == "atomizer-io"]
    assert json.loads(maker.record_data_bytes()) == {"model": model.name, "model_seal": seal_at(model)}
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.realdata
@pytest.mark.parametrize(
    "name", ["lidar-hd/las_with_several_extra_byte_bloc.laz", "lidr/MixedConifer.laz", "lidr/Topography.laz"]
)
def test_real_clouds_are_kept_to_the_bit(model: Path, tmp_path: Path, name: str) -> None:
    folder, _, file = name.partition("/")
    cloud, coarse = data_folder(folder) / file, Decoding("zone-probe", cost=Cost(atoms_per_latent=2000))
    predict_points(model, cloud, tmp_path / "out.laz", windows=PointCloudWindows(200.0, 200.0), decoding=coarse)
    assert_kept(cloud, tmp_path / "out.laz")
    before, after = laspy.read(cloud), laspy.read(tmp_path / "out.laz")
    for name in before.point_format.dimension_names:
        assert np.array_equal(before[name], after[name]), name


def test_bytes_that_nobody_described_stay_where_they_are(model: Path, tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.las", points=50)
    content = cloud.read_bytes()
    cloud.write_bytes(content.replace(b"LASF_Spec\0\0\0\0\0\0\0\4\0", b"LASF_Spec\0\0\0\0\0\0\0\xcc\0"))
    assert "ExtraBytes" in las.Original.read(cloud).dimensions
    predict_points(model, cloud, tmp_path / "out.laz", windows=WHOLE)
    classified = laspy.read(tmp_path / "out.laz")
    again = np.concatenate([classified["undocumented 0"], classified["undocumented 7"]], axis=1)
    assert np.array_equal(again, laspy.read(cloud).ExtraBytes)
    assert set(classified.PredictedClassification) <= {2, 5, 66}
    assert classified.entropy.min() > 0 and classified.entropy.max() < 1.2


def test_records_of_copc_are_left_out(model: Path, tmp_path: Path) -> None:
    """A file with the records and the uneven chunks of COPC, in the order in which it stores its points."""
    import lazrs

    plain = made(tmp_path / "plain.las", points=500, extra=False)
    original, points = raw_points(plain)
    vlr = lazrs.LazVlr.new_for_compression(6, 0, True)
    records = [b"\0\0" + b"copc".ljust(16, b"\0") + struct.pack("<HH32x", 1, 160) + bytes(160)]
    records += [original.copied_record(record) for record in original.records]
    records += [b"\0\0" + b"laszip encoded".ljust(16, b"\0") + struct.pack("<HH32x", 22204, len(vlr.record_data()))]
    records[-1] += vlr.record_data()
    header = bytearray(original.head[:375])
    struct.pack_into("<IIB", header, 96, 375 + sum(map(len, records)), len(records), 128 | 6)
    cloud = tmp_path / "in.copc.laz"
    with cloud.open("wb") as file:
        file.write(bytes(header) + b"".join(records))
        compressor = lazrs.LasZipCompressor(file, vlr)
        for piece in (points[:70], points[70:90], points[90:]):
            compressor.compress_many(np.ascontiguousarray(piece).reshape(-1))
            if len(piece) < 400:
                compressor.finish_current_chunk()
        compressor.done()
        file.seek(0, 2)
        start = file.tell()
        file.write(b"\0\0" + b"copc".ljust(16, b"\0") + struct.pack("<HQ32x", 1000, 32) + bytes(32))
        for kept in behind(plain, original):
            file.write(kept)
        file.seek(235)
        file.write(struct.pack("<QI", start, 2))
    predict_points(model, cloud, tmp_path / "out.laz", windows=WHOLE)
    assert_kept(cloud, tmp_path / "out.laz")
    new = las.Original.read(tmp_path / "out.laz")
    assert "copc" not in {record.owner for record in (*new.records, *new.tail)}
    assert np.array_equal(laspy.read(tmp_path / "out.laz").X, laspy.read(plain).X)


KNOWN: dict[str, dict[str, Any]] = {  # what models were trained with, and what they get of heights and intensities
    "ground": {"channels": LIDAR_HEIGHT.channels, "fields": {"intensity_rank": (0.5, 0.29)}},
    "elevation": {"channels": LIDAR.pick("elevation"), "fields": {"intensity": (6.0, 1.0)}},
    "both": {
        "channels": (*LIDAR.channels, *LIDAR_HEIGHT.channels),
        "fields": {"intensity": (6.0, 1.0), "intensity_rank": (0.5, 0.29)},
    },
    "unknown": {},
}


@pytest.mark.parametrize("known", KNOWN)
def test_the_mean_over_windows_as_training_cuts_them(tmp_path: Path, known: str) -> None:
    """Against the model decoded window by window, with heights above ground and ranks of the whole point cloud."""
    cloud, network = made(tmp_path / "in.laz"), tiny(**KNOWN[known])
    predict_points(network, cloud, tmp_path / "out.laz")
    classified = laspy.read(tmp_path / "out.laz")
    whole, reference = read_point_cloud(cloud), PointCloudReference.of_file(cloud)
    total, times = np.zeros((len(whole), 3)), np.zeros(len(whole), int)
    for window in windows_of(cloud, 20, 10):
        inside = np.flatnonzero(within(whole.x, whole.y, window.bounds))
        part = reference.complete(whole.where(inside))
        if known == "elevation":
            part = replace(part, intensity_rank=None)
        positions = np.stack([part.x, part.y], axis=1) - window.centre
        datum = part.z[~np.isin(part.classification, (7, 18))].min()
        atoms = point_cloud_atoms(part, positions, datum, False, "ground" if known == "unknown" else known)
        fields = {"intensity"} if known == "elevation" else {"intensity_rank"}
        assert set(atoms.acquisitions[0].site_fields) == {"echo_before", "echo_after", *fields}
        with torch.no_grad():
            latents = network.encode([atoms])
        sites = {0: torch.arange(len(part))}
        shares = dense(network, latents, torch.from_numpy(positions), sites=sites).probabilities
        total[inside] += shares.numpy()
        times[inside] += 1
    assert set(times) == {1, 2, 4}
    mean = total / times[:, None]
    for number, name in enumerate(CLASSES):
        assert np.allclose(classified[name], mean[:, number], atol=1e-3)
    clear = np.diff(np.sort(mean, axis=1)[:, 1:], axis=1)[:, 0] > 2e-3
    assert np.array_equal(classified.PredictedClassification[clear], np.array([2, 5, 66])[mean.argmax(axis=1)][clear])
    assert len(set(classified.PredictedClassification)) > 1
    # returns on one spot are distinguished: each query names its own
    assert not np.array_equal(classified.ground[2::4][:100], classified.ground[3::4][:100])


def village(path: Path, change: str = "") -> Path:
    """A cloud of 40 × 40 m: land, a house of 6 m in the middle and a wire, disturbed by ``change``."""
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0, 40, (2, 4000))
    height = 6.0 * ((np.abs(x - 20) < 6) & (np.abs(y - 20) < 6))
    height[::50] += 9
    z, intensity = 100 + height, rng.integers(80, 3000, 4000) // 8 * 8
    if change == "slope":
        z = z + 0.3 * x
    if change == "another sensor":
        intensity = intensity // 8
    if change.startswith("stray"):
        x, y, z = np.append(x, 5.0), np.append(y, 5.0), np.append(z, 100 - float(change[5:]))
        intensity = np.append(intensity, 99)
    corner = np.array([700_000.0, 6_600_000.0, 0.0])
    xyz = np.stack([x, y, z], axis=1) + corner
    return write_las(path, xyz, offsets=corner, intensity=intensity, classification=1)


@pytest.mark.parametrize("change", ["stray2", "stray20", "slope", "another sensor"])
def test_terrain_noise_and_sensor_change_no_prediction(tmp_path: Path, change: str) -> None:
    network, windows = tiny(**KNOWN["ground"]), PointCloudWindows(40.0)
    predict_points(network, village(tmp_path / "a.las"), tmp_path / "a.laz", windows=windows)
    predict_points(network, village(tmp_path / "b.las", change), tmp_path / "b.laz", windows=windows)
    a, b = (laspy.read(tmp_path / f"{name}.laz") for name in "ab")
    assert np.quantile(np.abs(a.ground - b.ground[:4000]), 0.95) < 0.05
    assert (a.PredictedClassification == b.PredictedClassification[:4000]).mean() > 0.97
    assert a.ground.std() > 0.02  # predictions depend on the points at all


def test_classes_that_are_not_of_the_standard_are_no_noise(tmp_path: Path) -> None:
    """What LAS calls noise are poles in DALES: a model that was trained so sees them as in training."""
    cloud = laspy.read(village(tmp_path / "a.las"))
    below = (cloud.x < cloud.x.min() + 10) & (cloud.classification == 1)
    cloud.z[below] -= 8  # a pit of which no other point is left, if these are noise
    outputs = {}
    for name, code in (("a", 1), ("b", 7)):
        cloud.classification[below] = code
        cloud.write(tmp_path / f"{name}.las")
        for las_standard in (True, False):
            model = tiny(**KNOWN["both"], las_standard=las_standard)
            predict_points(model, tmp_path / f"{name}.las", tmp_path / "out.laz")
            outputs[name, las_standard] = np.array(laspy.read(tmp_path / "out.laz").ground)
            (tmp_path / "out.laz").unlink()
    assert np.array_equal(outputs["a", False], outputs["b", False])
    assert np.array_equal(outputs["a", False], outputs["a", True])
    assert not np.array_equal(outputs["b", False], outputs["b", True])


def test_points_beyond_the_limit_see_their_own_return(tmp_path: Path) -> None:
    """A wire and the ground below it get different predictions, although nearly none of them are in the context."""
    cloud = laspy.read(made(tmp_path / "made.las", extra=False))
    cloud.z[2::4], cloud.z[3::4] = 115.0, 101.0
    cloud.write(tmp_path / "in.las")
    few = Decoding(cost=Cost(max_points=5))
    predict_points(tiny(**KNOWN["ground"]), tmp_path / "in.las", tmp_path / "out.las", decoding=few)
    classified = laspy.read(tmp_path / "out.las")
    pairs = np.abs(classified.ground[2::4] - classified.ground[3::4])
    assert (pairs > 1e-3).mean() > 0.95


def test_a_dense_point_cloud_is_decoded_at_part_of_its_points(model: Path, tmp_path: Path) -> None:
    cloud = village(tmp_path / "in.las")
    every = predict_points(model, cloud, tmp_path / "all.laz", windows=PointCloudWindows(40.0))
    windows = PointCloudWindows(40.0, decode_every_m=1.0)
    part = predict_points(model, cloud, tmp_path / "some.laz", windows=windows)
    xyz = laspy.read(cloud).xyz
    queried = one_per_cube(xyz, 1.0)
    assert part.decoded == len(queried) < 0.5 * every.decoded and every.decoded == 4000
    a, b = (np.stack([laspy.read(tmp_path / f"{n}.laz")[c] for c in CLASSES], axis=1) for n in ("all", "some"))
    assert np.allclose(a[queried], b[queried], atol=2e-3)  # those that were decoded keep their prediction
    assert np.allclose(b.sum(axis=1), 1, atol=5e-3)
    assert np.allclose(b, interpolated(xyz[queried], a[queried], xyz), atol=5e-3)


@pytest.mark.usefixtures("forked")
def test_engines_write_the_same_bytes(model: Path, tmp_path: Path, cluster: Any) -> None:
    cloud = made(tmp_path / "in.laz", points=400)
    few = Decoding(cost=Cost(budget=20, max_points=60))
    for number, engine in enumerate((None, Processes(2), Dask(cluster.scheduler_address))):
        output = tmp_path / f"{number}.laz"
        predict_points(model, cloud, output, windows=PointCloudWindows(30.0), decoding=few, engine=engine)
        assert output.read_bytes() == (tmp_path / "0.laz").read_bytes()


def test_interrupted_at_every_step(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud, output = made(tmp_path / "in.laz", points=300), tmp_path / "out.laz"
    predict_points(model, cloud, tmp_path / "whole.laz")
    again = functools.partial(predict_points, model, cloud, output, resume=True)
    assert interrupted_at_every_step(again, output, monkeypatch) > 5
    assert output.read_bytes() == (tmp_path / "whole.laz").read_bytes()


@pytest.mark.parametrize(("version", "point_format"), [("1.2", 1), ("1.4", 6)])
def test_the_classification_is_overwritten(model: Path, tmp_path: Path, version: str, point_format: int) -> None:
    cloud = made(tmp_path / "in.las", points=80, version=version, point_format=point_format)
    replaced = PointCloudClasses(replace=True, probabilities=False)
    if point_format < 6:
        with pytest.raises(ConfigError, match="'cars' is 66"):
            predict_points(model, cloud, tmp_path / "out.las", classes=replaced)
        assert not list(tmp_path.glob("out*"))
    named = PointCloudClasses({"cars": 20}, replace=True, probabilities=False)
    product = predict_points(model, cloud, tmp_path / "out.las", classes=named)
    assert product.codes["cars"] == 20
    assert_kept(cloud, tmp_path / "out.las", but=(16 if point_format >= 6 else 15,))
    before, after = laspy.read(cloud), laspy.read(tmp_path / "out.las")
    assert list(after.point_format.extra_dimension_names) == ["height", "tree"]
    assert set(np.array(after.classification)) <= {2, 5, 20}
    assert np.array_equal(before.synthetic, after.synthetic)
    predict_points(model, cloud, tmp_path / "beside.las", classes=PointCloudClasses(codes={"cars": 20}))
    assert np.array_equal(laspy.read(tmp_path / "beside.las").PredictedClassification, after.classification)


def test_points_left_out_keep_their_class(model: Path, tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.laz", points=200)
    product = predict_points(
        model,
        cloud,
        tmp_path / "out.laz",
        classes=PointCloudClasses(
            leave_out=(
                3,
                7,
            )
        ),
    )
    before, classified = laspy.read(cloud), laspy.read(tmp_path / "out.laz")
    out = np.isin(before.classification, (3, 7))
    assert product.untouched == out.sum() > 0
    assert np.array_equal(classified.PredictedClassification[out], np.array(before.classification)[out])
    assert not classified.ground[out].any() and not classified.entropy[out].any()
    assert set(classified.PredictedClassification[~out]) <= {2, 5, 66}
    everything = predict_points(
        model, cloud, tmp_path / "none.laz", classes=PointCloudClasses(leave_out=tuple(range(256)))
    )
    assert everything.untouched == 200
    assert np.array_equal(laspy.read(tmp_path / "none.laz").PredictedClassification, before.classification)


def test_feet_are_metres(model: Path, tmp_path: Path) -> None:
    """EPSG:2263 is in US survey feet, heights as well: the same cloud in metres has the same predictions."""
    feet = made(tmp_path / "feet.laz", epsg=2263, extra=False)
    unit = 1200 / 3937
    metres = laspy.read(feet)
    plain = laspy.LasHeader(version="1.4", point_format=6)
    plain.scales, plain.offsets = metres.header.scales * unit, metres.header.offsets * unit
    copy = laspy.LasData(plain, metres.points)
    copy.points.scales, copy.points.offsets = plain.scales, plain.offsets
    copy.write(tmp_path / "metres.laz")
    windows = PointCloudWindows(8.0)
    a = predict_points(model, feet, tmp_path / "a.laz", windows=windows)
    b = predict_points(model, tmp_path / "metres.laz", tmp_path / "b.laz", windows=windows)
    assert a.windows == b.windows == 8
    assert a.counts == b.counts
    for name in CLASSES:
        assert np.allclose(laspy.read(tmp_path / "a.laz")[name], laspy.read(tmp_path / "b.laz")[name], atol=1e-3)
    assert_kept(feet, tmp_path / "a.laz")


def test_a_coordinate_system_is_named(model: Path, tmp_path: Path) -> None:
    """Points in feet without a coordinate system have the predictions of the same points with it, once it is named."""
    feet = made(tmp_path / "feet.laz", epsg=2263, extra=False)
    bare = made(tmp_path / "bare.laz", epsg=None, extra=False)
    lines, how = list[str](), {"windows": PointCloudWindows(8.0)}
    a = predict_points(model, feet, tmp_path / "a.laz", log=lines.append, **how)
    assert not any("coordinate system" in line for line in lines)
    b = predict_points(model, bare, tmp_path / "b.laz", crs="EPSG:2263", log=lines.append, **how)
    assert not any("coordinate system" in line for line in lines)
    c = predict_points(model, bare, tmp_path / "c.laz", log=lines.append, **how)
    assert "bare.laz has no coordinate system; coordinates are taken as metres" in lines
    assert a.windows == b.windows < c.windows
    for name in CLASSES:
        assert np.array_equal(laspy.read(tmp_path / "a.laz")[name], laspy.read(tmp_path / "b.laz")[name])
    assert_kept(bare, tmp_path / "b.laz")


@pytest.mark.parametrize(("flag", "expected"), [(1, "date 2021-05-28, from the GPS time"), (0, "no date is used")])
def test_the_date_is_reported(model: Path, tmp_path: Path, flag: int, expected: str) -> None:
    cloud = laspy.read(made(tmp_path / "in.laz", points=60))
    cloud.gps_time = np.full(60, 306235307.0)
    cloud.header.global_encoding.gps_time_type = laspy.header.GpsTimeType(flag)
    cloud.write(tmp_path / "dated.laz")
    lines = list[str]()
    predict_points(model, tmp_path / "dated.laz", tmp_path / "out.laz", log=lines.append)
    assert any(line.startswith(expected) for line in lines)


def test_a_cloud_unlike_the_training_data_is_warned_about(tmp_path: Path) -> None:
    """900 points on 60 × 40 m are 0.4 per m²; intensities are around 1000."""
    cloud = made(tmp_path / "in.laz")
    usual = {"point_density": (0.5, 0.1), "fields": {"intensity": (7.0, 0.7001)}}
    predict_points(tiny(**usual), cloud, tmp_path / "a.laz")
    sparse = {**usual, "point_density": (20.0, 5.0)}
    with pytest.warns(UserWarning, match=r"in\.laz is unlike .*points per m², where the model knows 20 ± 5$"):
        predict_points(tiny(**sparse), cloud, tmp_path / "b.laz")
    bare = made(tmp_path / "bare.laz", epsg=None)  # these may be feet
    with pytest.warns(UserWarning, match=r"the model knows 20 ± 5 \(if the coordinates are not metres, .*--crs EPSG"):
        predict_points(tiny(**sparse), bare, tmp_path / "d.laz")
    thinned = {**sparse, "thinning": 0.02}  # training kept down to 0.4 points per m²
    predict_points(tiny(**thinned), cloud, tmp_path / "e.laz")
    denser = {**thinned, "point_density": (200.0, 50.0)}
    with pytest.warns(UserWarning, match=r"the model knows 200 ± 50, thinned down to 4$"):
        predict_points(tiny(**denser), cloud, tmp_path / "f.laz")
    with pytest.warns(UserWarning, match=r"in\.laz is unlike .*intensities around .* the model knows about 19"):
        predict_points(tiny(**{**usual, "fields": {"intensity": (3.0, 0.5)}}), cloud, tmp_path / "c.laz")


def test_a_stray_point_is_named(model: Path, tmp_path: Path) -> None:
    cloud = laspy.read(made(tmp_path / "in.las", points=50))
    cloud.X[7] += 10_000_000
    cloud.write(tmp_path / "far.las")
    with pytest.raises(DataError, match="stray points"):
        predict_points(model, tmp_path / "far.las", tmp_path / "out.las")
    assert not list(tmp_path.glob("out*"))


def one_place(cloud: Any) -> None:
    cloud.X, cloud.Y, cloud.Z = (np.full(len(cloud), axis[0]) for axis in (cloud.X, cloud.Y, cloud.Z))


def duplicates(cloud: Any) -> None:
    for name in ("X", "Y", "Z", "return_number", "number_of_returns", "intensity"):
        cloud[name][1::2] = np.array(cloud[name][::2])


def single_returns(cloud: Any) -> None:
    cloud.return_number[:] = cloud.number_of_returns[:] = 1


def no_returns(cloud: Any) -> None:
    cloud.return_number[:] = cloud.number_of_returns[:] = 0


def no_intensity(cloud: Any) -> None:
    cloud.intensity[:] = 0


@pytest.mark.parametrize("change", [one_place, duplicates, single_returns, no_returns, no_intensity])
def test_odd_clouds_are_classified(model: Path, tmp_path: Path, change: Any) -> None:
    cloud = laspy.read(made(tmp_path / "made.las", points=400, extra=False, epsg=None))
    change(cloud)
    cloud.write(tmp_path / "in.las")
    lines = list[str]()
    product = predict_points(model, tmp_path / "in.las", tmp_path / "out.las", log=lines.append)
    classified = laspy.read(tmp_path / "out.las")
    probabilities = np.stack([classified[name] for name in CLASSES], axis=1)
    assert product.points == sum(product.counts.values()) == 400
    assert np.isfinite(probabilities).all() and np.allclose(probabilities.sum(axis=1), 1, atol=5e-3)
    assert any("no coordinate system; coordinates are taken as metres" in line for line in lines)
    if change is duplicates:
        assert np.abs(probabilities[::2] - probabilities[1::2]).max() < 2e-3


@pytest.mark.parametrize("change", [single_returns, no_returns, no_intensity, None])
def test_fields_that_the_model_never_did_without(tmp_path: Path, change: Any) -> None:
    """Named in a warning by file and by command; models that were saved before, or learned without, do not warn."""
    fields = ("echo_before", "echo_after", "intensity_rank")
    tiny(complete_fields=fields, site_fields=CLOUD_FIELDS).save_pretrained(tmp_path / "model")
    cloud = laspy.read(made(tmp_path / "made.las", points=400, extra=False))
    if change is not None:
        change(cloud)
    cloud.write(tmp_path / "in.las")
    name = "intensity" if change is no_intensity else "number_of_returns"
    lines = (
        rf"in\.las: {name} of points is missing or the same in all points.* training\.point_augmentation\.field_dropout"
    )
    for output in (("out.las",), ("out.tif", "--output-gsd", 2)):
        with nullcontext() if change is None else pytest.warns(UserWarning, match=lines):
            words = ("--points", tmp_path / "in.las", "-o", tmp_path / output[0], *output[1:])
            assert command(*words, model=tmp_path / "model") == 0
    predict_points(tiny(site_fields=CLOUD_FIELDS), tmp_path / "in.las", tmp_path / "quiet.las")


def test_the_choices_for_clouds_on_the_command_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = village(tmp_path / "in.las")
    points = ("--points", cloud, "--window", 40, "--max-points", 300, "--ask-every", 2)  # old name
    assert command(*points, "-o", tmp_path / "a.laz", model=model) == 0
    queried = len(one_per_cube(laspy.read(cloud).xyz, 2.0))
    assert f"{queried:,} positions decoded" in capsys.readouterr().out
    windows, few = PointCloudWindows(40.0, decode_every_m=2.0), Decoding(cost=Cost(max_points=300))
    predict_points(model, cloud, tmp_path / "b.laz", windows=windows, decoding=few)
    assert (tmp_path / "a.laz").read_bytes() == (tmp_path / "b.laz").read_bytes()


def broken(path: Path, how: str) -> Path:
    cloud = made(path, points=0 if how == "no points" else 5000)
    content = cloud.read_bytes()
    if how == "empty":
        cloud.write_bytes(b"")
    elif how == "cut":
        cloud.write_bytes(content[: len(content) * 2 // 3])
    elif how == "scale":
        cloud.write_bytes(content[:131] + struct.pack("<d", float("nan")) + content[139:])
    elif how == "text":
        cloud.write_text("x,y,z\n")
    elif how == "none":
        cloud.unlink()
    return cloud


@pytest.mark.parametrize("suffix", [".las", ".laz"])
@pytest.mark.parametrize("how", ["no points", "empty", "cut", "scale", "text", "none"])
def test_broken_clouds_are_named_and_nothing_is_left(model: Path, tmp_path: Path, how: str, suffix: str) -> None:
    cloud = broken(tmp_path / f"in{suffix}", how)
    causes = {"no points": "no points", "empty": "empty", "cut": "truncated|cannot be read", "scale": "finite"} | {
        "none": "no such file"
    }
    with pytest.raises(DataError, match=causes.get(how, "cannot be read")) as caught:
        predict_points(model, cloud, tmp_path / "out.laz")
    assert caught.value.path == str(cloud)
    assert not list(tmp_path.glob("out*"))


def test_a_cloud_that_brings_the_decompressor_down(model: Path, tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.laz")
    content = bytearray(cloud.read_bytes())
    start, _, _, length = struct.unpack_from("<IIBH", content, 96)
    struct.pack_into("<9I", content, start + 8 + length + 4, *[0xFFFFFFF0] * 9)  # sizes of what was compressed
    cloud.write_bytes(content)
    with pytest.raises(DataError, match=r"in\.laz: cannot be read: its compressed points are broken, and the decompr"):
        predict_points(model, cloud, tmp_path / "out.laz")
    assert not list(tmp_path.glob("out*"))


def test_what_cannot_be(model: Path, tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.laz", points=50)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("COPC is not written", {"output": tmp_path / "out.copc.laz"}),
        ("as .las or .laz", {"output": tmp_path / "out.ply"}),
        ("is an input of the prediction", {"output": cloud}),
        ("quadtree needs a grid", {"decoding": Decoding("quadtree")}),
        ("no calibration", {"decoding": Decoding("zone-probe", alpha=0.01)}),
        ("classes of the model are ground, vegetation, cars", {"classes": PointCloudClasses({"car": 64})}),
        ("0 … 255", {"classes": PointCloudClasses({"cars": 256})}),
        ("segmentation", {"model": tiny(task="regression", num_outputs=1, class_names=())}),
        ("pass that folder", {"model": tiny(), "decoding": Decoding("sketch", alpha=0.1)}),
    ]
    for message, changes in wrong:
        inputs = {"model": model, "cloud": cloud, "output": tmp_path / "out.laz", **changes}
        with pytest.raises(AtomizerError, match=message):
            predict_points(**inputs)
    assert [path.name for path in tmp_path.iterdir()] == ["in.laz"]


def test_a_cloud_that_was_predicted_before(model: Path, tmp_path: Path) -> None:
    """The new prediction replaces the earlier one, whatever types that had; all else stays to the bit."""
    cloud = made(tmp_path / "in.laz", points=300)
    predict_points(model, cloud, tmp_path / "once.laz")
    lines = list[str]()
    predict_points(model, tmp_path / "once.laz", tmp_path / "twice.laz", log=lines.append)
    assert any("once.laz was predicted before: PredictedClassification, entropy, ground, veg" in line for line in lines)
    assert (tmp_path / "twice.laz").read_bytes() == (tmp_path / "once.laz").read_bytes()
    replaced = PointCloudClasses(replace=True, probabilities=False)
    predict_points(model, tmp_path / "once.laz", tmp_path / "kept.laz", classes=replaced)
    classified = laspy.read(tmp_path / "kept.laz")
    assert np.array_equal(
        classified.PredictedClassification, classified.classification
    )  # what is not written anew stays


def test_a_cloud_from_another_program_that_predicts(model: Path, tmp_path: Path) -> None:
    points = laspy.read(made(tmp_path / "in.laz", points=300))
    plain = tmp_path / "plain.laz"
    points.write(plain)
    rng = np.random.default_rng(1)
    for name, kind in (("entropy", "f8"), ("confidence", "f4"), ("PREDICTEDCLASSIFICATION", "u4"), ("water", "f4")):
        points.add_extra_dim(laspy.ExtraBytesParams(name, kind))
        points[name] = rng.integers(0, 9, 300)
    points.write(tmp_path / "theirs.laz")
    for name in ("plain", "theirs"):
        predict_points(model, tmp_path / f"{name}.laz", tmp_path / f"{name}.out.laz")
    theirs, expected = (laspy.read(tmp_path / f"{name}.out.laz") for name in ("theirs", "plain"))
    for name in ("PredictedClassification", "entropy", *CLASSES, "height", "tree", "X", "gps_time", "user_data"):
        assert np.array_equal(theirs[name], expected[name]), name
    assert np.array_equal(theirs.confidence, points.confidence) and np.array_equal(theirs.water, points.water)
    kept = ["height", "tree", "confidence", "water", "PredictedClassification", "entropy", *CLASSES]
    assert list(theirs.point_format.extra_dimension_names) == kept
    assert theirs.PredictedClassification.dtype == np.uint8


def as_ply(cloud: Path, path: Path, **more: np.ndarray) -> Path:
    """The same points as PLY; what LAS has no dimension for is ``more``."""
    points = laspy.read(cloud)
    columns = {axis: np.array(points[axis]) for axis in "xyz"}
    columns |= {name: np.array(points[name]) for name in ("return_number", "number_of_returns", "classification")}
    columns |= {"Intensity": np.array(points.intensity)} | more
    table = np.zeros(len(points), [(name, column.dtype.str) for name, column in columns.items()])
    for name, column in columns.items():
        table[name] = column
    kinds = {"f8": "double", "f4": "float", "u1": "uchar", "u2": "ushort", "u4": "uint"}
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}"]
    head += [f"property {kinds[column.dtype.str[1:]]} {name}" for name, column in columns.items()]
    path.write_bytes("\n".join([*head, "end_header", ""]).encode() + table.tobytes())
    return path


@pytest.mark.parametrize("strength", ["whole", "float"])
def test_ply_is_predicted_as_the_same_points_in_las(
    tmp_path: Path, strength: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also from a folder, where it was passed over; intensities of any scale have the same ranks."""
    fields = {"intensity_rank": (0.5, 0.29)}
    tiny(site_fields=CLOUD_FIELDS, fields=fields).save_pretrained(tmp_path / "model")
    (tmp_path / "in").mkdir()
    cloud = made(tmp_path / "in" / "a.las", points=500, extra=False, epsg=None)
    more = {"tree": np.arange(500, dtype="u4"), "tall": np.linspace(0, 1, 500)}
    if strength == "float":
        more |= {"Intensity": np.array(laspy.read(cloud).intensity) / 2999.0}
    as_ply(cloud, tmp_path / "in" / "b.ply", **more)
    inputs = ("--points", tmp_path / "in", "--crs", "EPSG:2154", "-o", tmp_path / "out", "--window", 20)
    assert command(*inputs, model=tmp_path / "model") == 0
    assert "2 written, 0 done before, 0 failed" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["a.las", "b.laz"]
    las_file, ply_file = (laspy.read(tmp_path / "out" / name) for name in ("a.las", "b.laz"))
    for name in ("x", "y", "z"):
        np.testing.assert_allclose(ply_file[name], las_file[name], atol=1e-6)
    for name in CLASSES:
        np.testing.assert_allclose(ply_file[name], las_file[name], atol=2e-2 if strength == "float" else 2e-3)
    assert np.array_equal(ply_file.classification, las_file.classification)
    assert np.array_equal(ply_file.tree, more["tree"]) and np.array_equal(ply_file.tall, more["tall"])
    assert ply_file.header.parse_crs().to_epsg() == 2154
    inputs = ("--points", tmp_path / "in" / "b.ply", "--output-gsd", 4, "-o", tmp_path / "map.tif", "--window", 20)
    assert command(*inputs, model=tmp_path / "model") == 0
    assert "b.ply has no coordinate system; coordinates are taken as metres" in capsys.readouterr().out
    hidden = [path.name for path in (*tmp_path.glob(".*"), *(tmp_path / "out").glob(".*"))]
    assert hidden == [".finished.jsonl"]


def test_messages_name_the_ply_file_and_not_its_copy(model: Path, tmp_path: Path) -> None:
    cloud, lines = made(tmp_path / "a.las", points=100, extra=False), list[str]()
    ply = as_ply(cloud, tmp_path / "b.ply", ground=np.zeros(100, "f4"))
    with pytest.raises(DataError, match="has a dimension 'ground' already") as caught:
        predict_points(model, ply, tmp_path / "out.las")
    assert caught.value.path == str(ply)
    as_ply(cloud, ply, ground=np.zeros(100, "f4"), entropy=np.zeros(100, "f4"))
    predict_points(model, ply, tmp_path / "out.las", log=lines.append)
    assert any(line.startswith("b.ply was predicted before: ground, entropy") for line in lines)
    point = laspy.read(cloud)
    point.x[0] = 700_000 + 2_000_000
    point.write(cloud)
    with pytest.raises(DataError, match="has it stray points") as caught:
        predict_points(model, as_ply(cloud, ply), tmp_path / "far.las", windows=PointCloudWindows(0.05))
    assert caught.value.path == str(ply)


def test_longitude_and_latitude_are_not_predicted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = laspy.LasHeader(version="1.4", point_format=6)
    header.scales, header.offsets = [1e-7, 1e-7, 0.01], [3, 45, 0]
    cloud, rng = laspy.LasData(header), np.random.default_rng(0)
    cloud.x, cloud.y, cloud.z = 3 + rng.uniform(0, 0.7, 3000), 45 + rng.uniform(0, 0.7, 3000), rng.uniform(0, 9, 3000)
    cloud.write(tmp_path / "in.las")
    for name, more in (("out.laz", ()), ("map.tif", ("--output-gsd", "1"))):
        assert command("--points", tmp_path / "in.las", *more, "-o", tmp_path / name, model=model) == 2
        assert "in.las: has no coordinate system" in (lines := capsys.readouterr().err) and "--crs EPSG:..." in lines
    assert [path.name for path in tmp_path.iterdir()] == ["in.las"]


def test_codes_of_the_paper_s_datasets() -> None:
    dales = ("ground", "vegetation", "cars", "trucks", "power lines", "fences", "poles", "buildings")
    assert list(las_codes(dales).values()) == [2, 5, 66, 67, 14, 69, 70, 6]
    fractal = ("other", "ground", "vegetation", "building", "water", "bridge", "permanent structure")
    assert list(las_codes(fractal).values()) == [1, 2, 5, 6, 9, 17, 64]
    assert las_codes(("anything", "permanent structure", "Low Vegetation")) == {
        "anything": 65,
        "permanent structure": 64,
        "Low Vegetation": 3,
    }
    assert las_codes(("cars", "trucks"), {"trucks": 64, "cars": 64}) == {"cars": 64, "trucks": 64}


def test_strategies_and_calibration(model: Path, tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.laz", points=400)
    folder = tmp_path / "calibrated"
    AtomizerIO.from_pretrained(model).save_pretrained(folder)
    mark = fingerprint(AtomizerIO.from_pretrained(folder))
    point = OperatingPoint(40, None, 9, "zone_probe", {"probes": 4}, 0.3)
    curve = (Step(point, 0.01, 0.04, 0.5, 0.2),)
    Calibration(mark, 0.05, None, point, None, 500, 40, 0.0, curve).save(folder)
    files = []
    for number, how in enumerate((Decoding(), Decoding("zone-probe"), Decoding("sketch"), Decoding(alpha=0.1))):
        files.append(tmp_path / f"{number}.las")
        predict_points(folder, cloud, files[-1], windows=PointCloudWindows(60, 60), decoding=how)
    network, (window,) = AtomizerIO.from_pretrained(folder), windows_of(cloud, 60, 60)
    points = PointCloudReference.of_file(cloud).complete(read_point_cloud(cloud))
    positions = np.stack([points.x, points.y], axis=1) - window.centre
    with torch.no_grad():
        latents = network.encode([point_cloud_atoms(points, positions, 0.0, False, "ground")])
    where, sites = torch.from_numpy(positions), {0: torch.arange(len(points))}
    for file, margin in ((files[1], 0.0), (files[3], 0.3)):
        expected = zone_probe(network, latents, where, sites=sites, probes=4, margin=margin)
        assert np.allclose(laspy.read(file).ground, expected.probabilities[:, 0], atol=1e-3)
    dense, probed, sketched, calibrated = (file.read_bytes() for file in files)
    assert probed != dense and sketched and calibrated  # these decode again where not sure: here nearly everywhere
    quadtree = replace(point, strategy="quadtree", settings=dict(STRATEGIES["quadtree"].usual))
    Calibration(mark, 0.07, None, quadtree, None, 500, 40, 0.0, (replace(curve[0], point=quadtree),)).save(folder)
    with pytest.raises(ConfigError, match="was calibrated to a quadtree, which needs a grid; points have none"):
        predict_points(folder, cloud, tmp_path / "q.las", decoding=Decoding(alpha=0.1), windows=PointCloudWindows())


def test_colours_of_points_where_the_model_knows_them(tmp_path: Path) -> None:
    cloud = made(tmp_path / "in.laz", points=200, point_format=7)
    knows = tiny(channels=(*LIDAR.channels, *AERIAL.pick("R", "G", "B")))
    predict_points(knows, cloud, tmp_path / "default.las", windows=WHOLE)
    predict_points(knows, cloud, tmp_path / "with.las", colour=True, windows=WHOLE)
    predict_points(knows, cloud, tmp_path / "without.las", colour=False, windows=WHOLE)
    predict_points(tiny(), cloud, tmp_path / "never.las", windows=WHOLE)
    predict_points(tiny(), cloud, tmp_path / "not.las", colour=False, windows=WHOLE)
    content = {path.stem: path.read_bytes() for path in tmp_path.glob("*.las")}
    assert content["default"] == content["with"] != content["without"]
    assert content["never"] == content["not"]


def image(path: Path, *, west: float = 700_000.0) -> Path:
    values = np.random.default_rng(0).integers(0, 255, (3, 100, 140)).astype(np.uint8)
    place = Affine(0.5, 0, west, 0, -0.5, 6_600_045.0)
    return write(path, values, crs="EPSG:2154", transform=place, names=("R", "G", "B"))


def test_images_beside_the_points(model: Path, tmp_path: Path) -> None:
    from atomizer_io.io.raster_sources import RasterInput

    cloud = made(tmp_path / "in.laz", points=300)
    inputs = {"sensor": "aerial", "bands": ("R", "G", "B")}
    photo = RasterInput(image(tmp_path / "image.tif"), **inputs)
    predict_points(model, cloud, tmp_path / "without.las")
    predict_points(model, cloud, tmp_path / "with.las", rasters=[photo])
    assert_kept(cloud, tmp_path / "with.las")
    assert (tmp_path / "with.las").read_bytes() != (tmp_path / "without.las").read_bytes()
    away = RasterInput(image(tmp_path / "away.tif", west=800_000.0), **inputs)
    with pytest.raises(DataError, match=r"away\.tif: does not overlap the point cloud"):
        predict_points(model, cloud, tmp_path / "out.las", rasters=[away])
    beside = RasterInput(image(tmp_path / "beside.tif", west=700_057.0), **inputs)
    with pytest.warns(UserWarning, match=r"beside\.tif covers 4\.7 % of the point cloud in\.laz"):
        predict_points(model, cloud, tmp_path / "little.las", rasters=[beside])
    bare = made(tmp_path / "bare.laz", points=300, epsg=None)
    with pytest.raises(DataError, match=r"bare\.laz: has no coordinate system"):
        predict_points(model, bare, tmp_path / "out.las", rasters=[photo])
    assert not list(tmp_path.glob("out*"))


def test_decoded_points_keep_their_outputs_and_the_rest_take_the_nearest() -> None:
    decoded = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0]])
    outputs = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    everywhere = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0], [0.0, 0.0, 2.0], [1.0, 0.0, 10.0], [0.0, 0.0, 5.0]])
    result = interpolated(decoded, outputs, everywhere)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[:2], outputs)
    np.testing.assert_allclose(result[2], [0.8, 0.2], rtol=1e-5)
    assert result[3, 1] > 0.9  # a wire above the ground is near in x and y, not in z
    np.testing.assert_allclose(result[4], [0.5, 0.5])

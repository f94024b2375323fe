"""GEO-Bench files: what is in them, the folders, and files that are broken or hostile."""

from __future__ import annotations

import contextlib
import copyreg
import datetime
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import grid_values
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.datasets.dataset import Info, Labels
from atomizer_io.datasets.geobench import GeoBench
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.geobench import BandFacts, read_sample
from atomizer_io.io.inert_pickle import Refused, decode
from data import geobench as fixture
from scenes import data_folder

DAY = datetime.date(2019, 11, 15)
PIXELS = np.arange(20, dtype=np.int16).reshape(4, 5)


def with_pickle(path: Path, payload: bytes | str | None) -> Path:
    """A file of one band whose attribute ``pickle`` is ``payload``."""
    with h5py.File(path, "w") as target:
        target["02 - Blue"] = PIXELS
        if payload is not None:
            target.attrs["pickle"] = str(payload) if isinstance(payload, bytes) else payload
    return path


# One file


def test_a_scene_and_its_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    fixture.write_sample(path, {"02 - Blue": PIXELS, "12 - SWIR": PIXELS + 1}, label=7, gsd_m=10.0)
    assert "ccb" not in sys.modules  # so nobody could unpickle it
    stored = read_sample(path)
    assert stored.label == 7 and stored.classes is None
    assert list(stored.bands) == [("02 - Blue", None), ("12 - SWIR", None)]
    np.testing.assert_array_equal(stored.bands["12 - SWIR", None], PIXELS + 1)
    assert stored.facts["02 - Blue", None] == BandFacts("Sentinel2", SENTINEL2["B02"].wavelength_um, 10.0, None)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_those_of_pickle(protocol: int) -> None:
    shared = [1, -2, 3 << 70, 2.5]
    plain = {
        "a": shared,
        "b": (None, True, False, ()),
        3: {"c": "é\n'", "d": [shared, []]},
        "e": (1,),
        "f": (1, 2, 3, 4),
    }
    assert decode(pickle.dumps(plain, protocol)) == plain


@pytest.mark.parametrize(
    "label", [2.0, True, "3", [1, 0], None, {"a": 1}, np.float32(2), np.array([1]), np.array(2, ">i4")[()], 1 << 80]
)
def test_other_labels_are_refused(tmp_path: Path, label: Any) -> None:
    path = with_pickle(tmp_path / "a.hdf5", pickle.dumps({"label": label}))
    if isinstance(label, np.int32):  # numpy swaps the scalar of a big-endian array into the machine's order
        assert read_sample(path).label == 2
        return
    with pytest.raises(DataError, match=r"a\.hdf5: its label is not one whole number but"):
        read_sample(path)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_dates_are_read_from_their_bytes(tmp_path: Path, protocol: int) -> None:
    for day in (
        DAY,
        datetime.datetime(2019, 11, 15, 10, 30, fold=1),
        datetime.datetime(2019, 11, 15, tzinfo=datetime.UTC),
    ):
        facts = {"label": 1, "02 - Blue": {"date": day}}
        stored = read_sample(with_pickle(tmp_path / "a.hdf5", pickle.dumps(facts, protocol)))
        assert stored.facts["02 - Blue", None].date == DAY


# Hostile pickles. Each payload is a dict whose label is 3 and whose "x" runs a command when unpickled.


class Runs:
    """Unpickled, it calls ``function(*args)``."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.called = (function, args)

    def __reduce__(self) -> Any:
        return self.called


def in_dict(call: bytes) -> bytes:
    return b"(dS'label'\nI3\nsS'x'\n" + call + b"s."


ATTACKS: dict[str, Callable[[str], bytes]] = {
    "global": lambda mark: in_dict(f"cos\nsystem\n(S'touch {mark}'\ntR".encode()),
    "global of posix": lambda mark: in_dict(f"cposix\nsystem\n(S'touch {mark}'\ntR".encode()),
    "inst": lambda mark: in_dict(f"(S'touch {mark}'\nios\nsystem\n".encode()),
    "obj": lambda mark: in_dict(f"(cos\nsystem\nS'touch {mark}'\no".encode()),
    "stack global": lambda mark: pickle.dumps({"label": 3, "x": Runs(os.system, f"touch {mark}")}, 4),
    "eval": lambda mark: pickle.dumps({"label": 3, "x": Runs(eval, f"open({mark!r}, 'w').close()")}, 2),
    "exec": lambda mark: pickle.dumps({"label": 3, "x": Runs(exec, f"open({mark!r}, 'w').close()")}, 5),
    "subprocess": lambda mark: pickle.dumps({"label": 3, "x": Runs(subprocess.call, ["touch", mark])}),
    "open": lambda mark: pickle.dumps({"label": 3, "x": [Runs(os.open, mark, os.O_CREAT)]}),
    "nested": lambda mark: pickle.dumps({"label": 3, "x": Runs(list, ((Runs(os.system, f"touch {mark}"),),))}),
    "as a key": lambda mark: pickle.dumps({"label": 3, Runs(os.system, f"touch {mark}"): 1}),
    "in a set": lambda mark: pickle.dumps({"label": 3, "x": {Runs(os.system, f"touch {mark}")}}),
    "before the dict": lambda mark: f"cos\nsystem\n(S'touch {mark}'\ntR0".encode() + b"(dS'label'\nI3\ns.",
    "through map": lambda mark: in_dict(
        f"cbuiltins\nmap\n(cos\nsystem\n(S'touch {mark}'\nltRp1\n0cbuiltins\nlist\n(g1\ntR".encode()
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_pickle_runs_anything(tmp_path: Path, attack: str) -> None:
    proof, mark = tmp_path / "proof", tmp_path / "mark"
    pickle.loads(ATTACKS[attack](str(proof)))
    assert proof.exists()  # the payload is one
    stored = read_sample(with_pickle(tmp_path / "a.hdf5", ATTACKS[attack](str(mark))))
    assert stored.label == 3
    assert not mark.exists()


def test_no_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "hostile_module.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    payload = in_dict(b"chostile_module\nThing\n(tR")
    assert read_sample(with_pickle(tmp_path / "a.hdf5", payload)).label == 3
    assert not mark.exists() and "hostile_module" not in sys.modules
    pickle.loads(payload)
    assert mark.exists()
    sys.modules.pop("hostile_module")


@pytest.mark.parametrize("code", [241, 24_100, 2_410_000])
def test_the_extension_registry_is_not_used(tmp_path: Path, code: int) -> None:
    proof, mark = tmp_path / "proof", tmp_path / "mark"
    module = os.system.__module__
    copyreg.add_extension(module, "system", code)
    try:
        payloads = {
            path: pickle.dumps({"label": 3, "x": Runs(os.system, f"touch {path}")}, 4) for path in (proof, mark)
        }
        pickle.loads(payloads[proof])
        assert proof.exists()  # and the extension is now in copyreg's cache, which find_class never sees
        with pytest.raises(DataError, match=r"a\.hdf5: its attribute 'pickle' uses the opcode EXT[124]"):
            read_sample(with_pickle(tmp_path / "a.hdf5", payloads[mark]))
    finally:
        copyreg.remove_extension(module, "system", code)
    assert not mark.exists()


def nested_key(depth: int = 60) -> bytes:
    """A dict with a key whose hash takes 2 ** depth steps."""
    return b"}(" + b")" + b"2\x86" * depth + b"I1\nS'label'\nI3\nu."


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"Psomewhere\n.", "PERSID"),
        (b"I1\nQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"", "is broken"),
        (b"}", "is broken"),
        (b".", "is broken"),
        (b"(.", "is broken"),
        (b"0.", "is broken"),
        (b"h\x07.", "is broken"),
        (b"\x8d" + struct.pack("<Q", 1 << 62) + b"abc.", "is broken"),
        (b"\x8e" + struct.pack("<Q", 1 << 40) + b"abc.", "is broken"),
        (b"I" + b"9" * 5000 + b"\n.", "is broken"),
        (b"(" * 30_000 + b".", "is broken"),
        (b"\xff.", "is broken"),
        (b"]I1\nI2\ns.", "is broken"),
        (b"}(I1\nu.", "is broken"),
        (b"I1\nI2\n\x93.", "requires str"),
        (b"I5\n.", "holds no dict but int"),
        (pickle.dumps([1]), "holds no dict but list"),
    ],
)
def test_broken_pickles_are_named(tmp_path: Path, payload: bytes, cause: str) -> None:
    with pytest.raises(DataError, match=rf"a\.hdf5: its attribute 'pickle' .*{cause}"):
        read_sample(with_pickle(tmp_path / "a.hdf5", payload))


@pytest.mark.timeout(20)
def test_bombs_do_no_harm(tmp_path: Path) -> None:
    assert read_sample(with_pickle(tmp_path / "a.hdf5", nested_key())).label == 3
    huge_memo = b"}r" + struct.pack("<I", 0xFFFFFFFF) + b"S'label'\nI3\ns."
    assert read_sample(with_pickle(tmp_path / "a.hdf5", huge_memo)).label == 3
    deep = b"}S'x'\n" + b"]" * 20_000 + b"a" * 19_999 + b"sS'label'\nI3\ns."
    assert read_sample(with_pickle(tmp_path / "a.hdf5", deep)).label == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b'}.' + b''",
        "__import__('os').system('true')",
        "(" * 5000,
        "b'" + "-" * 300_000 + "'",
        "b'\\u0041'",
        "b'}.",
        "b'\N{SNOWMAN}'",
        "'}.'",
    ],
)
def test_only_the_text_of_bytes_is_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as target:
        target["02 - Blue"] = PIXELS
        target.attrs["pickle"] = text
    with pytest.raises(DataError, match=r"a\.hdf5: its attribute 'pickle' is not the text of"):
        read_sample(path)


def test_damaged_pickles_never_get_past_refused() -> None:
    facts = {"label": np.int64(3), "d": DAY, "x": [1.5, None, ("a", b"b")]}
    whole = pickle.dumps(facts, 4)
    for end in range(len(whole)):
        with pytest.raises(Refused):
            decode(whole[:end])
    rng = np.random.default_rng(0)
    for _ in range(3000):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(Refused):
            decode(bytes(damaged))


# Broken files


BAND = "02 - Blue"


def holds(**arrays: Any) -> Callable[[Path], Path]:
    """What writes a file with these arrays, ``band`` being one under the name of a band."""

    def write(path: Path) -> Path:
        with h5py.File(path, "w") as target:
            for name, array in arrays.items():
                target[BAND if name == "band" else name] = array
        return path

    return write


def filled(make: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    """What writes a file that ``make`` fills."""

    def write(path: Path) -> None:
        with h5py.File(path, "w") as target:
            make(target)

    return write


def virtual(target: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(2, 2), dtype="u1")
    layout[:] = h5py.VirtualSource("other.hdf5", "a", shape=(2, 2))
    target.create_virtual_dataset(BAND, layout)


def truncated(path: Path) -> None:
    fixture.write_sample(path, {BAND: PIXELS}, label=1, gsd_m=10.0)
    path.write_bytes(path.read_bytes()[:700])


def numbers_for_text(path: Path) -> None:
    with h5py.File(holds(band=PIXELS)(path), "a") as target:
        target.attrs["pickle"] = np.arange(4)


HUGE = {"shape": (1 << 20, 1 << 20), "dtype": "f8", "chunks": (1024, 1024), "compression": "gzip"}
EXTERNAL = {"shape": (2, 2), "dtype": "u1", "external": [("/etc/passwd", 0, 4)]}
BROKEN = {
    lambda path: with_pickle(path, pickle.dumps({BAND: {}})): "has no label",
    holds(band=PIXELS): "has no label",
    holds(label=PIXELS): "has no band",
    holds(band=np.zeros((2, 3, 4))): rf"'{BAND}' has shape \(2, 3, 4\), expected \(height, width\)",
    holds(band=np.zeros((0, 4))): rf"'{BAND}' has shape \(0, 4\)",
    holds(band=np.array([["a", "b"]], dtype="S1")): rf"'{BAND}' holds \|S1, not numbers",
    filled(lambda target: target.create_dataset(BAND, **HUGE)): rf"'{BAND}' has shape \(1048576, 1048576\)",
    filled(lambda target: target.create_group(BAND)): f"'{BAND}' is not an array in this file",
    holds(band=h5py.ExternalLink("/etc/passwd", "/a")): f"'{BAND}' is not an array in this file",
    filled(lambda target: target.create_dataset(BAND, **EXTERNAL)): f"'{BAND}' lies in another file",
    filled(virtual): f"'{BAND}' lies in another file",
    holds(band=PIXELS, label=PIXELS.T): "bands and label have different shapes",
    holds(**{f"{BAND}_2019-02-30": PIXELS, "label": PIXELS}): f"band '{BAND}_2019-02-30' has no such date",
    truncated: "cannot be read: truncated or not HDF5",
    numbers_for_text: "its attribute 'pickle' is not the text of",
    lambda path: path.write_bytes(b""): "cannot be read: truncated or not HDF5",
    lambda path: path.write_text("not HDF5"): "cannot be read: truncated or not HDF5",
    lambda path: path.mkdir(): "no such file",
    lambda path: None: "no such file",
}


@pytest.mark.parametrize(("damage", "cause"), BROKEN.items())
def test_broken_files_are_named(tmp_path: Path, damage: Callable[[Path], None], cause: str) -> None:
    damage(tmp_path / "broken.hdf5")
    with pytest.raises(DataError, match=rf"broken\.hdf5: {cause}"):
        read_sample(tmp_path / "broken.hdf5")


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fixture.write(tmp_path / "m-chesapeake")
    return tmp_path / "m-chesapeake"


def test_any_folder_describes_itself(folder: Path) -> None:
    assert [len(GeoBench(folder, split)) for split in ("train", "valid", "test")] == [2, 1, 1]
    dataset = GeoBench(folder)
    assert (dataset.info.task, dataset.info.num_outputs, dataset.info.extent_m) == ("segmentation", 7, 48.0)
    assert GeoBench.info.channels == ()  # that of the class is not touched
    stats = json.loads((folder / "band_stats.json").read_text())
    for channel in dataset.channels:
        assert (channel.mean, channel.std) == (stats[channel.name]["mean"], stats[channel.name]["std"])
        assert channel.wavelength_um == fixture.AERIAL_KEYS[channel.name]


def test_values_and_map_are_those_of_the_file(folder: Path) -> None:
    dataset = GeoBench(folder)
    sample = dataset[0]
    with h5py.File(folder / "id_000051.hdf5") as source:
        expected = {name: source[name][:] for name in source}
    values = grid_values(sample.atoms, 0, sample.queries.grid.shape)
    for channel, layer in zip(sample.atoms.channels, values, strict=True):
        np.testing.assert_array_equal(layer, expected[channel.name])
    assert sample.atoms.num_atoms == 4 * 48 * 48
    np.testing.assert_array_equal(sample.target.reshape(48, 48), expected["label"])
    assert sample.atoms.bounds == (-24.0, -24.0, 24.0, 24.0)
    assert sample.queries.grid.pixel_m == (1.0, 1.0)
    assert (sample.meta.id, sample.meta.dates) == ("id_000051", ())


class Series(GeoBench):
    """A dataset of its own: two bands, one of them nodata at −1, class 9 ignored, dates in names."""

    info = Info("series", "Series", "segmentation", SENTINEL2.pick("B02", "B04"), 100.0, classes=("a", "b", "c"))
    known_bands: Mapping[str, Channel] = dict(zip(("02 - Blue", "04 - Red"), SENTINEL2.pick("B02", "B04"), strict=True))
    labels = Labels(classes=3, ignore=(9,))
    pixel_m = 20.0
    nodata = -1.0


def series(folder: Path, layers: dict[str, Any], label: Any) -> Path:
    fixture.write_sample(folder / "series" / "one.hdf5", layers, label=label, gsd_m=0.5)
    fixture.write_folder_files(folder / "series", {"train": ["one"], "valid": [], "test": ["one"]}, {})
    return folder


def test_each_date_is_an_acquisition(tmp_path: Path) -> None:
    layers = {f"{band}_2020-0{m}-15": PIXELS * m - 1 for band in ("04 - Red", "02 - Blue", "Cloud") for m in (7, 3)}
    label = np.where(PIXELS == 6, 9, PIXELS % 3)
    sample = Series(series(tmp_path, layers, label))[0]
    assert [a.date for a in sample.atoms] == [datetime.date(2020, 3, 15), datetime.date(2020, 7, 15)]
    assert sample.meta.dates == (datetime.date(2020, 3, 15), datetime.date(2020, 7, 15))
    for index, month in enumerate((3, 7)):
        values = grid_values(sample.atoms, index, (4, 5))
        expected = np.where(PIXELS == 0, np.nan, PIXELS * month - 1)
        np.testing.assert_array_equal(values, np.stack([expected, expected]))
        assert [c.name for c in sample.atoms.acquisitions[index].channels] == ["B02", "B04"]
    assert sample.atoms.num_atoms == 4 * 19
    assert sample.atoms.acquisitions[0].footprint_m == (20.0, 20.0)  # not the 0.5 of the file
    assert sample.queries.ignore.sum() == 1 and sample.target[6] == -1


@pytest.mark.parametrize(
    ("layers", "label", "cause"),
    [
        ({"02 - Blue": PIXELS}, PIXELS % 3, "has no band '04 - Red'"),
        ({"Cloud": PIXELS}, PIXELS % 3, "has no band '02 - Blue', '04 - Red'"),
        ({"02 - Blue": PIXELS, f"04 - Red_{DAY}": PIXELS}, PIXELS % 3, "has no band '04 - Red'"),
        ({"02 - Blue": PIXELS, "04 - Red": PIXELS}, 1, "its label is one class, but this dataset is for segmentation"),
        ({"02 - Blue": PIXELS, "04 - Red": PIXELS}, PIXELS % 4, r"label 3 \(5 positions\) is"),
        ({"02 - Blue": PIXELS, "04 - Red": PIXELS}, PIXELS / 3, "labels are not whole numbers"),
        ({"02 - Blue": PIXELS * 0 - 1, "04 - Red": PIXELS * 0 - 1}, PIXELS % 3, "has no valid measurement"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, layers: dict[str, Any], label: Any, cause: str) -> None:
    dataset = Series(series(tmp_path, layers, label))
    with pytest.raises(DataError, match=rf"one\.hdf5: {cause}"):
        dataset[0]


def test_what_a_folder_does_not_say_must_be_passed(tmp_path: Path) -> None:
    partition = {"train": ["one"], "valid": [], "test": []}
    fixture.write_folder_files(tmp_path, partition, {})
    fixture.write_sample(tmp_path / "one.hdf5", {"02 - Blue": PIXELS}, label=1, gsd_m=10.0)
    with pytest.raises(ConfigError, match="pass classes="):
        GeoBench(tmp_path)
    for wrong in (0, (), "water"):
        with pytest.raises(ConfigError, match="classes is"):
            GeoBench(tmp_path, classes=wrong)
    dataset = GeoBench(tmp_path, classes=["dry", "water"], gsd_m=30.0)
    assert dataset.info.task == "classification" and dataset.info.classes == ("dry", "water")
    assert dataset[0].target == 1 and dataset[0].queries is None
    assert dataset[0].atoms.acquisitions[0].footprint_m == (30.0, 30.0)
    assert GeoBench(tmp_path, classes=3)[0].atoms.acquisitions[0].footprint_m == (10.0, 10.0)
    with_pickle(tmp_path / "one.hdf5", pickle.dumps({"label": 1}))
    with pytest.raises(ConfigError, match="pass gsd_m="):
        GeoBench(tmp_path, classes=2)
    assert GeoBench(tmp_path, classes=2, gsd_m=10.0).channels[0].name == "B02"
    fixture.write_sample(tmp_path / "one.hdf5", {"Magic": PIXELS}, label=1, gsd_m=10.0)
    with pytest.raises(DataError, match=r"one\.hdf5: band 'Magic' is in no catalogue and its wavelength is not known"):
        GeoBench(tmp_path, classes=2)


def likeness(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), two.ravel())[0, 1])


@pytest.mark.realdata
def test_the_real_brick_kilns() -> None:
    folder = data_folder("geobench") / "brick_kiln"
    dataset = GeoBench(folder, classes=["not brick kiln", "brick kiln"], on_error="skip")
    assert dataset.info.task == "classification" and dataset.info.extent_m == 640.0
    sample = dataset[0]
    with h5py.File(folder / "examples_0_9.hdf5") as source:
        stored = {key: source[key][:] for key in source}
    layers = dict(zip([c.name for c in sample.atoms.channels], grid_values(sample.atoms, 0, (64, 64)), strict=True))
    np.testing.assert_array_equal(layers["B11"], stored["08A - Vegetation Red Edge"])
    assert list(layers) == ["B01", "B02", "B03", "B04", "B05", "B07", "B8A", "B08", "B11", "B12"]
    assert sample.target == 0 and sample.atoms.num_atoms == 10 * 64 * 64
    # geo-bench issue 29, seen in the pixels: what is called 08A is unlike 08, and 10 to 12 are an image of 04, 03, 02.
    assert likeness(layers["B08"], layers["B8A"]) > 0.8 > 0.4 > likeness(layers["B08"], layers["B11"])
    for key, band in (("10 - SWIR - Cirrus", "B04"), ("11 - SWIR", "B03"), ("12 - SWIR", "B02")):
        assert stored[key].max() <= 255 and likeness(stored[key], layers[band]) > 0.99
    assert [s.meta.id for s in dataset] == ["examples_0_9", "examples_0_12"]
    assert len(dataset.skipped) == 3


@pytest.mark.realdata
def test_the_real_chesapeake_tile() -> None:
    folder = data_folder("geobench") / "chesapeake"
    dataset = GeoBench(folder)
    assert dataset.info.task == "segmentation" and len(dataset.info.classes) == 7
    sample = dataset[0]
    with h5py.File(folder / "id_000051.hdf5") as source:
        np.testing.assert_array_equal(sample.target.reshape(256, 256), source["label"][:])
        values = grid_values(sample.atoms, 0, (256, 256))
        for channel, layer in zip(sample.atoms.channels, values, strict=True):
            np.testing.assert_array_equal(layer, source[channel.name][:])
    assert sample.atoms.bounds == (-128.0, -128.0, 128.0, 128.0)
    wavelengths = {channel.name: channel.wavelength_um for channel in dataset.channels}
    assert wavelengths == {"Blue": 0.49, "Green": 0.56, "Red": 0.665, "NearInfrared": 0.876}

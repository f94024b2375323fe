"""Lists, tables, JSON and arrays that come with datasets, and choices from a series."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import DataError
from atomizer_io.io.tables import evenly, from_json, read_array, rows


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("chip,split\na,train\nb\n", "row 2 has no split"),
        ("chip,split,month\na,train,1\n\nb,train\n", None),  # month is not needed
        ("chip,split\na," + "x" * 200_000 + "\n", "is not a table: field larger than"),
        ("chip," + "x" * 200_000 + "\n", "is not a table: field larger than"),
        ("chip\na\n", "has no column split; it has chip"),
        ("", "has no column chip, split; it has nothing"),
    ],
)
def test_rows_have_the_columns_that_are_needed(tmp_path: Path, text: str, cause: str | None) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)
    if cause is None:
        assert [row["chip"] for row in rows(path, ("chip", "split"))] == ["a", "b"]
        return
    with pytest.raises(DataError, match=rf"list\.csv: {cause}"):
        rows(path, ("chip", "split"))


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{", ""])
def test_what_is_no_json_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"a\.json: is not JSON"):
        from_json(path)


def test_a_series_is_thinned_evenly() -> None:
    assert evenly(range(61), 6) == [0, 12, 24, 36, 48, 60]
    assert evenly(range(7), 1) == [3] and evenly("ab", 1) == ["b"]
    assert evenly(range(3), 12) == evenly(range(3), None) == [0, 1, 2]
    for count in range(1, 40):
        assert len(set(evenly(range(40), count))) == count


# --- arrays in .npy files: read or mapped, never unpickled ---


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    return tmp_path / "a.npy"


def test_arrays_are_those_of_the_file(npy: Path) -> None:
    expected = np.load(npy)
    whole, mapped = read_array(npy, "iu", ndim=(3,)), read_array(npy, "iu", mapped=True)
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(mapped, expected)
    assert type(whole) is np.ndarray and whole.flags.owndata and whole.flags.writeable
    assert isinstance(mapped, np.memmap) and not mapped.flags.writeable


def header(text: bytes):
    def change(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:10] + text.ljust(118)[:118] + data[128:])

    return change


BROKEN = {
    "missing": (Path.unlink, "no such file"),
    "folder": (lambda p: (p.unlink(), p.mkdir()), "no such file"),
    "empty": (lambda p: p.write_bytes(b""), "cannot be read"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-2]), "cannot be read"),
    "open bracket": (header(b"{'descr': ('<i2', 'fortran_order': False,"), "cannot be read"),  # a TokenError
    "deep": (header(b"(" * 118), "cannot be read"),
    "bytes": (header(bytes(range(118))), "cannot be read"),
    "not a type": (header(b"{'descr': '<x9', 'fortran_order': False, 'shape': (2, 3, 4)}"), "cannot be read"),
    "huge": (header(b"{'descr': '<i2', 'fortran_order': False, 'shape': (999999999999999,)}"), "cannot be read"),
    "negative": (header(b"{'descr': '<i2', 'fortran_order': False, 'shape': (-2, 3, 4)}"), "cannot be read"),
    "objects": (lambda p: np.save(p, np.array([{}], dtype=object), allow_pickle=True), "pickled, which is never"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps([1])), "cannot be read"),
    "archive": (lambda p: zipfile.ZipFile(p, "w").writestr("a.npy", b""), "cannot be read"),
    "text": (lambda p: np.save(p, np.full((2, 3, 4), "a")), "does not hold an array of numbers"),
    "dates": (lambda p: np.save(p, np.zeros((2, 3, 4), "M8[D]")), "does not hold an array of numbers"),
    "kind": (lambda p: np.save(p, np.zeros((2, 3, 4))), "holds float64, expected whole numbers"),
    "dimensions": (lambda p: np.save(p, np.zeros((3, 4), np.int8)), r"has shape \(3, 4\), expected 3 dimensions"),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("what", BROKEN)
def test_broken_arrays_are_named(npy: Path, what: str, mapped: bool) -> None:
    damage, cause = BROKEN[what]
    damage(npy)
    with pytest.raises(DataError, match=cause) as caught:
        read_array(npy, "iu", ndim=(3,), mapped=mapped)
    assert caught.value.path == str(npy)


def test_the_error_names_the_wrong_kind_in_words(npy: Path) -> None:
    with pytest.raises(DataError, match="holds int16, expected floating-point numbers"):
        read_array(npy, "f")
    assert read_array(npy, "iuf").dtype == np.int16

"""Files of numpy: read or mapped, never unpickled, and named where they are broken."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from atomizer_io.errors import DataError
from atomizer_io.io.tables import read_array


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    return tmp_path / "a.npy"


def test_values_are_those_of_the_file(path: Path) -> None:
    expected = np.load(path)
    whole, mapped = read_array(path, "iu", ndim=(3,)), read_array(path, "iu", mapped=True)
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
def test_broken_files_are_named(path: Path, what: str, mapped: bool) -> None:
    damage, cause = BROKEN[what]
    damage(path)
    with pytest.raises(DataError, match=cause) as caught:
        read_array(path, "iu", ndim=(3,), mapped=mapped)
    assert caught.value.path == str(path)


def test_the_wrong_kind_is_told_in_words(path: Path) -> None:
    with pytest.raises(DataError, match="holds int16, expected floating-point numbers"):
        read_array(path, "f")
    assert read_array(path, "iuf").dtype == np.int16

"""Lists, tables and JSON that come with datasets, and choices from a series."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomizer_io.errors import DataError
from atomizer_io.io.tables import evenly, from_json, rows


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("chip,split\na,train\nb\n", "row 2 has no split"),
        ("chip,split,month\na,train,1\n\nb,train\n", None),  # month is not asked for
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

"""What ``atomizer data check`` says of folders that are not as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomizer_io.cli import main
from atomizer_io.datasets import fixtures
from atomizer_io.datasets.checking import check
from atomizer_io.datasets.sen1floods11 import METADATA, Sen1Floods11
from atomizer_io.errors import UnknownChannelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fixtures.write("sen1floods11", tmp_path / "data")


def test_a_list_that_fails_in_an_unforeseen_way_is_no_stack_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: Sen1Floods11) -> list[str]:
        raise ZeroDivisionError("what nobody foresaw")

    monkeypatch.setattr(Sen1Floods11, "find", fail)
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 1
    shown = capsys.readouterr().out
    assert "ZeroDivisionError: what nobody foresaw" in shown and "1 missing or broken" in shown


def test_a_wrong_option_is_still_an_error_of_the_user(folder: Path) -> None:
    with pytest.raises(UnknownChannelError):
        options = {"sensor": "sentinel2", "bands": ["B99"], "classes": 2, "image_folder": "S2Hand"}
        list(check("geotiff-folder", str(folder / "v1.1/data/flood_events/HandLabeled"), ["all"], **options))


def test_undated_floods_are_worth_a_look(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 0
    assert "no dates" not in capsys.readouterr().out
    (folder / METADATA).unlink()
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "val"]) == 0
    assert f"look     no dates: {METADATA} is missing" in capsys.readouterr().out


def test_an_event_without_a_date_is_broken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / METADATA
    path.write_text(path.read_text().replace('"Cambodia"', '"Camelot"'))
    assert main(["data", "check", "sen1floods11", str(folder), "--split", "train"]) == 1
    assert f"broken   {METADATA}: has no event 'Cambodia'" in capsys.readouterr().out

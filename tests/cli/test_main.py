import argparse
import subprocess
import sys

import pytest

import atomizer_io
from atomizer_io.cli import docstring, main, modules
from atomizer_io.errors import AtomizerError


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"atomizer-io {atomizer_io.__version__}"


def test_help_lists_every_command_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    for command, module in modules().items():
        assert f"{command} {docstring(module).splitlines()[0]}" in words


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [(AtomizerError("no such thing"), 2, "error: no such thing\n"), (KeyboardInterrupt(), 130, "interrupted\n")],
)
def test_errors_have_no_stack_trace(
    raised: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from atomizer_lab.commands import demo

    def fail(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(demo, "run", fail)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == text


def test_programming_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from atomizer_lab.commands import demo

    monkeypatch.setattr(demo, "run", lambda args: [][0])
    with pytest.raises(IndexError):
        main(["demo"])


def test_module_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "atomizer_io", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == f"atomizer-io {atomizer_io.__version__}"

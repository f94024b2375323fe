"""What completes: commands in a shell, settings in an editor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from atomizer_io.cli import main
from atomizer_io.texts import parse_yaml

CONFIGS = Path(__file__).parents[2] / "configs"


def test_every_config_fits_the_schema_and_a_mistake_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "schema"]) == 0
    checked = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    checked.check_schema(checked.schema)
    for path in sorted(CONFIGS.rglob("*.yaml")):
        document = parse_yaml(re.sub(r" (\d+)e-", r" \1.0e-", path.read_text()))  # 1e-4: a number to editors
        problems = [f"{path.name}: {error.message}" for error in checked.iter_errors(document)]
        assert problems == []
    for mistake in ({"trainig": {}}, {"training": {"epochs": "ten"}}, {"training": {"query_sampling": "odd"}}):
        assert not checked.is_valid(mistake)


def test_a_shell_completes_options_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "--max-time" in script and "--layers" in script

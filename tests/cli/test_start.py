"""What starting costs: help and `import atomizer_io` bring nothing that they do not use."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator

import pytest

import atomizer_io as aio
from atomizer_io.cli import build_parser, modules

HEAVY = ("torch", "numpy", "scipy", "rasterio", "lightning", "matplotlib", "jsonargparse", "yaml", "tqdm", "dask")


def imported(script: str, names: tuple[str, ...]) -> set[str]:
    """Which of the modules ``names`` a new Python has imported after ``script``."""
    tail = f"\nimport sys\nsys.stderr.write(' '.join(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script + tail], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def parsers() -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every parser of the command line with the words that lead to it."""

    def below(
        words: tuple[str, ...], parser: argparse.ArgumentParser
    ) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
        yield words, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, child in action.choices.items():
                    yield from below((*words, name), child)

    yield (), build_parser([])
    for command in modules():
        for words, parser in below((), build_parser([command])):
            if words[:1] == (command,):
                yield words, parser


def test_no_help_imports_the_scientific_stack() -> None:
    helps = [[*words, "--help"] for words, _ in parsers()]
    assert ["data", "check", "--help"] in helps and ["bench", "decode", "--help"] in helps and len(helps) > 15
    script = f"""
from atomizer_io.cli import main
for words in {[*helps, ["--version"]]!r}:
    try:
        main(words)
    except SystemExit as stop:
        assert stop.code == 0, words
"""
    assert imported(script, HEAVY) == set()


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["predict", "--help"], ["--version"]])
def test_the_module_starts_lightly(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "atomizer_io", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "atomizer_io.cli" in names and not names & set(HEAVY)


def test_import_brings_torch_only_when_it_is_used() -> None:
    script = "import atomizer_io as aio\nassert aio.sensors.SENTINEL2['red'].name == 'B04'"
    assert (
        imported(script + "\naio.Channel, aio.AtomizerError, aio.LEARNED_CHANNELS, aio.AtomizerConfig", HEAVY) == set()
    )
    assert "torch" in imported("import atomizer_io as aio\naio.AtomSet", HEAVY)


def test_building_a_model_needs_torch_and_numpy_alone() -> None:
    unused = ("rasterio", "lightning", "sklearn", "matplotlib", "dask", "scipy", "pandas", "yaml", "huggingface_hub")
    assert imported("import atomizer_io as aio\naio.create_model('atomizer_io_tiny')", unused) == set()


def test_every_public_name_is_there() -> None:
    assert set(aio.__all__) <= set(dir(aio))
    for name in aio.__all__:
        assert getattr(aio, name) is not None, name
    assert aio.datasets.__name__ == "atomizer_io.datasets" and aio.decoding.dense and aio.AtomSet is aio.AtomSet
    with pytest.raises(AttributeError, match="'atomizer_io' has no attribute 'AtomSett'"):
        _ = aio.AtomSett


def test_choices_of_the_command_line_are_those_of_the_code() -> None:
    from atomizer_io.cli import decoding, export, predict
    from atomizer_io.decoding import scene_decoder
    from atomizer_io.export.formats import FORMATS
    from atomizer_io.prediction import engines, products

    assert export.FORMATS == FORMATS
    assert (decoding.NAMES, predict.ENGINES, predict.LAYERS) == (scene_decoder.NAMES, engines.NAMES, products.LAYERS)


def test_atoms_per_latent_has_one_name_and_one_alias_everywhere() -> None:
    actions = {}
    for words, parser in parsers():
        for action in parser._actions:
            if {"--kappa", "--atoms-per-latent"} & set(action.option_strings):
                assert action.option_strings == ["--atoms-per-latent", "--kappa"], words
                assert action.dest == "atoms_per_latent" and "κ" in (action.help or ""), words
                actions[words] = action
    assert {("predict",), ("evaluate",), ("calibrate",), ("info",), ("bench", "decode"), ("data", "show")} <= set(
        actions
    )

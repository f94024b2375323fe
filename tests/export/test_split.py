"""The two graphs of a model together give what the model gives, with the attention that it explains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_network import mixed, optical_and_radar, series, small

from atomizer_io.cli import main
from atomizer_io.export import scene_inputs
from atomizer_io.export.formats import outputs_of
from atomizer_io.export.split import DecodingNetwork, EncodingNetwork
from scenes import queries


def decoded(model, atoms, where, encode, decode):
    """Outputs and attention at positions by way of the latents, from networks or from files."""
    inputs = scene_inputs(model, atoms, where)
    latents, shares = encode({i.name: inputs[i.name] for i in EncodingNetwork(model).inputs})
    made = {"latents": latents, "shares": shares, **inputs}
    return decode({i.name: made[i.name] for i in DecodingNetwork(model).inputs})


def check(model, atoms, where, encode, decode) -> None:
    outputs, attention = decoded(model, atoms, where, encode, decode)
    with torch.no_grad():
        latents = model.encode([atoms])
        torch.testing.assert_close(outputs, model.decode(latents, [where])[0], rtol=0, atol=1e-5)
        explained = model.explain(latents, [where])[0]
    torch.testing.assert_close(attention, (explained.here + explained.around) / 2, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "scene"),
    [
        ({}, optical_and_radar),
        ({"observation_mlp": True}, mixed),
        ({"temporal": True}, series),
        ({"observation_conditioning": False}, optical_and_radar),
    ],
)
def test_latents_once_then_queries(changes, scene) -> None:
    model = small(**changes)
    encode, decode = EncodingNetwork(model), DecodingNetwork(model)
    check(model, scene(), queries(1), lambda inputs: encode(**inputs), lambda inputs: decode(**inputs))


def test_both_files_run_in_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small(observation_mlp=True)
    model.save_pretrained(tmp_path / "model")
    words = ["--model", str(tmp_path / "model"), "--format", "onnx", "--split", "-o", str(tmp_path / "tiny.onnx")]
    assert main(["export", *words]) == 0, capsys.readouterr().err
    files = [outputs_of(tmp_path / f"tiny.{name}.onnx") for name in ("encode", "decode")]
    check(model, optical_and_radar(), queries(2, 17), *files)
    assert main(["export", *words[:3], "pt2", *words[4:]]) == 2
    assert "--split" in capsys.readouterr().err

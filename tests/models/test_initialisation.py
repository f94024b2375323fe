"""Initialisation from data: what differs between latents exceeds what they have in common, before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.diagnostics import diagnose
from atomizer_io.models.atomizer.prepare import PreparedSample
from atomizer_io.training import config
from atomizer_io.training.build import initialise
from atomizer_io.training.optimizer import parameter_groups
from atomizer_io.training.run import make_loaders, prepare

KINDS: dict[str, dict[str, Any]] = {
    "two sensors": {"like": "sen1floods11", "size": 48},
    "a series": {"like": "pastis-r", "size": 16, "dates": 4},
    "points": {"like": "dales", "size": 30},
    "scenes": {"like": "eurosat", "size": 32},
    "a regression target": {"like": "biomassters", "size": 24, "dates": 2},
}


def prepared(folder: Any, options: dict[str, Any], initialisation: str, **settings: Any) -> tuple[AtomizerIO, Any]:
    """Return a model before the first step, and inputs that it was not initialised from."""
    run = config.parse(
        {
            "data": {"name": "synthetic", "options": {"length": 12, **options}, "workers": 0, "measure": 8},
            "model": {"preset": "atomizer_io_tiny", "settings": settings},
            "training": {"initialisation": initialisation, "queries": 200, "batch_size": 6, "max_steps": 1},
            "output": str(folder),
        }
    )
    run_up = prepare(run)
    loader = make_loaders(run_up.run, run_up, 0, 1)[0]
    initialise(run_up.run, run_up.model, loader)
    assert isinstance(run_up.model, AtomizerIO)
    inputs = next(iter(make_loaders(run_up.run, run_up, 0, 1)[0])).inputs
    return run_up.model.eval(), inputs


def parts(x_ND: Tensor) -> tuple[float, float]:
    """Return the length of what rows have in common, and the typical length of what they differ by."""
    mean_D = x_ND.mean(dim=0)
    return float(mean_D.norm()), float((x_ND - mean_D).square().sum(dim=1).mean().sqrt())


@torch.no_grad()
def encoded(model: AtomizerIO, inputs: list[PreparedSample]) -> tuple[float, float]:
    """Return both parts of what the encoder adds to the latents of a scene."""
    rows: list[Tensor] = []
    hook = model.encoder.out.register_forward_hook(lambda *call: rows.append(call[2]))
    model.predict(inputs)
    hook.remove()
    return parts(torch.cat(rows))


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_latents_of_a_scene_differ_by_more_than_they_have_in_common(tmp_path: Any, options: dict[str, Any]) -> None:
    common, differing = encoded(*prepared(tmp_path / "data", options, "data"))
    assert differing > common
    common, differing = encoded(*prepared(tmp_path / "torch", options, "torch"))
    assert differing < common  # or nothing had to be done


def test_whitened_layers_move_by_a_share_of_the_learning_rate(tmp_path: Any) -> None:
    model, _ = prepared(tmp_path, KINDS["two sensors"], "data")
    names = {id(weight): name for name, weight in model.named_parameters()}
    for initialisation, shares in (("data", [0.01, 1.0]), ("torch", [1.0])):
        settings = config.TrainingSettings(learning_rate=1.0, sensitive_rate=0.01, initialisation=initialisation)
        groups = parameter_groups(model, settings)
        assert [group["lr"] for group in groups] == shares
    hiding = config.TrainingSettings(learning_rate=1.0, channel_dropout=config.ChannelDropout("groups"))
    assert [group["lr"] for group in parameter_groups(model, hiding)] == [1.0]
    whitened, *_ = parameter_groups(model, config.TrainingSettings())
    stages = {".".join(names[id(weight)].split(".")[:2]) for weight in whitened["params"]}
    reading = {"encoder.h_init", "encoder.attention", "encoder.out", "decoder.observation", "tokenizer.learned"}
    assert stages == reading


def test_the_diagnosis_of_stages(tmp_path: Any) -> None:
    model, inputs = prepared(tmp_path, KINDS["a series"], "data", temporal=True, depth=1)
    hooked: dict[str, Tensor] = {}
    handle = model.encoder.register_forward_hook(lambda *call: hooked.update(encoder=call[2].detach()))
    before = {stage.name: stage for stage in diagnose(model, inputs, lambda outputs: torch.cat(outputs).sum())}
    names = ["encoder", "processor 1", "temporal", "decoder input", "observations", "neighbors", "decoder"]
    assert list(before) == names and all(stage.gradient > 0 for stage in before.values())
    assert all(0 < before[name].entropy <= 1 for name in names if "decoder" not in name)
    assert torch.tensor(before["decoder"].entropy).isnan()
    # one sample alone, and its gradients, by hand
    (only, *_) = diagnose(model, inputs[-1:], lambda outputs: 2 * outputs[0].sum())
    torch.testing.assert_close((only.common, only.differing), parts(hooked["encoder"]))
    (2 * model.predict(inputs[-1:])[0].sum()).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.encoder.parameters() if p.grad is not None])
    assert only.gradient == pytest.approx(float(gradients.norm()), rel=1e-4)
    handle.remove()
    with torch.no_grad():  # latents of one value, and attention that does not distinguish
        model.encoder.out.weight.zero_()
        model.encoder.attention.key.weight.zero_()
        model.temporal.attention.qkv.weight.zero_()  # type: ignore[union-attr]
    after = {stage.name: stage for stage in diagnose(model, inputs, lambda outputs: torch.cat(outputs).sum())}
    assert after["encoder"].differing < 1e-5 < after["encoder"].common
    assert after["encoder"].entropy == pytest.approx(1.0) == after["temporal"].entropy
    assert after["neighbors"].gradient > 0 and after["observations"].differing == before["observations"].differing

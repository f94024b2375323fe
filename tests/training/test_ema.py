"""The running mean of weights: its value, that the weights come back, and that it is what a run leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from atomizer_io.errors import ConfigError
from atomizer_io.training.optimizer import EMA
from atomizer_io.training.run import train
from atomizer_io.training.state import STATE, read
from runs import synthetic


def test_it_is_the_corrected_moving_average() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    average, expected = EMA(model, 0.5), 1.0
    for number, value in enumerate((2.0, 4.0, -3.0, 8.0, 5.0, 0.0, 1.0, 9.0, 7.0, 6.0)):
        model.weight.data.fill_(value)
        average.update()
        decay = min(0.5, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * value
    average.swap()
    assert model.weight.item() == pytest.approx(expected, rel=1e-6)
    average.swap()
    assert model.weight.item() == 6.0


def test_buffers_of_numbers_are_averaged_and_counters_are_not() -> None:
    model = nn.BatchNorm1d(2)
    average = EMA(model, 0.9)
    model(torch.randn(8, 2) + 5)
    average.update()
    average.swap()
    assert 0 < model.running_mean[0] < 0.5 * 1.1 and model.num_batches_tracked == 1


def test_it_goes_on_from_a_stored_state() -> None:
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    first, second = EMA(one, 0.9), EMA(two, 0.9)
    first.update()
    second.load_state_dict(first.state_dict())
    assert second.updates == 1
    assert all(torch.equal(a, b) for a, b in zip(first.mean, second.mean, strict=True))


def test_a_run_leaves_the_average_and_trains_on_the_weights(tmp_path: Path) -> None:
    train(synthetic(tmp_path / "a", {"test": None}, max_steps=6, learning_rate=1e-2, ema=0.9), progress=False)
    train(synthetic(tmp_path / "b", {"test": None}, max_steps=6, learning_rate=1e-2, ema=0.0), progress=False)
    kept, plain = (load_file(tmp_path / name / "run" / "last" / "model.safetensors") for name in "ab")
    state = read(tmp_path / "a" / "run" / STATE)
    for name, tensor in plain.items():  # validation and the EMA did not change the steps
        torch.testing.assert_close(state["state_dict"][f"model.{name}"], tensor, rtol=0, atol=0)
    mean = state["average"]["mean"]
    assert all(torch.equal(mean[name], kept[name]) for name in mean if name in kept)
    assert any(not torch.equal(kept[name], plain[name]) for name in kept)
    assert state["average"]["updates"] == 6 and "average" not in read(tmp_path / "b" / "run" / STATE)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_makes_no_sense_is_refused(decay: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ema must be from 0"):
        synthetic(tmp_path, ema=decay)

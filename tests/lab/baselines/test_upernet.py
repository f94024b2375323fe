"""UPerNet, and the levels that a plain transformer gives it: against plain formulas and the paper's sizes."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from atomizer_lab.baselines.batch_norm import BatchNorm1d, BatchNorm2d
from atomizer_lab.baselines.upernet import DeconvolvedLevels, ResizedLevels, UPerNet


def test_a_batch_of_one_can_be_trained() -> None:
    decoder = UPerNet((4, 4, 4, 4), 2, width=8).train()  # pooling leaves one value per channel
    out = decoder([torch.randn(1, 4, side, side) for side in (8, 4, 2, 1)], (16, 16))
    out.sum().backward()
    assert out.isfinite().all()


def test_one_value_is_normalised_by_running_statistics() -> None:
    norm = BatchNorm2d(3)
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0 - norm.eps)
    x = torch.tensor([1.0, 3.0, 5.0]).reshape(1, 3, 1, 1)
    torch.testing.assert_close(norm.train()(x).flatten(), torch.tensor([0.0, 1.0, 2.0]))
    torch.testing.assert_close(norm.running_mean, torch.ones(3))  # nothing was learned of one value
    several = torch.randn(4, 3)
    torch.testing.assert_close(BatchNorm1d(3).train()(several), torch.nn.BatchNorm1d(3).train()(several))


def test_levels_of_a_plain_transformer() -> None:
    maps = [torch.randn(1, 5, 6, 4) for _ in range(4)]
    for levels in (ResizedLevels()(maps), DeconvolvedLevels(5)(maps)):
        assert [tuple(level.shape[-2:]) for level in levels] == [(24, 16), (12, 8), (6, 4), (3, 2)]
        assert levels[2] is maps[2]
        torch.testing.assert_close(levels[3], F.max_pool2d(maps[3], 2))
    assert not list(ResizedLevels().parameters())
    assert ResizedLevels()([torch.randn(1, 5, 1, 1)] * 4)[3].shape[-2:] == (1, 1)

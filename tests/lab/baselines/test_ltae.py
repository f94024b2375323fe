"""L-TAE and the linear map over dates, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from atomizer_io.errors import ConfigError
from atomizer_lab.baselines.ltae import LTAE, LinearOverDates


def looped(module: LTAE, x_TD: torch.Tensor, days: list[float] | None) -> torch.Tensor:
    """One pixel, head by head and date by date, as the paper writes it."""
    dates, width = x_TD.shape
    group = width // module.heads
    x_TD = x_TD.clone()
    for head in range(module.heads):
        part = x_TD[:, head * group : (head + 1) * group]
        x_TD[:, head * group : (head + 1) * group] = (part - part.mean()) / (part.var(unbiased=False) + 1e-5).sqrt()
    x_TD = x_TD * module.norm_in.weight + module.norm_in.bias
    x_TD = module.project(x_TD)
    if days is not None:
        for date, day in enumerate(days):
            for feature in range(width):
                place = feature % group
                angle = day / 367 ** (2 * (place // 2) / group)
                x_TD[date, feature] += math.sin(angle) if place % 2 == 0 else math.cos(angle)
    heads = []
    for head in range(module.heads):
        keys = slice(head * module.key_width, (head + 1) * module.key_width)
        scores = []
        for date in range(dates):
            key = module.key.weight[keys] @ x_TD[date] + module.key.bias[keys]
            scores.append(key @ module.query_AK[head] / math.sqrt(module.key_width))
        share = torch.stack(scores).softmax(dim=0)
        heads.append(sum(share[date] * x_TD[date, head * group : (head + 1) * group] for date in range(dates)))
    return module.norm_out(module.mlp(torch.cat(heads)[None]))[0]


@pytest.mark.parametrize("days", [False, True])
@pytest.mark.parametrize("more", [{}, {"hidden": (8, 24), "project": False, "norm_out": False, "key_width": 6}])
def test_it_is_what_plain_loops_say(days: bool, more: dict) -> None:
    torch.manual_seed(0)
    module = LTAE(12, heads=3, days=days, **more).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x_BTDHW = torch.randn(2, 4, 12, 3, 2, dtype=torch.float64)
    day_BT = torch.tensor([[3.0, 90.0, 200.0, 366.0], [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    result = module(x_BTDHW, day_BT if days else None)
    assert result.shape == (2, 12, 3, 2)
    for scene in range(2):
        for row in range(3):
            for column in range(2):
                expected = looped(module, x_BTDHW[scene, :, :, row, column], day_BT[scene].tolist() if days else None)
                torch.testing.assert_close(result[scene, :, row, column], expected, atol=1e-5, rtol=1e-5)


def test_the_order_of_dates_counts_only_with_days() -> None:
    torch.manual_seed(0)
    x, turned, days = torch.randn(1, 3, 16, 2, 2), [2, 0, 1], torch.tensor([[10.0, 100.0, 300.0]])
    plain, dated = LTAE(16, heads=4).eval(), LTAE(16, heads=4, days=True).eval()
    torch.testing.assert_close(plain(x), plain(x[:, turned]))
    torch.testing.assert_close(dated(x, days), dated(x[:, turned], days[:, turned]))
    assert not torch.allclose(dated(x, days), dated(x[:, turned], days))
    with pytest.raises(ConfigError, match="day of the year of each date, but was given none"):
        dated(x)


def test_a_linear_map_begins_as_the_mean() -> None:
    x = torch.randn(2, 3, 5, 4, 6)
    module = LinearOverDates(3)
    torch.testing.assert_close(module(x), x.mean(dim=1))
    torch.nn.init.normal_(module.linear.weight)
    torch.nn.init.normal_(module.linear.bias)
    expected = module.linear(x.movedim(1, -1))[..., 0]
    torch.testing.assert_close(module(x), expected)

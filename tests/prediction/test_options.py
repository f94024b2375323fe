"""What can be chosen is checked when it is chosen, before any file or model is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import atomizer_io as aio
from atomizer_io.errors import ConfigError

WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("must be a positive number of metres, got inf", lambda: aio.Windows(math.inf)),
    ("must be a positive number of metres, got 0", lambda: aio.PointCloudWindows(0)),
    ("overlap must be a share of a window from 0 to 0.9, got 1.0", lambda: aio.Windows(overlap=1.0)),
    (
        "stride_m must be metres up to the side of a window, 50.0, got 60.0",
        lambda: aio.PointCloudWindows(stride_m=60.0),
    ),
    ("max_points must be a whole number of at least 1, got 0", lambda: aio.Cost(max_points=0)),
    ("decode_every_m must be a positive number of metres, got 0", lambda: aio.PointCloudWindows(decode_every_m=0)),
    ("decode 'x' is not known; use dense, quadtree, zone-probe, sketch", lambda: aio.Decoding("x")),
    ("decode 'calibrated' is not known", lambda: aio.Decoding("calibrated")),
    ("alpha must lie between 0 and 1, got 1", lambda: aio.Decoding(alpha=1.0)),
    ("leave out max_points", lambda: aio.Decoding("sketch", 0.1, aio.Cost(max_points=9))),
    ("neighbors must be a whole number", lambda: aio.Decoding(cost=aio.Cost(neighbors=0))),
]


@pytest.mark.parametrize(("message", "choose"), WRONG, ids=[message for message, _ in WRONG])
def test_what_makes_no_sense_is_refused(message: str, choose: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        choose()

"""Windows cover every pixel, overlap as requested, and weigh smoothly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from atomizer_io.prediction.raster_windows import WindowAxis

lengths = st.integers(1, 300)
sizes = st.integers(1, 80)
shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])


@given(lengths, sizes, shares)
def test_windows_reach_from_end_to_end_and_overlap(length: int, size: int, share: float) -> None:
    begins = WindowAxis.over(length, size, share).starts
    assert begins[0] == 0
    assert list(begins) == sorted(set(begins))
    if length <= size:
        assert begins == (0,)
        return
    assert begins[-1] + size == length
    common = size - np.diff(begins)
    assert (common >= min(np.floor(share * size + 1e-6), size - 1)).all()


@given(lengths, sizes, shares, st.data())
def test_covering_finds_what_a_search_finds(length: int, size: int, share: float, data: st.DataObject) -> None:
    axis = WindowAxis.over(length, size, share)
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first + 1, length))
    spans = zip(axis.starts, axis.ends, strict=True)
    assert list(axis.covering((first, last))) == [i for i, (s, e) in enumerate(spans) if s < last and e > first]

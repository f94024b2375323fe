"""Windows cover every pixel, overlap as requested, and weigh smoothly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomizer_io.errors import ConfigError
from atomizer_io.prediction.raster_windows import WindowLayout, ramp, ramp_at, starts

lengths = st.integers(1, 300)
sizes = st.integers(1, 80)
shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])


@given(lengths, sizes, shares)
def test_windows_reach_from_end_to_end_and_overlap(length: int, size: int, share: float) -> None:
    begins = starts(length, size, share)
    assert begins[0] == 0
    assert list(begins) == sorted(set(begins))
    if length <= size:
        assert begins == (0,)
        return
    assert begins[-1] + size == length
    common = size - np.diff(begins)
    assert (common >= min(np.floor(share * size + 1e-6), size - 1)).all()


@given(lengths, lengths, sizes, sizes, shares)
def test_strips_and_columns_divide_the_grid(height: int, width: int, rows: int, columns: int, share: float) -> None:
    layout = WindowLayout.over((height, width), (rows, columns), share)
    strips = [layout.strip(row) for row in range(len(layout.tops))]
    assert strips[0][0] == 0
    assert strips[-1][1] == height
    assert all(a[1] == b[0] for a, b in itertools.pairwise(strips))
    assert len(layout) == len(layout.tops) * len(layout.lefts)


@given(lengths, sizes, shares, st.data())
def test_covering_finds_what_a_search_finds(length: int, size: int, share: float, data: st.DataObject) -> None:
    layout = WindowLayout.over((length, 5), (size, 5), share)
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first + 1, length))
    brute = [i for i, top in enumerate(layout.tops) if top < last and top + layout.size[0] > first]
    assert list(layout.covering(first, last)) == brute


def test_windows_are_cut_to_the_grid() -> None:
    layout = WindowLayout.over((1, 50), (20, 20), 0.25)
    assert layout.size == (1, 20)
    assert layout.tops == (0,)
    assert layout.row(0)[0].name == "window-00000-00000"


@pytest.mark.parametrize(("size", "share"), [((0, 4), 0.25), ((4, 4), -0.1), ((4, 4), 0.95)])
def test_layouts_that_make_no_sense(size: tuple[int, int], share: float) -> None:
    with pytest.raises(ConfigError):
        WindowLayout.over((10, 10), size, share)


def test_the_ramp_is_smooth_symmetric_and_positive() -> None:
    weights = ramp(64)
    assert weights.min() > 0
    np.testing.assert_allclose(weights, weights[::-1], rtol=1e-5)
    assert np.abs(np.diff(weights)).max() < 0.06
    np.testing.assert_array_equal(ramp_at(np.array([10.5]), 64), weights[10:11])

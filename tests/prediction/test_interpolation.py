"""Outputs at all points of a point cloud from those at points that were decoded."""

from __future__ import annotations

import numpy as np

from atomizer_io.prediction.point_windows import interpolated


def test_decoded_points_keep_their_outputs_and_the_rest_take_the_nearest() -> None:
    decoded = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0]])
    outputs = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    everywhere = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 10.0], [0.0, 0.0, 2.0], [1.0, 0.0, 10.0], [0.0, 0.0, 5.0]])
    result = interpolated(decoded, outputs, everywhere)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[:2], outputs)
    np.testing.assert_allclose(result[2], [0.8, 0.2], rtol=1e-5)
    assert result[3, 1] > 0.9  # a wire above the ground is near in x and y, not in z
    np.testing.assert_allclose(result[4], [0.5, 0.5])

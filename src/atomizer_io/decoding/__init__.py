"""Decoding as densely as a scene needs: everywhere, or only where a few probes are not enough."""

from atomizer_io.decoding.blocks import Sampling
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.predictor import Prediction
from atomizer_io.decoding.risk_control import calibrate
from atomizer_io.decoding.search import Choices
from atomizer_io.decoding.strategies import STRATEGIES, OperatingPoint

dense, quadtree, zone_probe, sketch = (
    STRATEGIES[name].of_latents() for name in ("dense", "quadtree", "zone_probe", "sketch")
)

__all__ = [
    "Calibration",
    "Choices",
    "OperatingPoint",
    "Prediction",
    "Sampling",
    "calibrate",
    "dense",
    "quadtree",
    "sketch",
    "zone_probe",
]

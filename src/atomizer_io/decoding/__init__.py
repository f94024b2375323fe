"""Reading out as densely as a scene needs: everywhere, or where a few probes do not tell enough."""

from atomizer_io.decoding.calibrating import calibrate
from atomizer_io.decoding.calibration import Calibration
from atomizer_io.decoding.choosing import Choices
from atomizer_io.decoding.operating_point import OperatingPoint
from atomizer_io.decoding.predictor import Prediction
from atomizer_io.decoding.sketching import sketch
from atomizer_io.decoding.squares import Sampling
from atomizer_io.decoding.strategies import dense, quadtree, zone_probe

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

"""Reading out as densely as a scene needs: everywhere, or where a few probes of a region do not agree."""

from atomizer_io.decoding.asking import Prediction
from atomizer_io.decoding.strategies import dense, quadtree, zone_probe

__all__ = ["Prediction", "dense", "quadtree", "zone_probe"]

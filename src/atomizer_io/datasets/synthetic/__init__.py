"""Made-up scenes that need no download, with the truth everywhere.

A landscape (fields, woods, rivers, roads, houses, in metres) is seen by sensors: light in any channel, radar, laser,
on any date. ``scene`` gives it the shape of any of the published datasets, ``task_scene`` asks for one ability alone,
``Synthetic`` is the dataset of either. ``water_scene`` makes the scenes of ``atomizer demo``.
"""

from atomizer_io.datasets.synthetic.dataset import Synthetic
from atomizer_io.datasets.synthetic.mimic import PROBES, SHAPES, Shape, scene, task_scene
from atomizer_io.datasets.synthetic.water import SyntheticScene, water_scene

__all__ = ["PROBES", "SHAPES", "Shape", "Synthetic", "SyntheticScene", "scene", "task_scene", "water_scene"]

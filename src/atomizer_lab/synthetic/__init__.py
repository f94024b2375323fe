"""Synthetic scenes that need no download, with targets everywhere.

A landscape (fields, woods, rivers, roads, houses, in metres) is seen by sensors: light in any channel, radar, laser,
on any date. ``scene`` gives it the shape of a published dataset; ``task_scene`` needs one capability.
The dataset ``synthetic`` hands out either.
"""

from atomizer_lab.synthetic.mimic import PROBES, SHAPES, STORIES, Shape, scene, task_scene

__all__ = ["PROBES", "SHAPES", "STORIES", "Shape", "scene", "task_scene"]

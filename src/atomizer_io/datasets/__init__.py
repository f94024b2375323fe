"""Scenes with answers: observations as atoms, and what is true at their pixels."""

from atomizer_io.datasets.synthetic import SyntheticScene, water_scene

__all__ = ["SyntheticScene", "water_scene"]

"""Models as files that run without this package: ONNX, torch.export programs, and STAC items that describe them."""

from atomizer_io.export.formats import FORMATS, Written, read_config, read_description, runner, write
from atomizer_io.export.inputs import scene_inputs

__all__ = ["FORMATS", "Written", "read_config", "read_description", "runner", "scene_inputs", "write"]

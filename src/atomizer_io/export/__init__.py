"""Models as files that run without this package: ONNX, torch.export programs, and STAC items that describe them."""

from atomizer_io.export.formats import FORMATS, Written, read_description, read_model, runner, write
from atomizer_io.export.inputs import scene_inputs

__all__ = ["FORMATS", "Written", "read_description", "read_model", "runner", "scene_inputs", "write"]

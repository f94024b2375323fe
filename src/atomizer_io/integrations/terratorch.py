"""A backbone of TerraTorch: `import atomizer_io.integrations.terratorch`, then `backbone: terratorch_atomizer_io`."""

from __future__ import annotations

from collections.abc import Sequence

from terratorch.registry import TERRATORCH_BACKBONE_REGISTRY
from torch import Tensor, nn

from atomizer_io.data.sensors import get
from atomizer_io.integrations.rasters import RasterFeatures


class Backbone(nn.Module):
    """Features on grids of several strides, as TerraTorch's decoders read them."""

    def __init__(self, features: RasterFeatures, strides: Sequence[int]) -> None:
        super().__init__()
        self.features, self.strides = features, tuple(strides)
        self.out_channels = [features.width] * len(self.strides)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return (B, D, H / stride, W / stride) for each stride."""
        return self.features.pyramid(images, self.strides)


@TERRATORCH_BACKBONE_REGISTRY.register
def atomizer_io(
    model_bands: Sequence[str],
    sensor: str,
    checkpoint: str = "atomizer_io_tiny",
    gsd_m: float | None = None,
    strides: Sequence[int] = (4, 8, 16, 32),
    pretrained: bool = False,
) -> Backbone:
    """Return a backbone for bands of a sensor of the catalogue, from a saved model or with fresh weights.

    ``pretrained`` is what TerraTorch passes to every backbone; weights come from ``checkpoint`` alone.
    """
    return Backbone(RasterFeatures(get(sensor).pick(*model_bands), checkpoint, gsd_m), strides)

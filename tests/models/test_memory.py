"""A large scene fits a small machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="peak memory is read with the resource module")

LIMIT_GB = 3.0

# In a process of its own: the peak of this one includes whatever other tests needed.
ENCODE = """
import resource, sys
import torch
import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2

generator = torch.Generator().manual_seed(0)

def scene(channels, day):
    noise = torch.randn(len(channels), 512, 512, generator=generator)
    for layer, channel in zip(noise, channels, strict=True):
        layer.mul_(channel.std).add_(channel.mean)
    return aio.AtomSet.from_raster(noise, channels, 10.0, day)

atoms = scene(SENTINEL2.channels, 183) + scene(SENTINEL1.pick("VV", "VH"), 185)
model = aio.create_model("atomizer_io_seg").eval()
with torch.no_grad():
    latents = model.encode([atoms])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(atoms.num_atoms, *latents.features[0].shape, bool(latents.features[0].isfinite().all()), peak)
"""


@pytest.mark.slow
def test_a_scene_of_four_million_atoms_encodes_in_three_gigabytes() -> None:
    run = subprocess.run([sys.executable, "-c", ENCODE], capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stderr
    atoms, latents, width, finite, peak = run.stdout.split()
    assert int(atoms) == 512 * 512 * 15
    assert abs(int(latents) - 1967) < 20 and width == "512"  # κ = 2 000
    assert finite == "True"
    assert int(peak) / 1e9 < LIMIT_GB, f"peak resident memory was {int(peak) / 1e9:.2f} GB"

# %% [markdown]
# # First map
#
# From nothing to a map: simulated scenes of Sentinel-1 and Sentinel-2, a tiny model that learns where water is, and
# its prediction for a scene that it has not trained on. Nothing is downloaded; it takes about a minute on a laptop.

# %%
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio
from atomizer_io.figures.samples import draw_acquisition, draw_target
from atomizer_io.training.config import parse
from atomizer_io.training.run import train

# %% [markdown]
# ## What a sample is
#
# A sample holds what was observed (`atoms`), where something is to be predicted (`queries`) and what is right there
# (`target`). An `AtomSet` is a sum of acquisitions: one sensor, one date, one geometry each.

# %%
dataset = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=64, length=3)
sample = dataset[1]
print(sample.atoms)
print(sample.queries.grid)

# %% [markdown]
# ## Train
#
# The settings are those of a YAML file; `atomizer train my.yaml` does the same. Only what differs from the defaults
# has to be named.

# %%
settings = {
    "data": {
        "name": "synthetic",
        "options": {"like": "sen1floods11", "size": 32, "length": 40},
        "val": None,
        "workers": 0,
    },
    "model": {"preset": "atomizer_io_tiny"},
    "training": {"max_steps": 120, "baselines": False, "figures": 0, "loggers": []},
    "name": "first-map",
}
settings["data"]["test"] = None  # scored below, by hand
train(parse(settings), progress=False)
model = aio.load_model("runs/first-map/best").eval()
print(f"{model.num_parameters:,} parameters")

# %% [markdown]
# ## Predict
#
# A scene is encoded once. The latents can then be decoded at any positions: here at the pixels of the target, and on
# a grid four times as fine, for which nothing has to be resampled.

# %%
fine = aio.Grid(256, 256, gsd_m=2.5)
with torch.no_grad():
    latents = model.encode([sample.atoms])
    map_10m = aio.decoding.dense(model, latents, sample.queries.grid)
    map_fine = aio.decoding.dense(model, latents, fine)
right = (map_10m.labels == sample.target).double().mean()
print(f"{right:.1%} of the pixels of this scene are right")

# %%
figure, axes = plt.subplots(1, 5, figsize=(15, 3.4), layout="constrained")
radar, optical = sample.atoms
draw_acquisition(axes[0], optical)
draw_acquisition(axes[1], radar)
draw_target(axes[2], sample, dataset.info)
for axis, prediction, title in ((axes[3], map_10m, "prediction, 10 m"), (axes[4], map_fine, "prediction, 2.5 m")):
    axis.imshow(prediction.probabilities[..., 1], vmin=0, vmax=1, cmap="Blues")
    axis.set_title(f"{title}: water", fontsize=8)
    axis.axis("off")

# %% [markdown]
# Next: [leave out a sensor](missing_sensors.md), or [train on your own rasters](../how-to/rasters.md).

# %% [markdown]
# # Points and an image
#
# LiDAR returns and a photograph of the same village go into one network, without making the points a raster or the
# image a point cloud. Training hides the image or the points now and then, so the model predicts with either.

# %%
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio
from atomizer_io.figures.samples import draw_acquisition
from atomizer_io.training.config import parse
from atomizer_io.training.run import train

# %%
settings = {
    "data": {"name": "synthetic", "options": {"like": "village", "size": 32, "length": 40}, "workers": 0},
    "model": {"preset": "atomizer_io_tiny", "settings": {"offset_scale_m": 5}},
    "training": {
        "max_steps": 120,
        "channel_dropout": {"scheme": "sensors"},
        "baselines": False,
        "figures": 0,
        "loggers": [],
    },
    "name": "points-and-image",
}
settings["data"] |= {"val": None, "test": None}
train(parse(settings), progress=False)
model = aio.load_model("runs/points-and-image/best").eval()

# %% [markdown]
# ## Every return is a query
#
# A query names its own return (`queries.sites`), as several returns can share x and y. `model.preparer()` builds what
# depends on positions only, `model.predict` the rest; this is how training and `atomizer predict` call any model.

# %%
dataset = aio.datasets.create("synthetic", like="village", split="test", size=32, length=8)
classes = dataset.info.classes


def predict(sample, atoms: aio.AtomSet) -> torch.Tensor:
    """Return the class of each query, from some of the observations."""
    own_point = sample.queries if len(atoms) == len(sample.atoms) or atoms.acquisitions[0].sensor == "lidar" else None
    queries = own_point or aio.datasets.Queries(sample.queries.positions, sample.queries.ignore)
    with torch.no_grad():
        return model.predict([model.preparer()(atoms, queries)])[0].argmax(-1)


INPUTS = {
    "points and image": lambda atoms: atoms,
    "points": lambda atoms: atoms.select(sensor="lidar"),
    "image": lambda atoms: atoms.drop(sensor="lidar"),
}
for name, part in INPUTS.items():
    right = torch.cat([predict(sample, part(sample.atoms)) == sample.target for sample in dataset])
    print(f"{name:18} {right.double().mean():.1%} of the returns of 8 test scenes")

# %%
sample = dataset[0]
x, y = sample.queries.positions.T
figure, axes = plt.subplots(1, 5, figsize=(16, 3.6), layout="constrained")
draw_acquisition(axes[0], sample.atoms.acquisitions[-1])
columns = {"labels": sample.target} | {
    f"from {name}": predict(sample, part(sample.atoms)) for name, part in INPUTS.items()
}
for axis, (title, labels) in zip(axes[1:], columns.items(), strict=True):
    for number, colour in enumerate(("#a6761d", "#2ca02c", "#d62728")):
        axis.scatter(x[labels == number], y[labels == number], s=2, c=colour, label=classes[number])
    axis.set_title(title, fontsize=8)
    axis.set_aspect("equal")
    axis.axis("off")
axes[1].legend(fontsize=7, markerscale=4, loc="upper left")

# %% [markdown]
# On your own tiles: [point clouds](../how-to/point-clouds.md).

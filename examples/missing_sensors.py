# %% [markdown]
# # Missing sensors
#
# One model for all bands, for radar alone, for RGB alone and for what clouds leave over. What was not observed is
# absent: no zeros, no filling. The model learns to do without channels because training hides some (channel dropout).

# %%
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio
from atomizer_io.figures.samples import draw_acquisition, draw_target
from atomizer_io.training.config import parse
from atomizer_io.training.run import train

# %%
settings = {
    "data": {"name": "synthetic", "options": {"like": "sen1floods11", "size": 32, "length": 60}, "workers": 0},
    "model": {"preset": "atomizer_io_tiny"},
    "training": {
        "max_steps": 250,
        "channel_dropout": {"scheme": "mixed"},
        "baselines": False,
        "figures": 0,
        "loggers": [],
    },
    "name": "missing-sensors",
}
settings["data"] |= {"val": None, "test": None}
train(parse(settings), progress=False)
model = aio.load_model("runs/missing-sensors/best").eval()

# %% [markdown]
# ## Leave out what is not there
#
# `select` and `drop` take parts of an `AtomSet`; `only` hides sites, here those under a simulated cloud.


# %%
def clouded(atoms: aio.AtomSet) -> aio.AtomSet:
    """Remove what Sentinel-2 saw of a disc of 200 m around the centre."""
    parts = []
    for acquisition in atoms:
        clear = acquisition.positions.norm(dim=1) > 200
        parts.append(acquisition if acquisition.sensor == "sentinel1" else acquisition.only(clear[:, None]))
    return aio.AtomSet(tuple(parts))


INPUTS = {
    "all channels": lambda atoms: atoms,
    "Sentinel-2": lambda atoms: atoms.select(sensor="sentinel2"),
    "Sentinel-1": lambda atoms: atoms.select(sensor="sentinel1"),
    "red, green, blue": lambda atoms: atoms.select("B02", "B03", "B04"),
    "a cloud": clouded,
}


def predict(atoms: aio.AtomSet, grid: aio.Grid) -> torch.Tensor:
    """Return the probability of water at each pixel."""
    with torch.no_grad():
        return aio.decoding.dense(model, model.encode([atoms]), grid).probabilities[..., 1]


# %%
dataset = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=64, length=12)
for name, part in INPUTS.items():
    together = torch.zeros(2)
    for sample in dataset:
        water, true = predict(part(sample.atoms), sample.queries.grid) > 0.5, sample.target == 1
        together += torch.tensor([(water & true).sum(), (water | true).sum()])
    print(f"{name:18} IoU of water, 12 test scenes: {together[0] / together[1]:.3f}")

# %%
sample = dataset[1]
figure, axes = plt.subplots(2, 4, figsize=(13, 6.6), layout="constrained")
radar, optical = sample.atoms
draw_acquisition(axes[0, 0], optical)
draw_acquisition(axes[0, 1], radar)
draw_target(axes[0, 2], sample, dataset.info)
for axis, (name, part) in zip(axes.flat[3:], INPUTS.items(), strict=True):
    axis.imshow(predict(part(sample.atoms), sample.queries.grid), vmin=0, vmax=1, cmap="Blues")
    axis.set_title(f"water from {name}", fontsize=8)
    axis.axis("off")

# %% [markdown]
# On your own data: [missing channels](../how-to/missing-channels.md).

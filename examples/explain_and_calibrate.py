# %% [markdown]
# # Explain and calibrate
#
# Which channels a prediction came from, where the model is not sure, and how much of the computation can be left out
# with a stated bound on what that changes.

# %%
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio
from atomizer_io.decoding import Choices, Sampling, calibrate
from atomizer_io.training.config import parse
from atomizer_io.training.run import train

# %%
settings = {
    "data": {"name": "synthetic", "options": {"like": "sen1floods11", "size": 32, "length": 40}, "workers": 0},
    "model": {"preset": "atomizer_io_tiny"},
    "training": {"max_steps": 120, "baselines": False, "figures": 0, "loggers": []},
    "name": "explain",
}
settings["data"] |= {"val": None, "test": None}
train(parse(settings), progress=False)
model = aio.load_model("runs/explain/best").eval()
dataset = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=48, length=18)
sample = dataset[1]

# %% [markdown]
# ## Attention per channel
#
# `here` is what a query saw at its own position, `around` what reached it through the latents. Attention shows what
# was read, not what would change the prediction: for that, leave a channel out and compare.

# %%
with torch.no_grad():
    latents = model.encode([sample.atoms])
    explanation = model.explain(latents, [sample.queries.positions])[0]
    full = aio.decoding.dense(model, latents, sample.queries.grid)
print(explanation)

# %% [markdown]
# ## Calibration
#
# At most 5 % of the positions may differ from the model's own prediction. Some scenes choose the cheapest way to
# decode, the others test it (conformal risk control); no labels are used.

# %%
scenes = [(one.atoms, one.queries.grid) for one in dataset]
choices = Choices((256,), (None,), (9,), {"quadtree": [{"start": 8, "probes": 4}], "sketch": [{"spacing": 4}]})
calibrated = calibrate(model, scenes, 0.05, choices=choices, sampling=Sampling(scenes=18))
step, point = calibrated.step, calibrated.point
print(f"{point.strategy}: {step.decoded:.0%} of the positions decoded, {step.differing:.1%} differ")
cheap = point.predict(model, sample.atoms, sample.queries.grid)
print(f"this scene: {cheap.decoded:,} of {full.decoded:,} decoded, {cheap.differs(full).double().mean():.1%} differ")

# %%
entropy = -(full.probabilities * full.probabilities.clamp(min=1e-9).log()).sum(-1)
figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
panels = {
    "water": full.probabilities[..., 1],
    "entropy": entropy,
    "decoded positions": cheap.queried.reshape(48, 48),
    "water, calibrated": cheap.probabilities[..., 1],
}
for axis, (title, values) in zip(axes, panels.items(), strict=True):
    axis.imshow(values, cmap="Blues" if "water" in title else "magma")
    axis.set_title(title, fontsize=9)
    axis.axis("off")

# %% [markdown]
# On your own model: [calibration](../how-to/calibration.md), [compute budget](../how-to/compute-budget.md).

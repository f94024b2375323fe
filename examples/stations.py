# %% [markdown]
# # Stations, not pixels
#
# Air temperature is measured at stations: few, at irregular positions, others every day.
# The network reads the stations that reported and a coarse raster of the altitude, and predicts the temperature
# anywhere. The training loop is one's own.

# %%
from collections.abc import Callable

import numpy as np
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio
from atomizer_io.data.sample import queries_at

WIDTH_M = 50_000.0
thermometer = aio.Channel("station", "temperature", mean=12.0, std=4.5)
altimeter = aio.Channel("terrain", "altitude", mean=1000.0, std=500.0)


# %% [markdown]
# ## A day
#
# A synthetic day has a smooth temperature that falls by 6.5 K a kilometre of altitude. Thermometers observe it at 60
# positions, others every day; the altitude is a raster with pixels of 5 km. A channel without a wavelength is known by
# its name.


# %%
def smooth(rng: np.random.Generator, scale_m: float):
    """Return a random smooth function of positions (M, 2), with mean 0 and standard deviation 1."""
    waves, phase = rng.normal(0, 1 / scale_m, (2, 64)), rng.uniform(0, 2 * np.pi, 64)
    return lambda xy: np.cos(xy @ waves + phase).sum(axis=1) / np.sqrt(32)


coarse = aio.Grid(10, 10, gsd_m=5_000.0)


def day(seed: int) -> tuple[aio.AtomSet, Callable[[np.ndarray], np.ndarray]]:
    """Return what was observed on a day, and the temperature as a function of positions."""
    rng = np.random.default_rng(seed)
    terrain, air = smooth(rng, 15_000), smooth(rng, 25_000)

    def temperature(xy: np.ndarray) -> np.ndarray:
        return 12 + 3 * air(xy) - 6.5e-3 * 500 * terrain(xy)

    xy = rng.uniform(-WIDTH_M / 2, WIDTH_M / 2, (60, 2))
    atoms = aio.AtomSet((aio.Acquisition(temperature(xy)[:, None], xy, (thermometer,)),))
    altitude = 1000 + 500 * terrain(coarse.positions().numpy()).reshape(1, 10, 10)
    return atoms + aio.AtomSet.from_raster(altitude, (altimeter,), gsd=5_000.0), temperature


# %% [markdown]
# ## Train
#
# Queries are positions, mostly without a station. κ, the number of atoms of a latent, is small, as a day has 160 atoms.
# A loop of one's own calls `initialise` first, as `atomizer train` does: it needs a few samples and no targets.

# %%
torch.manual_seed(0)
model = aio.create_model(
    "atomizer_io_tiny",
    task="regression",
    num_outputs=1,
    channels=(thermometer, altimeter),
    target_mean=12.0,
    target_std=4.5,
    extent_m=WIDTH_M,
    offset_scale_m=5_000.0,
    atoms_per_latent=4,
)
rng = np.random.default_rng(1)


def somewhere() -> np.ndarray:
    """Return 150 random positions."""
    return rng.uniform(-WIDTH_M / 2, WIDTH_M / 2, (150, 2))


prepare = model.preparer()
model.initialise([prepare(day(number)[0], queries_at(somewhere())) for number in range(32)])
STEPS = 400
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)
losses = []
for step in range(STEPS):
    days, where = [day(100 + 4 * step + number) for number in range(4)], [somewhere() for _ in range(4)]
    targets = [torch.from_numpy(field(xy)).float() for (_, field), xy in zip(days, where, strict=True)]
    outputs = model([atoms for atoms, _ in days], [torch.from_numpy(xy) for xy in where])
    loss = torch.cat([(out[:, 0] - target) ** 2 for out, target in zip(outputs, targets, strict=True)]).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
first, last = np.mean(losses[:20]) ** 0.5, np.mean(losses[-20:]) ** 0.5
print(f"RMSE in training: {first:.2f} K in the first steps, {last:.2f} K in the last")

# %% [markdown]
# ## Beside inverse distances
#
# The usual interpolation weights stations by their distance, and knows no altitude.

# %%
grid = aio.Grid(60, 60, gsd_m=WIDTH_M / 60)
positions = grid.positions()
errors = {"the network": [], "inverse distances": []}
model.eval()
for number in range(900_000, 900_020):
    atoms, temperature = day(number)
    true = torch.from_numpy(temperature(positions.numpy()))
    with torch.no_grad():
        predicted = model([atoms], [positions])[0][:, 0]
    weight = torch.cdist(positions, atoms.acquisitions[0].positions) ** -2
    interpolated = (weight * atoms.acquisitions[0].values[:, 0]).sum(1) / weight.sum(1)
    errors["the network"].append(float((predicted - true).square().mean()))
    errors["inverse distances"].append(float((interpolated - true).square().mean()))
for name, squared in errors.items():
    print(f"{name:18} RMSE on 20 further days: {np.sqrt(np.mean(squared)):.2f} K")

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
xy, shown = atoms.acquisitions[0].positions / 1000, {"vmin": true.min(), "vmax": true.max(), "cmap": "inferno"}
half_km = WIDTH_M / 2000
for axis, values, title in zip(
    axes, (true, predicted, interpolated), ("temperature", "the network", "inverse distances"), strict=True
):
    drawn = axis.imshow(np.asarray(values).reshape(60, 60), extent=(-half_km, half_km, -half_km, half_km), **shown)
    axis.scatter(*xy.T, s=6, c="white", edgecolors="black", linewidths=0.4)
    axis.set_title(title, fontsize=9)
_ = figure.colorbar(drawn, ax=axes, label="°C")

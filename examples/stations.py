# %% [markdown]
# # Stations, not pixels
#
# Air temperature is measured at stations: few, at irregular positions, others every day. Nothing here is a raster. The network reads
# the stations that reported and predicts the temperature anywhere, in a training loop of one's own.

# %%
import numpy as np
import torch
from matplotlib import pyplot as plt

import atomizer_io as aio

torch.manual_seed(0)
WIDTH_M = 50_000.0
thermometer = aio.Channel("station", "temperature", mean=12.0, std=4.0)
altimeter = aio.Channel("station", "altitude", mean=500.0, std=300.0)


# %% [markdown]
# ## A day
#
# A synthetic day has a smooth temperature that falls by 6.5 K a kilometre of altitude; both vary from day to day. A channel without a
# wavelength is known by its name. A third of the stations do not report their altitude: NaN is absent.


# %%
def smooth(rng: np.random.Generator, scale_m: float):
    """Return a random smooth function of positions (M, 2), with mean 0 and standard deviation 1."""
    waves, phase = rng.normal(0, 1 / scale_m, (2, 64)), rng.uniform(0, 2 * np.pi, 64)
    return lambda xy: np.cos(xy @ waves + phase).sum(axis=1) / np.sqrt(32)


def day(seed: int, stations: int = 80):
    """Return what stations observed on a day, and functions of positions: the altitude and the temperature."""
    rng = np.random.default_rng(seed)
    terrain, air = smooth(rng, 8_000), smooth(rng, 20_000)
    altitude = lambda xy: 500 + 300 * terrain(xy)  # noqa: E731
    temperature = lambda xy: 12 + 3 * air(xy) - 6.5e-3 * (altitude(xy) - 500)  # noqa: E731
    xy = rng.uniform(-WIDTH_M / 2, WIDTH_M / 2, (stations, 2))
    height = np.where(rng.random(stations) < 1 / 3, np.nan, altitude(xy))
    values = np.stack([temperature(xy) + rng.normal(0, 0.2, stations), height], axis=1)
    return aio.AtomSet((aio.Acquisition(values, xy, (thermometer, altimeter)),)), altitude, temperature


# %% [markdown]
# ## Train
#
# Queries are positions without a station. κ, the number of atoms of a latent, is small, as a day has 130 atoms.

# %%
model = aio.create_model(
    "atomizer_io_tiny",
    task="regression",
    num_outputs=1,
    channels=(thermometer, altimeter),
    target_mean=12.0,
    target_std=4.0,
    extent_m=WIDTH_M,
    offset_scale_m=5_000.0,
    atoms_per_latent=4,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
rng = np.random.default_rng(1)
losses = []
for step in range(250):
    where = [torch.from_numpy(rng.uniform(-WIDTH_M / 2, WIDTH_M / 2, (200, 2))) for _ in range(4)]
    days = [day(4 * step + number) for number in range(4)]
    targets = [torch.from_numpy(field(xy.numpy())).float() for (_, _, field), xy in zip(days, where, strict=True)]
    outputs = model([atoms for atoms, _, _ in days], where)
    loss = torch.cat([(out[:, 0] - target) ** 2 for out, target in zip(outputs, targets, strict=True)]).mean() / 16
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
print(f"loss: {np.mean(losses[:20]):.3f} in the first steps, {np.mean(losses[-20:]):.3f} in the last")

# %% [markdown]
# ## Beside inverse distances
#
# The usual interpolation weights stations by their distance.

# %%
grid = aio.Grid(60, 60, gsd_m=WIDTH_M / 60)
positions = grid.positions()
errors = {"the network": [], "inverse distances": []}
model.eval()
for number in range(900_000, 900_020):
    atoms, _, temperature = day(number)
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
    drawn = axis.imshow(values.reshape(60, 60), extent=(-half_km, half_km, -half_km, half_km), **shown)
    axis.scatter(*xy.T, s=6, c="white", edgecolors="black", linewidths=0.4)
    axis.set_title(title, fontsize=9)
figure.colorbar(drawn, ax=axes, label="°C")

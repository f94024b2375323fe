# %% [markdown]
# # Labels to map
#
# A GeoTIFF, a table of labelled points, and one call: train, predict the map, and measure how right it is on labels
# that were held out.

# %%
from pathlib import Path

import numpy as np
import rasterio
from matplotlib import pyplot as plt
from rasterio.transform import Affine

import atomizer_io as aio
from atomizer_io.data.sample import grid_values
from atomizer_io.mapping.label_map import MapRequest
from atomizer_io.mapping.labels_to_map import map_from_labels

# %% [markdown]
# ## The files
#
# A simulated Sentinel-2 image, and 240 points whose class somebody noted, in the coordinates of the image. Yours come
# from QGIS or a GPS: GeoPackage, GeoJSON, Shapefile, GeoParquet or CSV, with points, lines or polygons.

# %%
sample = aio.datasets.create("synthetic", like="sen1floods11", split="test", size=64, length=3)[1]
number = next(n for n, acquisition in enumerate(sample.atoms) if acquisition.sensor == "sentinel2")
image = grid_values(sample.atoms, number, (64, 64)).astype("float32")
profile = {"width": 64, "height": 64, "count": len(image), "dtype": "float32", "nodata": np.nan}
with rasterio.open(
    "s2.tif", "w", driver="GTiff", crs="EPSG:32632", transform=Affine(10, 0, 600000, 0, -10, 5000000), **profile
) as target:
    target.write(image)
    target.descriptions = tuple(channel.name for channel in sample.atoms.acquisitions[number].channels)

rng = np.random.default_rng(0)
row, column = rng.integers(0, 64, (2, 240))
names = np.array(["dry", "water"])[sample.target[row, column].clamp(min=0).numpy()]
lines = [f"{600005 + 10 * c},{4999995 - 10 * r},{name}" for r, c, name in zip(row, column, names, strict=True)]
Path("points.csv").write_text("\n".join(["x,y,class", *lines]) + "\n")
print(Path("points.csv").read_text()[:60], "…")

# %% [markdown]
# ## The map
#
# `random_sample` states that the points are a random sample of the area, so that accuracies and hectares can be
# adjusted for the errors of the map. The last line sets how long it trains; by default it trains until the validation
# score rises no more.

# %%
made = map_from_labels(
    MapRequest(
        rasters=[{"path": "s2.tif", "sensor": "sentinel2"}],
        labels=Path("points.csv"),
        column="class",
        output=Path("map.tif"),
        random_sample=True,
        settings=["data.options.block_m=120", "data.workers=0", "training.max_steps=80", "training.baselines=false"],
    )
)
overall = made.accuracy.overall
print(f"overall accuracy {overall.value:.1%} ({overall.low:.1%} … {overall.high:.1%}) from {made.tested_on}")
print("hectares on the map:", {name: round(area, 1) for name, area in made.product.hectares.items()})

# %%
figure, axes = plt.subplots(1, 4, figsize=(14, 3.8), layout="constrained")
axes[0].imshow(np.clip(image[[3, 2, 1]].transpose(1, 2, 0) / np.nanpercentile(image[[3, 2, 1]], 98), 0, 1))
axes[0].scatter(column, row, s=6, c=np.where(names == "water", "deepskyblue", "gold"))
axes[0].set_title("image and labels", fontsize=9)
for axis, name, band, title in (
    (axes[1], "map.tif", 1, "map"),
    (axes[2], "map.confidence.tif", 1, "lead of the first class"),
    (axes[3], "map.sets.tif", 1, "classes in the prediction set (90 %)"),
):
    with rasterio.open(name) as source:
        axis.imshow(source.read(band))
    axis.set_title(title, fontsize=9)
for axis in axes:
    axis.axis("off")

# %% [markdown]
# `map.html` is the report. What each file is: [labels and
# maps](../how-to/labels.md#from-labels-to-a-map-in-one-command).

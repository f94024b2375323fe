"""Real scenes through the whole network: what the files hold becomes atoms, and every query gets a prediction."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sensors import AERIAL, SENTINEL1, SENTINEL2, from_geotiff
from scenes import data_folder

rasterio = pytest.importorskip("rasterio")
pytestmark = pytest.mark.realdata


def tiny(**settings: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    return aio.create_model("atomizer_io_tiny", **settings).eval()


def read(path: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)  # BioMassters chips have no location
        with rasterio.open(path) as source:
            return source.read()


@torch.no_grad()
def test_sen1floods11_chip() -> None:
    folder = data_folder("sen1floods11") / "v1.1/data/flood_events/HandLabeled"
    radar, optical = (
        read(folder / f"{kind}Hand/Spain_7370579_{kind}Hand.tif")[:, 100:228, 200:360] for kind in ("S1", "S2")
    )
    atoms = aio.AtomSet.from_raster(radar, SENTINEL1.pick("VV", "VH"), 10.0)
    atoms += aio.AtomSet.from_raster(optical, SENTINEL2, 10.0, nodata=0)
    assert atoms.num_atoms == np.isfinite(radar).sum() + (optical != 0).sum()
    model = tiny(atoms_per_latent=1500)
    grid = aio.Grid(128, 160, 10.0)
    latents = model.encode([atoms])
    (logits,) = model.decode(latents, [grid.positions()])
    assert logits.shape == (128 * 160, 2) and logits.isfinite().all()
    (shares,) = model.explain(latents, [grid.positions()[:50]])
    torch.testing.assert_close(shares.here.sum(dim=1), torch.ones(50))
    assert logits.std() > 1e-3  # it looks at the scene


@torch.no_grad()
def test_biomassters_months_with_missing_orbits() -> None:
    folder = data_folder("biomassters") / "train_features"
    atoms, expected = aio.AtomSet(), 0
    for month in range(12):
        values = read(folder / f"000aa810_S1_{month:02d}.tif")[:, :40, :40]
        channels = SENTINEL1.pick("ASC_VV", "ASC_VH", "DSC_VV", "DSC_VH")
        atoms += aio.AtomSet.from_raster(values, channels, 10.0, 244 + 30 * month, nodata=-9999)
        expected += int((values != -9999).sum())
    assert atoms.num_atoms == expected < 12 * 4 * 40 * 40
    model = tiny(temporal=True, task="regression", num_outputs=1, target_mean=63.5, target_std=72.2)
    (biomass,) = model([atoms], [aio.Grid(40, 40, 10.0).positions()])
    assert biomass.shape == (1600, 1) and biomass.isfinite().all()


@torch.no_grad()
def test_enmap_tile_of_224_bands() -> None:
    path = data_folder("enmap-potsdam") / "images/enmap_potsdam_tile_128_0.tif"
    sensor, values = from_geotiff(path), read(path)
    values = np.where(values == -32768, np.nan, values)
    atoms = aio.AtomSet.from_raster(values, sensor.with_statistics(values), 30.0, 205)
    assert atoms.num_atoms == np.isfinite(values).sum() and len(atoms.channels) == 224
    (logits,) = tiny(num_outputs=7)([atoms], [aio.Grid(32, 32, 30.0).positions()])
    assert logits.shape == (1024, 7) and logits.isfinite().all()


@torch.no_grad()
def test_lidar_tile_with_its_orthophoto() -> None:
    laspy = pytest.importorskip("laspy")
    folder = data_folder("lidar-hd")
    point_cloud = laspy.read(folder / "tiles/test_data_77055_627760_LA93_IGN69.laz")
    xyz = np.stack([point_cloud.x, point_cloud.y, point_cloud.z], axis=1)
    points = aio.AtomSet.from_points(
        xyz,
        np.asarray(point_cloud.return_number),
        np.asarray(point_cloud.number_of_returns),
        np.asarray(point_cloud.intensity),
    )
    with rasterio.open(folder / "ortho/test_data_rgb.tif") as source:
        image, bounds, pixel = source.read((1, 2, 3)), source.bounds, source.res[0]
    center = ((bounds.left + bounds.right) / 2, (bounds.bottom + bounds.top) / 2)
    atoms = points + aio.AtomSet.from_raster(image, AERIAL.pick("R", "G", "B"), pixel, center_m=center)
    assert atoms.num_atoms == len(xyz) + image.size
    x_min, y_min, x_max, y_max = atoms.bounds
    assert x_max - x_min == pytest.approx(50, abs=2) and y_max - y_min == pytest.approx(50, abs=2)

    model = tiny(num_outputs=7, atoms_per_latent=1000, rope_scale_m=25.0)
    queried = torch.arange(0, len(xyz), 20)
    latents = model.encode([atoms])
    queries = points.acquisitions[0].positions[queried]
    (by_name,) = model.decode(latents, [queries], sites=[{0: queried}])
    (looked_up,) = model.decode(latents, [queries])
    assert by_name.isfinite().all() and by_name.shape == (len(queried), 7)
    same = (by_name == looked_up).all(dim=1).double().mean()
    assert same > 0.9  # a return within 5 cm of another may be taken for it; named ones never are

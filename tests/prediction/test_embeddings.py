"""Vectors of maps and positions: what the model reads there, in each format, whatever interrupts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
import torch
import zarr

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import ConfigError
from atomizer_io.prediction import embeddings
from atomizer_io.prediction.options import Windows
from chips import CORNER, NAMES, UTM, model_folder, read, scene, values, write
from predicting import Breaks, Killed, quietly

embed_raster = quietly(embeddings.embed_raster, Windows(120))
find_alike = quietly(embeddings.find_alike, Windows(120))


def vectors(folder: Path, rasters: dict[str, Any], numbers: str = "float16", **how: Any) -> np.ndarray:
    """The vectors (H, W, D) of a GeoTIFF."""
    return read(embed_raster(model_folder(), rasters, folder / "v.tif", numbers=numbers, **how).path).transpose(1, 2, 0)


def test_a_pixel_has_the_vector_that_the_model_reads_there(tmp_path: Path) -> None:
    array = values(12, 12)
    model = aio.AtomizerIO.from_pretrained(model_folder()).eval()
    atoms = aio.AtomSet.from_raster(array.astype(np.float32), tuple(SENTINEL2.pick(*NAMES)), 10.0)
    grid = aio.Grid(12, 12, 10.0)
    with torch.no_grad():
        (expected,) = model.embed(model.encode([atoms]), [grid.positions()], footprint_m=grid.pixel_m)
    made = vectors(tmp_path, {"path": write(tmp_path / "scene.tif", array), "sensor": "sentinel2"})
    np.testing.assert_allclose(made.reshape(144, -1), expected.numpy(), rtol=1e-3, atol=1e-3)


def test_each_format_holds_the_same(tmp_path: Path) -> None:
    array = values(20, 30)
    array[:, 3:6, 3:6] = 0
    rasters = {"path": write(tmp_path / "scene.tif", array, nodata=0), "sensor": "sentinel2"}
    exact = vectors(tmp_path, rasters)
    assert np.isnan(exact[4, 4]).all()
    seen = np.isfinite(exact[..., 0])

    product = embed_raster(model_folder(), rasters, tmp_path / "a.tif")
    assert product.count == seen.sum() and product.dimensions == exact.shape[-1]
    numbers, scales = read(product.path).transpose(1, 2, 0), read(tmp_path / "a.scales.tif")[0]
    assert numbers.dtype == np.int8 and (numbers[~seen] == -128).all() and np.isnan(scales[~seen]).all()
    error = np.abs(numbers[seen] * scales[seen][:, None] - exact[seen])
    assert (error <= 0.51 * scales[seen][:, None] + 1e-3).all()
    with rasterio.open(product.path) as source:
        assert source.crs == UTM and "geoemb:model" in json.loads(source.tags()["geoemb"])

    embed_raster(model_folder(), rasters, tmp_path / "b.zarr")
    store = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(store["embeddings"][:], numbers)
    np.testing.assert_array_equal(store["scales"][:], scales)
    assert store["x"][0] == CORNER[0] + 5 and store["y"][-1] == CORNER[1] - 195
    assert store.attrs["geoemb:dimensions"] == exact.shape[-1] and store.attrs["proj:code"] == UTM

    embed_raster(model_folder(), rasters, tmp_path / "c.parquet", numbers="float16")
    table = pq.read_table(tmp_path / "c.parquet")
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), exact[seen].astype(np.float16))
    assert json.loads(table.schema.metadata[b"geo"])["columns"]["geometry"]["crs"]["id"]["code"] == 32631
    rows, columns = np.nonzero(seen)
    xy = shapely.get_coordinates(shapely.from_wkb(table["geometry"].to_numpy()))
    np.testing.assert_array_equal(xy, np.stack([CORNER[0] + 10 * columns + 5, CORNER[1] - 10 * rows - 5], axis=1))


@pytest.mark.parametrize("name", ["v.tif", "v.zarr", "v.parquet"])
def test_a_killed_command_continues_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    rasters = scene(tmp_path, 40, 30)
    embed_raster(model_folder(), rasters, tmp_path / "whole" / name)
    with pytest.raises(Killed):
        embed_raster(model_folder(), rasters, tmp_path / "killed" / name, engine=Breaks(4))
    rest = Breaks(None)
    embed_raster(model_folder(), rasters, tmp_path / "killed" / name, engine=rest, resume=True)
    assert 0 < len(rest.seen) < 12
    files = {path.relative_to(tmp_path / "whole"): path for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    again = {path.relative_to(tmp_path / "killed") for path in (tmp_path / "killed").rglob("*") if path.is_file()}
    assert again == {*files}
    for path, one in files.items():
        assert (tmp_path / "killed" / path).read_bytes() == one.read_bytes(), path


def test_positions_have_the_vectors_of_their_pixels_and_what_they_had(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 20, 30)
    places = tmp_path / "places.csv"
    places.write_text(f"x,y,crop\n{CORNER[0] + 55},{CORNER[1] - 35},maize\n0,0,far\n", encoding="utf-8")
    out = tmp_path / "v.parquet"
    how = ["--at", places, "-o", out, "--numbers", "float16", "--window", "120", "--workers", "0", "--quiet"]
    assert main([*map(str, ["embed", model_folder(), "--raster", rasters["path"], "--sensor", "sentinel2", *how])]) == 0
    table = pq.read_table(out).to_pylist()
    assert [row["crop"] for row in table] == ["maize"]
    np.testing.assert_allclose(table[0]["embedding"], vectors(tmp_path, rasters)[3, 5], atol=1e-2)


def test_what_is_like_a_place(tmp_path: Path) -> None:
    rasters = scene(tmp_path, 20, 30)
    made = vectors(tmp_path, rasters).astype(np.float64)
    place = (CORNER[0] + 55, CORNER[1] - 35)
    alike = read(find_alike(model_folder(), rasters, place, tmp_path / "alike.tif").path)[0]
    unit = made / np.linalg.norm(made, axis=-1, keepdims=True)
    assert alike[3, 5] > 0.99 and np.abs(alike - unit @ unit[3, 5]).max() < 0.05
    with pytest.raises(ConfigError, match="nothing was observed at 0, 0"):
        find_alike(model_folder(), rasters, (0.0, 0.0), tmp_path / "none.tif")


def test_what_cannot_work_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raster = ["--raster", str(scene(tmp_path, 20, 30)["path"]), "--sensor", "sentinel2"]
    for words, text in (
        (["-o", "v.csv"], "ends in .tif, .zarr or .parquet"),
        (["-o", "v.tif", "--at", "places.csv"], "ends in .parquet"),
        (["-o", "v.tif", "--like", "here"], "write two coordinates"),
        (["-o", "v.tif", "--like", "1,2", "--numbers", "int8"], "leave them out"),
    ):
        assert main(["embed", str(model_folder()), *raster, *words]) == 2
        assert text in capsys.readouterr().err

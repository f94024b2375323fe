"""STAC items as sources: bands by name, common name and wavelength, and items of pystac as well as their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.errors import ConfigError
from atomizer_io.io.raster_sources import open_rasters
from atomizer_lab.synthetic.rasters import write_raster

rasterio = pytest.importorskip("rasterio")


def item(**assets: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": "a",
        "collection": "sentinel-2-l2a",
        "geometry": None,
        "links": [{"rel": "self", "href": "https://host/items/a.json"}],
        "properties": {"datetime": "2021-07-04T10:00:00Z", "platform": "sentinel-2b"},
        "assets": {name: {"type": "image/tiff; application=geotiff", **asset} for name, asset in assets.items()},
    }


ASSETS: dict[str, dict[str, Any]] = {
    "B02": {"href": "blue.tif", "eo:bands": [{"name": "B02"}], "raster:bands": [{"nodata": 0}]},
    "nir": {"href": "https://other/nir.tif", "eo:bands": [{"common_name": "nir", "center_wavelength": 0.8328}]},
    "swir22": {"href": "s.tif", "bands": [{"eo:center_wavelength": 2.2, "name": "swir22"}]},
    "SCL": {"href": "scl.tif"},
    "visual": {"href": "tci.tif", "eo:bands": [{"name": "B04"}], "roles": ["visual"]},
}


def test_assets_are_rasters_with_their_bands() -> None:
    rasters = aio.rasters_of_stac(item(**ASSETS))
    assert [(raster["path"], raster["bands"]) for raster in rasters] == [
        ("https://host/items/blue.tif", ("B02",)),
        ("https://other/nir.tif", ("B08",)),
        ("https://host/items/s.tif", ("B12",)),
    ]
    assert rasters[0]["nodata"] == 0 and {raster["date"] for raster in rasters} == {"2021-07-04"}
    both = {"type": "FeatureCollection", "features": [item(**ASSETS)] * 2}
    assert len(aio.rasters_of_stac(both, bands=["B08"])) == 2
    new = item(x={"href": "x.tif", "eo:bands": [{"name": "x", "center_wavelength": 0.5, "full_width_half_max": 0.01}]})
    (raster,) = aio.rasters_of_stac(new | {"collection": "mine", "properties": {}})
    assert raster["sensor"]["x"].wavelength_um == 0.5 and "date" not in raster
    with pytest.raises(ConfigError, match="item 'a' has no raster of a known band among SCL"):
        aio.rasters_of_stac(item(SCL=ASSETS["SCL"]))
    with pytest.raises(ConfigError, match="neither a STAC item"):
        aio.rasters_of_stac({"type": "Catalog"})


def test_an_item_beside_its_rasters(tmp_path: Path) -> None:
    pystac = pytest.importorskip("pystac")
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 4e5, 0, -10, 5.8e6)}
    write_raster(tmp_path / "blue.tif", np.ones((1, 8, 8), np.uint16), **place)
    (tmp_path / "item.json").write_text(json.dumps(item(B02=ASSETS["B02"])))
    (source,) = open_rasters(aio.rasters_of_stac(tmp_path / "item.json"))
    assert source.path == tmp_path / "blue.tif" and source.channels[0].name == "B02" and source.nodata == 0
    assert source.channels[0].mean == aio.sensors.SENTINEL2_L2A["B02"].mean and str(source.date) == "2021-07-04"
    read = pystac.Item.from_dict(item(nir=ASSETS["nir"]) | {"bbox": None})
    assert aio.rasters_of_stac(read)[0]["path"] == "https://other/nir.tif"

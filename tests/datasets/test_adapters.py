"""Dictionaries of TorchGeo and its kin: layouts, locations, dates, targets, and what is wrong with some."""

from __future__ import annotations

import datetime
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import rasterio.crs
import torch

from atomizer_io.data.sample import grid_values
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2, VHR
from atomizer_io.datasets.adapters import TorchGeoDataset, from_torchgeo
from atomizer_io.errors import AtomsError, ConfigError, UnknownChannelError

RGB = SENTINEL2.pick("B04", "B03", "B02")
JULY = datetime.date(2021, 7, 4)


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2000 + 1


def mask(height: int = 6, width: int = 8) -> torch.Tensor:
    return torch.arange(height * width).reshape(height, width) % 3


def nine(
    west: float = 600000, south: float = 5e6, step: float = 10, start: float = 0, stop: float = 9e9
) -> torch.Tensor:
    """``bounds`` of 6 × 8 pixels as of TorchGeo 0.10, in single precision."""
    return torch.tensor([west, west + 8 * step, step, south, south + 6 * step, step, start, stop, 1])


def test_an_image_and_its_mask() -> None:
    record = {"image": image(3, 6, 8), "mask": mask()}
    record["image"][1, 2, 3] = torch.nan
    record["mask"][0, 0], record["mask"][0, 1] = 255, -1
    sample = from_torchgeo(record, RGB, day_of_year="2021-07-04", id="a")
    np.testing.assert_array_equal(grid_values(sample.atoms, 0, (6, 8)), record["image"])
    assert sample.atoms.num_atoms == 3 * 48 - 1
    assert [c.name for c in sample.atoms.channels] == ["B04", "B03", "B02"]
    assert sample.target.reshape(6, 8)[0].tolist() == [-1, -1, 2, 0, 1, 2, 0, 1]
    assert sample.queries.ignore.sum() == 2 and sample.queries.grid.pixel_m == (10.0, 10.0)  # that of the channels
    assert sample.meta.id == "a" and sample.meta.dates == (JULY,) and sample.meta.crs is None
    assert sample.atoms.acquisitions[0].timestep is None


def test_channels_by_name() -> None:
    record = {"image": image(3, 6, 8), "mask": mask()}
    by_name = from_torchgeo(record, ["B04", "B03", "B02"], sensor="sentinel2")
    assert by_name.atoms.channels == from_torchgeo(record, RGB).atoms.channels
    assert [c.sensor for c in from_torchgeo(record, ["R", "G", "B"], sensor=VHR).atoms.channels] == ["vhr"] * 3
    assert len(from_torchgeo(record, VHR.subset("R", "G", "B")).atoms.channels) == 3
    with pytest.raises(ConfigError, match="are bands of which sensor"):
        from_torchgeo(record, ["B04", "B03", "B02"])
    with pytest.raises(UnknownChannelError, match="'B99' is not a Sentinel-2 band"):
        from_torchgeo(record, ["B04", "B03", "B99"], sensor="sentinel2")


def test_series_in_either_layout() -> None:
    values = image(4, 3, 6, 8)
    dates = ["2020-12-20", datetime.datetime(2020, 12, 30, 10, 5), np.datetime64("2021-01-04"), JULY]
    record = {"image": values, "mask": mask(), "dates": dates}
    sample = from_torchgeo(record, RGB)
    assert [a.date for a in sample.atoms] == [
        datetime.date(2020, 12, 20),
        datetime.date(2020, 12, 30),
        datetime.date(2021, 1, 4),
        JULY,
    ]
    for step in range(4):
        np.testing.assert_array_equal(grid_values(sample.atoms, step, (6, 8)), values[step])
    turned = from_torchgeo({**record, "image": values.transpose(0, 1)}, RGB, layout="CTHW")
    assert all(torch.equal(a.values, b.values) for a, b in zip(sample.atoms, turned.atoms, strict=True))
    with pytest.raises(AtomsError, match="has 4 channels as TCHW, 3 are named; if it is CTHW, pass layout='CTHW'"):
        from_torchgeo({**record, "image": values.transpose(0, 1)}, RGB)
    with pytest.raises(ConfigError, match="layout is 'THWC'"):
        from_torchgeo(record, RGB, layout="THWC")


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        (torch.tensor([10, 200]), [10, 200]),
        (np.array([10.0, 380.0]), [10, 380]),  # a series may run on past New Year
        (np.array([20210110, 20210704]), [10, 185]),
        (["20210110", "2021-07-04"], [10, 185]),
        (np.array(["2021-01-10T09:00", "2021-07-04T09:00"], dtype="datetime64[ns]"), [10, 185]),
        (None, [None, None]),
    ],
)
def test_dates_in_any_form(dates, days: list[float | None]) -> None:
    record = {"image": image(2, 3, 6, 8), "mask": mask(), "dates": dates}
    sample = from_torchgeo(record, RGB)
    assert [a.day_of_year for a in sample.atoms] == days
    assert [a.timestep for a in sample.atoms] == ([0, 1] if dates is None else [None, None])
    explicit = from_torchgeo({**record, "dates": None}, RGB, day_of_year=dates)
    assert [a.day_of_year for a in explicit.atoms] == days


def test_several_sensors() -> None:
    radar, optical = image(5, 2, 12, 16), image(3, 6, 8)
    record = {"image_S1": radar, "image_S2": optical, "image_id": 7, "label": torch.rand(6, 8)}
    channels = {"S2": RGB, "S1": ["VV", "VH"]}
    options = {"sensor": {"S1": "sentinel1"}, "gsd_m": {"S1": 5.0, "S2": 10.0}}
    sample = from_torchgeo(record, channels, **options, day_of_year={"S1": [1, 2, 3, 4, 5], "S2": 100})
    assert [a.sensor for a in sample.atoms] == ["sentinel2"] + ["sentinel1"] * 5
    assert [a.footprint_m[0] for a in sample.atoms] == [10.0] + [5.0] * 5
    assert [a.day_of_year for a in sample.atoms] == [100, 1, 2, 3, 4, 5]
    assert sample.atoms.bounds == (-40, -30, 40, 30)
    assert sample.target.dtype == torch.float32, "BioMassters: the map of a values is in label"
    nested = from_torchgeo(
        {"image": {"S1": radar, "S2": optical}, "dates_S1": [1, 2, 3, 4, 5], "mask": mask()}, channels, **options
    )
    assert [a.day_of_year for a in nested.atoms] == [None, 1, 2, 3, 4, 5]
    with pytest.raises(AtomsError, match="no image S3 in the sample; it has S1, S2"):
        from_torchgeo(record, {"S3": RGB})
    with pytest.raises(AtomsError, match=r"the sample has images S1, S2: pass channels=\{'S1': ...\}"):
        from_torchgeo(record, RGB)


def test_positions_of_torchgeo_0_8() -> None:
    bounds = (slice(600000.0, 600080.0, 10.0), slice(5e6, 5e6 + 60, 10.0), slice(JULY, JULY, 1))
    record = {"image": image(3, 6, 8), "mask": mask(), "bounds": bounds, "crs": rasterio.crs.CRS.from_epsg(32632)}
    sample = from_torchgeo(record, VHR.pick("R", "G", "B"))
    assert sample.queries.grid.pixel_m == (10.0, 10.0), "not the nominal half metre of the channels"
    assert sample.meta.crs == "EPSG:32632" and sample.meta.transform == (10, 0, 600000, 0, -10, 5e6 + 60)
    assert sample.meta.origin == (600040, 5e6 + 30) and sample.meta.dates == (JULY,)
    wide = (*bounds[:2], slice(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1), 1))
    assert from_torchgeo({**record, "bounds": wide}, RGB).meta.dates == ()


def test_positions_of_torchgeo_0_10() -> None:
    midnight = datetime.datetime(2021, 7, 4, tzinfo=datetime.UTC).timestamp()
    bounds = nine(start=midnight, stop=midnight + 86399.999)
    transform = torch.tensor([10.0, 0, 600000, 0, -10, 5e6 + 60, 0, 0, 1])
    record = {"image": image(3, 6, 8), "mask": mask(), "bounds": bounds, "transform": transform}
    sample = from_torchgeo(record, RGB)
    assert sample.queries.grid.pixel_m == (10.0, 10.0) and sample.meta.dates == (JULY,)
    assert sample.meta.crs is None and sample.meta.transform is None, "the sample does not say which"
    known = from_torchgeo(record, RGB, crs="EPSG:32632")
    assert known.meta.crs == "EPSG:32632" and known.meta.transform == (10, 0, 600000, 0, -10, 5e6 + 60)
    feet = from_torchgeo(record, RGB, crs="EPSG:2263")  # New York, in US feet
    assert feet.queries.grid.pixel_m[0] == pytest.approx(3.048, abs=1e-3)
    narrow = from_torchgeo({**record, "bounds": nine(step=0.2), "transform": None}, RGB)
    assert narrow.queries.grid.pixel_m[0] == pytest.approx(0.2), "more digits than bounds in single precision have"


def test_an_older_bounding_box() -> None:
    noon = datetime.datetime(2021, 7, 4, 12).timestamp()
    box = SimpleNamespace(minx=600000.0, maxx=600080.0, miny=5e6, maxy=5e6 + 60, mint=noon, maxt=noon + 1)
    for key in ("bbox", "bounds"):
        sample = from_torchgeo({"image": image(3, 6, 8), "mask": mask(), key: box}, RGB)
        assert sample.queries.grid.pixel_m == (10.0, 10.0) and sample.meta.dates == (JULY,)
    boxes = {"image": image(3, 6, 8), "mask": mask(), "bbox": torch.rand(4, 4)}
    assert from_torchgeo(boxes, RGB).queries.grid.pixel_m == (10.0, 10.0), "boxes of objects are not a place"


@pytest.mark.parametrize("crs", [None, "EPSG:4326"])
def test_degrees_become_metres(crs: str | None) -> None:
    bounds = (slice(10.0, 10.0008, 1e-4), slice(45.0, 45.0006, 1e-4), slice(None, None, None))
    sample = from_torchgeo({"image": image(3, 6, 8), "mask": mask(), "bounds": bounds}, RGB, crs=crs)
    across, down = sample.queries.grid.pixel_m
    assert across == pytest.approx(11.132 * math.cos(math.radians(45)), rel=3e-3) and down == pytest.approx(
        11.113, rel=1e-3
    )
    assert sample.atoms.acquisitions[0].footprint_m == (across, down) and sample.meta.crs == crs


def test_a_cropped_image_needs_its_pixel_size() -> None:
    record = {"image": image(3, 3, 4), "mask": mask(3, 4), "bounds": nine()}
    with pytest.raises(AtomsError, match="3 × 4 pixels of the size that the sample states do not fill its bounds"):
        from_torchgeo(record, RGB)
    assert from_torchgeo(record, RGB, gsd_m=10.0).queries.grid.pixel_m == (10.0, 10.0)


def test_targets() -> None:
    values = image(3, 6, 8)
    assert int(from_torchgeo({"image": values, "label": torch.tensor(4)}, RGB).target) == 4
    assert int(from_torchgeo({"image": values, "label": torch.tensor([4])}, RGB).target) == 4
    assert from_torchgeo({"image": values, "label": 4}, RGB).queries is None
    assert float(from_torchgeo({"image": values, "label": 4.5}, RGB).target) == 4.5
    ones = from_torchgeo({"image": values, "mask": mask()[None].to(torch.uint8)}, RGB)
    assert ones.target.dtype == torch.int64 and ones.target.shape == (48,)
    kept = from_torchgeo({"image": values, "mask": mask()}, RGB, ignore_index=2)
    assert kept.queries.ignore.sum() == 16
    assert not from_torchgeo({"image": values, "mask": mask() + 254}, RGB, ignore_index=None).queries.ignore.any()
    height = torch.full((6, 8), -9999.0)
    height[0] = 3.5
    measured = from_torchgeo({"image": values, "mask": height}, RGB, nodata=-9999.0)
    assert measured.queries.ignore.sum() == 40 and measured.target[0] == 3.5
    coarse = from_torchgeo({"image": values, "mask": mask(3, 2)}, RGB)
    assert coarse.queries.grid.pixel_m == (40.0, 20.0)


def test_nodata_is_absent() -> None:
    values = image(3, 6, 8)
    values[:, 0] = 0
    values[0, 1, 1] = torch.inf
    assert from_torchgeo({"image": values, "mask": mask()}, RGB, nodata=0).atoms.num_atoms == 3 * 40 - 1


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        ({"mask": mask()}, "the sample has no 'image'; it has mask"),
        ({"image": image(3, 6, 8)}, r"the sample has no target \(mask, label, target\); it has image"),
        ({"image": image(2, 6, 8), "mask": mask()}, "image has 2 channels as TCHW, 3 are named"),
        ({"image": image(6, 8), "mask": mask()}, r"image has shape \(6, 8\); expected"),
        ({"image": image(3, 6, 8), "label": torch.ones(19)}, r"label has shape \(19,\); expected one number or a map"),
        ({"image": image(3, 6, 8), "mask": mask(), "bounds": [1, 2]}, "bounds are not x, y and t"),
        ({"image": image(3, 6, 8), "mask": mask(), "bounds": [1, 1, 1, 2, 2, 1]}, "bounds have no area"),
        (
            {"image": image(3, 6, 8), "mask": mask(), "bounds": nine(), "transform": [10, 3, 0, 3, -10, 0]},
            "rotated against north",
        ),
        ({"image": image(3, 6, 8), "mask": mask(), "bounds": nine(), "crs": "EPSG:1"}, "is not a coordinate system"),
        ({"image": "a.tif", "mask": mask()}, "image must be an array of numbers"),
        ({"image": image(3, 6, 8), "mask": mask(), "dates": ["May"]}, "day_of_year is 'May'"),
        ((image(3, 6, 8), mask()), "a sample is a dictionary"),
    ],
)
def test_what_is_wrong_is_named(record, cause: str) -> None:
    with pytest.raises(AtomsError, match=cause):
        from_torchgeo(record, RGB)
    with pytest.raises(AtomsError, match=f"sample 0: .*{cause}"):
        TorchGeoDataset([record], RGB)[0]


def test_a_dataset_of_dictionaries() -> None:
    record = [{"image": image(3, 6, 8, seed=i), "mask": mask(), "filename": f"{i}.tif"} for i in range(3)]
    dataset = TorchGeoDataset(record, ["B04", "B03", "B02"], sensor="sentinel2", gsd_m=20.0)
    assert len(dataset) == 3 and [s.meta.id for s in dataset] == ["0.tif", "1.tif", "2.tif"]
    assert dataset[-1].meta.id == "2.tif" and dataset.channels == RGB
    assert dataset[0].queries.grid.pixel_m == (20.0, 20.0)
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[1].atoms.acquisitions[0].values, dataset[1].atoms.acquisitions[0].values)
    assert TorchGeoDataset([{"image": image(3, 6, 8), "label": 1}], RGB)[0].meta.id == "0"
    both = TorchGeoDataset(record, {"a": RGB, "b": SENTINEL1.pick("VV")})
    assert [c.name for c in both.channels] == ["B04", "B03", "B02", "VV"]
    with pytest.raises(ConfigError, match="no option gsd; see from_torchgeo"):
        TorchGeoDataset(record, RGB, gsd=10)
    with pytest.raises(IndexError):
        dataset[3]

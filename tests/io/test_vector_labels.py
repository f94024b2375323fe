"""Labels from vector files: the same positions from every format and CRS, margins, weights, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import shapely
from pyarrow import parquet

from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io.vector_files import VectorFile
from atomizer_io.io.vector_labels import LabelColumns, VectorLabels, read_labels
from atomizer_io.io.vector_sampling import Sampling
from data.vectors import FORMATS, moved, write_vector

UTM = "EPSG:32632"
CROP, USUAL = LabelColumns("crop"), Sampling()
XY = [(600000.5, 5000000.25), (600120.0, 5000333.0), (600777.0, 5000111.0), (600500.0, 5000500.0)]
POINTS = [shapely.Point(xy) for xy in XY]
CROPS = ["wheat", "maize", "wheat", "fallow"]
FIELDS = [shapely.box(600000, 5000000, 600300, 5000200), shapely.box(600400, 5000000, 600460, 5000060)]


def read(path: Path, columns: LabelColumns = CROP, sampling: Sampling = USUAL, **how: Any) -> VectorLabels:
    return read_labels(path, columns, sampling, **{"crs": UTM, **how})


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_positions(tmp_path: Path, suffix: str) -> None:
    points = read(write_vector(tmp_path / f"points{suffix}", POINTS, {"crop": CROPS, "area": [1.0, 2.0, 3.0, 4.0]}))
    order = np.argsort(points.xy[:, 0])  # FlatGeobuf sorts features by where they lie
    np.testing.assert_allclose(points.xy[order], sorted(XY), atol=1e-3)
    assert points.classes == ("fallow", "maize", "wheat") and points.codes == (0, 1, 2)
    assert points.target[order].tolist() == [2, 1, 0, 2] and points.weight.tolist() == [1, 1, 1, 1]
    assert len(set(points.feature.tolist())) == 4 and np.isnat(points.day).all() and not points.skipped
    own_crs = UTM if suffix == ".csv" else None
    path = write_vector(tmp_path / f"fields{suffix}", FIELDS, {"crop": CROPS[:2]})
    fields = read(path, sampling=Sampling(margin_m=10, positions=1000), own_crs=own_crs)
    assert len(fields) == 27 * 17 + 3 * 3  # the lattice of 10 m, without what lies on the margin
    for field, crop in enumerate(CROPS[:2]):
        own = fields.target == fields.classes.index(crop)
        assert (shapely.distance(shapely.points(fields.xy[own]), FIELDS[field].exterior) >= 10 - 1e-3).all()
        assert fields.weight[own].sum() == pytest.approx(1)


@pytest.mark.parametrize("epsg", [4326, 3857, 25832, 32633, 3035])
@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".csv"])
def test_another_crs_gives_the_same_positions_to_a_centimetre(tmp_path: Path, epsg: int, suffix: str) -> None:
    options = {"COORDINATE_PRECISION": "12"} if suffix == ".geojson" else {}
    write_vector(tmp_path / f"there{suffix}", moved(POINTS, 32632, epsg), {"crop": CROPS}, epsg, **options)
    there = read(tmp_path / f"there{suffix}", own_crs=f"EPSG:{epsg}" if suffix == ".csv" else None)
    np.testing.assert_allclose(there.xy, XY, atol=0.01)
    fields = write_vector(
        tmp_path / f"fields{suffix}", moved(FIELDS, 32632, epsg), {"crop": CROPS[:2]}, epsg, **options
    )
    own = read(write_vector(tmp_path / "own.gpkg", FIELDS, {"crop": CROPS[:2]}), sampling=Sampling(margin_m=7))
    same = read(fields, sampling=Sampling(margin_m=7), own_crs=f"EPSG:{epsg}" if suffix == ".csv" else None)
    np.testing.assert_allclose(same.xy, own.xy, atol=0.01)


def test_csv_pairs_of_columns_and_delimiters(tmp_path: Path) -> None:
    lonlat = moved(POINTS, 32632, 4326)
    write_vector(tmp_path / "lonlat.csv", lonlat, {"crop": CROPS}, 4326)
    np.testing.assert_allclose(read(tmp_path / "lonlat.csv").xy, XY, atol=0.001)
    text = (tmp_path / "lonlat.csv").read_text().replace(",", ";").replace("lon;lat", "Longitude;Latitude")
    (tmp_path / "german.csv").write_text("\ufeff" + text, encoding="utf-8")
    np.testing.assert_allclose(read(tmp_path / "german.csv").xy, XY, atol=0.001)
    (tmp_path / "none.csv").write_text("crop,north\nwheat,3\n")
    with pytest.raises(DataError, match="needs columns x and y, lon and lat, or wkt"):
        read(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("crop,x,y\nwheat,600000,5000000\nwheat,east,5000000\n")
    with pytest.raises(DataError, match=r"bad\.csv: feature 3 has no geometry"):
        read(tmp_path / "bad.csv")


def test_classes_are_the_values_of_the_column_and_their_codes(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "codes.gpkg", POINTS, {"crop": [40, 10, 40, 20]})
    numbers = read(path)
    assert numbers.classes == ("10", "20", "40") and numbers.codes == (10, 20, 40)
    assert numbers.target.tolist() == [2, 0, 2, 1]
    named = read(path, LabelColumns("crop", classes=(("40", "cereal"), ("10", "maize"), ("20", "cereal"))))
    assert named.classes == ("cereal", "maize") and named.codes == (40, 10) and named.target.tolist() == [0, 1, 0, 0]
    part = read(path, LabelColumns("crop", classes=(("10", "maize"), ("40", "wheat"))))
    assert len(part) == 3 and part.left_out == {"20": 1}
    with pytest.raises(
        ConfigError, match="no feature has 50 in column 'crop', which classes= names; it has 10, 20, 40"
    ):
        read(path, LabelColumns("crop", classes=(("50", "rice"),)))
    write_vector(tmp_path / "floats.gpkg", POINTS, {"crop": [1.5, 2.0, 3.0, 4.0]})
    with pytest.raises(ConfigError, match=r"numbers such as 1.5, which are no classes: .* set task=regression"):
        read(tmp_path / "floats.gpkg")
    height = read(tmp_path / "floats.gpkg", LabelColumns("crop", regression=True))
    assert height.target.tolist() == [1.5, 2.0, 3.0, 4.0] and height.classes == ()


def test_the_only_column_is_the_target(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "one.gpkg", POINTS, {"crop": CROPS, "weight": [1.0, 0.5, 2.0, 0.0]})
    assert read(path, LabelColumns(weight="weight")).weight.tolist() == [1, 0.5, 2]
    with pytest.raises(ConfigError, match=r"name the column of the labels \(column=\.\.\.\): it has crop, weight"):
        read(path, LabelColumns())
    with pytest.raises(DataError, match="has no column 'kind'; it has crop, weight"):
        read(path, LabelColumns("kind"))


def test_dates_splits_and_absent_targets(tmp_path: Path) -> None:
    columns = {
        "crop": ["wheat", "", "maize", "wheat"],
        "seen": ["2021-05-04", "2021-05-05", "", "20210606"],
        "part": ["train", "val", "val", ""],
    }
    path = write_vector(tmp_path / "all.csv", POINTS, columns)
    labels = read(path, LabelColumns("crop", date="seen", split="part"))
    assert labels.unlabelled == 1 and labels.splits == ("train", "val") and labels.split.tolist() == [0, 1, -1]
    assert [str(day) for day in labels.day] == ["2021-05-04", "NaT", "2021-06-06"]
    path.write_text(path.read_text().replace("2021-05-04", "spring"))
    with pytest.raises(DataError, match=r"feature 2 has no date such as 2021-07-04 in column 'seen'"):
        read(path, LabelColumns("crop", date="seen"))


def test_polygons_count_once_or_by_their_area(tmp_path: Path) -> None:
    holed = shapely.Polygon(FIELDS[0].exterior, [shapely.box(600100, 5000050, 600200, 5000150).exterior.coords])
    two = shapely.MultiPolygon([FIELDS[1], shapely.box(600500, 5000000, 600540, 5000040)])
    path = write_vector(tmp_path / "two.gpkg", [holed, two], {"crop": ["a", "b"]})
    once = read(path, sampling=Sampling(positions=50))
    by_area = read(path, sampling=Sampling(positions=50, counts="area"))
    for labels, weights in ((once, (1, 1)), (by_area, (500, 52))):  # in pixels of the lattice
        for number, weight in enumerate(weights):
            own = labels.target == number
            assert 0 < own.sum() <= 50 and labels.weight[own].sum() == pytest.approx(weight, rel=1e-5)
            assert shapely.contains_xy(holed if number == 0 else two, labels.xy[own]).all()
    assert (once.target == 0).sum() == 50
    points = read(
        write_vector(
            tmp_path / "multi.gpkg", [shapely.MultiPoint(XY[:2]), shapely.MultiPoint(XY[2:3])], {"crop": ["a", "b"]}
        )
    )
    assert points.weight.tolist() == [0.5, 0.5, 1] and points.feature.tolist() == [1, 1, 2]


def test_polygons_that_overlap_share_positions(tmp_path: Path) -> None:
    large = shapely.box(600000, 5000000, 603000, 5003000)
    path = write_vector(
        tmp_path / "over.gpkg", [large, shapely.box(600000, 5000000, 602900, 5002950)], {"crop": ["a", "b"]}
    )
    labels = read(path, sampling=Sampling(positions=200))
    first, second = ({tuple(xy) for xy in labels.xy[labels.target == number]} for number in (0, 1))
    assert len(first) == len(second) == 200 and len(first & second) > 150


def test_small_polygons_and_lines(tmp_path: Path) -> None:
    tiny = shapely.box(600001, 5000001, 600004, 5000005)
    path = write_vector(tmp_path / "tiny.gpkg", [tiny, FIELDS[0]], {"crop": ["a", "b"]})
    labels = read(path)
    assert (labels.target == 0).sum() == 1 and tiny.contains(shapely.Point(labels.xy[labels.target == 0][0]))
    without = read(path, sampling=Sampling(margin_m=5))
    assert without.narrow == (1,) and (without.target == 1).all() and not without.skipped
    road = shapely.LineString([(600000, 5000000), (600200, 5000000), (600200, 5000300)])
    lines = write_vector(tmp_path / "roads.gpkg", [road], {"crop": ["road"]})
    with pytest.raises(ConfigError, match=r"has lines: give their width in metres \(line_width_m="):
        read(lines)
    positions = read(lines, sampling=Sampling(spacing_m=2, line_width_m=12, margin_m=50, positions=500)).xy
    assert len(positions) > 200 and (shapely.distance(shapely.points(positions), road) <= 6 * 2**0.5).all()


def test_bad_geometries_are_named(tmp_path: Path) -> None:
    bow = shapely.Polygon([(600000, 5000000), (600100, 5000100), (600100, 5000000), (600000, 5000100)])
    shapes = [FIELDS[0], bow, None, shapely.Polygon(), FIELDS[1]]
    path = write_vector(tmp_path / "bad.gpkg", shapes, {"crop": ["a", "a", "a", "a", "b"]})
    with pytest.raises(DataError, match=r"bad\.gpkg: feature 3 has no geometry: repair it, delete it, or set on_error"):
        read(path)
    labels = read(path, skip_broken=True)
    causes = dict(labels.skipped)
    assert set(causes) == {2, 3, 4} and causes[3] == causes[4] == "has no geometry"
    assert causes[2].startswith("has an invalid geometry (Self-intersection")
    assert set(labels.feature.tolist()) == {1, 5}


def test_coordinates_out_of_range_are_named(tmp_path: Path) -> None:
    path = write_vector(
        tmp_path / "swapped.gpkg", [shapely.Point(45.2, 10.3), shapely.Point(10.3, 145.2)], {"crop": ["a", "b"]}, 4326
    )
    with pytest.raises(DataError, match=r"feature 2 has a latitude beyond 90 degrees"):
        read(path)
    far = write_vector(tmp_path / "far.gpkg", [POINTS[0], shapely.Point(1e30, 1e30)], {"crop": ["a", "b"]}, 3857)
    with pytest.raises(DataError, match=r"feature 2 lies where EPSG:32632 cannot express it"):
        read(far)


def test_labels_without_a_crs(tmp_path: Path) -> None:
    bare = write_vector(tmp_path / "bare.shp", POINTS, {"crop": CROPS}, None)
    with pytest.raises(DataError, match="the labels have no coordinate system, but the images have one"):
        read(bare)
    np.testing.assert_allclose(read(bare, own_crs=UTM).xy, XY)
    named = write_vector(tmp_path / "named.gpkg", POINTS, {"crop": CROPS})
    with pytest.raises(DataError, match="is in EPSG:32632 by itself, not in EPSG:4326"):
        read(named, own_crs="EPSG:4326")


def test_across_the_antimeridian(tmp_path: Path) -> None:
    field = shapely.box(179.99, -17.01, 180.01, -17.0)
    labels = read(write_vector(tmp_path / "fiji.gpkg", [field], {"crop": ["a"]}, 4326), crs="EPSG:32760")
    assert len(labels) == 100 and np.ptp(labels.xy[:, 0]) < 3000


HOSTILE = {
    "vrt.geojson": b'<OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>/a</SrcDataSource></OGRVRTLayer>',
    "alg.geojson": b'{"type":"gdal_streamed_alg","command_line":"gdal vector pipeline ! read a.gpkg"}',
    "link.geojson": (
        b'{"type":"FeatureCollection","crs":{"type":"link","properties":{"href":"http://127.0.0.1:1/a","type":"proj4"}},'
        b'"features":[{"type":"Feature","properties":{"crop":"a"},"geometry":{"type":"Point","coordinates":[9,45]}}]}'
    ),
    "url.json": (
        b'{"type":"FeatureCollection","features":[],"\\u0063rs":{"type":"name","properties":{"name":"a"},'
        b'"type":"url","properties":{"url":"http://127.0.0.1:1/a"}}}'
    ),
    "unknown.geojson": (
        b'{"type":"FeatureCollection","crs":{"type":"name","properties":{"name":"EPSG:999999"}},"features":[]}'
    ),
    "not.gpkg": b"SQLite format 3\0" + bytes(200),
    "not.fgb": b"<OGRVRTDataSource/>",
    "not.shp": b"PK\3\4",
    "not.parquet": b"PAR1 and no more",
    "cut.fgb": b"fgb\x03fgb\0" + bytes(40),
    "empty.geojson": b"",
    "vrt.vrt": b"<OGRVRTDataSource/>",
    "a!b.gpkg": b"SQLite format 3\0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_only_the_format_of_the_name_is_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name])
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read(tmp_path / name)


def test_a_geojson_may_name_its_crs(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "named.geojson", POINTS, {"crop": CROPS, "crs": ["x"] * 4})
    assert "urn:ogc:def:crs:EPSG::32632" in path.read_text()
    assert VectorFile.open(path).crs == UTM
    document = json.loads(path.read_text())
    document["crs"] = {"properties": {"name": "EPSG:32632"}, "type": "name"}
    path.write_text(json.dumps(document, indent=2))
    assert VectorFile.open(path).crs == UTM


def test_views_and_several_layers_of_a_geopackage(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "two.gpkg", POINTS, {"crop": CROPS}, layer="first")
    write_vector(path, POINTS[:2], {"crop": CROPS[:2]}, layer="second", append=True)
    with pytest.raises(DataError, match=r"name one of its layers .*: first, second"):
        read(path)
    assert len(read(path, layer="second")) == 2
    with pytest.raises(DataError, match="layer 'third' is not among its layers"):
        read(path, layer="third")
    with sqlite3.connect(path) as source:
        source.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(fid) AS (SELECT 1 UNION ALL SELECT fid + 1 FROM n) "
            "SELECT fid, NULL AS geom FROM n"
        )
        source.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) "
            "VALUES ('endless', 'features', 'endless', 32632)"
        )
        source.execute("INSERT INTO gpkg_geometry_columns VALUES ('endless', 'geom', 'POINT', 32632, 0, 0)")
    source.close()
    with pytest.raises(DataError, match="its 'endless' is a view or computes its values"):
        read(path, layer="endless")


ENDLESS = (
    "CREATE VIEW {0} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
)


@pytest.mark.parametrize("table", ["gpkg_contents", "gpkg_geometry_columns", "gpkg_extensions"])
def test_tables_that_describe_a_geopackage_are_no_queries(tmp_path: Path, table: str) -> None:
    path = write_vector(tmp_path / "a.gpkg", POINTS, {"crop": CROPS})
    with contextlib.closing(sqlite3.connect(path)) as source:
        source.execute("PRAGMA legacy_alter_table = 1")
        if source.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            source.execute(f"ALTER TABLE {table} RENAME TO old")
        source.execute(ENDLESS.format(table))
        source.commit()
    with pytest.raises(DataError, match=f"its '{table}' is a view or computes its values"):
        read(path)


def test_a_geopackage_computes_nothing(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "a.gpkg", POINTS, {"crop": CROPS})
    with contextlib.closing(sqlite3.connect(path)) as source:
        source.execute("ALTER TABLE a ADD COLUMN large TEXT AS (hex(zeroblob(400000000)))")
        source.commit()
    with pytest.raises(DataError, match="its 'a' is a view or computes its values"):
        read(path)


def test_reading_a_geopackage_changes_nothing_beside_it(tmp_path: Path) -> None:
    path = write_vector(tmp_path / "open/a.gpkg", POINTS, {"crop": CROPS})
    with contextlib.closing(sqlite3.connect(path)) as editor:
        editor.execute("PRAGMA journal_mode = wal")
        editor.execute("CREATE TABLE note (text)")
        editor.commit()
        copy = shutil.copytree(tmp_path / "open", tmp_path / "copy")  # what an editor has not yet written into the file
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    assert "a.gpkg-wal" in before
    with pytest.raises(DataError, match=r"a\.gpkg: has changes in a\.gpkg-wal: close the program"):
        read(copy / "a.gpkg")
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before
    assert len(read(path)) == 4 and [file.name for file in path.parent.iterdir()] == ["a.gpkg"]


def test_a_value_that_is_repeated_in_a_geoparquet_takes_memory_once(tmp_path: Path) -> None:
    shapes, rows = [shapely.Point(9, 45)], 20_000
    crop = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * 2_000_000])
    column = {"encoding": "WKB", "geometry_types": []}
    schema = pyarrow.schema([("crop", crop.type), ("geometry", pyarrow.binary())])
    with parquet.ParquetWriter(tmp_path / "a.parquet", schema, compression="zstd", store_schema=False) as writer:
        geometry = pyarrow.array(shapely.to_wkb(shapes * rows).tolist(), pyarrow.binary())
        writer.write_table(pyarrow.table([crop, geometry], schema=schema))
        geo = {"version": "1.0.0", "primary_column": "geometry", "columns": {"geometry": column}}
        writer.add_key_value_metadata({"geo": json.dumps(geo)})
    before = pyarrow.default_memory_pool().max_memory()
    assert len(read(tmp_path / "a.parquet")) == rows
    assert pyarrow.default_memory_pool().max_memory() < max(before, 200e6)  # one by one: 33 GB in a batch


@pytest.mark.parametrize("suffix", [".dbf", ".DBF"])
def test_sidecars_of_a_shapefile_stay_in_its_folder(tmp_path: Path, suffix: str) -> None:
    path = write_vector(tmp_path / "a/points.shp", POINTS, {"crop": CROPS})
    (tmp_path / "b").mkdir()
    os.replace(tmp_path / "a/points.dbf", tmp_path / "b/points.dbf")
    (tmp_path / f"a/points{suffix}").symlink_to(tmp_path / "b/points.dbf")
    with pytest.raises(
        DataError, match=rf"points\{suffix}: belongs to points\.shp, but is no plain file of its folder"
    ):
        read(path)

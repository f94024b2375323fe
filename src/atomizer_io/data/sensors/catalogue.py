"""The catalogue of common sensors; every number has its source beside it.

Statistics hold for the raw units named beside each table. For values in other units (a reflectance of 0–1 where the
table has DN) replace them: ``SENTINEL2.subset("B04", "B08").with_statistics(values)``.

Rows: name, centre nm, width nm (None, None: known by name), GSD m, aliases separated by ", ".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from atomizer_io.data.channels import Channel, plain_name
from atomizer_io.data.sensors.sensor import Sensor, near_matches
from atomizer_io.errors import UnknownChannelError

_Row = tuple[str, float | None, float | None, float | None, str]
_Statistics = dict[str, tuple[float, float] | None]  # name -> (mean, std); None: no source, bring your own


def _paired(bands: str, means: str, stds: str) -> _Statistics:
    """Return mean and standard deviation by band, from columns of numbers in text."""
    return dict(zip(bands.split(), zip(map(float, means.split()), map(float, stds.split()), strict=True), strict=True))


def _catalogued(
    key: str,
    title: str,
    rows: Sequence[_Row],
    statistics: _Statistics,
    groups: Mapping[str, str] = MappingProxyType({}),
    gsd_m: float | None = None,
) -> Sensor:
    """Return a sensor of the rows that have an entry in ``statistics``; ``gsd_m`` replaces the GSD of the rows."""
    channels = []
    for band, centre, width, gsd, aliases in rows:
        if band in statistics:
            mean, std = statistics[band] or (None, None)
            centre_um, width_um = (None, None) if centre is None or width is None else (centre / 1000, width / 1000)
            names = tuple(filter(None, aliases.split(", ")))
            channels.append(Channel(key, band, centre_um, width_um, gsd_m or gsd, mean, std, aliases=names))
    return Sensor(title, tuple(channels), {group: tuple(bands.split()) for group, bands in groups.items()})


# Centre and width: Sentinel-2A, from the MSI band table in the gee_acolite documentation; not compared with ESA's own
# spectral response functions. Aliases: PANGAEA, terratorch, GEO-Bench.
_S2: tuple[_Row, ...] = (
    ("B01", 442.7, 21, 60.0, "B1, COASTAL_AEROSOL, 01 - Coastal aerosol"),
    ("B02", 492.4, 66, 10.0, "B2, BLUE, 02 - Blue"),
    ("B03", 559.8, 36, 10.0, "B3, GREEN, 03 - Green"),
    ("B04", 664.6, 31, 10.0, "B4, RED, 04 - Red"),
    ("B05", 704.1, 15, 20.0, "B5, RED_EDGE_1, 05 - Vegetation Red Edge"),
    ("B06", 740.5, 15, 20.0, "B6, RED_EDGE_2, 06 - Vegetation Red Edge"),
    ("B07", 782.8, 20, 20.0, "B7, RED_EDGE_3, 07 - Vegetation Red Edge"),
    ("B08", 832.8, 106, 10.0, "B8, NIR_BROAD, 08 - NIR"),
    ("B8A", 864.7, 21, 20.0, "B08A, NIR_NARROW, 08A - Vegetation Red Edge"),
    ("B09", 945.1, 20, 60.0, "B9, WATER_VAPOR, 09 - Water vapour"),
    ("B10", 1373.5, 31, 60.0, "CIRRUS, 10 - SWIR - Cirrus"),
    ("B11", 1613.7, 91, 20.0, "SWIR_1, 11 - SWIR"),
    ("B12", 2202.4, 175, 20.0, "SWIR_2, 12 - SWIR"),
)
_S2_GROUPS = {"rgb": "B04 B03 B02", "red_edge": "B05 B06 B07", "nir": "B08 B8A", "swir": "B11 B12"}

# DN = top-of-atmosphere reflectance x 10^4. Mean, std: Sen1Floods11 as PANGAEA-bench ships them.
_S2_L1C = _paired(
    "B01 B02 B03 B04 B05 B06 B07 B08 B8A B09 B10 B11 B12",
    "1626.916 1396.0347 1364.0612 1218.2285 1466.0729 2386.9030 2845.6126 2622.9580 3077.4822 486.8744 63.7786"
    " 2030.6476 1179.1661",
    "700.1713 739.0945 735.2482 864.9367 776.8803 921.3683 1084.3735 1022.6342 1196.4426 336.6111 143.9992"
    " 980.8706 764.6084",
)
# DN = surface reflectance x 10^4. Mean, std: PASTIS as PANGAEA-bench ships them; B01 and B09, which PASTIS lacks:
# GEO-Bench's cashew plantations as terratorch ships them, whose 25 least cloudy dates vary much less.
_S2_L2A = _paired(
    "B02 B03 B04 B05 B06 B07 B08 B8A B11 B12",
    "1161.6764 1371.4307 1423.4067 1759.7251 2714.5259 3055.8376 3197.8960 3313.3577 2415.9675 1626.8431",
    "2045.0698 1983.1763 2060.7969 1968.8173 1867.2159 1885.1361 1897.5105 1885.1636 1542.7665 1375.2511",
) | _paired("B01 B09", "520.12 2852.87", "204.20 413.90")
SENTINEL2 = _catalogued("sentinel2", "Sentinel-2", _S2, _S2_L1C, _S2_GROUPS)
SENTINEL2_L2A = _catalogued("sentinel2_l2a", "Sentinel-2 L2A", _S2, _S2_L2A, _S2_GROUPS)

# Surface reflectance 0-1 at 30 m (S30, so Sentinel-2 optics). Mean, std: HLS Burn Scars (terratorch = PANGAEA-bench).
_HLS = _paired(
    "B02 B03 B04 B8A B11 B12",
    "0.0333497 0.0570119 0.0588975 0.2323245 0.1972855 0.1194491",
    "0.0226914 0.0268076 0.0400411 0.0779173 0.0870874 0.0724198",
)
HLS = _catalogued("hls", "HLS", _S2, _HLS, {"rgb": "B04 B03 B02", "nir": "B8A", "swir": "B11 B12"}, gsd_m=30.0)

# Backscatter in dB, on the 10 m grid of the datasets. Mean, std of VV and VH: Sen1Floods11; of ASC_*, DSC_* and VV-VH
# (a difference of dB): PASTIS-R, one set for both orbits; both as PANGAEA-bench ships them. HH and HV nominal:
# like-polarised HH as VV, cross-polarised HV as VH.
_S1: tuple[_Row, ...] = (
    *((p, None, None, 10.0, "") for p in ("VV", "VH", "HH", "HV")),
    *((f"ASC_{p}", None, None, 10.0, f"{p}_ASC") for p in ("VV", "VH", "HH", "HV")),
    *((f"DSC_{p}", None, None, 10.0, f"{p}_DSC, {p}_DESC, DESC_{p}") for p in ("VV", "VH", "HH", "HV")),
    ("VV-VH", None, None, 10.0, ""),
)
_S1_DB = _paired("VV VH HH HV VV-VH", "-10.184 -16.895 -10.184 -16.895 6.4167", "4.2553 5.2906 4.2553 5.2906 3.3874")
for _orbit in ("ASC", "DSC"):
    _names = f"{_orbit}_VV {_orbit}_VH {_orbit}_HH {_orbit}_HV"
    _S1_DB |= _paired(_names, "-10.9433 -17.3600 -10.9433 -17.3600", "3.3847 3.3727 3.3847 3.3727")
SENTINEL1 = _catalogued("sentinel1", "Sentinel-1", _S1, _S1_DB)

# Centre and width: middle and extent of the Landsat 8 OLI/TIRS ranges, USGS figures as reproduced in public course
# notes: 0.435-0.451, 0.452-0.512, 0.533-0.590, 0.636-0.673, 0.851-0.879, 1.566-1.651, 2.107-2.294, pan 0.503-0.676,
# cirrus 1.363-1.384, TIRS 10.60-11.19 and 11.50-12.51 um. TIRS is acquired at 100 m. Aliases: Level-2 names
# (SR_* as in TorchGeo, ST_B10), common names, GEO-Bench.
_L8: tuple[_Row, ...] = (
    ("B1", 443, 16, 30.0, "SR_B1, B01, COASTAL_AEROSOL, 01 - Coastal aerosol"),
    ("B2", 482, 60, 30.0, "SR_B2, B02, BLUE, 02 - Blue"),
    ("B3", 561.5, 57, 30.0, "SR_B3, B03, GREEN, 03 - Green"),
    ("B4", 654.5, 37, 30.0, "SR_B4, B04, RED, 04 - Red"),
    ("B5", 865, 28, 30.0, "SR_B5, B05, NIR, 05 - NIR"),
    ("B6", 1608.5, 85, 30.0, "SR_B6, B06, SWIR_1, SWIR1, 06 - SWIR1"),
    ("B7", 2200.5, 187, 30.0, "SR_B7, B07, SWIR_2, SWIR2, 07 - SWIR2"),
    ("B8", 589.5, 173, 15.0, "B08, PAN"),
    ("B9", 1373.5, 21, 30.0, "B09, CIRRUS, 09 - Cirrus"),
    ("B10", 10895, 590, 100.0, "ST_B10, THERMAL_1, TIRS1, 10 - Tirs1"),
    ("B11", 12005, 1010, 100.0, "THERMAL_2, TIRS2, 11 - Tirs2"),
)
# 8-bit values. Mean, std: ForestNet as terratorch ships them. The bands ForestNet lacks have none: measure your own.
_L8_8BIT = _paired(
    "B2 B3 B4 B5 B6 B7",
    "19.868 28.1656 14.9309 82.1076 39.4819 17.7241",
    "17.4523 15.8399 17.9444 21.4439 14.4642 9.9120",
) | {"B1": None, "B8": None, "B9": None, "B10": None, "B11": None}
_L8_GROUPS = {"rgb": "B4 B3 B2", "nir": "B5", "swir": "B6 B7", "thermal": "B10 B11"}
LANDSAT8 = _catalogued("landsat8", "Landsat-8", _L8, _L8_8BIT, _L8_GROUPS)

# Centre and width nominal: round figures for the broad filters of aerial cameras, no data sheet. GSD: IGN's ORTHO HR.
_AERIAL: tuple[_Row, ...] = (
    ("R", 640, 90, 0.2, "RED"),
    ("G", 550, 90, 0.2, "GREEN"),
    ("B", 470, 90, 0.2, "BLUE"),
    ("NIR", 830, 150, 0.2, "N, IR, INFRARED"),
)
# 8-bit values. Mean, std: IGN's FLAIR, as the users of its models quote them.
_AERIAL_8BIT = _paired("R G B NIR", "105.08 110.87 101.82 106.38", "52.17 45.38 44.00 39.69")
AERIAL = _catalogued("aerial", "Aerial", _AERIAL, _AERIAL_8BIT, {"rgb": "R G B"})

# Centre and width: middle and extent of the WorldView-2 ranges red 630-690, green 510-580, blue 450-510, NIR1 770-895
# nm (International Charter's mission page). GSD nominal, pan-sharpened.
_VHR: tuple[_Row, ...] = (
    ("R", 660, 60, 0.5, "RED"),
    ("G", 545, 70, 0.5, "GREEN"),
    ("B", 480, 60, 0.5, "BLUE"),
    ("NIR", 832.5, 125, 0.5, "N, NIR1, INFRARED"),
)
# 8-bit values. Mean, std: xBD as PANGAEA-bench ships them, which reads BGR: its first column is taken as blue. xBD has
# no NIR: nominal, as AERIAL.
_VHR_8BIT = _paired("R G B NIR", "85.1047 88.4452 66.7703 106.38", "62.7612 51.9129 48.3066 39.69")
VHR = _catalogued("vhr", "VHR", _VHR, _VHR_8BIT, {"rgb": "R G B"})

# Metres above the lowest point (elevation) and above the ground below (height). Not measured but chosen: the network
# divides standardised values by 3, so with a std of 10/3 m they reach the Fourier features in units of 10 m.
LIDAR = _catalogued("lidar", "LiDAR", (("elevation", None, None, None, "z"),), {"elevation": (0.0, 10 / 3)})
LIDAR_HEIGHT = _catalogued("lidar", "LiDAR", (("height", None, None, None, "hag"),), {"height": (0.0, 10 / 3)})

# 8-bit values. Mean, std: the 60 000 training images of MNIST. Wavelength (visible light) and GSD nominal.
GRAYSCALE = _catalogued("grayscale", "Grayscale", (("gray", 550, 300, 1.0, "grey, intensity"),), {"gray": (33.3, 78.6)})

SENSORS: dict[str, Sensor] = {
    sensor.channels[0].sensor: sensor
    for sensor in (SENTINEL2, SENTINEL2_L2A, SENTINEL1, LANDSAT8, HLS, AERIAL, VHR, LIDAR, GRAYSCALE)
}


def find(name: str) -> Sensor | None:
    """Return a sensor of the catalogue by key or name, whatever the case and separators; None if there is none."""
    return next((sensor for key, sensor in SENSORS.items() if plain_name(key) == plain_name(name)), None)


def get(name: str) -> Sensor:
    """Return a sensor of the catalogue by its key (``sentinel2_l2a``) or its name (``Sentinel-2 L2A``)."""
    sensor = find(name)
    if sensor is None:
        raise UnknownChannelError(
            f"{name!r} is not a known sensor; {near_matches(name, {key: key for key in SENSORS})}"
        )
    return sensor

"""What observed: a catalogue of common sensors, and ways to describe your own."""

from atomizer_io.data.sensors.catalogue import (
    AERIAL,
    GRAYSCALE,
    HLS,
    LANDSAT8,
    LIDAR,
    LIDAR_HEIGHT,
    SENSORS,
    SENTINEL1,
    SENTINEL2,
    SENTINEL2_L2A,
    VHR,
    get,
)
from atomizer_io.data.sensors.files import from_descriptions, from_geotiff
from atomizer_io.data.sensors.sensor import Sensor

__all__ = [
    "AERIAL",
    "GRAYSCALE",
    "HLS",
    "LANDSAT8",
    "LIDAR",
    "LIDAR_HEIGHT",
    "SENSORS",
    "SENTINEL1",
    "SENTINEL2",
    "SENTINEL2_L2A",
    "VHR",
    "Sensor",
    "from_descriptions",
    "from_geotiff",
    "get",
]

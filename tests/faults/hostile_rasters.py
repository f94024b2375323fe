"""Rasters that reach for other files, programs or the network: each is written over a sound ``scene.tif``.

Every writer gets the path of a sound GeoTIFF of three bands, an ``outside`` folder that holds ``private.tif`` and
``private.txt`` and belongs to somebody else, and the port of a server on this machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chips

SIDE = 16  # pixels of the sound scene
Writer = Callable[[Path, Path, int], object]


def sound(folder: Path, outside: Path, name: str = "scene.tif") -> Path:
    """Write the sound scene into ``folder``, and what nobody may touch into ``outside``."""
    for directory in (folder, outside):
        directory.mkdir(parents=True, exist_ok=True)
    chips.write(outside / "private.tif", chips.values(SIDE, SIDE, seed=1))
    (outside / "private.txt").write_text("a secret that no map may show\n" * 200)
    return chips.write(folder / name, chips.values(SIDE, SIDE))


def vrt(band: str, bands: int = 3, of_dataset: str = "") -> str:
    """Return a VRT on the grid of the sound scene, all of whose bands hold ``band``."""
    west, north = chips.CORNER
    text = f'<VRTDataset rasterXSize="{SIDE}" rasterYSize="{SIDE}"{of_dataset}><SRS>{chips.UTM}</SRS>'
    text += f"<GeoTransform>{west}, 10, 0, {north}, 0, -10</GeoTransform>"
    for number, name in zip(range(1, bands + 1), chips.NAMES, strict=False):
        opening = band.format(number=number)
        text += opening.replace("<Description/>", f"<Description>{name}</Description>")
    return f"{text}</VRTDataset>"


def mosaic(source: str, *, relative: bool = False) -> str:
    """Return a VRT of a file, as ``gdalbuildvrt`` writes it."""
    return vrt(
        '<VRTRasterBand dataType="UInt16" band="{number}"><Description/><SimpleSource>'
        f'<SourceFilename relativeToVRT="{int(relative)}">{source}</SourceFilename>'
        "<SourceBand>{number}</SourceBand></SimpleSource></VRTRasterBand>"
    )


def raw_band(source: Path) -> str:
    """Return a VRT that takes the bytes of any file for pixels."""
    return vrt(
        '<VRTRasterBand dataType="Byte" band="{number}" subClass="VRTRawRasterBand"><Description/>'
        f'<SourceFilename relativeToVRT="0">{source}</SourceFilename><ImageOffset>0</ImageOffset>'
        f"<PixelOffset>1</PixelOffset><LineOffset>{SIDE}</LineOffset></VRTRasterBand>"
    )


def python_band(code: str) -> str:
    """Return a VRT that calls a Python function for its pixels."""
    return vrt(
        '<VRTRasterBand dataType="UInt16" band="{number}" subClass="VRTDerivedRasterBand"><Description/>'
        "<PixelFunctionLanguage>Python</PixelFunctionLanguage><PixelFunctionType>f</PixelFunctionType>"
        "<PixelFunctionCode><![CDATA[\n" + code + "\n]]></PixelFunctionCode></VRTRasterBand>"
    )


def wms(server: str, cache: Path) -> str:
    """Return a description of tiles that are fetched from ``server`` and written into ``cache``."""
    west, north = chips.CORNER
    east, south = west + 10 * SIDE, north - 10 * SIDE
    return (
        f'<GDAL_WMS><Service name="TMS"><ServerUrl>{server}</ServerUrl></Service><DataWindow><UpperLeftX>{west}'
        f"</UpperLeftX><UpperLeftY>{north}</UpperLeftY><LowerRightX>{east}</LowerRightX><LowerRightY>{south}"
        f"</LowerRightY><SizeX>{SIDE}</SizeX><SizeY>{SIDE}</SizeY></DataWindow><Projection>{chips.UTM}</Projection>"
        f"<BandsCount>3</BandsCount><BlockSizeX>{SIDE}</BlockSizeX><BlockSizeY>{SIDE}</BlockSizeY><DataType>UInt16"
        f"</DataType><Cache><Path>{cache}</Path><Type>file</Type></Cache></GDAL_WMS>"
    )


def write_cache(path: Path, outside: Path, port: int) -> None:
    """Tiles of a server of files, whose bytes are written into a folder that the file names."""
    tile = shutil.copy(path, path.with_name("tile.bin"))
    path.write_text(wms(f"file://{tile}?", outside / "cache"))


def fetch_tiles(path: Path, outside: Path, port: int) -> None:
    """Tiles of a server in the network."""
    path.write_text(wms(f"http://127.0.0.1:{port}/${{z}}/${{x}}/${{y}}", outside / "cache"))


def fetch_source(path: Path, outside: Path, port: int) -> None:
    """A VRT whose source is fetched from the network."""
    path.write_text(mosaic(f"/vsicurl/http://127.0.0.1:{port}/private.tif"))


def read_raw(path: Path, outside: Path, port: int) -> None:
    """A VRT that takes the bytes of a text for pixels."""
    path.write_text(raw_band(outside / "private.txt"))


def read_private(path: Path, outside: Path, port: int) -> None:
    """A VRT of somebody else's raster."""
    path.write_text(mosaic(str(outside / "private.tif")))


def nest(path: Path, outside: Path, port: int, depth: int = 22) -> None:
    """VRTs of VRTs, each of which has the next one twice: the work doubles with every level."""
    inner = str(shutil.copy(path, path.with_name("level0.bin")))
    for level in range(1, depth + 1):
        name = path if level == depth else path.with_name(f"level{level}.bin")
        source = f"<SimpleSource><SourceFilename>{inner}</SourceFilename><SourceBand>1</SourceBand></SimpleSource>"
        text = '<VRTRasterBand dataType="UInt16" band="{number}"><Description/>' + 2 * source + "</VRTRasterBand>"
        name.write_text(vrt(text))
        inner = str(name)


def run_python(path: Path, outside: Path, port: int) -> None:
    """A VRT with a Python function, which writes a file."""
    path.write_text(python_band(f"open({str(outside / 'ran')!r}, 'w').close()\ndef f(*given, **named): pass"))


def overviews_elsewhere(path: Path, outside: Path, port: int) -> None:
    """A sound GeoTIFF whose own tags say that its overviews are in another file."""
    import rasterio

    (outside / "other.bin").write_text(mosaic(str(outside / "private.tif")))
    with rasterio.open(path, "r+") as file:
        file.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(outside / "other.bin"))


def pam(text: str) -> str:
    """Return what GDAL reads beside a raster, as ``scene.tif.aux.xml``."""
    return f"<PAMDataset>{text}</PAMDataset>"


def overviews_beside(path: Path, outside: Path, port: int) -> None:
    """The same in the file of metadata beside a sound GeoTIFF."""
    item = f'<MDI key="OVERVIEW_FILE">{outside / "private.tif"}</MDI>'
    path.with_name(f"{path.name}.aux.xml").write_text(pam(f'<Metadata domain="OVERVIEWS">{item}</Metadata>'))


def overview_is_vrt(path: Path, outside: Path, port: int) -> None:
    """Overviews beside a sound GeoTIFF that are a VRT."""
    path.with_name(f"{path.name}.ovr").write_text(mosaic(str(outside / "private.tif")))


def mask_is_vrt(path: Path, outside: Path, port: int) -> None:
    """A mask beside a sound GeoTIFF that is a VRT."""
    path.with_name(f"{path.name}.msk").write_text(raw_band(outside / "private.txt"))


def mask_is_link(path: Path, outside: Path, port: int) -> None:
    """A mask beside a sound GeoTIFF that is a link to somebody else's raster."""
    path.with_name(f"{path.name}.msk").symlink_to(outside / "private.tif")


def mask_of_mask(path: Path, outside: Path, port: int) -> None:
    """A sound mask whose own overviews are a VRT."""
    chips.write(path.with_name(f"{path.name}.msk"), chips.values(SIDE, SIDE)[:1].astype("uint8"), names=None)
    path.with_name(f"{path.name}.msk.ovr").write_text(mosaic(str(outside / "private.tif")))
    path.with_name(f"{path.name}.msk.msk").write_text(mosaic(str(outside / "private.tif")))


def grid_shift(path: Path, outside: Path, port: int) -> None:
    """A sound GeoTIFF in a coordinate system that is shifted by a file of somebody else's."""
    where = f"+proj=utm +zone=31 +ellps=WGS84 +nadgrids={outside / 'private.txt'} +units=m +no_defs"
    shift = f'EXTENSION["PROJ4","{where}"]'
    import rasterio

    with rasterio.open(path) as file:
        text = file.crs.to_wkt(version="WKT1_GDAL")
    text = text.replace(',AUTHORITY["EPSG","32631"]]', f",{shift}]")
    path.with_name(f"{path.name}.aux.xml").write_text(pam(f"<SRS>{text.replace(chr(34), '&quot;')}</SRS>"))


HOSTILE: tuple[Writer, ...] = (
    *(write_cache, fetch_tiles, fetch_source, read_raw, read_private, nest, run_python),
    *(overviews_elsewhere, overviews_beside, overview_is_vrt, mask_is_vrt, mask_is_link, mask_of_mask, grid_shift),
)


def hostile_scene(writer: Writer, folder: Path, outside: Path, port: int, **how: Any) -> Path:
    """Write a hostile scene into ``folder``."""
    path = sound(folder, outside, **how)
    writer(path, outside, port)
    return path

"""Changes that know a format: absurd sizes in headers, swapped types, bombs, and links that leave the file."""

from __future__ import annotations

import gzip
import io
import json
import random
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIZES = (0, 1, 7, 65_535, 100_000, 1_000_000, 2**31 - 1, 2**31, 2**32 - 1)
# width, length, bits, compression, colours, strips, samples, rows, counts, planes, predictor, tiles, format, offset
TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 338, 339, 33550, 33922, 34735)


def tiff(path: Path, rng: random.Random) -> None:
    """Give tags of a GeoTIFF other values, types or counts; often width and height together."""
    data = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    entries = {struct.unpack_from("<H", data, at + 2 + 12 * i)[0]: at + 2 + 12 * i for i in range(count)}
    if rng.random() < 0.25:  # a large image in a small file: every block is missing or the same
        for tag in (256, 257):
            _set_tag(data, entries[tag], rng.choice((46_341, 100_000, 1_000_000)))
        if rng.random() < 0.5 and 278 in entries:
            _set_tag(data, entries[278], rng.choice(SIZES))
        path.write_bytes(data)
        return
    for _ in range(rng.choice((1, 1, 2, 3))):
        offset = entries[rng.choice([tag for tag in TAGS if tag in entries])]
        what = rng.random()
        if what < 0.6:
            _set_tag(data, offset, rng.choice((*SIZES, 2, 3, 4, 5, 8, 16, 32, 64, 128, 34712, 50000, 32773)))
        elif what < 0.8:
            struct.pack_into("<H", data, offset + 2, rng.randrange(20))
        else:
            struct.pack_into("<I", data, offset + 4, rng.choice(SIZES))
    path.write_bytes(data)


def _set_tag(data: bytearray, offset: int, number: int) -> None:
    """Write a number into a tag, as LONG so that large ones fit."""
    struct.pack_into("<HII", data, offset + 2, 4, 1, number % 2**32)


NPY_TYPES = ("<f8", ">f4", "<u2", "|u1", "<i8", "|O", "<U5", "<c16", "<M8[D]", "|b1", "|V12", "<f2", "[('x', '<f8')]")
SHAPES = (
    "()",
    "(0,)",
    "(-1,)",
    "(1000000000,)",
    "(2147483648, 2)",
    "(1, 1, 1, 1)",
    "(99999999999999999999,)",
    "(3, 'a')",
)


def npy(path: Path, rng: random.Random) -> None:
    """Write another shape, type or order into the header of an array."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        shape, order, kind = np.lib.format.read_array_header_1_0(file)
        body = file.read()
    fields = {"descr": repr(kind.str), "fortran_order": str(order), "shape": repr(shape)}
    what = rng.random()
    if what < 0.45:
        fields["shape"] = rng.choice((*SHAPES, repr(tuple(reversed(shape))), repr((*shape, 1)), repr(shape[1:])))
    elif what < 0.9:
        new = rng.choice(NPY_TYPES)
        fields["descr"] = new if new.startswith("[") else repr(new)
    else:
        fields["fortran_order"] = rng.choice(("True", "1", "None", "__import__('os')"))
    text = ("{" + ", ".join(f"'{key}': {value}" for key, value in fields.items()) + ", }").encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + body)


LAS_FIELDS = (
    *((94, "H"), (96, "I"), (100, "I"), (104, "B"), (105, "H"), (107, "I"), (24, "B"), (25, "B"), (6, "H")),
    *((131, "d"), (139, "d"), (147, "d"), (155, "d"), (179, "d"), (187, "d"), (195, "d"), (203, "d"), (235, "Q")),
    *((243, "I"), (247, "Q")),
)


def las(path: Path, rng: random.Random) -> None:
    """Give fields of a LAS header other numbers: counts of points, sizes, offsets, scales and bounds."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2))):
        at, kind = rng.choice(LAS_FIELDS)
        if kind == "d":
            number: float = rng.choice((0.0, -1.0, 1e300, 1e-300, float("nan"), float("inf"), 1e9, 5e-324))
        else:
            number = rng.choice((*SIZES, 10**9, 2**40)) % (1 << (8 * struct.calcsize(kind)))
        if at + struct.calcsize(f"<{kind}") <= len(data):
            struct.pack_into(f"<{kind}", data, at, number)
    path.write_bytes(data)


PLY_LINES = (
    *(b"element vertex 1000000000", b"element vertex 0", b"element vertex -1", b"property list uchar int x"),
    *(b"property double x", b"property float z", b"format ascii 1.0", b"format binary_big_endian 1.0", b"end_header"),
    *(b"element vertex " + b"9" * 40, b"element face 1000000000", b"property quad x", b"\xff\xfe", b"x" * 5000),
)


def ply(path: Path, rng: random.Random) -> None:
    """Replace, remove or add a line of a PLY header."""
    head, mark, body = path.read_bytes().partition(b"end_header\n")
    lines = head.splitlines()
    number, what = rng.randrange(len(lines)), rng.random()
    if what < 0.6:
        lines[number] = rng.choice(PLY_LINES)
    elif what < 0.8:
        del lines[number]
    else:
        lines.insert(number, rng.choice(PLY_LINES))
    path.write_bytes(b"\n".join(lines) + b"\n" + mark + body)


def idx(path: Path, rng: random.Random) -> None:
    """Change the header inside a packed idx file, or put gigabytes of zeros into few bytes."""
    packed = path.suffix == ".gz"
    data = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    if rng.random() < 0.3:
        path.write_bytes(gzip_bomb(bytes(data[:16]), rng.choice((1 << 28, 3 << 30))))
        return
    struct.pack_into(">I", data, 4 * rng.randrange(min(4, len(data) // 4)), rng.choice(SIZES))
    path.write_bytes(gzip.compress(bytes(data), mtime=0) if packed else data)


def gzip_bomb(head: bytes, zeros: int) -> bytes:
    """Return a gzip file of ``head`` and so many zeros, without ever holding them."""
    piece = 1 << 24
    unit = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = unit.compress(bytes(piece)) + unit.flush(zlib.Z_FULL_FLUSH)
    first = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = first.compress(head) + first.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + begin + block * (zeros // piece) + end + bytes(8)


def png(path: Path, rng: random.Random) -> None:
    """Change the size, depth or kind of an image, with a checksum that fits."""
    data = bytearray(path.read_bytes())
    what = rng.random()
    if what < 0.7:
        struct.pack_into(">I", data, 16 + 4 * rng.randrange(2), rng.choice((*SIZES, 30_000)))
        if what < 0.3:
            struct.pack_into(">II", data, 16, *rng.choice(((46_341, 46_341), (100_000, 30_000), (2**31 - 1, 1))))
    else:
        data[24 + rng.randrange(5)] = rng.randrange(20)
    struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    path.write_bytes(data)


def hdf5(path: Path, rng: random.Random) -> None:
    """Write odd things into a sound HDF5 file: huge arrays without content, links elsewhere, other types and texts."""
    import h5py

    with h5py.File(path, "r+") as file:
        name = rng.choice(list(file))
        old = file[name]
        shape = old.shape if isinstance(old, h5py.Dataset) else (4, 4)
        what = rng.choice(
            ("huge", "link", "external", "type", "shape", "group", "attribute", "packed", "virtual", "name")
        )
        if what == "name":
            file[rng.choice(("../outside", "x_2020-13-45", "label_2020-01-01", "é", "B99"))] = np.zeros(shape, np.int16)
            return
        if what == "attribute":
            file.attrs["pickle"] = rng.choice(PICKLE_TEXTS)
            return
        del file[name]
        if what == "huge":
            side = rng.choice((4_096, 65_536, 2**31))
            file.create_dataset(name, (side, side), "i2", chunks=(64, 64))
        elif what == "link":
            file[name] = rng.choice(
                (h5py.SoftLink("/nothing"), h5py.SoftLink(f"/{name}"), h5py.ExternalLink("../x", "/a"))
            )
        elif what == "external":
            file.create_dataset(name, shape, "i2", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
        elif what == "type":
            kind = rng.choice(("S5", "c16", "f2", "u8", "?", h5py.string_dtype(), h5py.vlen_dtype("i4"), [("a", "i4")]))
            file.create_dataset(name, shape, kind)
        elif what == "shape":
            file.create_dataset(name, rng.choice(((), (0,), (3,), (1, 2, 3), (shape[0] + 1, *shape[1:]))), "i2")
        elif what == "packed":
            file.create_dataset(name, (4_096, 4_096), "f8", chunks=(4_096, 4_096), compression="gzip", fillvalue=1)
            file[name][0, 0] = np.inf
        elif what == "virtual":
            layout = h5py.VirtualLayout(shape, "i2")
            layout[...] = h5py.VirtualSource("/etc/passwd", "x", shape)
            file.create_virtual_dataset(name, layout)
        else:
            file.create_group(name)


PICKLE_TEXTS = (
    *(
        "",
        "b''",
        "1",
        "b'cos\\nsystem\\n(S\"touch outside\"\\ntR.'",
        "b'\\x80\\x04]\\x94h\\x00a.'",
        "b'(lp0\\ng0\\na.'",
    ),
    *("b'" + "(" * 60_000 + "'", "b'\\x80\\x04\\x8e\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f.'", "__import__('os')"),
    *("b'\\x80\\x05\\x96\\xff\\xff\\xff\\xff\\x00\\x00\\x00\\x00.'", "b'I" + "9" * 9000 + "\\n.'", "b'}.'", "b'N.'"),
)


def gpkg(path: Path, rng: random.Random) -> None:
    """Change rows, names and types in a GeoPackage, which stays a sound database."""
    source = sqlite3.connect(path)
    try:
        geometries = "UPDATE places SET geom = ?"
        blobs = (None, b"", b"GP", b"GP\0\x0f" + bytes(40), b"GP\0\1" + bytes(4) + b"\1", "text", 7, bytes(1 << 20))
        statements = (
            *((geometries, (blob,)) for blob in blobs),
            (
                "UPDATE gpkg_geometry_columns SET table_name = ?",
                (rng.choice(("nothing", '"', "sqlite_master", "a\0b", None)),),
            ),
            ("UPDATE gpkg_geometry_columns SET column_name = ?", (rng.choice(("nothing", "fid", "", None)),)),
            ("UPDATE gpkg_geometry_columns SET srs_id = ?", (rng.choice((-5, 0, 99999, "x", None, 1e300)),)),
            ("UPDATE gpkg_spatial_ref_sys SET organization = ?", (rng.choice((None, 7, "x", "EPSG", b"\xff")),)),
            ("UPDATE gpkg_spatial_ref_sys SET organization_coordsys_id = ?", (rng.choice((None, -1, "x", 10**12)),)),
            ("DELETE FROM places", ()),
            ("DELETE FROM gpkg_geometry_columns", ()),
            ("DROP TABLE gpkg_spatial_ref_sys", ()),
            ("DROP TABLE places", ()),
            ("ALTER TABLE places ADD COLUMN large TEXT AS (hex(zeroblob(400000000)))", ()),
            ("ALTER TABLE gpkg_contents RENAME TO gpkg_extensions", ()),
            (ENDLESS, ()),
        )
        command, values = rng.choice(statements)
        if command == ENDLESS:
            source.execute("DROP TABLE places")
        source.execute(command, values)
        source.commit()
    except (sqlite3.Error, UnicodeEncodeError):
        pass
    finally:
        source.close()


ENDLESS = (  # a table that is a question, and never ends
    "CREATE VIEW places AS WITH RECURSIVE more(fid) AS (SELECT 1 UNION ALL SELECT fid + 1 FROM more) "
    "SELECT fid, NULL AS geom FROM more"
)


def safetensors(path: Path, rng: random.Random) -> None:
    """Change the header of a file of weights: types, shapes, offsets, names."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    name = rng.choice([key for key in header if key != "__metadata__"])
    what = rng.choice(("dtype", "shape", "offsets", "drop", "add", "length", "metadata", "not a number"))
    body = data[8 + length :]
    if what == "dtype":
        header[name]["dtype"] = rng.choice(("F64", "I64", "BOOL", "F16", "X", 7))
    elif what == "shape":
        header[name]["shape"] = rng.choice(([], [2**40], [-1], [0], ["a"], [2**63, 2], None))
    elif what == "offsets":
        header[name]["data_offsets"] = rng.choice(([0, 2**40], [-1, 4], [8, 4], [], None))
    elif what == "drop":
        del header[name]
    elif what == "add":
        header["../outside"] = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    elif what == "metadata":
        header["__metadata__"] = rng.choice(({}, {"structure": "[" * 100_000}, {"structure": 5}, None))
    elif what == "not a number":
        first, last = header[name]["data_offsets"]
        body = body[:first] + b"\xff" * (last - first) + body[last:]
        header.get("__metadata__", {}).pop("checksum", None)
    text = json.dumps(header).encode()
    size = rng.choice((2**40, 2**63, 0, len(text) * 2)) if what == "length" else len(text)
    path.write_bytes(struct.pack("<Q", size) + text + body)


def npz(path: Path, rng: random.Random) -> None:
    """Put a zip archive of arrays, with a name that leaves its folder, in the offset of an array."""
    buffer = io.BytesIO()
    names = ("arr_0", "../../outside", "/outside")
    np.savez_compressed(buffer, **{rng.choice(names): rng.choice((np.zeros(3), np.zeros((2000, 2000))))})
    path.write_bytes(buffer.getvalue())


HEADERS: dict[str, tuple[Callable[[Path, random.Random], None], ...]] = {
    ".tif": (tiff,),
    ".npy": (npy, npy, npz),
    ".las": (las,),
    ".laz": (las,),
    ".ply": (ply,),
    ".gz": (idx,),
    ".png": (png,),
    ".hdf5": (hdf5,),
    ".gpkg": (gpkg,),
    ".safetensors": (safetensors,),
}

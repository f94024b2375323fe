"""How classes stand in the file of a map: the codes of the labels, a value without data, names and colours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour, colours_by_code

# types of pixels and their values without data; the first that has room for all codes is used
KINDS = (("uint8", 255), ("uint16", 65535), ("int16", -(2**15)), ("int32", -(2**31)))
UNSIGNED = ("uint8", "uint16")  # those for which TIFF has tables of colours
# columns of an attribute table of GDAL: name, type (0: whole number, 2: text), usage
COLUMNS = (("Value", 0, 5), ("Class", 2, 2), ("Red", 0, 6), ("Green", 0, 7), ("Blue", 0, 8))


@dataclass(frozen=True, slots=True)
class MapClasses:
    """The classes of a map: their names and the codes that stand for them."""

    names: tuple[str, ...]
    codes: tuple[int, ...]

    @classmethod
    def of(cls, task_spec: TaskSpec) -> MapClasses | None:
        """Return the classes that a model maps, None where it maps a regression target."""
        return None if task_spec.regression else cls(task_spec.names, task_spec.codes)

    @property
    def kind(self) -> tuple[str, int]:
        """The type of a pixel, and its value without data: 255, or outside of the codes where those need more room."""
        for dtype, nodata in KINDS:
            room = np.iinfo(dtype)
            if nodata not in self.codes and all(room.min <= code <= room.max for code in self.codes):
                return dtype, nodata
        raise AssertionError("codes of a task specification fit into 32 bits")

    @property
    def colours(self) -> dict[int, Colour]:
        """The colour of each code."""
        return colours_by_code(self.codes, self.names)

    @property
    def legend(self) -> dict[int, tuple[str, Colour]]:
        """The name and the colour of each code."""
        return {code: (name, self.colours[code]) for code, name in zip(self.codes, self.names, strict=True)}

    @property
    def by_name(self) -> dict[str, int]:
        """The code of each class by its name."""
        return dict(zip(self.names, self.codes, strict=True))

    def encoded(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of numbers of classes, which are NaN without data."""
        dtype, nodata = self.kind
        known = np.isfinite(numbers)
        codes = np.full(numbers.shape, nodata, dtype)
        codes[known] = np.array(self.codes, dtype)[numbers[known].astype(np.int64)]
        return codes

    def colour_table(self) -> dict[int, tuple[int, int, int, int]] | None:
        """Return the colours as a GeoTIFF stores them; None where it cannot: :meth:`described` has them then."""
        dtype, nodata = self.kind
        if dtype not in UNSIGNED:
            return None
        table = {code: (*_bytes(colour), 255) for code, colour in self.colours.items()}
        return {**table, nodata: (0, 0, 0, 0)}

    def tags(self) -> dict[str, str]:
        """Return names and codes as tags of a file."""
        return {"classes": json.dumps(self.names), "codes": json.dumps(self.codes)}

    def described(self) -> str:
        """Return the class names in the form that GDAL and QGIS read beside a file."""
        table = self._categories() if self.kind[0] in UNSIGNED else self._attributes()
        return f'<PAMDataset>\n  <PAMRasterBand band="1">\n{table}  </PAMRasterBand>\n</PAMDataset>\n'

    def _categories(self) -> str:
        """Return names as GDAL lists them, from 0 on: numbers that are no class have none."""
        known = dict(zip(self.codes, self.names, strict=True))
        texts = (_text(known.get(number, "")) for number in range(max(self.codes) + 1))
        rows = "".join(f"      <Category>{text}</Category>\n" for text in texts)
        return f"    <CategoryNames>\n{rows}    </CategoryNames>\n"

    def _attributes(self) -> str:
        """Return names and colours as an attribute table of GDAL, which has room for negative codes."""
        heads = "".join(
            f'      <FieldDefn index="{i}"><Name>{name}</Name><Type>{kind}</Type><Usage>{usage}</Usage></FieldDefn>\n'
            for i, (name, kind, usage) in enumerate(COLUMNS)
        )
        rows = ((code, name, *_bytes(self.colours[code])) for code, name in zip(self.codes, self.names, strict=True))
        body = "".join(f'      <Row index="{i}">{_cells(row)}</Row>\n' for i, row in enumerate(rows))
        kind = 'tableType="thematic"'
        return f"    <GDALRasterAttributeTable {kind}>\n{heads}{body}    </GDALRasterAttributeTable>\n"


def _bytes(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (round(255 * part) for part in colour)
    return red, green, blue


def _cells(row: Iterable[Any]) -> str:
    return "".join(f"<F>{_text(str(value))}</F>" for value in row)


def _text(text: str) -> str:
    return escape(printable(text))

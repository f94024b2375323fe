"""How classes stand in the file of a map: the codes of the labels, a value without data, names and colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour, class_colours

# types of pixels and their values without data; the first that has room for all codes is used
KINDS = (("uint8", 255), ("uint16", 65535), ("int16", -(2**15)), ("int32", -(2**31)))
UNSIGNED = ("uint8", "uint16")  # those for which TIFF has tables of colours
# columns of an attribute table of GDAL: name, type (0: whole number, 2: text), usage
COLUMNS = (("Value", 0, 5), ("Class", 2, 2), ("Red", 0, 6), ("Green", 0, 7), ("Blue", 0, 8))


@dataclass(frozen=True, slots=True)
class MapClasses:
    """The classes of a map: by code their names and colours, the type of a pixel, and its value without data."""

    legend: dict[int, tuple[str, Colour]]
    dtype: str
    nodata: int

    @classmethod
    def of(cls, task_spec: TaskSpec) -> MapClasses:
        """Return the classes that a model maps; no data is 255, or outside of the codes where those need more room."""
        codes, names = task_spec.codes, task_spec.names
        for dtype, nodata in KINDS:
            room = np.iinfo(dtype)
            if nodata not in codes and all(room.min <= code <= room.max for code in codes):
                named = zip(names, class_colours(names), strict=True)
                return cls(dict(zip(codes, named, strict=True)), dtype, nodata)
        raise AssertionError("codes of a task specification fit into 32 bits")

    def encoded(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of numbers of classes, which are NaN without data."""
        known = np.isfinite(numbers)
        codes = np.full(numbers.shape, self.nodata, self.dtype)
        codes[known] = np.array([*self.legend], self.dtype)[numbers[known].astype(np.int64)]
        return codes

    def colour_table(self) -> dict[int, tuple[int, ...]] | None:
        """Return the colours as a GeoTIFF stores them; None where it cannot: :meth:`described` has them then."""
        if self.dtype not in UNSIGNED:
            return None
        return {code: (*_bytes(colour), 255) for code, (_, colour) in self.legend.items()} | {self.nodata: (0, 0, 0, 0)}

    def described(self) -> str:
        """Return the class names in the form that GDAL and QGIS read beside a file.

        GDAL lists names from 0 on: numbers that are no class have none. An attribute table has room for negative codes.
        """
        if self.dtype in UNSIGNED:
            named = (self.legend.get(number, ("", None))[0] for number in range(max(self.legend) + 1))
            rows = "".join(f"      <Category>{escape(printable(name))}</Category>\n" for name in named)
            table = f"    <CategoryNames>\n{rows}    </CategoryNames>\n"
        else:
            rows = ""
            for i, (name, kind, usage) in enumerate(COLUMNS):
                field = f"<Name>{name}</Name><Type>{kind}</Type><Usage>{usage}</Usage>"
                rows += f'      <FieldDefn index="{i}">{field}</FieldDefn>\n'
            for i, (code, (name, colour)) in enumerate(self.legend.items()):
                cells = "".join(f"<F>{text}</F>" for text in (code, escape(printable(name)), *_bytes(colour)))
                rows += f'      <Row index="{i}">{cells}</Row>\n'
            thematic = 'tableType="thematic"'
            table = f"    <GDALRasterAttributeTable {thematic}>\n{rows}    </GDALRasterAttributeTable>\n"
        return f'<PAMDataset>\n  <PAMRasterBand band="1">\n{table}  </PAMRasterBand>\n</PAMDataset>\n'


def _bytes(colour: Colour) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colour)

"""The page of `atomizer view` in a notebook: the same files, with messages of the kernel instead of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atomizer_io.errors import ConfigError
from atomizer_io.models.base import Model
from atomizer_io.viewer.scenes import RasterView
from atomizer_io.viewer.server import PAGE, replied
from atomizer_io.viewer.session import Session

NOTEBOOK = "notebook.js"


def view(
    model: Model | str | Path,
    rasters: Sequence[Any] | Any,
    *,
    bounds: tuple[float, float, float, float] | None = None,
    output: str | Path = "atomizer-view",
    height: int = 640,
) -> Any:
    """Return the page of `atomizer view` as a widget of a notebook.

    ``model`` and ``rasters`` are those of :func:`~atomizer_io.predict_raster`; ``bounds`` (west, south, east, north) is
    the part to open, in the CRS of the first raster. "Save" and "train" write to ``output``. Takes the extra
    ``notebook``.
    """
    import anywidget
    import traitlets

    class Page(anywidget.AnyWidget):
        """A frame with the page."""

        _esm = (PAGE / NOTEBOOK).read_text(encoding="utf-8")
        files = traitlets.Dict().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    session = Session(
        RasterView(model, rasters if isinstance(rasters, list | tuple) else [rasters], bounds), Path(output)
    )
    calls = session.calls()

    def receive(widget: Any, message: Any, buffers: Any) -> None:
        call = calls.get(message.get("name"))
        if call is None:
            raise ConfigError(f"there is no request {message.get('name')!r}")
        status, kind, content = replied(call, message.get("values") or {})
        widget.send({"number": message.get("number"), "status": status, "type": kind}, [content])

    page = Page(files=page_files(), height=height)
    page.on_msg(receive)
    return page


def page_files() -> dict[str, str]:
    """Return the files of the page by their paths."""
    kinds = (".html", ".css", ".js", ".mjs")
    paths = [path for path in sorted(PAGE.rglob("*")) if path.suffix in kinds and path.name != NOTEBOOK]
    return {path.relative_to(PAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths}

"""Exported files: any sizes, any bands, the outputs of the model.

Writing a file takes about ten seconds, so one model with all parts is written once, and everything is tried on it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pystac
import pytest
import torch
from pystac.extensions.mlm import MLMExtension
from test_network import direct, mixed, optical_and_radar, small
from torch import Tensor

import atomizer_io as aio
from atomizer_io.cli import main
from atomizer_io.data.sensors import LANDSAT8, SENTINEL1, SENTINEL2
from atomizer_io.errors import CheckpointError
from atomizer_io.export import formats, read_description, read_model, runner, scene_inputs, stac, write
from atomizer_io.export.network import INPUTS, inputs_of
from scenes import far_anchors, points, queries, raster

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "export.md"


@pytest.fixture(autouse=True)
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines about symbols, which pytest would keep."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)


@pytest.fixture
def captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both formats from one capture, which takes the longest."""
    capture, programs = formats.capture, []

    def first(network):
        if not programs:
            programs.append(capture(network))
        return programs[0]

    monkeypatch.setattr(formats, "capture", first)


def check(run: Callable, model: aio.AtomizerIO, atoms: aio.AtomSet, positions: Tensor | None, **keywords) -> None:
    got = run(scene_inputs(model, atoms, positions, **keywords))
    keywords = {name: [value] if name == "anchors" else value for name, value in keywords.items()}
    torch.testing.assert_close(got, direct(model, atoms, positions, **keywords), rtol=0, atol=1e-5)


def test_series_at_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str], captured_once: None) -> None:
    channels, classes = SENTINEL2.pick("B02", "B03", "B08"), ("dry", "wet", "no data")
    model = small(depth=1, temporal=True, channels=channels, class_names=classes)
    model.save_pretrained(tmp_path / "model")
    for format in formats.FORMATS:
        path = tmp_path / f"flood.{format}"
        path.write_text("what was there before")
        command = ["export", "--model", str(tmp_path / "model"), "--format", format, "-o", str(path)]
        assert main([*command, "--stac", str(tmp_path / format / "flood.json")]) == 0
        assert re.search(
            r"wrote \S+: segmentation, [\d,]+ parameters, 0\.\d MB; predictions differ .* [\de.+-]+ at most",
            capsys.readouterr().out,
        )
        run = runner(path)
        for atoms in (
            raster(1),
            optical_and_radar(),
            mixed(),
            points(4, count=33),
            raster(5, size=(40, 31), holes=0.5),
        ):
            check(run, model, atoms, queries(3))
        check(run, model, raster(6, LANDSAT8, ("B2", "B4", "B5", "B6", "B7"), gsd=30.0, day=None), queries(3, count=1))
        check(
            run, model, raster(7, names=("B02",), size=(1, 1)), queries(3, count=2, extent=10.0)
        )  # one latent, one kind
        check(run, model, optical_and_radar(), queries(3), anchors=far_anchors())  # empty cells
        check(
            run, model, raster(8, size=(30, 20)), queries(3), atoms_per_latent=1000, neighbors=1
        )  # several rows a cell
        describes_itself(path, model)
        item_describes(tmp_path / format / "flood.json", path, model)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["flood.onnx", "flood.pt2", "model", "onnx", "pt2"]
    graph_is_sound(tmp_path / "flood.onnx", model)
    the_example_runs(tmp_path / "flood.onnx", model)


def describes_itself(path: Path, model: aio.AtomizerIO) -> None:
    model_of_file = read_model(path)
    assert (model_of_file.config, model_of_file.task_spec) == (model.config, model.task_spec)
    texts = read_description(path)
    assert json.loads(texts["class_names"]) == ["dry", "wet", "no data"]
    assert texts["preset"] == "atomizer_io_tiny" and "metres" in texts["units"] and texts["task"] == "segmentation"
    assert [i["name"] for i in json.loads(texts["inputs"])] == [i.name for i in inputs_of(model)]
    source = str(Path(aio.__file__).parent).encode()
    assert source not in path.read_bytes()  # nothing about the machine it was written on


def graph_is_sound(path: Path, model: aio.AtomizerIO) -> None:
    graph = onnx.load(path).graph
    onnx.checker.check_model(str(path))
    shapes = {
        value.name: tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.output)
    }
    assert shapes == {i.name: i.dims for i in inputs_of(model)} | {"answer": ("queries", 3)}
    # with duplicate indices, onnxruntime's threads race in ScatterND
    assert "ScatterND" not in {node.op_type for node in graph.node}


def item_describes(path: Path, artifact: Path, model: aio.AtomizerIO) -> None:
    item = pystac.Item.from_file(path)
    extensions, item.stac_extensions = item.stac_extensions, []
    item.validate()  # against STAC itself; the schemas of extensions are not at hand
    item.stac_extensions = extensions
    mlm = MLMExtension.ext(item)
    assert (mlm.mlm_name, mlm.architecture, mlm.tasks) == ("atomizer_io_tiny", "Atomizer-IO", ["semantic-segmentation"])
    assert mlm.framework == {".onnx": "ONNX", ".pt2": "PyTorch"}[artifact.suffix]
    assert mlm.total_parameters == model.num_parameters
    assert [(i.name, len(i.input.shape)) for i in mlm.input] == [(i.name, len(i.dims)) for i in inputs_of(model)]
    for described in mlm.input:
        assert len(set(described.input.dim_order)) == len(described.input.shape) == len(described.input.dim_order)
        assert bool(described.bands) == ("bands" in described.input.dim_order)
    [output] = mlm.output
    assert (output.result.shape, [c.description for c in output.classes]) == ([-1, 3], ["dry", "wet", "no data"])
    assert [c.name for c in output.classes] == ["dry", "wet", "no_data"]
    asset = item.assets["model"]
    assert (path.parent / asset.href).resolve() == artifact and asset.roles == ["mlm:model"]
    assert asset.extra_fields["mlm:artifact_type"] == {".onnx": "onnx", ".pt2": "torch.export.save"}[artifact.suffix]
    assert asset.extra_fields["file:size"] == artifact.stat().st_size
    blue, known = asset.extra_fields["bands"][0], model.task_spec.channels[0]
    assert blue["name"] == "sentinel2 B02" and blue["eo:center_wavelength"] == known.wavelength_um
    assert blue["statistics"] == {"mean": known.mean, "stddev": known.std}


def the_example_runs(path: Path, model: aio.AtomizerIO) -> None:
    """The example of docs/how-to/export.md that does without this package, here with a series of one step."""
    _, code = DOCS.read_text(encoding="utf-8").split("## Without this package")
    example = re.search(r"```python\n(.*?)```", code, re.S)[1].replace('"model.onnx"', repr(str(path)))
    example = example.replace('"anchor": anchors,', '"anchor": anchors, "step_day": np.zeros(1),')  # the file has steps
    values = 2000 + 500 * np.random.default_rng(0).standard_normal((3, 17, 22))
    values[:, 3:5, 2:9] = np.nan
    names = {"raster": values, "gsd_m": 10.0, "day": 200}
    exec(example, names)
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B02", "B03", "B08"), 10.0, 200)
    positions = aio.Grid(17, 22, gsd_m=10.0).positions()
    want = direct(model, atoms, positions, anchors=[torch.from_numpy(names["anchors"])])
    torch.testing.assert_close(torch.from_numpy(names["answer"]), want, rtol=0, atol=1e-5)
    assert names["labels"].shape == (17, 22)


def test_the_table_of_inputs_is_that_of_the_network() -> None:
    rows = [
        f"| `{i.name}` | {', '.join(map(str, i.dims))} | {str(i.dtype).removeprefix('torch.')} | {i.meaning} |"
        for i in INPUTS
    ]
    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")


# What can go wrong


@pytest.mark.parametrize(("format", "library"), [("onnx", "onnxscript"), ("onnx", "onnxruntime"), ("pt2", "pystac")])
def test_missing_library(
    format: str, library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small().save_pretrained(tmp_path / "model")
    monkeypatch.setattr(formats, "capture", lambda network: pytest.fail("started before looking for its libraries"))
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("sys.meta_path", [Absent(library), *sys.meta_path])
    command = ["export", "--model", str(tmp_path / "model"), "--format", format, "-o", str(tmp_path / "x")]
    assert main([*command, "--stac", str(tmp_path / "x.json")]) == 2
    assert capsys.readouterr().err == f"error: this needs {library}: pip install 'atomizer-io[export]'\n"
    assert [place.name for place in tmp_path.iterdir()] == ["model"]


class Absent:
    """An importer that knows one library not to be there."""

    def __init__(self, library: str) -> None:
        self.library = library

    def find_spec(self, name: str, path=None, target=None):
        if name.partition(".")[0] == self.library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_file_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.pt2").write_text("before")
    monkeypatch.setattr(formats, "_save_pt2", lambda network, path, texts: path.touch())
    monkeypatch.setattr(formats, "outputs_of", lambda path: lambda inputs: [torch.zeros(1, 3)])
    with pytest.raises(CheckpointError, match=r"differs from the model, by .*: nothing was written"):
        write(small(task="classification"), tmp_path / "x.pt2", "pt2")
    assert [place.read_text() for place in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("task", stac.TASKS)
def test_item_of_every_task(task: str, tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(b"abc")
    model = small(task=task, channels=SENTINEL1.pick("VV"))
    item = stac.item(model, formats.Written(tmp_path / "a.pt2", "pt2", 3, 0.0), "a.pt2")
    assert item.properties["mlm:tasks"] == [stac.TASKS[task]]
    assert item.properties["mlm:output"][0]["result"]["shape"] == [-1 if model.task_spec.dense else 1, 3]
    assert item.assets["model"].extra_fields["file:checksum"].startswith("1220ba7816bf")  # SHA-256 of abc
    [band] = item.assets["model"].extra_fields["bands"]
    assert band["name"] == "sentinel1 VV" and "eo:center_wavelength" not in band


def test_a_file_of_an_earlier_format_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "read_description", lambda path: {"config": "{}"})
    with pytest.raises(CheckpointError, match=r"old\.onnx was exported by an earlier version.*export the model again"):
        read_model(tmp_path / "old.onnx")

"""The compiled kernels give the results of the torch functions they replace, and step aside where they do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import AERIAL, SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer.ops import attention
from atomizer_io.models.atomizer.ops.kernels import cells as kernel_cells
from atomizer_io.models.atomizer.ops.kernels import queries as kernel_queries
from atomizer_io.models.atomizer.ops.kernels.build import available, library
from processes import exit_code, start
from scenes import SMALL, far_anchors, points, queries, raster

pytestmark = pytest.mark.skipif(not available(), reason="no C compiler here, or ATOMIZER_KERNELS=off")

WIDE = SMALL | {"width": 32}  # a multiple of the lanes, with AVX-512 too
KERNELS = {"pool_cells": kernel_cells, "pool_observations": kernel_queries, "attend_latents": kernel_queries}
Scene = tuple[list[aio.AtomSet], list[Tensor]]


def model_of(**settings: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(WIDE | settings)).eval()
    for parameter in model.parameters():  # biases and norms away from their neutral start
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def evaluate(model: aio.AtomizerIO, scene: Scene, **options: object) -> tuple[Tensor, dict[str, Tensor]]:
    """Predictions of all samples and the gradients of every parameter."""
    out = torch.cat(model(*scene, **options))
    pull = torch.randn(out.shape, generator=torch.Generator().manual_seed(6))
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad((out * pull).sum(), named.values(), allow_unused=True)
    arrays = {key: gradient for key, gradient in zip(named, gradients, strict=True) if gradient is not None}
    return out.detach(), arrays


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel was called."""
    counted: Counter[str] = Counter()

    def watched(name: str, original: Callable) -> Callable:
        def call(*arguments: object) -> object:
            counted[name] += 1
            return original(*arguments)

        return call

    for name, module in KERNELS.items():
        monkeypatch.setattr(module, name, watched(name, getattr(module, name)))
    return counted


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    """As ``evaluate``, without kernels."""

    def run(*arguments: object, **options: object) -> tuple[Tensor, dict[str, Tensor]]:
        with monkeypatch.context() as patch:
            for module in (kernel_cells, kernel_queries):
                patch.setattr(module, "usable", lambda *_: False)
            return evaluate(*arguments, **options)  # type: ignore[arg-type]

    return run


def assert_same(one: tuple[Tensor, dict[str, Tensor]], second: tuple[Tensor, dict[str, Tensor]]) -> None:
    """Predictions to 1e-5, the gradient of each parameter to 1e-4 of its norm."""
    assert second[0].isfinite().all() and second[0].std() > 1e-3
    torch.testing.assert_close(one[0], second[0], rtol=1e-5, atol=1e-5)
    assert one[1].keys() == second[1].keys() and len(one[1]) > 20
    largest = max(float(gradient.norm()) for gradient in second[1].values())
    for key, gradient in second[1].items():
        error = float((one[1][key] - gradient).norm())
        assert error <= 1e-4 * float(gradient.norm()) + 1e-7 * largest, (key, error, float(gradient.norm()))


@pytest.mark.parametrize("settings", [{}, {"observation_mlp": True}, {"temporal": True}], ids=str)
@pytest.mark.parametrize("kind", ["image", "points", "without a date", "nothing seen", "no query"])
def test_the_same_parameters_have_a_gradient(
    settings: dict, kind: str, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weight decay moves a parameter whose gradient is zero, and leaves one alone that has none."""
    atoms = points(3) if kind == "points" else raster(1, day=None if kind == "without a date" else 100)
    where = queries(1)[: 0 if kind == "no query" else None] + (90.0 if kind == "nothing seen" else 0.0)
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **{**SMALL, "width": 32, "cross_head_dim": 16, **settings})

    def without_gradient() -> list[str]:
        model.zero_grad(set_to_none=True)
        model([atoms], [where])[0].square().sum().backward()
        return [name for name, parameter in model.named_parameters() if parameter.grad is None]

    compiled = without_gradient()
    assert calls
    for module in (kernel_cells, kernel_queries):
        monkeypatch.setattr(module, "usable", lambda *_: False)
    assert without_gradient() == compiled


# --- the same predictions ---


def grid() -> Tensor:
    return aio.Grid(9, 7, 10.0).positions()


def holes() -> Scene:
    return [raster(1, holes=0.5)], [grid()]


def point_cloud() -> Scene:
    atoms = points(3)
    return [atoms], [torch.cat([atoms.acquisitions[0].positions[:40], queries(2, extent=40.0)])]


def points_and_image() -> Scene:
    atoms = points(3) + raster(4, AERIAL, ("R", "G", "B", "NIR"), (12, 12), 4.0, day=None)
    return [atoms], [torch.cat([atoms.acquisitions[0].positions[:20], queries(3, extent=45.0)])]


def one_atom() -> Scene:
    atoms = aio.AtomSet.from_raster(torch.full((1, 1, 1), 900.0), SENTINEL2.pick("B04"), 10.0)
    return [atoms], [torch.tensor([[0.0, 0.0], [4.0, -3.0], [9.0, 9.0]], dtype=torch.float64)]


def two_sensors() -> Scene:
    return [raster(1) + raster(2, SENTINEL1, ("VV", "VH"), (5, 4), 20.0, day=107)], [queries(1, 300)]


def no_questions() -> Scene:
    return [raster(1), raster(2)], [torch.zeros(0, 2, dtype=torch.float64), grid()]


def batch() -> Scene:
    scenes = [holes(), point_cloud(), one_atom(), two_sensors()]
    return [atoms for scene, _ in scenes for atoms in scene], [where for _, wheres in scenes for where in wheres]


CASES: dict[str, tuple[Callable[[], Scene], dict[str, object], dict[str, object]]] = {
    "raster with holes": (holes, {}, {}),
    "point cloud with site fields": (point_cloud, {}, {}),
    "points and image": (points_and_image, {}, {}),
    "single atom": (one_atom, {}, {}),
    "two sensors": (two_sensors, {}, {}),
    "mixed batch": (batch, {}, {}),
    "a sample without questions": (no_questions, {}, {}),
    "empty cells": (holes, {}, {"anchors": [far_anchors()]}),
    "more neighbours than latents": (two_sensors, {"neighbors": 9}, {"atoms_per_latent": 100}),
    "one latent": (two_sensors, {}, {"atoms_per_latent": 10**6}),
    "as many neighbours as fit": (holes, {"neighbors": 64}, {"atoms_per_latent": 1}),
    "no offsets": (two_sensors, {"offset_encoding": False}, {}),
    "head dims and widths beside the lanes": (points_and_image, {"cross_head_dim": 7, "width": 80}, {}),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_eager(name: str, threads: int, calls: Counter[str], eager: Callable) -> None:
    scene, settings, options = CASES[name]
    model = model_of(**settings)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = evaluate(model, scene(), **options)
        used = dict(calls)
        expected = eager(model, scene(), **options)
    finally:
        torch.set_num_threads(before)
    # keys and values whose rows are not whole vectors are left to torch
    fitting = set(KERNELS) - ({"attend_latents"} if settings.get("cross_head_dim") == 7 else set())
    assert set(used) == fitting, "a kernel was not called"
    assert dict(calls) == used, "the eager path called a kernel"
    assert_same(compiled, expected)


@pytest.mark.parametrize("longest", [1, 5, 33])
def test_cells_longer_than_a_segment(
    longest: int, calls: Counter[str], eager: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, scene = model_of(), points_and_image()
    whole = evaluate(model, scene)
    monkeypatch.setattr(attention, "LONGEST_SEGMENT", longest)
    assert int(model.geometry(scene[0][0]).cells[0].counts_L.max()) > longest
    cut = evaluate(model, scene)
    assert calls["pool_cells"] == 2
    assert_same(cut, whole)
    assert_same(cut, eager(model, scene))


def test_long_cells_of_many_blocks(calls: Counter[str], eager: Callable) -> None:
    """Cells of thousands of atoms, whose softmax is kept over many blocks of the kernel."""
    scene = [raster(1, size=(60, 50), holes=0.3)], [queries(1, 50, 400.0)]
    model = model_of(atoms_per_latent=3000)
    assert_same(evaluate(model, scene), eager(model, scene))
    assert calls["pool_cells"] == 1


def test_logits_of_any_size(eager: Callable) -> None:
    """A softmax that is nearly one-hot neither overflows nor loses its gradient."""
    model = model_of()
    with torch.no_grad():
        model.encoder.attention.query.weight *= 30
        model.decoder.observation.query.weight *= 30
        model.decoder.latent.query.weight *= 30
    out, gradients = evaluate(model, holes())
    expected, expected_gradients = eager(model, holes())
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)  # rounding is multiplied as well
    assert (
        all(gradient.isfinite().all() for gradient in gradients.values())
        and gradients.keys() == expected_gradients.keys()
    )


# --- where they do not fit ---


@pytest.mark.parametrize("width", [20, 36])
def test_a_width_that_is_no_multiple_of_the_lanes_falls_back(width: int, calls: Counter[str], eager: Callable) -> None:
    kernels = library("cells", torch.float32)
    assert kernels is not None and width % kernels.lanes != 0
    model = model_of(width=width)
    compiled = evaluate(model, points_and_image())
    assert set(calls) == {"pool_observations", "attend_latents"}
    assert_same(compiled, eager(model, points_and_image()))


def test_more_neighbours_than_the_kernel_takes_fall_back(calls: Counter[str], eager: Callable) -> None:
    model = model_of(neighbors=kernel_queries.MAX_NEIGHBORS + 1, atoms_per_latent=1)
    compiled = evaluate(model, holes())
    assert len(model.geometry(holes()[0][0]).anchors_L2) > kernel_queries.MAX_NEIGHBORS
    assert set(calls) == {"pool_cells", "pool_observations"}
    assert_same(compiled, eager(model, holes()))


def test_more_heads_than_the_kernels_take_fall_back(calls: Counter[str], eager: Callable) -> None:
    model = model_of(cross_heads=33, cross_head_dim=2)
    compiled = evaluate(model, holes())
    assert not calls
    assert_same(compiled, eager(model, holes()))


@pytest.mark.parametrize("part", ["value", "offset"])
def test_more_frequencies_than_the_kernels_take_fall_back(part: str, tmp_path: Path) -> None:
    """In a process of its own: a kernel that took them would write beyond its working space."""
    settings = {f"{part}_frequencies": 300, f"{part}_max_frequency": 300.0}
    process = start(both_ways, settings, errors=tmp_path / "errors")
    assert exit_code(process) == 0, (tmp_path / "errors").read_text()[-2000:]


def both_ways(settings: dict[str, object]) -> None:
    model = model_of(**settings)
    compiled = evaluate(model, holes())
    kernel_cells.usable = kernel_queries.usable = lambda *_: False
    assert_same(compiled, evaluate(model, holes()))


def test_autocast_does_without_kernels(calls: Counter[str]) -> None:
    model, scene = model_of(), points_and_image()
    expected, expected_gradients = evaluate(model, scene)
    assert set(calls) == set(KERNELS)
    calls.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, gradients = evaluate(model, scene)
    assert not calls
    assert float((out.float() - expected).norm() / expected.norm()) < 5e-2
    assert not torch.equal(out.float(), expected)  # it did run in bfloat16
    for key, gradient in gradients.items():
        assert gradient.isfinite().all(), key
    largest = max(float(gradient.norm()) for gradient in expected_gradients.values())
    assert max(float((gradients[k] - g).norm()) for k, g in expected_gradients.items()) < 5e-2 * largest


def test_a_bfloat16_model_does_without_kernels(calls: Counter[str]) -> None:
    model = model_of()
    expected = torch.cat(model(*holes())).detach()
    calls.clear()
    out = torch.cat(model.bfloat16()(*holes())).detach()
    assert not calls and out.dtype == torch.bfloat16
    assert float((out.float() - expected).norm() / expected.norm()) < 5e-2


# --- repeatable ---


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("scene", [points_and_image, batch])
def test_the_same_number_of_threads_the_same_bits(scene: Callable[[], Scene], threads: int) -> None:
    model = model_of()
    first, second = evaluate(model, scene()), evaluate(model, scene())
    assert torch.equal(first[0], second[0])
    for key, gradient in first[1].items():
        assert torch.equal(gradient, second[1][key]), key


# --- compilers ---


def save_run(result: Path) -> None:
    out, gradients = evaluate(model_of(), points_and_image())
    torch.save({"compiled": available(), "out": out, "gradients": gradients}, result)


def failing_compiler(folder: Path) -> Path:
    script = folder / "failing-cc"
    script.write_text("#!/bin/sh\necho 'the disk is made of cheese' >&2\nexit 1\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("why", ["switched off", "failing compiler", "no compiler"])
def test_without_kernels_the_predictions_are_those_of_eager(why: str, tmp_path: Path, eager: Callable) -> None:
    changes = {
        "switched off": {"ATOMIZER_KERNELS": "off"},
        "failing compiler": {"CC": str(failing_compiler(tmp_path))},
        "no compiler": {"PATH": str(tmp_path), "CC": "cc"},
    }[why]
    cache = tmp_path / "cache"
    result, messages = tmp_path / "result", tmp_path / "errors"
    process = start(save_run, result, errors=messages, XDG_CACHE_HOME=str(cache), **changes)
    assert exit_code(process) == 0, messages.read_text()
    arrays, errors = torch.load(result), messages.read_text()
    assert arrays["compiled"] is False
    assert not list(cache.rglob("*.so")) and not list(cache.rglob("tmp*"))
    expected, expected_gradients = eager(model_of(), points_and_image())
    torch.testing.assert_close(arrays["out"], expected, rtol=1e-6, atol=1e-6)
    assert_same((arrays["out"], arrays["gradients"]), (expected, expected_gradients))
    warnings_logged = errors.count("The model runs without its compiled kernels")
    assert warnings_logged == (0 if why == "switched off" else 1), errors  # once, not at every call or for every kernel
    if why == "failing compiler":
        assert f"{changes['CC']} could not compile cells.c: the disk is made of cheese" in errors
    if warnings_logged:
        assert "ATOMIZER_KERNELS=off" in errors


def test_half_precision_keeps_offsets_and_values_exact() -> None:
    """Physical numbers are rounded after they became features, not before: 8 bits cannot distinguish 3000 from 3010."""
    model = model_of().bfloat16()
    scene = raster(1, size=(6, 6))
    standard = model.tokenizer.standardise(scene.acquisitions[0])
    exact = model.float().tokenizer.standardise(scene.acquisitions[0])
    assert standard.dtype == torch.float32
    torch.testing.assert_close(standard, exact)
    regression = model_of(task="regression", num_outputs=1, target_mean=300.0, target_std=5.0).bfloat16()
    predictions = regression([scene], [aio.Grid(6, 6, 10.0).positions()])[0]
    assert predictions.dtype == torch.float32 and len(predictions.unique()) > 18

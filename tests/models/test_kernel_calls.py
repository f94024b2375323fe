"""Whatever is handed to a compiled kernel is checked before C sees an address."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io.data.sensors import AERIAL
from atomizer_io.errors import KernelError
from atomizer_io.models.atomizer.ops.kernels import calls, cells, queries
from atomizer_io.models.atomizer.ops.kernels.build import available
from scenes import SMALL, points, raster
from scenes import queries as positions

pytestmark = pytest.mark.skipif(not available(), reason="no C compiler here, or ATOMIZER_KERNELS=off")

KERNELS = {"pool_cells": cells, "pool_observations": queries, "attend_latents": queries}
Call = list[Any]  # the dataclass of what is fixed, then the weights


@pytest.fixture(scope="module")
def real_calls() -> dict[str, Call]:
    """The arguments of each kernel when a model with site fields looks at points and an image with holes."""
    result: dict[str, Call] = {}

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(fixed: Any, *weights: Tensor | None) -> Any:
            result[name] = [fixed, *(None if weight is None else weight.detach() for weight in weights)]
            return original(fixed, *weights)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, module in KERNELS.items():
            patch.setattr(module, name, watched(name, getattr(module, name)))
        torch.manual_seed(0)
        model = aio.create_model("atomizer_io_tiny", **(SMALL | {"width": 32})).eval()
        scene = points(3) + raster(4, AERIAL, ("R", "G", "B", "NIR"), (12, 12), 4.0, holes=0.2, day=None)
        model([scene], [torch.cat([scene.acquisitions[0].positions[:20], positions(3, extent=45.0)])])
    return result


def changed(call: Call, change: Callable[[Tensor], Tensor]) -> Iterator[tuple[str, Call]]:
    """The call once for each of its tensors, with that tensor changed."""
    fixed, *weights = call
    for field in dataclasses.fields(fixed):
        value = getattr(fixed, field.name)
        for i, tensor in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(tensor, Tensor):
                new = [*value[:i], change(tensor), *value[i + 1 :]] if isinstance(value, list) else change(tensor)
                yield field.name, [dataclasses.replace(fixed, **{field.name: new}), *weights]
    for i, weight in enumerate(weights):
        if weight is not None:
            yield f"weight {i}", [fixed, *weights[:i], change(weight), *weights[i + 1 :]]


OTHER = {
    torch.float32: torch.float64,
    torch.float64: torch.float32,
    torch.int64: torch.int32,
    torch.int32: torch.int64,
    torch.bool: torch.int64,
}
WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "type": lambda tensor: tensor.to(OTHER[tensor.dtype]),
    "half precision": lambda tensor: tensor.to(torch.bfloat16),
    "device": lambda tensor: tensor.to("meta"),
    "number of sides": lambda tensor: tensor[..., None].expand(*tensor.shape, 2),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_wrong_reaches_c(
    name: str, wrong: str, real_calls: dict[str, Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, reached = getattr(KERNELS[name], name), []
    monkeypatch.setattr(KERNELS[name], "run", lambda *arguments: reached.append(arguments))
    tried = 0
    for what, call in changed(real_calls[name], WRONG[wrong]):
        with pytest.raises((KernelError, IndexError, ValueError)) as error:
            kernel(*call)
        assert not reached, f"{what} reached C"
        assert isinstance(error.value, KernelError) or wrong == "number of sides", what
        tried += 1
    assert tried > 6


def test_the_error_names_the_tensor_and_what_it_should_be(real_calls: dict[str, Call]) -> None:
    fixed, *weights = real_calls["pool_cells"]
    wrong = dataclasses.replace(fixed, value=fixed.value.double())
    with pytest.raises(
        KernelError, match=r"^value of a compiled kernel must be .*float32 .*not torch\.float64"
    ) as error:
        cells.pool_cells(wrong, *weights)
    assert "please report it" in str(error.value)


@pytest.mark.parametrize("name", KERNELS)
def test_any_strides_will_do(name: str, real_calls: dict[str, Call]) -> None:
    kernel = getattr(KERNELS[name], name)
    expected = kernel(*real_calls[name])
    for what, call in changed(real_calls[name], lambda tensor: torch.stack([tensor, tensor], dim=-1)[..., 0]):
        torch.testing.assert_close(kernel(*call), expected, rtol=0, atol=0, msg=what)


INDICES = {
    "pool_cells": ("order", "site", "kind", "cell", "begin", "length"),
    "pool_observations": ("site_MA",),
    "attend_latents": ("neighbor_Mk",),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_index_of_nothing_is_refused(name: str, real_calls: dict[str, Call]) -> None:
    """Such an index was read, and in training written to, wherever it pointed."""
    fixed, *weights = real_calls[name]
    for field in INDICES[name]:
        for index in (10**6,) if field == "site_MA" else (10**6, -7):  # a query that sees nothing has a negative site
            numbers = getattr(fixed, field).clone()
            numbers.view(-1)[-1] = index
            with pytest.raises(KernelError, match="index of something that is not there"):
                getattr(KERNELS[name], name)(dataclasses.replace(fixed, **{field: numbers}), *weights)


def test_sizes_must_agree_and_fit(real_calls: dict[str, Call]) -> None:
    fixed, *weights = real_calls["pool_cells"]
    with pytest.raises(KernelError, match="kind of a compiled kernel"):
        cells.pool_cells(dataclasses.replace(fixed, kind=fixed.kind[:-1]), *weights)
    with pytest.raises(KernelError, match="value_weight of a compiled kernel"):
        cells.pool_cells(dataclasses.replace(fixed, value_frequencies=5), *weights)
    with pytest.raises(KernelError, match="at most 32 along H"):
        cells.pool_cells(fixed, *weights[:-1], torch.randn(33, 32))
    with pytest.raises(KernelError, match="whole vectors along D"):
        narrow = [None if weight is None else weight[:, :20] for weight in weights]
        cells.pool_cells(fixed, *narrow)
    near, *tensors = real_calls["attend_latents"]
    with pytest.raises(KernelError, match="at most 64 along k"):
        many = near.neighbor_Mk[:, :1].expand(-1, 65)
        queries.attend_latents(dataclasses.replace(near, neighbor_Mk=many), *tensors)


def test_a_precision_without_kernels_is_refused() -> None:
    with pytest.raises(KernelError, match="bfloat16"):
        calls.kernels_of("cells", torch.bfloat16)

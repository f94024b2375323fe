"""The warm start: bands are told apart, what differs between places is large, and a regression is solved."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import atomizer_io as aio
from atomizer_io.data.sample import queries_at
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.models.atomizer import last_layers, warm_start
from atomizer_io.models.atomizer.first_weights import CONSTANT, whiten
from atomizer_io.models.atomizer.observations import Look
from atomizer_io.models.atomizer.warm_start import FLOOR, given_to
from atomizer_io.models.base import Cost
from atomizer_io.training.metrics import scores_of_confusion
from scenes import points, raster

BANDS = ("B02", "B03", "B04", "B05", "B08", "B11", "B12")
CHANNELS = SENTINEL2.pick(*BANDS)


def prepared(model, atoms, cost=Cost(64)):
    queries = queries_at(next(iter(atoms)).positions) if model.task_spec.dense else None
    return model.preparer()(atoms, queries, cost)


def contrast(atoms: aio.AtomSet) -> Tensor:
    """The difference of two standardised bands at each site: nothing that a mean over bands would tell."""
    values = next(iter(atoms)).observed()
    standard = [(values[:, i] - CHANNELS[i].mean) / CHANNELS[i].std for i in (1, 4)]
    return (standard[0] - standard[1]).float()


def batches(model, count: int, truth, first: int = 0):
    for seed in range(first, first + count):
        atoms = raster(seed, names=BANDS, size=(16, 16))
        yield [prepared(model, atoms)], truth(atoms)


@pytest.mark.parametrize("layered", [True, False])
def test_an_untrained_model_answers_like_a_regression_of_classes(layered: bool) -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=layered).eval()
    truth = lambda atoms: (contrast(atoms) > 0).long()  # noqa: E731

    def right() -> float:
        with torch.no_grad():
            new = [(model.predict(inputs)[0].argmax(dim=1), target) for inputs, target in batches(model, 4, truth, 100)]
        return float(torch.cat([answer == target for answer, target in new]).float().mean())

    assert right() < 0.65
    model.warm_start(batches(model, 12, truth))
    assert right() > (0.9 if layered else 0.55)  # raw tokens tell bands apart by attention only, which is learned


def test_an_untrained_model_answers_like_a_regression_of_a_quantity() -> None:
    torch.manual_seed(0)
    task_spec = {"task": "regression", "num_outputs": 1, "target_mean": 70.0, "target_std": 20.0}
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=True, **task_spec).eval()
    truth = lambda atoms: 70 + 14 * contrast(atoms)  # noqa: E731
    model.warm_start(batches(model, 12, truth))
    with torch.no_grad():
        new = [(model.predict(inputs)[0][:, 0], target) for inputs, target in batches(model, 4, truth, 100)]
    error = torch.cat([answer - target for answer, target in new]).square().mean().sqrt()
    assert error < 8  # a constant is off by 20


@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_a_start_that_says_nothing_about_other_scenes_is_not_kept(task: str) -> None:
    """In unseen scenes the contrast means the opposite: an answer that is always the same would be better."""
    torch.manual_seed(0)
    task_spec = {"task": task, **({"num_outputs": 1, "target_std": 2.0} if task == "regression" else {})}
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=True, **task_spec)
    fresh = {name: weight.clone() for name, weight in model.state_dict().items()}

    def truth(atoms: aio.AtomSet) -> Tensor:
        return contrast(atoms) if task == "regression" else (contrast(atoms) > 0).long()

    def opposite(atoms: aio.AtomSet) -> Tensor:
        return -contrast(atoms) if task == "regression" else (contrast(atoms) <= 0).long()

    assert not model.warm_start(batches(model, 12, truth), batches(model, 4, opposite, 100)).kept
    assert all(torch.equal(weight, fresh[name]) for name, weight in model.state_dict().items())
    assert model.warm_start(batches(model, 12, truth), batches(model, 4, truth, 100)).kept
    assert not torch.equal(model.head.linear.weight, fresh["head.linear.weight"])


def test_scenes_have_a_warm_start_as_well() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, task="classification").eval()

    def scenes(count: int, first: int):
        for seed in range(first, first + count):
            kind = seed % 2
            atoms = raster(seed, names=BANDS, size=(6, 6))
            own = next(iter(atoms))
            shifted = own.values + torch.tensor([CHANNELS[1].std * kind if i == 1 else 0.0 for i in range(len(BANDS))])
            changed = aio.AtomSet.from_raster(shifted.T.reshape(len(BANDS), 6, 6), CHANNELS, 10.0, 100)
            yield [prepared(model, changed)], torch.tensor([kind])

    model.warm_start(scenes(80, 0))
    with torch.no_grad():
        right = [bool(model.predict(inputs)[0].argmax() == target) for inputs, target in scenes(40, 1000)]
    assert sum(right) > 30


def test_unknown_truths_do_not_count() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=True)
    before = model.head.linear.weight.clone()
    model.warm_start(batches(model, 3, lambda atoms: torch.full((256,), -1)))
    assert torch.equal(model.head.linear.weight, before)
    model.warm_start(())  # nothing to fit


@pytest.mark.parametrize("bands", [5, 224])
def test_fitted_weights_tell_apart_the_bands_that_occur(bands: int) -> None:
    """Narrow bands, too, whose features are a hundredth of those of a value."""
    torch.manual_seed(0)
    width = 2.0 / bands
    channels = [aio.Channel("own", f"b{i}", 0.45 + i * width, width, mean=0.0, std=1.0) for i in range(bands)]
    told_apart(aio.AtomSet.from_raster(torch.randn(bands, 6, 6), channels, 10.0), channels)


def test_fitted_weights_tell_apart_channels_without_a_wavelength() -> None:
    torch.manual_seed(0)
    channels = SENTINEL1.pick("VV", "VH")
    told_apart(raster(0, SENTINEL1, ("VV", "VH")), channels)


def told_apart(atoms: aio.AtomSet, channels) -> None:
    model = aio.create_model("atomizer_io_tiny", channels=channels, observation_mlp=True)
    target = torch.zeros(next(iter(atoms)).positions.shape[0], dtype=torch.long)
    model.warm_start(iter([([prepared(model, atoms)], target)]))
    kinds_KF = torch.cat([model.tokenizer.kind_features(part) for part in atoms])
    for first in (model.encoder.attention.first, model.decoder.observation.first):
        value, kind, *_ = model.encoder.attention.parts
        by_band_KD = kinds_KF @ first.weight[:, value : value + kind].T + first.bias
        assert torch.allclose(by_band_KD.std(dim=0, correction=0), torch.ones(1), atol=1e-3)
        assert by_band_KD.mean(dim=0).abs().max() < 0.6  # no unit is switched off for all bands


@pytest.mark.parametrize("conditioning", ["raw", "layered", "none"])
def test_what_differs_between_places_comes_out_large(conditioning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    monkeypatch.setattr(warm_start, "PLACES", 24 * 24)
    settings = {"observation_mlp": conditioning == "layered", "observation_conditioning": conditioning != "none"}
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, **settings)
    inputs = [prepared(model, raster(seed, names=BANDS, size=(24, 24))) for seed in range(3)]
    layers = [model.encoder.out] + ([] if conditioning == "none" else [model.decoder.observation.out])
    model.warm_start(iter([(inputs, torch.zeros(3 * 24 * 24, dtype=torch.long))]))
    for layer in layers:
        with torch.no_grad():
            out = torch.cat([layer(rows) for (rows,) in given_to(layer, lambda: model.predict(inputs))])
        constant = 0.0 if layer is model.encoder.out else CONSTANT
        assert torch.allclose(out.mean(dim=0).abs(), torch.full((out.shape[1],), constant), atol=1e-3)
        spread = torch.linalg.eigvalsh(torch.cov(out.T.double()))
        assert spread[-1] < 1.01 and spread[-5] > 0.5  # many directions are of equal size


def test_it_begins_with_more_than_a_regression_where_bands_act_together() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, num_outputs=2).eval()
    apart = lambda atoms: (contrast(atoms).abs() > 0.67 * contrast(atoms).std()).long()  # noqa: E731  no line tells it
    model.warm_start(batches(model, 24, apart))
    with torch.no_grad():
        new = [(model.predict(inputs)[0].argmax(dim=1), target) for inputs, target in batches(model, 4, apart, 100)]
    assert float(torch.cat([answer == target for answer, target in new]).float().mean()) > 0.8


def test_a_fit_that_does_not_help_elsewhere_is_undone() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", num_outputs=2)
    assert model.decoder is not None
    x = torch.randn(400, 96)
    truth = model.head(x).argmax(dim=1)  # the head is right, and what it is trained on is wrong
    with torch.no_grad():
        model.decoder.feedforward.down.weight.zero_()
        model.decoder.feedforward.down.bias.zero_()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    last_layers.fit(model.decoder.feedforward, model.head, [(x, 1 - truth)], [(x, truth)])
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    last_layers.fit(model.decoder.feedforward, model.head, [(x, 1 - truth)], [(x, 1 - truth)])
    assert not torch.equal(model.head.linear.weight, before["head.linear.weight"])


@pytest.mark.parametrize(("preset", "name"), [("atomizer_io_tiny", "miou"), ("atomizer_io_cls", "macro_f1")])
def test_what_is_chosen_is_chosen_by_the_score_of_a_run(preset: str, name: str) -> None:
    task_spec = aio.create_model(preset, num_outputs=4).task_spec
    truth, answers = torch.tensor([0, 0, 1, 2, 2, 2]), torch.eye(4)[[0, 1, 1, 2, 3, 0]]  # 3 does not occur
    confusion = torch.zeros(4, 4, dtype=torch.long)
    for row, column in zip(truth.tolist(), answers.argmax(dim=1).tolist(), strict=True):
        confusion[row, column] += 1
    expected = scores_of_confusion(confusion, [str(number) for number in range(4)])[name]
    assert last_layers.merit(answers, truth, task_spec)[0] == pytest.approx(expected)


def test_of_regressions_the_one_that_is_best_elsewhere_is_taken() -> None:
    torch.manual_seed(0)
    head = aio.create_model("atomizer_io_tiny", task="regression").head
    slope = torch.randn(96)
    few, noisy = torch.randn(60, 96), torch.randn(60)
    many = torch.randn(4000, 96)
    other = [(x := torch.randn(500, 96), head.norm(x).detach() @ slope)]
    exact = last_layers.best_regression(head, [(many, head.norm(many).detach() @ slope)], other)
    noise = last_layers.best_regression(head, [(few, noisy)], [(few, -noisy)])
    assert exact.merit[1] > -1e-6
    free, _ = last_layers.regression(*last_layers.normed(head, [(few, noisy)]), head.task_spec, 1e-5)
    assert noise.weight_CD.norm() < 0.5 * free.norm()


def test_the_same_seed_gives_the_same_warm_start() -> None:
    def fitted() -> list[Tensor]:
        torch.manual_seed(3)
        model = aio.create_model("atomizer_io_tiny", num_outputs=2)
        atoms = points(0)
        model.warm_start(iter([([prepared(model, atoms)], (torch.arange(150) % 2))]))
        return list(model.state_dict().values())

    assert all(torch.equal(one, two) for one, two in zip(fitted(), fitted(), strict=True))


def test_it_takes_no_more_batches_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "MAPS", 10)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS)
    endless = batches(model, 10**9, lambda atoms: (contrast(atoms) > 0).long())
    model.warm_start(endless)
    assert next(endless)  # there are more


def test_a_layer_that_is_given_nothing_to_tell_apart_stays() -> None:
    layer = nn.Linear(4, 6)
    before = layer.weight.clone()
    whiten(layer, torch.ones(5, 4), FLOOR)
    whiten(layer, torch.zeros(0, 4), FLOOR)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 9), (9, 4)])
def test_layers_of_any_shape(inputs: int, outputs: int) -> None:
    torch.manual_seed(2)
    x = torch.randn(500, inputs) * torch.linspace(1.0, 0.3, inputs) + 3
    layer = nn.Linear(inputs, outputs)
    whiten(layer, x, FLOOR)
    with torch.no_grad():
        spread = torch.linalg.eigvalsh(torch.cov(layer(x).T.double()))
    assert layer(x).mean(dim=0).abs().max() < 1e-4
    assert torch.allclose(spread[-min(inputs, outputs) :], torch.ones(1, dtype=torch.float64), atol=0.15)


@pytest.mark.parametrize("layered", [True, False])
def test_what_queries_see_is_all_that_counts_at_first(layered: bool) -> None:
    """What the last layers are fitted to, places without anything around them, is what they are given by the model."""
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=layered).eval()
    model.warm_start(batches(model, 6, lambda atoms: (contrast(atoms) > 0).long()))
    atoms = raster(50, names=BANDS, size=(16, 16))
    inputs, asked = [prepared(model, atoms)], torch.tensor([3, 200, 3, 17])
    (places,) = warm_start.places_of(model, [(inputs, torch.arange(256) % 2)], 256)
    with torch.no_grad():
        ((given,),) = given_to(model.decoder.feedforward, lambda: model.predict(inputs))
        seen = places.conditioned(model.decoder)
        order = torch.cdist(seen, given).argmin(dim=1)  # places come in a drawn order
        assert torch.equal(order.sort().values, torch.arange(256)) and torch.equal(places.target_M, order % 2)
        assert torch.allclose(seen, given[order], atol=1e-5)
        some = places.only(asked)
        assert len(some.look.seen.standard[0]) == 4  # nothing is kept of other places
        assert torch.allclose(some.conditioned(model.decoder), seen[asked], atol=1e-5)


def test_some_queries_see_what_they_saw_among_all() -> None:
    """Two sensors, one of which lacks a channel at some sites; neither reaches everywhere."""
    torch.manual_seed(0)
    near, far = raster(0, names=BANDS, size=(8, 8)), raster(1, SENTINEL1, ("VV", "VH"), size=(4, 4))
    model = aio.create_model("atomizer_io_tiny", channels=(*CHANNELS, *SENTINEL1.pick("VV", "VH")))
    (seen,) = model.tokenizer.observe([aio.AtomSet([*near, *far])])
    seen.valid[0] = torch.rand(64, 7) > 0.3
    look = Look(seen, torch.stack([torch.randint(-1, 64, (50,)), torch.randint(-1, 16, (50,))], dim=1))
    look.sites_MA[5] = -1  # which sees nothing
    asked = torch.tensor([7, 7, 5, 49, 12])
    with torch.no_grad():
        observation, query = model.decoder.observation, model.decoder.q_init
        whole = observation(query, [look])
        assert torch.allclose(observation(query, [look.only(asked)]), whole[asked], atol=1e-5)
        assert torch.allclose(observation(query, [look.only(torch.tensor([5]))]), whole[5], atol=1e-5)


@pytest.mark.parametrize("conditioning", ["raw", "layered", "cells"])
def test_what_is_gathered_is_what_the_value_layer_reads(conditioning: str) -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, observation_mlp=conditioning != "raw")
    inputs = [prepared(model, raster(seed, names=BANDS, size=(12, 12))) for seed in range(2)]
    cells = conditioning == "cells"
    attention = model.encoder.attention if cells else model.decoder.observation
    with torch.no_grad():
        (given,) = given_to(attention, lambda: model.predict(inputs))
        weights = attention.value.weight.unflatten(0, (attention.heads, attention.head_dim))
        values = torch.einsum("nhe,hde->nhd", attention.gathered(*given), weights).flatten(1)
        assert torch.allclose(values if cells else attention.out(values), attention(*given), atol=1e-5)


def test_what_is_unseen_tells_how_much_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training places say the opposite of the unseen ones: the less is fitted the better, and the start is unsure."""
    monkeypatch.setattr(warm_start, "beats_a_constant", lambda *_: True)  # such a start would not even be kept
    torch.manual_seed(0)
    truth = lambda atoms: (contrast(atoms) > 0).long()  # noqa: E731

    def sure(unseen: bool) -> float:
        model = aio.create_model("atomizer_io_tiny", channels=CHANNELS, num_outputs=2).train()
        others = batches(model, 4, truth, 50) if unseen else ()
        model.warm_start(batches(model, 12, lambda atoms: 1 - truth(atoms)), others)
        assert model.training  # as it was
        model.eval()
        with torch.no_grad():
            found = [model.predict(inputs)[0].softmax(dim=1).amax(dim=1) for inputs, _ in batches(model, 2, truth, 100)]
        return float(torch.cat(found).mean())

    assert sure(unseen=True) < 0.8 < sure(unseen=False)

"""Input that cannot be used is refused by name, with what to do; nothing is filled with zero on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import atomizer_io as aio
from atomizer_io import Acquisition, AtomizerError, AtomSet, Channel
from atomizer_io.data.sensors import LANDSAT8, SENTINEL1, SENTINEL2, Sensor
from atomizer_io.errors import AtomsError, ConfigError, QueryError, UnknownChannelError
from atomizer_io.models.atomizer.reference import Reference

SMALL = {
    "width": 24,
    "global_latents": 2,
    "depth": 1,
    "cross_heads": 2,
    "cross_head_dim": 8,
    "self_heads": 2,
    "self_head_dim": 12,
    "atoms_per_latent": 12,
}
NAN = float("nan")
HERE = [torch.zeros(1, 2, dtype=torch.float64)]


def create(**settings: object) -> aio.AtomizerIO:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", **(SMALL | settings)).double().eval()
    for parameter in model.parameters():  # so that no part of the network is neutral
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.fixture(scope="module")
def model() -> aio.AtomizerIO:
    return create()


@pytest.fixture(scope="module")
def scene_model() -> aio.AtomizerIO:
    return create(task="classification")


def raster(channels: tuple[Channel, ...] = SENTINEL2.pick("B02", "B03"), size: int = 4, **options: object) -> AtomSet:
    noise = torch.randn(len(channels), size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scale = torch.tensor([[[1.0 if c.std is None else c.std]] for c in channels])
    return AtomSet.from_raster(noise * scale, channels, **({"gsd": 10.0} | options))


# --- observations ---


@pytest.mark.parametrize(
    "nothing",
    [
        AtomSet(),
        AtomSet.from_raster(np.full((1, 3, 3), NAN), SENTINEL2.pick("B02")),
        AtomSet.from_raster(np.zeros((1, 3, 3)), SENTINEL2.pick("B02"), nodata=0),
        AtomSet.from_points(np.zeros((0, 3))),
    ],
)
def test_a_set_without_a_valid_atom(model: aio.AtomizerIO, nothing: AtomSet) -> None:
    with pytest.raises(AtomsError, match=r"sample 1 of the batch has no valid atom.*leave the sample out or check its"):
        model.encode([raster(), nothing])
    with pytest.raises(AtomsError, match="no valid atom: every value is NaN, nodata or masked"):
        model.geometry(nothing)


def test_shapes_that_do_not_match() -> None:
    with pytest.raises(AtomsError, match=r"raster has shape \(3, 4, 4\) for 2 channels; expected \(2, height, width\)"):
        AtomSet.from_raster(np.ones((3, 4, 4)), SENTINEL2.pick("B02", "B03"))


def test_a_channel_nobody_can_describe(model: aio.AtomizerIO) -> None:
    atoms = raster((Channel("mysat", "wetness", mean=0.0, std=1.0),))
    words = (
        r"'wetness' of mysat has neither a wavelength nor a name that this model has learned \(VV, .*\): "
        r"give it wavelength_um and bandwidth_um .* learned_channels=\(\*LEARNED_CHANNELS, 'mysat wetness'\)"
    )
    with pytest.raises(UnknownChannelError, match=words):
        model.encode([atoms])
    assert len(create(learned_channels=("VV", "wetness")).encode([atoms])) == 1  # the advice works


def test_a_thermal_band(model: aio.AtomizerIO) -> None:
    thermal = tuple(replace(c, mean=0.0, std=1.0) for c in LANDSAT8.pick("B4", "B10"))
    assert len(model.encode([raster(thermal)])) == 1  # known by name
    atoms = raster(tuple(replace(c, sensor="mysat") for c in thermal))
    words = r"'B10' of mysat lies at 10.895 µm, outside the spectral basis of 0.35.2.5 µm.*'mysat B10'"
    with pytest.raises(UnknownChannelError, match=words):
        model.encode([atoms])
    assert len(create(learned_channels=("mysat B10",)).encode([atoms])) == 1


def test_thermal_and_other_bands_of_a_model_s_own_channels_are_learned_by_name() -> None:
    bands: dict[str, tuple[float, float] | None] = {
        "red": (0.65, 0.03),
        "tir": (10.9, 0.6),
        "wetness": None,
        "VV": None,
    }
    mysat = Sensor.define("mysat", gsd_m=10.0, bands=bands).with_statistics(mean=[0.0] * 4, std=[1.0] * 4)
    model = create(channels=mysat.channels)
    assert model.config.learned_channels == (*aio.LEARNED_CHANNELS, "mysat tir", "wetness")
    atoms = raster(mysat.channels)
    assert len(model.encode([atoms])) == 1
    again = aio.create_model("atomizer_io_tiny", channels=mysat.channels)
    assert again.config.learned_channels == model.config.learned_channels


def test_a_channel_that_the_named_ones_leave_out_is_refused_when_the_model_is_made() -> None:
    tir = (Channel("mysat", "tir", 10.9, 0.6, mean=300.0, std=10.0),)
    words = r"'tir' of mysat lies at 10.9 µm, outside .* learned \(VV\).*\(\*LEARNED_CHANNELS, 'mysat tir'\)"
    with pytest.raises(UnknownChannelError, match=words):
        aio.create_model("atomizer_io_tiny", channels=tir, learned_channels=("VV",))
    aio.create_model("atomizer_io_tiny", channels=tir, learned_channels=("mysat tir",))


@pytest.mark.parametrize("centre", [0.35, 0.355, 1.8, 2.49, 2.5])
@pytest.mark.parametrize("width", [0.0005, 0.005, 0.05])
def test_bands_at_the_edge_of_the_spectral_basis_count_by_their_centre(
    model: aio.AtomizerIO, centre: float, width: float
) -> None:
    atoms = raster((Channel("mysat", "edge", centre, width, mean=0.0, std=1.0),))
    slow = Reference(model)([atoms], HERE)[0]
    assert torch.allclose(model([atoms], HERE)[0], slow, atol=1e-9)


def test_a_geometry_of_another_scene(model: aio.AtomizerIO) -> None:
    channels = SENTINEL2.pick("B02", "B03")
    small, large = (aio.AtomSet.from_raster(torch.ones(2, n, n), channels, 10.0) for n in (4, 6))
    with pytest.raises(
        ConfigError, match=r"geometry given for sample 0 was built for 72 atoms .* but the sample has 32"
    ):
        model.encode([small], geometry=[model.geometry(large)])
    with pytest.raises(ConfigError, match="do not pass atoms_per_latent or anchors"):
        model.encode([small], geometry=[model.geometry(small)], atoms_per_latent=3)


def test_positions_located_elsewhere(model: aio.AtomizerIO) -> None:
    atoms = aio.AtomSet.from_raster(torch.ones(2, 4, 4), SENTINEL2.pick("B02", "B03"), 10.0)
    latents = model.encode([atoms], atoms_per_latent=32)
    second = model.geometry(atoms, atoms_per_latent=4)
    located = model.locate(atoms, second, torch.zeros(1, 2))
    with pytest.raises(QueryError, match=r"located among 8 latents .* but the sample has 1 latents"):
        model.decode(latents, [located])
    fitting = model.locate(atoms, latents.geometries[0], torch.zeros(1, 2))
    with pytest.raises(QueryError, match="pass them to locate"):
        model.decode(latents, [fitting], neighbors=1)
    assert len(model.decode(latents, [fitting])[0]) == 1


def test_a_site_nowhere() -> None:
    positions = torch.tensor([[0.0, 0.0], [NAN, 1.0]])
    with pytest.raises(AtomsError, match=r"sentinel2: position of site 1 is \[nan, 1.0\].*remove these sites"):
        Acquisition(torch.ones(2, 1), positions, SENTINEL2.pick("B02"))


def test_raw_values_without_statistics(model: aio.AtomizerIO) -> None:
    bare = replace(SENTINEL2["B02"], mean=None, std=None)
    values = np.full((1, 3, 3), 1234.0)
    words = r"'B02' of sentinel2 has no mean and std, and its values reach 1234: give the channel its statistics"
    with pytest.raises(AtomsError, match=words):
        model.encode([AtomSet.from_raster(values, [bare])])
    values[:] = 2.5  # plausible once standardised
    values[0, 0, 0] = NAN
    assert len(model.encode([AtomSet.from_raster(values, [bare])])) == 1


def test_what_stands_under_a_mask_is_not_a_raw_value(model: aio.AtomizerIO) -> None:
    bare = replace(SENTINEL2["B02"], mean=None, std=None)
    values = np.array([[[0.5, -9999.0]]])
    assert len(model.encode([AtomSet.from_raster(values, [bare], nodata=-9999.0)])) == 1


def test_statistics_of_the_model_come_first() -> None:
    bare = replace(SENTINEL2["B02"], mean=None, std=None)
    atoms = AtomSet.from_raster(np.full((1, 3, 3), 1234.0), [bare])
    assert len(create(channels=(replace(bare, mean=1000.0, std=200.0),)).encode([atoms])) == 1


@pytest.mark.parametrize("number", [0.0, NAN, -1.0, float("inf")])
@pytest.mark.parametrize("key", ["std", "wavelength_um", "bandwidth_um", "gsd_m"])
def test_a_channel_that_cannot_be(key: str, number: float) -> None:
    good = {"wavelength_um": 0.66, "bandwidth_um": 0.03, "gsd_m": 10.0, "mean": 0.0, "std": 1.0}
    words = f"^channel 'red' of mysat: {key} is {number}; give a positive number, or None where it is unknown$"
    with pytest.raises(UnknownChannelError, match=words):
        Channel("mysat", "red", **(good | {key: number}))
    assert getattr(Channel("mysat", "red", **(good | {key: None})), key) is None  # the advice works


@pytest.mark.parametrize("mean", [NAN, float("inf"), -float("inf")])
def test_a_mean_that_is_no_number(mean: float) -> None:
    with pytest.raises(UnknownChannelError, match=f"^channel 'red' of mysat: mean is {mean}, not a number$"):
        Channel("mysat", "red", 0.66, 0.03, mean=mean, std=1.0)
    assert Channel("mysat", "red", 0.66, 0.03, mean=-3.0, std=1.0).mean == -3.0


def test_an_unknown_site_field(model: aio.AtomizerIO) -> None:
    atoms = AtomSet(
        (Acquisition(torch.ones(2, 1), torch.zeros(2, 2), SENTINEL2.pick("B02"), site_fields={"slope": torch.ones(2)}),)
    )
    words = r"sentinel2: .*site field 'slope'; it knows echo_before, echo_after, intensity.* \(setting site_fields\)"
    with pytest.raises(AtomsError, match=words):
        model.encode([atoms])


# --- batches ---


def test_a_batch_is_a_list(model: aio.AtomizerIO) -> None:
    with pytest.raises(ConfigError, match=r"^a batch is a list of AtomSets, got a AtomSet: pass \[atoms\]$"):
        model.encode(raster())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the batch is empty: pass at least one AtomSet"):
        model.encode([])
    with pytest.raises(AtomsError, match=r"sample 1 of the batch is a Tensor, expected an AtomSet"):
        model.encode([raster(), torch.zeros(2, 4, 4)])  # type: ignore[list-item]


def test_a_tensor_is_no_batch(model: aio.AtomizerIO) -> None:
    with pytest.raises(ConfigError, match=r"^a batch is a list of AtomSets, got a Tensor: pass \[atoms\]$"):
        model.encode(torch.zeros(1, 2, 4, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_lists_of_the_wrong_length(model: aio.AtomizerIO, count: int) -> None:
    batch = [raster(), raster()]
    with pytest.raises(QueryError, match=f"{count} lists of positions for 2 samples"):
        model(batch, HERE * count)
    with pytest.raises(ConfigError, match=f"{count} sets of anchors for 2 samples"):
        model.encode(batch, anchors=[None] * count)


@pytest.mark.parametrize("count", [1, 3])
def test_lists_of_sites_or_geometry_of_the_wrong_length(model: aio.AtomizerIO, count: int) -> None:
    batch = [raster(), raster()]
    with pytest.raises(AtomizerError, match=f"{count} .*2 samples"):
        model(batch, HERE * 2, sites=[None] * count)
    with pytest.raises(AtomizerError, match=f"{count} .*2 samples"):
        model.encode(batch, geometry=[model.geometry(raster())] * count)


# --- questions ---


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_a_query_nowhere(model: aio.AtomizerIO, bad: float) -> None:
    with pytest.raises(QueryError, match=rf"query 1 is at \[0.0, {bad}\]: positions must be finite metres"):
        model([raster()], [torch.tensor([[0.0, 0.0], [0.0, bad]])])


@pytest.mark.parametrize("position", [(1e5, 0.0), (0.0, -20_001.0), (500_000.0, 4_600_000.0)])
def test_a_query_far_outside(model: aio.AtomizerIO, position: tuple[float, float]) -> None:
    words = rf"query 1 at \({position[0]:g}, {position[1]:g}\) m lies far outside the scene, which is 40 m wide around"
    words = words.replace("+", r"\+") + r" \(0, 0\): are both in the same frame\?"
    with pytest.raises(QueryError, match=words):
        model([raster()], [torch.tensor([(0.0, 0.0), position], dtype=torch.float64)])


def test_a_query_outside_what_clouds_left_has_a_prediction(model: aio.AtomizerIO) -> None:
    (prediction,) = model([raster()], [torch.tensor([[59.0, -59.0], [5000.0, 0.0]])])
    assert prediction.isfinite().all()


def test_queries_of_the_wrong_shape(model: aio.AtomizerIO) -> None:
    for shape in ((2,), (3, 3), (2, 2, 2)):
        with pytest.raises(QueryError, match=r"positions have shape \(.*\), expected \(queries, 2\): x, y in metres"):
            model([raster()], [torch.zeros(shape)])


@pytest.mark.parametrize("task", ["classification", "scene_regression"])
def test_a_scene_model_takes_no_positions(task: str) -> None:
    model = create(task=task)
    with pytest.raises(QueryError, match=f"a {task} model predicts for whole scenes: do not pass positions"):
        model([raster()], HERE)
    with pytest.raises(QueryError, match=f"a {task} model has no decoder: create it with task='segmentation'"):
        model.decode(model.encode([raster()]), HERE)


@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_a_dense_model_needs_positions(task: str) -> None:
    model = create(task=task)
    with pytest.raises(QueryError, match=f"a {task} model predicts at positions: pass a list of"):
        model([raster()])
    with pytest.raises(QueryError, match=f"a {task} model predicts at positions: use decode"):
        model.classify(model.encode([raster()]))


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ([0, 16, 17], r"site 16 of acquisition 0 does not exist: it has 16 \(−1: none\)"),
        ([-1, -2, 16], r"site -2 of acquisition 0 does not exist: it has 16 \(−1: none\)"),
        ([0, 1], r"sites of acquisition 0 have shape \(2,\), expected one per query: \(3,\)"),
        ([[0, 1, 2]], r"sites of acquisition 0 have shape \(1, 3\), expected one per query: \(3,\)"),
    ],
)
def test_sites_that_do_not_exist(model: aio.AtomizerIO, sites: list[int], words: str) -> None:
    with pytest.raises(QueryError, match=f"^{words}$"):
        model([raster()], [HERE[0].expand(3, 2)], sites=[{0: torch.tensor(sites)}])
    assert len(model([raster()], [HERE[0].expand(3, 2)], sites=[{0: torch.tensor([-1, 0, 15])}])[0]) == 3


def test_sites_of_an_acquisition_that_does_not_exist(model: aio.AtomizerIO) -> None:
    words = "^sites are given for acquisition 1, but the scene has 1 acquisitions$"
    with pytest.raises(QueryError, match=words):
        model([raster()], HERE, sites=[{1: torch.tensor([0])}])


@pytest.mark.parametrize("k", [0, -1])
def test_too_few_neighbors(model: aio.AtomizerIO, k: int) -> None:
    with pytest.raises(ConfigError, match=f"^neighbors must be a whole number of at least 1, got {k}$"):
        model.decode(model.encode([raster()]), HERE, neighbors=k)


# --- settings ---


def test_an_unknown_preset() -> None:
    words = "unknown model 'atomizer_io_sgm'; did you mean 'atomizer_io_seg'\\? Known: atomizer_io_3d, .*unet_small"
    with pytest.raises(ConfigError, match=words):
        aio.create_model("atomizer_io_sgm")
    with pytest.raises(
        ConfigError, match=r"^unknown model 'swin'; known: atomizer_io_3d, atomizer_io_cls, .*unet_small"
    ):
        aio.create_model("swin")


def test_an_unknown_setting() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'atom_per_latent'; did you mean 'atoms_per_latent'"):
        create(atom_per_latent=3)
    with pytest.raises(ConfigError, match="unknown setting 'colour'"):
        create(colour=3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "segment"}, "task 'segment' is not known; choose one of classification, .*segmentation, regression"),
        ({"layout": "square"}, "layout 'square' is not known; choose one of hexagonal, sites"),
        ({"atoms_per_latent": 0}, "^atoms_per_latent must be a whole number of at least 1, got 0$"),
        ({"atoms_per_latent": 2.5}, "^atoms_per_latent must be a whole number of at least 1, got 2.5$"),
        ({"budget": 0}, "^budget must be a whole number of at least 1, got 0$"),
        ({"budget": 1.0}, "^budget must be a whole number of at least 1, got 1.0$"),
        ({"neighbors": 0}, "^neighbors must be a whole number of at least 1, got 0$"),
        ({"num_outputs": -1}, "^num_outputs must be a whole number of at least 1, got -1$"),
        ({"self_head_dim": 10}, "self_head_dim must be a multiple of 4 for two-axis RoPE, got 10"),
        ({"offset_scale_m": 0.0}, "offset_scale_m must be positive, got 0.0"),
        ({"target_std": NAN}, "target_std must be a number, got nan"),
        ({"num_outputs": 3, "class_names": ("land", "water")}, "2 class names for num_outputs=3"),
    ],
)
def test_settings_outside_their_range(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(**settings)


@pytest.mark.parametrize("number", [0, -5, 1.5])
def test_budgets_per_call(model: aio.AtomizerIO, number: float) -> None:
    with pytest.raises(ConfigError, match=f"^budget must be a whole number of at least 1, got {number}$"):
        model.encode([raster()], budget=number)
    with pytest.raises(ConfigError, match=f"^atoms_per_latent must be a whole number of at least 1, got {number}$"):
        model.encode([raster()], atoms_per_latent=number)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda model: model.encode([AtomSet()]),
        lambda model: model([raster()], [torch.tensor([[NAN, 0.0]])]),
        lambda model: model.encode([raster((Channel("x", "y"),))]),
        lambda model: aio.create_model("no such preset"),
    ],
)
def test_every_error_is_a_value_error_of_ours(model: aio.AtomizerIO, wrong: Callable[[aio.AtomizerIO], object]) -> None:
    with pytest.raises(ValueError) as caught:
        wrong(model)
    assert isinstance(caught.value, AtomizerError)


# --- nothing is filled with zero ---


def predicted(model: aio.AtomizerIO, atoms: AtomSet) -> Tensor:
    with torch.no_grad():
        return model([atoms], [aio.Grid(4, 4, 10.0).positions()])[0]


def pixel_scene(value: float, **options: object) -> AtomSet:
    values = np.linspace(500.0, 2500.0, 16).reshape(1, 4, 4)
    values[0, 1, 2] = value
    return AtomSet.from_raster(values, SENTINEL2.pick("B02"), **options)


def test_a_missing_pixel_is_neither_zero_nor_the_mean(model: aio.AtomizerIO) -> None:
    missing = predicted(model, pixel_scene(NAN))
    for filled in (0.0, SENTINEL2["B02"].mean):
        assert float((predicted(model, pixel_scene(filled)) - missing)[6].abs().max()) > 1e-3


def test_every_way_of_being_absent_is_the_same(model: aio.AtomizerIO) -> None:
    missing = predicted(model, pixel_scene(NAN))
    valid = np.ones((4, 4), bool)
    valid[1, 2] = False
    assert torch.equal(predicted(model, pixel_scene(-9999.0, nodata=-9999.0)), missing)
    assert torch.equal(predicted(model, pixel_scene(0.0, nodata=0.0)), missing)
    assert torch.equal(predicted(model, pixel_scene(777.0, valid=valid)), missing)
    (full,) = pixel_scene(NAN)
    there = full.occupied()
    without = AtomSet((Acquisition(full.values[there], full.positions[there], full.channels),))
    torch.testing.assert_close(predicted(model, without), missing, rtol=1e-12, atol=1e-12)


def test_a_channel_that_is_nowhere_valid_does_not_exist(model: aio.AtomizerIO, scene_model: aio.AtomizerIO) -> None:
    image = raster(SENTINEL2.pick("B02"))
    values = torch.stack([image.acquisitions[0].values.reshape(4, 4), torch.full((4, 4), NAN)])
    with_empty = AtomSet.from_raster(values, SENTINEL2.pick("B02", "B03"))
    torch.testing.assert_close(predicted(model, with_empty), predicted(model, image), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(scene_model([with_empty]), scene_model([image]), rtol=1e-12, atol=1e-12)
    zeros = AtomSet.from_raster(values.nan_to_num(0.0), SENTINEL2.pick("B02", "B03"))
    assert float((predicted(model, zeros) - predicted(model, image)).abs().max()) > 1e-3


def test_a_channel_that_is_nowhere_valid_needs_no_description(model: aio.AtomizerIO) -> None:
    image = raster(SENTINEL2.pick("B02"))
    values = torch.stack([image.acquisitions[0].values.reshape(4, 4), torch.full((4, 4), NAN)])
    nameless = Channel("mysat", "wetness")  # no wavelength, not learned, no statistics
    with_nameless = AtomSet.from_raster(values, (SENTINEL2["B02"], nameless), gsd=10.0)
    torch.testing.assert_close(predicted(model, with_nameless), predicted(model, image), rtol=1e-12, atol=1e-12)
    values[1, 3, 3] = 0.5  # a single value, and it has to be described
    with pytest.raises(UnknownChannelError, match="'wetness' of mysat has neither a wavelength nor a name"):
        predicted(model, AtomSet.from_raster(values, (SENTINEL2["B02"], nameless), gsd=10.0))


def test_an_empty_acquisition_does_not_exist(scene_model: aio.AtomizerIO) -> None:
    image = raster()
    nothing = AtomSet.from_raster(np.full((2, 4, 4), NAN), SENTINEL1.pick("VV", "VH"))
    torch.testing.assert_close(scene_model([image + nothing]), scene_model([image]), rtol=1e-12, atol=1e-12)


def test_an_unknown_date_is_not_new_year(scene_model: aio.AtomizerIO) -> None:
    unknown, known = scene_model([raster(), raster(day_of_year=0)]).detach()
    assert float((unknown - known).abs().max()) > 1e-4


def test_an_unknown_echo_is_not_a_single_return(scene_model: aio.AtomizerIO) -> None:
    xyz = np.random.default_rng(0).uniform(0, 10, (20, 3))
    zeros, ones = np.zeros(20, int), np.ones(20, int)
    batch = [AtomSet.from_points(xyz, zeros, zeros), AtomSet.from_points(xyz), AtomSet.from_points(xyz, ones, ones)]
    unknown, not_given, single = scene_model(batch).detach()
    torch.testing.assert_close(unknown, not_given, rtol=1e-12, atol=1e-12)
    assert float((unknown - single).abs().max()) > 1e-4

"""Tabular baselines: their table, their scores, and that a run reports them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.grid import Grid
from atomizer_io.data.sample import Meta, Sample
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import AtomizerError
from atomizer_io.training import baselines, config
from atomizer_io.training.baselines import Baselines, Table, candidates, columns_of
from atomizer_io.training.results import lost
from atomizer_io.training.run import train
from atomizer_io.training.splits import open_split
from runs import synthetic
from scenes import points

pytest.importorskip("sklearn")
BANDS = ("B02", "B08")
GRID = Grid(6, 6, (10.0, 10.0))


def image(seed: int, day: float = 100, holes: float = 0.0) -> aio.AtomSet:
    values = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if holes:
        values[:, torch.rand(6, 6, generator=torch.Generator().manual_seed(seed + 1)) < holes] = torch.nan
    return aio.AtomSet.from_raster(values, SENTINEL2.pick(*BANDS), 10.0, day)


def series(*atoms: aio.AtomSet) -> aio.AtomSet:
    return aio.AtomSet(tuple(acquisition for part in atoms for acquisition in part))


def labelled(atoms: aio.AtomSet, target: np.ndarray | None = None) -> Sample:
    """A map of whether the first band is above the second on the first date."""
    values = atoms.acquisitions[0].observed()
    if target is None:
        target = (values[:, 0] > values[:, 1]).long().reshape(6, 6).numpy()
    return Sample.of_map(atoms, GRID, target, Meta("sample"))


CLASSES = TaskSpec(task="segmentation", num_outputs=2, class_names=("below", "above"))


def test_a_row_is_what_was_observed_at_the_position() -> None:
    sample = labelled(image(0))
    table = Table([columns_of(sample)])
    assert [name for name, _ in table.columns[:2]] == [("sentinel2", "B02"), ("sentinel2", "B08")]
    observed = sample.atoms.acquisitions[0].observed().numpy()
    np.testing.assert_allclose(table.rows(columns_of(sample))[:, :2], observed, rtol=1e-6)


def test_a_row_has_what_lies_around_the_position() -> None:
    sample = labelled(image(0))
    features = {column.name[1]: column.values for column in columns_of(sample)}
    expected = {
        f"{band} {kind} {side}×{side}" for side in (3, 7, 15) for kind in ("mean", "deviation") for band in BANDS
    }
    assert features.keys() == {*BANDS, *expected}
    near = sample.atoms.acquisitions[0].observed().numpy()[:, 0].reshape(6, 6)[:4, :5]
    first_row_second_column = features["B02 mean 7×7"][1], features["B02 deviation 7×7"][1]
    assert first_row_second_column == pytest.approx((near.mean(), near.std()), rel=1e-5)


def test_what_is_absent_is_the_mean_of_the_training_data() -> None:
    whole, torn = labelled(image(0)), labelled(image(5, holes=0.5), np.zeros((6, 6), dtype=np.int64))
    table = Table([columns_of(whole)])
    rows, observed = table.rows(columns_of(torn))[:, :2], torn.atoms.acquisitions[0].observed().numpy()
    known = np.isfinite(observed)
    assert 0 < known.sum() < known.size
    np.testing.assert_allclose(rows[known], observed[known], rtol=1e-6)
    mean = whole.atoms.acquisitions[0].observed().numpy().mean(axis=0)
    np.testing.assert_allclose(rows[~known[:, 0]], np.broadcast_to(mean, rows[~known[:, 0]].shape), rtol=1e-5)


def test_dates_of_a_common_calendar_keep_their_place() -> None:
    full, later = labelled(series(image(1, 100), image(2, 200))), labelled(image(3, 200))
    table = Table([columns_of(full), columns_of(later)])
    assert len(table.columns) == 2 * 14 + 2 * 4  # single pixels and windows of both dates, and statistics over dates
    rows = table.rows(columns_of(later))
    features = dict(zip(table.columns, rows.T, strict=True))
    observed = later.atoms.acquisitions[0].observed().numpy()
    np.testing.assert_allclose(features[("sentinel2", "B02"), 1], observed[:, 0], rtol=1e-6)
    assert np.ptp(features[("sentinel2", "B02"), 0]) == 0  # the mean: the first date is missing


def test_dates_that_differ_from_sample_to_sample_are_counted() -> None:
    one, two = labelled(series(image(1, 100), image(2, 130))), labelled(series(image(3, 220), image(4, 170)))
    table = Table([columns_of(one), columns_of(two)])
    features = dict(zip(table.columns, table.rows(columns_of(two)).T, strict=True))
    first = two.atoms.acquisitions[1].observed().numpy()  # of day 170
    np.testing.assert_allclose(features[("sentinel2", "B08"), 0], first[:, 1], rtol=1e-6)


def test_a_scene_is_its_means_and_standard_deviations() -> None:
    sample = Sample.of_scene(image(0, holes=0.2), 1, Meta("scene"))
    table = Table([columns_of(sample)])
    values = sample.atoms.acquisitions[0].observed().numpy()
    expected = {"B02 mean": np.nanmean(values[:, 0]), "B02 deviation": np.nanstd(values[:, 0])}
    expected |= {"B08 mean": np.nanmean(values[:, 1]), "B08 deviation": np.nanstd(values[:, 1])}
    features = {name: value for ((_, name), _), value in zip(table.columns, table.means, strict=True)}
    assert features == pytest.approx(expected, rel=1e-5)


def test_points_bring_their_fields() -> None:
    cloud = points(0, count=40)
    where = torch.arange(39, -1, -1)
    target = torch.zeros(40, dtype=torch.long)
    sample = Sample.of_points(cloud, cloud.acquisitions[0].positions[where], target, Meta("cloud"), {0: where})
    features = {column.name[1]: column.values for column in columns_of(sample)}
    fields = cloud.acquisitions[0].site_fields
    assert fields and all(f"field {name}" in features for name in fields)
    np.testing.assert_allclose(features["field intensity"], fields["intensity"].numpy()[::-1], rtol=1e-6)


def test_their_scores_are_those_of_scikit_learn() -> None:
    training, validation = [labelled(image(seed)) for seed in range(20)], [labelled(image(seed)) for seed in (30, 31)]
    fitted = Baselines(CLASSES, training)
    assert fitted.fitted_on == 20 * 36
    scores = fitted.score(validation)
    rows = np.concatenate([fitted.table.rows(columns_of(s)) for s in validation])
    target = np.concatenate([s.target.numpy() for s in validation])
    for baseline in fitted.models[:-1]:  # the last is the constant
        hits = float((baseline.model.predict(rows) == target).mean())
        assert scores[baseline.name]["accuracy"] == pytest.approx(hits) and hits > 0.85
    assert scores["logistic regression"]["miou"] > 0.9  # the border is a line


def test_a_regression_target_has_a_linear_baseline() -> None:
    def linear(seed: int) -> Sample:
        atoms = image(seed)
        values = atoms.acquisitions[0].observed()
        target = (3 * values[:, 0] - values[:, 1] + 50).reshape(6, 6)
        target[0, 0] = torch.nan
        return Sample.of_map(atoms, GRID, target.numpy(), Meta("sample"))

    task_spec = TaskSpec(task="regression", num_outputs=1, target_mean=50.0, target_std=3.0)
    fitted = Baselines(task_spec, [linear(seed) for seed in range(10)])
    scores = fitted.score([linear(40)])
    assert fitted.fitted_on == 350 and scores["linear regression"]["rmse"] < 0.1
    assert 0.1 < scores["random forest"]["rmse"] < 2.0
    mean = np.nanmean(np.concatenate([linear(seed).target.numpy() for seed in range(10)]))
    constant = np.sqrt(np.nanmean((linear(40).target.numpy() - mean) ** 2))
    assert scores["constant"]["rmse"] == pytest.approx(constant, rel=1e-4) and constant > 2.0


def test_statistics_over_dates_do_not_depend_on_their_order() -> None:
    days, again = (100, 200, 300), (300, 100, 200)
    features = [
        {c.name[1]: c.values for c in columns_of(labelled(series(*(image(i, day) for i, day in enumerate(order)))))}
        for order in (days, again)
    ]
    names = [f"{band} {kind} of dates" for band in BANDS for kind in ("mean", "deviation", "least", "most")]
    values = np.stack([image(i).acquisitions[0].observed().numpy() for i in range(3)])
    np.testing.assert_allclose(features[0]["B08 most of dates"], values[:, :, 1].max(axis=0), rtol=1e-6)
    for name in names:
        np.testing.assert_allclose(features[0][name], features[1][name], rtol=1e-4, atol=1e-6)


def test_settings_are_chosen_on_validation_data() -> None:
    training, validation = [labelled(image(seed)) for seed in range(6)], [labelled(image(seed)) for seed in (30, 31)]
    fitted = Baselines(CLASSES, training, val=validation)
    forest = fitted.models[0]
    table = [np.concatenate([fitted.table.rows(columns_of(s)) for s in part]) for part in (training, validation)]
    labels = [np.concatenate([s.target.numpy() for s in part]) for part in (training, validation)]
    by_setting = {}
    for leaf in forest.settings:
        alone = candidates(CLASSES, len(labels[0]), table[0].shape[1], 0)[0]
        alone.settings = (leaf,)
        alone.fit(table[0], labels[0], (table[1], labels[1]), lambda: None)
        by_setting[leaf] = alone.val
    assert by_setting[forest.setting] == max(by_setting.values()) == forest.val
    assert fitted.settings["random forest"] == forest.setting


def test_a_class_that_was_not_fitted_can_occur() -> None:
    task_spec = TaskSpec(task="segmentation", num_outputs=3, class_names=("a", "b", "c"))
    scores = Baselines(task_spec, [labelled(image(0))]).score([labelled(image(1), np.full((6, 6), 2))])
    assert scores["random forest"]["iou"]["c"] == 0.0


def test_few_positions_of_few_samples_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "FITTED", 30)
    monkeypatch.setattr(baselines, "SAMPLES", 5)
    monkeypatch.setattr(baselines, "ATOMS", 5 * 72)
    training = [labelled(image(seed)) for seed in range(20)]
    assert Baselines(CLASSES, training).fitted_on == 30


def test_all_samples_of_one_position_are_read() -> None:
    def place(seed: int) -> Sample:
        atoms = image(seed)
        first = atoms.acquisitions[0]
        one = aio.AtomSet((first.with_sites(torch.tensor([0])),))
        return Sample.of_points(one, first.positions[:1], (first.values[:1, 0] > 0).long(), Meta(f"place {seed}"))

    fitted = Baselines(CLASSES, [place(seed) for seed in range(700)])
    assert fitted.fitted_on == 700
    assert [name for (_, name), _ in fitted.table.columns] == list(BANDS)  # nothing lies around


def test_long_tables_have_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "NUMBERS", 14 * 100)  # 14 columns
    assert Baselines(CLASSES, [labelled(image(seed)) for seed in range(20)]).fitted_on == 100


def test_one_class_is_no_task() -> None:
    with pytest.raises(AtomizerError, match="only one class"):
        Baselines(CLASSES, [labelled(image(0), np.ones((6, 6), dtype=np.int64))])


def settings(folder: Path) -> config.Run:
    data = {"options": {"like": "sen1floods11", "size": 16, "length": 6}}
    return synthetic(folder, data, max_steps=2, baselines=True)


def test_a_run_reports_their_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = train(settings(tmp_path), progress=False)
    shown = capsys.readouterr().out
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())["baselines"]
    known = sum(int((~sample.queries.ignore).sum()) for sample in open_split(settings(tmp_path), "train"))
    assert stored["fitted_on"] == known and set(stored["scores"]) == {"val", "test"}
    assert stored["scores"]["val"]["random forest"]["positions"] == result["scores"]["val"]["positions"]
    assert stored["scores"]["test"]["random forest"]["positions"] == result["scores"]["test"]["positions"]
    own, forest = result["scores"]["val"]["miou"], stored["scores"]["val"]["random forest"]["miou"]
    assert f"val miou: {own:.4g} this model; {forest:.4g} random forest, " in shown
    assert f"fitted on positions and what lies around them ({known:,} of them)" in shown
    best = max(stored["scores"]["val"].values(), key=lambda row: row["miou"])["miou"]
    assert best > own  # after two steps
    assert "note: this model lost to the " in shown and "label more data" in shown and " on val" in shown


def test_a_model_that_wins_has_no_note_that_it_lost() -> None:
    baselines = {"val": {"random forest": {"miou": 0.6}, "logistic regression": {"miou": 0.7}}}
    assert lost({"val": {"miou": 0.7}}, baselines, CLASSES) is None
    text = lost({"val": {"miou": 0.65}}, baselines, CLASSES)
    assert text is not None and "lost to the logistic regression on val (0.7 against 0.65)" in text
    regression = TaskSpec(task="regression", num_outputs=1)
    worse = lost({"test": {"rmse": 28.5}}, {"test": {"random forest": {"rmse": 25.2}}}, regression)
    assert worse is not None and "the random forest on test (25.2 against 28.5)" in worse


def test_a_run_without_scikit_learn_reports_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "sklearn" else plain(name, *rest)
    )
    assert train(settings(tmp_path), progress=False)["baselines"] is None
    assert "pip install 'atomizer-io[baselines]'" in capsys.readouterr().out

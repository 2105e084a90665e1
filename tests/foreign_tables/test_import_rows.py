"""Imported rows are results: stored once, apart from measured rows, without contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dtsweep
from dtsweep import Sweep
from dtsweep.analysis import Study, frontier, scaling
from dtsweep.analysis.load import joined
from dtsweep.errors import SweepError
from dtsweep.plan.plan import make_plan
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from tests.cli.called import as_json, in_one_line
from tests.driver.test_in_process_run import QUICK, Line
from tests.foreign_tables.tables import ROW, imported
from tests.pages import make_study

ROWS: list[dict[str, Any]] = [
    {**ROW, "workers": workers, "step_mean_s": step_s, "precision": "bf16"}
    for workers, step_s in ((1, 0.1), (2, 0.11), (2, 0.112), (4, 0.125))
]


def test_a_row_becomes_a_trial_with_what_follows_from_its_numbers(tmp_path: Path) -> None:
    assert imported(tmp_path, ROWS) == [
        "4 rows: 4 kept (3 points)",
        f"4 new rows in {tmp_path / 'results'}. Next: dtsweep report {tmp_path / 'results'}",
    ]
    trial = dtsweep.load(tmp_path / "results").iloc[1]
    assert trial["step_mean_s"] == trial["latency_s"] == pytest.approx(0.110)
    assert trial["samples_per_s"] == pytest.approx(2 * 8 / 0.110)
    assert (trial["global_batch"], trial["workers"], trial["micro_batch"]) == (16, 2, 8)
    assert (trial["harness"], trial["semantics"], trial["workload"]) == ("imported", "exact", "cnn")
    assert (trial["env_id"], trial["imported_from"]) == ("imported:runs", "runs.csv:3")
    unknown = ["step_p50_s", "samples_per_s_low", "latency_s_error", "hosts", "learning_rate"]
    assert trial[unknown].isna().all()
    # Equal settings are launches, with an interval over them.
    points = Study(dtsweep.load(tmp_path / "results")).points.set_index("workers")
    assert points["launches"].to_dict() == {1: 1, 2: 2, 4: 1}
    assert points["interval"].fillna("").to_dict() == {1: "", 2: "launches", 4: ""}


FINE = {
    **{**ROW, "samples_per_s": 160, "mfu": 0.4, "semantics": "exact"},
    **{"data_parallel": 2, "model_parallel": 1},
}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"samples_per_s": 170}, "samples_per_s × step_mean_s is 17, and global_batch 16"),
        ({"mfu": 1.2}, "mfu is 1.2"),
        ({"step_mean_s": -0.1}, "step_mean_s is -0.1"),
        ({"step_mean_s": 0}, "step_mean_s is 0.0"),
        ({"workers": 0}, "workers is 0"),
        ({"model_parallel": 0}, "model_parallel is 0"),
        ({"data_parallel": None, "model_parallel": 4}, "model_parallel is 4, of 2 workers"),
        ({"workers": 8}, "data_parallel × model_parallel is 2, of 8 workers"),
        ({"model_parallel": 2}, "data_parallel × model_parallel is 4, of 2 workers"),
    ],
)
def test_a_row_that_contradicts_itself_is_stored_and_not_used(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    # Rounded numbers are no contradiction.
    rounded = {**FINE, "samples_per_s": 165, "mfu": 1.0}
    lines = imported(tmp_path, [rounded, {**FINE, **wrong}])
    assert lines[:2] == ["2 rows: 1 kept (1 point)", f"1 flagged, as runs.csv:3: {words}"]
    frame = dtsweep.load(tmp_path / "results")
    assert frame["status"].tolist() == ["ok", "skipped"]
    assert frame["flags"].map(list).tolist() == [[], ["implausible"]]
    assert frame["implausible"].fillna("").tolist() == ["", words]
    study = Study(frame)
    assert len(study.points) == len(frontier(study)) == 1


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"step_mean_s": None, "samples_per_s": None}, "it has neither a step time nor a rate"),
        ({"workers": None}, "workers are unknown: the table needs a column workers"),
        ({"semantics": "exakt"}, "semantics exakt is none of exact, "),
    ],
)
def test_a_row_without_workers_or_measured_numbers_is_left_out(
    lacking: dict[str, Any], words: str, tmp_path: Path
) -> None:
    _, skipped, last = imported(tmp_path, [FINE, {**FINE, **lacking}])
    assert skipped.startswith(f"1 skipped, as runs.csv:3: {words}")
    assert last.startswith("1 new row in")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a sweep, and rows of its workload and mode that are a thousand times faster."""
    folder = tmp_path_factory.mktemp("mixed")
    make_study(folder)
    rows = [{**row, "step_mean_s": row["step_mean_s"] / 1000, "workload": "Gpt"} for row in ROWS]
    results = folder / "results" / "batchsize"
    imported(folder, rows, results=results)
    return results


@pytest.mark.slow
def test_measured_and_imported_rows_share_no_frontier_and_no_ladder(mixed: Path) -> None:
    study = Study(dtsweep.load(mixed))
    points = frontier(study)
    # The imported ones are faster in both, and beat no measured one.
    measured = points[points["harness"] != "imported"]
    alone = frontier(study.frame[study.frame["harness"] != "imported"])
    best = set(alone.loc[alone["on_frontier"], "point_id"])
    assert set(measured.loc[measured["on_frontier"], "point_id"]) == best != set()
    rows = scaling(study).merge(study.points[["point_id", "harness"]], on="point_id")
    harnesses = [set(group["harness"].fillna("measured")) for _, group in rows.groupby("group")]
    assert {"imported"} in harnesses
    assert {"imported", "measured"} not in harnesses
    # The question stays that of the sweep.
    assert study.frame["harness"].iloc[-1] == "imported"
    asked = Study(study.frame[study.frame["harness"] != "imported"]).question
    assert asked is not None
    assert study.question == asked


@pytest.mark.slow
def test_measured_and_imported_rows_have_a_recommendation_each(mixed: Path) -> None:
    recommended = as_json("recommend", mixed)
    assert [one["point"]["harness"] for one in recommended] == [None, "imported"]
    for one in recommended:
        assert {row["harness"] for row in one["others"]} == {one["point"]["harness"]}
    assert set(recommended[1]["code"].values()) == {None}


@pytest.mark.slow
def test_with_imported_they_share_a_frontier_and_the_report_says_so(mixed: Path) -> None:
    frame = dtsweep.load(mixed)
    points = frontier(joined(frame))
    exact = points[points["semantics"] == "exact"]
    assert set(exact["env_id"]) == {"a1b2"}
    assert set(exact.loc[exact["on_frontier"], "harness"]) == {"imported"}
    text = in_one_line("report", mixed, "--with-imported")
    assert "4 imported rows count as measured in env_id a1b2" in text


def test_with_imported_asks_for_both(mixed: Path) -> None:
    frame = dtsweep.load(mixed)
    is_imported = frame["harness"] == "imported"
    with pytest.raises(SweepError, match="no trial of these results was imported"):
        joined(frame[~is_imported])
    with pytest.raises(SweepError, match="no trial of these results was measured"):
        joined(frame[is_imported])


@pytest.mark.slow
def test_a_run_measures_its_trials_next_to_imported_rows(tmp_path: Path) -> None:
    rows = [{**row, "workers": 1, "workload": "Line"} for row in ROWS]
    imported(tmp_path, rows)
    sweep = Sweep(workload=Line(), axes={"micro_batch": [8, 16]}, measure=QUICK)
    results = tmp_path / "results"
    for _ in range(2):
        dtsweep.run(sweep, results, in_process=True)
        counts = dtsweep.load(results).groupby("harness").size()
        assert counts.to_dict() == {"imported": 4, "in_process": 2}
    assert imported(tmp_path, rows)[-1].startswith("0 new rows")


@pytest.mark.slow
def test_a_question_is_planned_next_to_imported_rows_with_settings_of_their_own(
    tmp_path: Path,
) -> None:
    make_study(tmp_path)
    sweep, found = read_sweep(tmp_path / "sweeps" / "batchsize.py")
    results = tmp_path / "results" / "batchsize"

    def planned() -> list[list[str]]:
        rows = [{**row, "harness": row["harness"] or "ray"} for row in Results(results).attempts()]
        plan = make_plan(sweep, found, rows)
        assert plan.question is not None
        return [[trial.trial_id for trial in part] for part in (plan.to_run, plan.done)]

    before = planned()
    assert before[1]
    imported(tmp_path, [{**row, "workload_fused": "bf16"} for row in ROWS], results=results)
    assert planned() == before

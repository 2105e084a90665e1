"""Imported rows are results: stored once, apart from measured rows, without contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep import Sweep
from dtsweep.analysis import Study, frontier, scaling
from dtsweep.analysis.load import joined
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import Imported
from dtsweep.plan.plan import make_plan
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from tests.cli.called import as_json, in_one_line
from tests.driver.test_in_process_run import QUICK, Line
from tests.foreign_tables import maps
from tests.foreign_tables.maps import MAP
from tests.pages import make_study

ROWS = [
    {"gpus": gpus, "batch": 8, "step_ms": step_ms, "precision": "bf16"}
    for gpus, step_ms in ((1, 100.0), (2, 110.0), (2, 112.0), (4, 125.0))
]


def imported(
    folder: Path, rows: list[dict[str, Any]], *, results: Path | None = None, text: str = MAP
) -> Imported:
    return maps.imported(folder, pd.DataFrame(rows).to_csv(index=False), text, results=results)


def test_a_row_becomes_a_trial_with_what_follows_from_its_numbers(tmp_path: Path) -> None:
    done = imported(tmp_path, ROWS)
    assert (done.rows, done.kept, done.points, done.added) == (4, 4, 3, 4)
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


CHECKED = """
[columns]
workers = "gpus"
micro_batch = "batch"
step_mean_s = "step_s"
samples_per_s = "rate"
mfu = "mfu"
semantics = "updates"
data_parallel = "groups"
model_parallel = "parts"
[constants]
accumulation = 1
sync = "ddp"
"""
FINE = {
    **{"gpus": 2, "batch": 8, "step_s": 0.1, "rate": 160, "mfu": 0.4, "updates": "exact"},
    **{"groups": 2, "parts": 1},
}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate": 170}, "samples_per_s × step_mean_s is 17, and global_batch 16"),
        ({"mfu": 1.2}, "mfu is 1.2"),
        ({"step_s": -0.1}, "step_mean_s is -0.1"),
        ({"step_s": 0}, "step_mean_s is 0.0"),
        ({"gpus": 0}, "workers is 0"),
        ({"parts": 0}, "model_parallel is 0"),
        ({"groups": "", "parts": 4}, "model_parallel is 4, of 2 workers"),
        ({"groups": "", "gpus": 8, "parts": 3}, "model_parallel is 3, of 8 workers"),
        ({"groups": 8, "parts": "", "rate": ""}, "data_parallel is 8, of 2 workers"),
        ({"gpus": 8}, "data_parallel × model_parallel is 2, of 8 workers"),
        ({"parts": 2}, "data_parallel × model_parallel is 4, of 2 workers"),
        ({"groups": 8, "updates": "stale"}, "data_parallel × model_parallel is 8, of 2 workers"),
        ({"updates": "exakt"}, "semantics is exakt"),
    ],
)
def test_a_row_that_contradicts_itself_is_stored_and_not_used(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    # Rounded numbers are no contradiction.
    rounded = {**FINE, "rate": 165, "mfu": 1.0}
    done = imported(tmp_path, [rounded, {**FINE, **wrong}], text=CHECKED)
    assert done.kept == 1
    assert dict(done.flagged) == {words: ["runs.csv:3"]}
    frame = dtsweep.load(tmp_path / "results")
    assert frame["status"].tolist() == ["ok", "skipped"]
    assert frame["flags"].map(list).tolist() == [[], ["implausible"]]
    assert frame["implausible"].fillna("").tolist() == ["", words]
    study = Study(frame)
    assert len(study.points) == len(frontier(study)) == 1


def test_a_row_without_any_measured_number_or_without_workers_is_skipped(tmp_path: Path) -> None:
    empty = {**FINE, "step_s": "", "rate": ""}
    done = imported(tmp_path, [FINE, empty], text=CHECKED)
    assert dict(done.skipped) == {"it has neither a step time nor a rate": ["runs.csv:3"]}
    assert done.added == 1
    done = imported(tmp_path, ROWS, text=MAP.replace('workers = "gpus"', ""))
    (reason,) = done.skipped
    assert reason == "workers are unknown: map a column, or add --set workers=1"
    assert (done.rows, len(done.skipped[reason]), done.added) == (4, 4, 0)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a sweep, and rows of its workload and mode that are a thousand times faster."""
    folder = tmp_path_factory.mktemp("mixed")
    make_study(folder)
    rows = [{**row, "step_ms": row["step_ms"] / 1000} for row in ROWS]
    text = MAP.replace('"cnn"', '"Gpt"')
    results = folder / "results" / "batchsize"
    imported(folder, rows, results=results, text=text)
    return results


@pytest.mark.slow
@pytest.mark.parametrize("compare_models", [False, True])
def test_measured_and_imported_rows_share_no_frontier_and_no_ladder(
    mixed: Path, compare_models: bool
) -> None:
    study = Study(dtsweep.load(mixed))
    points = frontier(study, compare_models=compare_models)
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
@pytest.mark.parametrize("options", [[], ["--compare-models"]])
def test_measured_and_imported_rows_have_a_recommendation_each(
    mixed: Path, options: list[str]
) -> None:
    recommended = as_json("recommend", mixed, *options)
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
    rows = [{**row, "gpus": 1} for row in ROWS]
    text = MAP.replace('"cnn"', '"Line"')
    imported(tmp_path, rows, text=text)
    sweep = Sweep(workload=Line(), axes={"micro_batch": [8, 16]}, measure=QUICK)
    results = tmp_path / "results"
    for _ in range(2):
        dtsweep.run(sweep, results, in_process=True)
        counts = dtsweep.load(results).groupby("harness").size()
        assert counts.to_dict() == {"imported": 4, "in_process": 2}
    assert imported(tmp_path, rows, text=text).added == 0


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
    text = MAP.replace("[constants]", '[settings]\nfused = "precision"\n[constants]')
    imported(tmp_path, ROWS, results=results, text=text)
    assert planned() == before


def test_a_setting_of_another_type_than_in_the_results_is_refused(tmp_path: Path) -> None:
    text = MAP.replace("[constants]", '[settings]\nlayers = "layers"\n[constants]')
    imported(tmp_path, [{**ROWS[0], "layers": 4}], text=text)
    with pytest.raises(SweepError, match=r"'layers' is text in the tables, and int64 in .* rename"):
        imported(tmp_path, [{**ROWS[0], "layers": "few"}], text=text)
    assert imported(tmp_path, [{**ROWS[0], "layers": 8}], text=text).added == 1


def test_more_than_ten_thousand_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="more than 10,000 rows; split them"):
        imported(tmp_path, ROWS[:1] * 10_001)

"""Results that an earlier version wrote stay readable: loaded, reported, and named where they can't be added to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dtsweep
from dtsweep.results.store import Results, newest_trials
from tests.conftest import Command
from tests.pages import ROOT

OLD = ROOT / "tests" / "data" / "results_schema_2"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A copy, which a command may write to."""
    shutil.copytree(OLD, tmp_path / "r")
    return tmp_path / "r"


def test_every_trial_is_loaded_with_its_numbers_and_no_harness() -> None:
    frame = dtsweep.load(OLD)
    assert len(frame) == 6
    assert (frame["status"] == "ok").all()
    assert frame["samples_per_s"].gt(0).all()
    assert frame["harness"].isna().all()
    assert frame[["compression", "compression_ratio", "compress_s", "compression_error"]].isna().all(axis=None)
    assert frame[["compute_share", "memory_share", "launch_share", "peak_bytes_per_s"]].isna().all(axis=None)
    assert len(dtsweep.load(OLD, canaries=True)) == 6 + 4


def test_step_times_are_computed_anew_from_the_stored_steps() -> None:
    stored, frame = newest_trials(OLD), dtsweep.load(OLD)
    two = frame["workers"].eq(2) & frame["global_batch"].notna()
    rate = frame["step_mean_s"] * frame["samples_per_s"] / frame["global_batch"].astype(float)
    assert rate[two].tolist() == pytest.approx([1, 1], abs=0.005)
    # The slowest worker's of each step: 3 % too long where two workers exchange after each.
    ddp = two & frame["sync"].eq("ddp")
    assert (stored["step_mean_s"] / frame["step_mean_s"])[ddp].item() == pytest.approx(1.032, abs=0.001)
    assert frame["latency_s"].notna().all()
    # One window drifts, which the rule of its day saw too: it has no interval now.
    assert frame["latency_s_error"].gt(0).tolist() == ["drift" not in flags for flags in frame["flags"]]
    assert frame["latency_s_error"].isna().sum() == 1
    # The rate changes by what workers did after their last step, and by another warm-up where one is found.
    faster = frame["samples_per_s"] / stored["samples_per_s"]
    warm = ~(frame["workers"].eq(2) & frame["sync"].ne("ddp"))
    assert frame.loc[warm, "warmup_steps"].tolist() == stored.loc[warm, "warmup_steps"].tolist()
    assert faster[warm].between(0.999, 1.005).all()
    assert (frame["tokens_per_s"] / stored["tokens_per_s"]).tolist() == pytest.approx(faster.tolist())
    assert dtsweep.load(OLD, canaries=True)["latency_s"].notna().all()


def test_flags_are_found_anew_and_what_ranks_noticed_is_kept(results: Path) -> None:
    rows = newest_trials(results)
    # One of an older rule, one that a rank noticed.
    changed = [{**row, "flags": ["drift", "throttled"]} for row in Results(results).attempts()]
    shutil.rmtree(results / "trials")
    for row in changed:
        Results(results).commit(
            {k: v for k, v in row.items() if not k.startswith("workload_") or k == "workload_digest"}
        )
    flags = dtsweep.load(results)["flags"]
    assert len(flags) == len(rows)
    assert all("throttled" in row for row in flags)
    assert sum("drift" in row for row in flags) == 1


def test_a_row_whose_steps_are_gone_keeps_its_old_figures_and_says_so(results: Path) -> None:
    shutil.rmtree(results / "steps")
    with pytest.warns(UserWarning, match="has lost the steps of"):
        frame = dtsweep.load(results)
    with pytest.warns(UserWarning, match="has lost the steps of"):
        stored = newest_trials(results)
    assert all("older_steps" in flags for flags in frame["flags"])
    by_mean = frame["semantics"] == "local"
    assert frame["latency_s"].tolist() == stored["step_p50_s"].mask(by_mean, stored["step_mean_s"]).tolist()
    assert frame["step_mean_s"].tolist() == stored["step_mean_s"].tolist()


def test_no_row_is_implausible_and_one_that_was_changed_by_hand_is(results: Path) -> None:
    assert dtsweep.load(OLD, canaries=True)["implausible"].isna().all()
    frame = dtsweep.load(OLD)
    assert not any("implausible" in flags for flags in frame["flags"])
    rows = Results(results).attempts()
    shutil.rmtree(results / "trials")
    for row in rows:
        known = {k: v for k, v in row.items() if not k.startswith("workload_") or k == "workload_digest"}
        # With a latency a row is of today, and is not computed anew.
        Results(results).commit(known | {"latency_s": 1.0, "samples_per_s": 2 * row["samples_per_s"]})
    frame = dtsweep.load(results)
    together = frame["global_batch"].notna()
    assert together.tolist() == frame["implausible"].notna().tolist()
    assert frame.loc[together, "implausible"].str.contains("samples_per_s × step_mean_s is ").all()
    assert [flags[-1] == "implausible" for flags in frame.loc[together, "flags"]] == [True] * int(together.sum())


def test_the_analysis_finds_a_frontier_of_each_semantics() -> None:
    points = dtsweep.analysis.frontier(dtsweep.load(OLD))
    assert set(points.loc[points["on_frontier"], "semantics"]) == {"exact", "stale", "local"}
    assert points["latency_s"].gt(0).all()
    assert len(dtsweep.analysis.scaling(dtsweep.load(OLD))) == 6


def test_the_report_prints_them(results: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("report", results, folder=results)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Frontier ·") == 3
    told = json.loads(dtsweep_command("report", results, "--json", folder=results).stdout)
    assert (told["trials"], told["statuses"]) == (6, {"ok": 6})


def test_a_plan_says_why_they_are_not_added_to(results: Path, dtsweep_command: Command) -> None:
    sweep = ROOT / "sweeps" / "batchsize.py"
    done = dtsweep_command("plan", sweep, "--results", results, folder=results)
    assert done.returncode == 2
    assert "source of the workload" in done.stderr
    assert "--rerun all" in done.stderr
    anew = dtsweep_command("plan", sweep, "--results", results, "--rerun", "all", "--json", folder=results)
    assert json.loads(anew.stdout)["to_run"] == 30


def test_models_are_told_apart_by_their_flops(results: Path) -> None:
    stored, frame = newest_trials(results), dtsweep.load(results)
    assert stored["model_digest"].isna().all()
    assert frame["model_digest"].nunique(dropna=False) == 1
    rows = Results(results).attempts()
    shutil.rmtree(results / "trials")
    for number, row in enumerate(rows):
        known = {name: value for name, value in row.items() if not name.startswith("workload_")}
        Results(results).commit(known | {"flops_per_sample": (1e6, 2e6)[number % 2]})
    assert dtsweep.load(results)["model_digest"].nunique(dropna=False) == 2

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtsweep import Point
from dtsweep.compare.compared_runs import RunComparison, compare_runs
from dtsweep.compare.runs import (
    Run,
    machine_changes,
    of_machine,
    same_machines,
)
from dtsweep.compare.words import comparison_json
from dtsweep.errors import SweepError
from dtsweep.metrics.rows import task_row
from dtsweep.results.store import Results
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types
from tests.compare.stored_runs import SWEEP, run_in, runs_in, store_run

STEADY = {4: [100.0, 101, 99], 16: [200.0, 202, 198]}
SLOWER = {4: [80.0, 81, 79], 16: [200.0, 202, 198]}
BIGGER = '{"cpu": "Xeon", "cpus": 64, "torch_version": "2.13.0"}'
NEWER = '{"cpu": "Xeon", "cpus": 2, "torch_version": "2.14.0"}'


def comparison(base: Run | list[Run], new: Run, **options: Any) -> RunComparison:
    runs = base if isinstance(base, list) else [base]
    return compare_runs(runs, new, **{"of": ["samples_per_s"], "threshold": 0.02} | options)


def one_launch_runs(folder: Path, rates: list[float]) -> list[Run]:
    """Runs of one launch each, day after day.

    Launches of the second point differ alike and have no trend.
    """
    noise = np.random.default_rng(4).normal(1, 0.005, (2, len(rates)))
    return [
        run_in(store_run(folder / str(day), {4: [rate * a], 16: [200 * b]}, day=day))
        for day, rate, a, b in zip(range(1, len(rates) + 1), rates, *noise, strict=True)
    ]


@pytest.mark.slow
def test_the_part_of_the_step_that_grew_is_named(tmp_path: Path) -> None:
    # The step grows from 40 to 50 ms.
    base = run_in(store_run(tmp_path / "b", STEADY, data_s=0.0003, backward_s=0.02))
    for data_s, words in (
        (0.0093, ["Loading batches grew from 0.30 to 9.3 ms a step: that is the difference"]),
        (0.0063, ["Loading batches grew from 0.30 to 6.3 ms a step: that is most of the"]),
        (0.0004, []),
    ):
        place = store_run(tmp_path / str(data_s), SLOWER, data_s=data_s, backward_s=0.02)
        found = comparison_json(comparison(base, run_in(place)), threshold=0.02)["grew"]
        assert [text[: len(start)] for text, start in zip(found, words, strict=True)] == words


def test_runs_of_other_machines_are_refused_with_what_differs(tmp_path: Path) -> None:
    base = run_in(store_run(tmp_path / "b", STEADY))
    new = run_in(store_run(tmp_path / "n", SLOWER, env_id="c3d4", machine=BIGGER))
    with pytest.raises(
        SweepError, match="different machines: cpus 2 → 64; --other-machine compares them"
    ):
        comparison(base, new)
    found = comparison(base, new, other_machine=True)
    assert found.is_regression
    assert found.machine == ["cpus 2 → 64"]


def test_other_software_and_another_source_are_compared_and_said(tmp_path: Path) -> None:
    old, new = (
        {"workload_digest": digest, "sources": f'{{"net.py": "{digest}"}}'} for digest in ("1", "2")
    )
    base = run_in(store_run(tmp_path / "b", STEADY, **old))
    upgraded = run_in(store_run(tmp_path / "n", SLOWER, env_id="c3d4", machine=NEWER, **old))
    found = comparison(base, upgraded)
    assert found.is_regression
    assert (found.software, found.machine) == (["torch 2.13.0 → 2.14.0"], [])
    edited = comparison(base, run_in(store_run(tmp_path / "e", STEADY, **new)))
    assert (edited.source, edited.is_regression) == (["net.py changed"], False)


@pytest.mark.slow
def test_machines_that_are_not_stored_are_only_the_same_where_their_digest_is(
    tmp_path: Path,
) -> None:
    base = run_in(store_run(tmp_path / "b", STEADY, machine=None))
    same, other = (
        run_in(store_run(tmp_path / e, STEADY, env_id=e, machine=None)) for e in ("a1b2", "c3d4")
    )
    assert comparison(base, same).rows["verdict"].tolist() == ["undecided"] * 2
    with pytest.raises(SweepError, match="what they ran on is not stored, and their env_id differ"):
        comparison(base, other)


def test_what_one_machine_does_not_know_is_no_difference() -> None:
    assert machine_changes([{"cpus": 2}], [{"cpus": 2, "bandwidth": 10}]) == []
    known = {"a": [{"cpus": 2}], "b": [{"cpus": 4}], "c": [{"cpus": 2, "smt": True}]}
    assert same_machines("abc", known) == {"a": "a", "b": "b", "c": "a"}


def test_a_point_that_no_longer_runs_is_a_regression_of_its_own(tmp_path: Path) -> None:
    base = run_in(store_run(tmp_path / "b", STEADY))
    now = run_in(store_run(tmp_path / "n", {4: STEADY[4], 16: [None, None]}, day=3))
    found = comparison(base, now)
    assert found.is_regression
    assert found.broken[["status", "reason"]].to_numpy().tolist() == [
        ["nan", "rank 0: the loss is nan"]
    ]
    # Also where the newest of the earlier runs left it out.
    narrowed = run_in(store_run(tmp_path / "2", {4: STEADY[4]}, day=2))
    assert len(comparison([base, narrowed], now).broken) == 1
    interrupted = store_run(tmp_path / "i", {4: STEADY[4], 16: [None]}, status="cancelled")
    store_run(interrupted, {4: STEADY[4]}, day=2)
    assert not comparison(base, run_in(interrupted)).is_regression


def test_runs_without_a_point_in_common_are_refused(tmp_path: Path) -> None:
    base, new = (run_in(store_run(tmp_path / str(size), {size: STEADY[size]})) for size in STEADY)
    with pytest.raises(SweepError, match="no point is in both"):
        comparison(base, new)
    failed = run_in(store_run(tmp_path / "failed", {4: [None]}))
    for runs in ((failed, base), (new, failed)):
        with pytest.raises(
            SweepError, match=r"no trial of .*failed ended ok, so there is nothing to compare"
        ):
            comparison(*runs)


def test_a_run_is_not_compared_with_itself_nor_with_trials_of_its_own(tmp_path: Path) -> None:
    place = store_run(tmp_path / "b", {4: STEADY[4]})
    earlier = run_in(place)
    copied = Path(shutil.copytree(place, tmp_path / "copy"))
    with pytest.raises(SweepError, match=r"/b and .*/copy are the same run: give another one"):
        comparison(earlier, run_in(copied))
    store_run(copied, {16: STEADY[16]}, day=2)
    with pytest.raises(
        SweepError, match=r"3 of the 6 trials of .*/copy are those of .*/b; measure .* --results"
    ):
        comparison(earlier, run_in(copied))


def test_a_run_in_which_every_point_fails_that_ran_before_is_a_regression(tmp_path: Path) -> None:
    base = run_in(store_run(tmp_path / "b", STEADY))
    nothing: dict[int, list[float | None]] = {4: [None], 16: [None]}
    found = comparison(base, run_in(store_run(tmp_path / "n", nothing)))
    assert found.is_regression
    assert len(found.broken) == 2
    assert found.rows.empty
    elsewhere = run_in(store_run(tmp_path / "e", nothing, env_id="e5f6", machine=BIGGER))
    assert of_machine([base], elsewhere) == []
    with pytest.raises(SweepError, match="different machines: cpus 2 → 64"):
        comparison(base, elsewhere)
    # One that failed before it said where it ran is compared with all.
    lost = run_in(store_run(tmp_path / "lost", nothing, env_id=None, machine=None))
    assert of_machine([base], lost) == [base]
    assert comparison(base, lost).is_regression


def with_canaries(folder: Path, *step_s: float) -> Path:
    """Results with canaries of one session beside their trials."""
    results, point = Results(folder), Point(micro_batch=4, workload=SWEEP.workload)
    for minute, mean_s in enumerate(step_s):
        watched = task_row(SWEEP, point, task_of(SWEEP, point, repeat=1))
        watched |= {"role": "canary", "status": "ok", "flags": [], "half_width": 0.01, "hosts": 1}
        watched |= {"step_mean_s": mean_s, "step_mean_s_error": 0.001 * mean_s}
        watched |= {"session": "day2-1", "env_id": "a1b2"}
        watched |= {"started_at": datetime(2026, 1, 2, 0, minute, tzinfo=UTC)}
        results.commit(watched, workload_types=column_types(SWEEP.workload))
    return folder


@pytest.mark.slow
def test_one_launch_on_a_machine_that_drifted_tells_no_difference_within_the_drift(
    tmp_path: Path,
) -> None:
    base = run_in(store_run(tmp_path / "b", STEADY))
    slower: dict[int, list[float]] = {4: [80.0], 16: [100.0]}
    quiet = run_in(store_run(tmp_path / "q", slower, day=2))
    assert quiet.drift is None
    assert comparison(base, quiet).rows["verdict"].tolist() == ["slower", "slower"]
    new = run_in(with_canaries(store_run(tmp_path / "n", slower, day=2), 0.1, 0.15))
    assert new.drift == pytest.approx(0.5)
    found = comparison(base, new).rows
    assert found["verdict"].tolist() == ["undecided", "slower"]
    assert found["ratio_high"].iloc[0] > 1 > found["ratio_high"].iloc[1]
    assert (found["detectable_ratio"] > 1.5).all()
    several = run_in(with_canaries(store_run(tmp_path / "s", SLOWER, day=2), 0.1, 0.15))
    assert comparison(base, several).rows["verdict"].tolist() == ["slower", "undecided"]


@pytest.mark.slow
def test_earlier_runs_with_one_launch_each_tell_a_jump_beyond_the_drift(tmp_path: Path) -> None:
    *base, new = one_launch_runs(tmp_path, [100.0] * 8 + [88])
    found = comparison(base, new)
    assert found.is_by_run
    rows = found.rows
    assert rows["verdict"].tolist() == ["slower", "undecided"]
    assert rows[["launches_base", "launches_new"]].to_numpy().tolist() == [[8, 1]] * 2
    assert not comparison(base[:-1], base[-1]).is_regression
    drifted = run_in(with_canaries(tmp_path / "9", 0.1, 0.15))
    assert not comparison(base, drifted).is_regression


def test_launches_inside_a_run_do_not_make_it_count_more_than_once(tmp_path: Path) -> None:
    # Runs differ by 5 %, launches inside them by next to nothing: a run that is 6 % slower is one
    # of them.
    levels = [100.0, 105, 96, 102, 94, 101]
    runs = [
        run_in(store_run(tmp_path / str(day), {4: [level, level * 1.001]}, day=day))
        for day, level in enumerate(levels, 1)
    ]
    found = comparison(runs[:5], runs[5])
    assert not found.is_regression
    assert comparison(runs[1], runs[4]).is_regression, (
        "with two runs alone their launches decide, and mislead"
    )


@pytest.mark.slow
def test_runs_of_one_results_folder_are_those_of_its_records(tmp_path: Path) -> None:
    place = tmp_path / "all"
    # Rows that are older than the first record are a run as well.
    for day, rates in ((1, SLOWER), (2, STEADY), (3, SLOWER)):
        store_run(tmp_path / str(day), rates, day=day, machine=NEWER)
        store_run(place, rates, day=day, machine=NEWER, has_record=day > 1)
    runs = runs_in(place)
    assert [run.name for run in runs] == [str(place), "day2", "day3"]
    for run, day in zip(runs, (1, 2, 3), strict=True):
        alone = run_in(tmp_path / str(day))
        rates, same = (each.trials.set_index("trial_id")["samples_per_s"] for each in (run, alone))
        assert rates.to_dict() == same.to_dict()
        assert run.machines == alone.machines
    assert comparison(runs[1], runs[2]).is_regression


@pytest.mark.slow
def test_an_earlier_run_that_measured_nothing_does_not_count_and_the_last_one_does(
    tmp_path: Path,
) -> None:
    place = tmp_path / "all"
    nothing: dict[int, list[float | None]] = {4: [None], 16: [None]}
    for day, rates in ((1, STEADY), (2, nothing), (3, nothing)):
        store_run(place, rates, day=day, has_record=True)
    base, new = runs_in(place)
    assert (base.name, new.name) == ("day1", "day3")
    assert len(comparison(base, new).broken) == 2


def test_an_attempt_without_a_start_is_of_the_run_before_it(tmp_path: Path) -> None:
    place = store_run(tmp_path / "all", {4: [100.0]}, day=1, has_record=True, row_number=1)
    store_run(place, {16: [200.0]}, day=1, started_at=None, row_number=2)
    store_run(place, {4: [100.0]}, day=2, has_record=True, row_number=3)
    assert [len(run.trials) for run in runs_in(place)] == [2, 1]

"""What is done and what is to do, from a sweep and rows of results; no Ray."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Sweep, SweepError, workloads
from dtsweep.cli.plan_table import plan_json
from dtsweep.metrics.rows import point_row
from dtsweep.plan.estimate import AFTER_SHARE, SESSION_START_S, TRIAL_REST_S
from dtsweep.plan.plan import make_plan
from dtsweep.plan.trial import Trial, choose_canaries, groups_of
from dtsweep.provenance.sources import sources_of
from dtsweep.provenance.versions import versions
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import task_of
from tests.counts import calls_of

SWEEP = Sweep(
    workload=workloads.Gpt(),
    axes={"workers": [1, 2], "micro_batch": [1, 2, 3]},
    skip=lambda p: "odd" if p.micro_batch == 3 else None,
    measure=Measure(repeats=1),
)


ANOTHER = {"workload_digest": "another", "sources": json.dumps({"class Gpt": "another"})}
"""Columns of a workload that was edited since."""


def rows(sweep: Sweep = SWEEP, *, status: str = "ok", **more: Any) -> list[dict[str, Any]]:
    """What a run of the sweep would have stored, all trials ending alike."""
    empty = {column.name: None for column in TRIALS}
    sources = sources_of(sweep.workload, file=None)
    return [
        {
            **empty,
            **point_row(sweep, trial.point),
            **versions(),
            "trial_id": trial.trial_id,
            **sources.columns(point_row(sweep, trial.point)),
            "harness": "ray",
            "status": status,
            **more,
        }
        for trial in make_plan(sweep, candidates(sweep), []).to_run
    ]


def plan(
    sweep: Sweep, stored: list[dict[str, Any]], rerun: str | None = None, *, harness: str = "ray"
) -> tuple[int, int]:
    made = make_plan(sweep, candidates(sweep), stored, rerun=rerun, harness=harness)
    return len(made.to_run), len(made.done)


@pytest.mark.parametrize(
    ("status", "resumed", "failed"),
    [
        ("ok", (0, 4), (0, 4)),
        ("user_error", (0, 4), (4, 0)),
        ("oom_device", (0, 4), (4, 0)),
        ("rank_died", (4, 0), (4, 0)),
        ("cancelled", (4, 0), (4, 0)),
    ],
)
def test_what_is_measured_again_depends_on_how_it_ended(
    status: str, resumed: tuple[int, int], failed: tuple[int, int]
) -> None:
    stored = rows(status=status)
    assert plan(SWEEP, stored) == resumed
    assert plan(SWEEP, stored, "failed") == failed
    assert plan(SWEEP, stored, "all") == (4, 0)
    # An attempt that went well counts whatever came after it.
    assert plan(SWEEP, rows() + stored) == (0, 4)


def test_wrong_gradients_are_measured_again_once_the_workloads_source_has_changed() -> None:
    assert plan(SWEEP, rows(status="wrong_gradient")) == (0, 4)
    wrong = rows(status="wrong_gradient", **ANOTHER)
    assert plan(SWEEP, wrong) == (4, 0)
    assert plan(SWEEP, wrong + rows()) == (0, 4)
    mixed = [*rows(**ANOTHER)[1:], *wrong[:1]]
    with pytest.raises(SweepError, match="--rerun all"):
        plan(SWEEP, mixed)
    assert plan(SWEEP, mixed, "all") == (4, 0)


def test_repeats_run_one_after_the_other_in_sessions_of_their_own() -> None:
    made = make_plan(replace(SWEEP, measure=Measure(repeats=2)), candidates(SWEEP), [])
    assert [trial.repeat for trial in made.to_run] == [1, 1, 1, 1, 2, 2, 2, 2]
    fresh = make_plan(replace(SWEEP, measure=Measure(repeats=1, fresh=True)), candidates(SWEEP), [])
    assert (made.session_starts, fresh.session_starts) == (2, 4)


# Canaries


def group_of(axes: dict[str, Any]) -> list[Trial]:
    """The trials of a sweep of one world."""
    sweep = replace(SWEEP, axes=axes, skip=None)
    (group,) = groups_of(make_plan(sweep, candidates(sweep), []).to_run, fresh=False)
    return group


def canary_of(trials: list[Trial]) -> Trial:
    (watch,) = choose_canaries(trials).values()
    return watch


def test_a_canary_is_plain_ddp_with_the_middle_micro_batch_of_its_world() -> None:
    axes = {"sync": ["local_sgd", "parameter_server"], "compression": ["topk"]}
    axes |= {"precision": ["bf16"], "placement": ["spread"], "env.NCCL_ALGO": ["Ring"]}
    group = group_of({"workers": [2], "micro_batch": [1, 4, 64], "accumulation": [2], **axes})
    watch = canary_of(group)
    point = watch.point
    shape = (point.sync, point.micro_batch, point.accumulation, point.precision)
    assert shape == ("ddp", 4, 1, "bf16")
    read = (point.sync_period, point.staleness, point.shards, point.compression)
    assert read == (None,) * 4
    assert point.semantics == "exact"
    assert point.world == group[0].point.world
    assert (watch.role, watch.repeat) == ("canary", 1)


@pytest.mark.parametrize("modes", [["fsdp", "hsdp"], ["zero1", "fsdp"], ["hsdp", "zero1"]])
def test_a_world_whose_trials_all_divide_their_state_has_a_canary_in_a_mode_of_its_own(
    modes: list[str],
) -> None:
    # A model that no worker can hold whole, with the optimizer's state, fits in these.
    axes = {"micro_batch": [1, 4, 64], "accumulation": [2], "sync": modes, "node_size": [None]}
    point = canary_of(group_of({"workers": [2], **axes})).point
    assert (point.sync in modes, point.micro_batch, point.accumulation) == (True, 4, 1)
    thinned = {"sync": ["zero1"], "compression": ["topk"], "compression_ratio": [0.1]}
    compressed = group_of({"workers": [2], **thinned})
    plain = replace(compressed[0].point, compression=None, compression_ratio=None)
    assert canary_of(compressed).point == plain
    nodes = group_of({"workers": [4], "micro_batch": [4], "sync": ["hsdp"], "node_size": [2]})
    assert (canary_of(nodes).point.sync, canary_of(nodes).point.node_size) == ("hsdp", 2)


@pytest.mark.parametrize(
    ("axes", "is_run", "expected"),
    [
        # The wide model runs in shards alone.
        ({"sync": ["ddp", "fsdp"]}, lambda point: point.sync == "ddp", ("ddp", 32)),
        # The wide model runs with few samples alone, and most trials have many.
        ({"micro_batch": [1, 62, 63, 64]}, lambda point: point.micro_batch > 1, ("ddp", 63)),
    ],
)
def test_a_canary_is_no_larger_than_a_trial_that_has_all_its_state_on_each_worker(
    axes: dict[str, Any], is_run: Callable[[Point], bool], expected: tuple[str, int]
) -> None:
    group = [
        trial
        for trial in group_of({"workers": [2], "workload.width": [64, 4096], **axes})
        if (trial.point.workload.width == 64) == is_run(trial.point)
    ]
    assert (len(group), len(choose_canaries(group))) == (sum(map(len, axes.values())), 1)
    point = canary_of(group).point
    assert (point.sync, point.micro_batch, point.workload.width) == (*expected, 64)


def test_each_world_has_its_canary_in_whatever_order_launches_run() -> None:
    sweep = replace(
        SWEEP, axes={"workers": [1, 2], "micro_batch": [1, 2, 3, 4], "workload.width": [64, 128]}
    )
    trials = make_plan(sweep, candidates(sweep), []).to_run
    watches = choose_canaries(trials)
    assert [watch.point.workers for watch in watches.values()] == [2, 1]
    assert [watch.point.world for watch in watches.values()] == [*watches]
    for some in (trials[::-1], trials[3:] + trials[:3]):
        again = choose_canaries(some)
        assert {world: watch.point for world, watch in again.items()} == {
            world: watch.point for world, watch in watches.items()
        }


def test_a_canary_is_named_apart_from_the_trial_with_its_point() -> None:
    point = canary_of(group_of({"workers": [2], "micro_batch": [1, 2, 3]})).point
    # It is measured to 1 %, or as well as trials where windows end by that.
    for half_width, of_canary in ((0.02, 0.01), (0.05, 0.01), (0.005, 0.005), (None, None)):
        sweep = replace(SWEEP, measure=Measure(repeats=1, half_width=half_width, max_seconds=7))
        trial, watched = (task_of(sweep, point, role=role) for role in ("trial", "canary"))
        assert trial.measure == sweep.measure
        assert watched.measure == replace(sweep.measure, half_width=of_canary)
    assert (trial.role, watched.role) == ("trial", "canary")
    # As it was named before there were canaries.
    assert trial.trial_id == identity(point, seed=0, repeat=1, fresh=False) != watched.trial_id
    # It runs in the session of the trials around it.
    assert trial.session_group == watched.session_group
    # A canary of a point leaves open the trial that has it.
    sweep = replace(SWEEP, axes={"workers": [2], "micro_batch": [1, 2, 3]}, skip=None)
    ran = {**rows()[0], **point_row(sweep, point), "role": "canary"}
    ran["trial_id"] = task_of(sweep, point, role="canary").trial_id
    assert plan(sweep, [ran]) == (3, 0)


def expected_s(axes: dict[str, Any], **measure: Any) -> float:
    """Expected duration of a sweep with windows of a length, before anything was measured."""
    settings = Measure(repeats=1, half_width=None, **measure)
    sweep = Sweep(workload=workloads.Gpt(), axes=axes, measure=settings)
    return make_plan(sweep, candidates(sweep), []).duration.middle_s


def test_the_range_of_the_expected_duration_is_narrower_with_results() -> None:
    guess, by_results = (
        make_plan(SWEEP, candidates(SWEEP), stored, rerun="all").duration
        for stored in ([], rows(window_s=1.0, trial_s=1.0, overhead_s=0.0))
    )
    assert 2.5 * guess.low_s < guess.high_s <= 3 * guess.low_s
    assert by_results.high_s < 2.5 * by_results.low_s
    assert (guess.measured, by_results.measured) == (0, 4)


def test_a_plan_counts_two_canaries_for_each_launch_of_several_trials() -> None:
    several = {"workers": [1, 2], "micro_batch": [1, 2, 3, 4]}
    worlds = {"workers": [1, 2]}
    canary = 10 + TRIAL_REST_S
    each = canary + AFTER_SHARE * 10
    for axes, measure, seconds in (
        (several, {"canary": False}, 8 * each + SESSION_START_S),
        (several, {}, 8 * each + 2 * canary + SESSION_START_S),
        ({"workers": [2]}, {}, each + SESSION_START_S),
        # Each world with a session of its own.
        (several, {"nested": False}, 8 * each + 4 * canary + 2 * SESSION_START_S),
        (worlds, {"nested": False}, 2 * each + 2 * SESSION_START_S),
    ):
        assert expected_s(axes, min_seconds=10, **measure) == pytest.approx(seconds)
    # Windows are long enough for energy: four seconds more of eight trials and two canaries.
    more_s = expected_s(several, min_seconds=1, energy=True) - expected_s(several, min_seconds=1)
    assert more_s == pytest.approx(8 * 4 * (1 + AFTER_SHARE) + 2 * 4)


def test_a_start_is_expected_to_take_the_median_of_sessions_starts_not_of_servers() -> None:
    sweep = replace(SWEEP, axes={"workers": [1]}, measure=Measure(repeats=1, canary=False))
    (row,) = rows(sweep, window_s=1.0, trial_s=1.0, overhead_s=0.0)

    def total_s(*started: tuple[str, float]) -> float:
        # The first has no start of its own: what is expected without any is the same in all.
        sessions = (("early", None), *started)
        stored = [row | {"session": name, "startup_s": start_s} for name, start_s in sessions]
        return make_plan(sweep, candidates(sweep), stored, rerun="all").duration.middle_s

    usual_s = total_s() - SESSION_START_S
    assert total_s(("a", 12.0)) - usual_s == pytest.approx(12)
    assert total_s(("a", 12.0), ("a", 1.0), ("a", 1.0)) - usual_s == pytest.approx(12)
    assert total_s(("a", 12.0), ("b", 600.0), ("c", 13.0)) - usual_s == pytest.approx(13)


def test_settings_of_another_version_leave_a_trial_done_and_are_no_difference() -> None:
    usual = asdict(Measure(repeats=1))
    older = {name: value for name, value in usual.items() if name != "gc"}
    for then in ({**usual, "cool_down_steps": 5}, older, {}):
        # This version has set `gc`; of what only one of the two knows nothing can be said.
        sweep = replace(SWEEP, measure=Measure(repeats=1, gc="gc" not in then))
        made = make_plan(sweep, candidates(sweep), rows(measure=json.dumps(then)))
        assert [trial.why for trial in made.done] == ["ok"] * 4
        assert made.to_run == []


# Points that ran out of device memory

LARGER = Sweep(
    workload=workloads.Gpt(),
    axes={"workers": [1, 2], "micro_batch": [2, 4, 8], "accumulation": [1, 2]},
    measure=Measure(repeats=1),
)


def ended(sweep: Sweep, **status: str) -> list[dict[str, Any]]:
    """Rows of the trials with one worker and one pass.

    A micro-batch has a row if its status is given, such as `of_2="ok"`.
    """
    one = {
        f"of_{row['micro_batch']}": row
        for row in rows(sweep)
        if row["workers"] == row["accumulation"] == 1
    }
    return [{**one[name], "status": ending} for name, ending in status.items()]


def pruned(
    sweep: Sweep, stored: list[dict[str, Any]], **options: Any
) -> list[tuple[int, int, int, str | None]]:
    made = make_plan(sweep, candidates(sweep), stored, **options)
    assert len(made.to_run) + len(made.done) + len(made.skipped) == len(candidates(sweep))
    points = [(skipped.point, skipped.reason) for skipped in made.skipped]
    return [(p.workers, p.accumulation, p.micro_batch, reason) for p, reason in points]


def test_a_stored_point_that_ran_out_of_memory_skips_the_same_with_a_larger_micro_batch() -> None:
    reason = "micro_batch=2 ran out of memory; --try-all measures it"
    both = [(1, 1, 4, reason), (1, 1, 8, reason)]
    for endings, expected in (
        ({"of_2": "oom_device"}, both),
        # The smallest names them, and what was measured stays.
        ({"of_2": "oom_device", "of_4": "oom_device"}, both[1:]),
        ({"of_4": "oom_device", "of_8": "ok"}, []),
        ({"of_2": "oom_host"}, []),
        # One that ran out although more fits ran out by chance.
        ({"of_2": "oom_device", "of_4": "ok"}, []),
    ):
        assert pruned(LARGER, ended(LARGER, **endings)) == expected


def test_what_is_measured_again_skips_nothing_before_it_has_run_out_again() -> None:
    stored = ended(LARGER, of_2="oom_device")
    assert pruned(LARGER, stored, rerun="failed") == pruned(LARGER, stored, rerun="all") == []
    assert pruned(LARGER, [{**row, **ANOTHER} for row in stored]) == []


def with_peaks(sweep: Sweep, **gib: float) -> list[dict[str, Any]]:
    """Rows as of `ended`, all `ok`, with these peaks on a GPU of 78 GiB."""
    stored = ended(sweep, **dict.fromkeys(gib, "ok"))
    for row in stored:
        row["memory_peak_bytes"] = int(gib[f"of_{row['micro_batch']}"] * 2**30)
        row["device_free_bytes"] = 78 * 2**30
    return stored


GROWING = replace(LARGER, axes={"micro_batch": [1, 2, 4, 7, 9, 16]})


def test_points_whose_need_is_beyond_a_gpu_are_skipped_with_it_and_others_are_not() -> None:
    stored = with_peaks(GROWING, of_1=10, of_2=20, of_4=40)
    # 70 GiB fit.
    assert {skip[2:] for skip in pruned(GROWING, stored)} == {
        (9, "will not fit (needs about 90 GiB of 78); --try-all measures it"),
        (16, "will not fit (needs about 160 GiB of 78); --try-all measures it"),
    }
    everything = replace(GROWING, measure=Measure(repeats=1, prune=False))
    assert pruned(everything, stored) == []
    # What ran out and is measured again is not skipped for its need.
    again = [*stored, *ended(GROWING, of_16="oom_device")]
    assert {skip[2] for skip in pruned(GROWING, again, rerun="failed")} == {9}
    # No smaller micro-batch than one that fitted: another process may have left the GPU since.
    fitted = with_peaks(GROWING, of_1=10, of_2=20, of_7=200)
    assert {skip[2] for skip in pruned(GROWING, fitted)} == {9, 16}
    # One micro-batch, or no GPU, is too little to skip by.
    assert pruned(GROWING, with_peaks(GROWING, of_4=40)) == []
    assert pruned(GROWING, [{**row, "device_free_bytes": None} for row in stored]) == []


def test_prune_false_measures_what_was_skipped_for_memory_and_is_no_other_measurement() -> None:
    everything = replace(LARGER, measure=Measure(repeats=1, prune=False))
    stored = ended(LARGER, of_2="oom_device", of_4="skipped", of_8="skipped")
    assert len(pruned(LARGER, stored)) == 2
    assert pruned(everything, stored) == []
    sweep = replace(SWEEP, measure=Measure(repeats=1, prune=False))
    assert {trial.why for trial in make_plan(sweep, candidates(sweep), rows()).done} == {"ok"}


def test_a_trial_of_another_model_or_mode_is_not_skipped() -> None:
    axes = {"micro_batch": [2, 4], "sync": ["ddp", "local_sgd"], "workload.width": [64, 128]}
    sweep = Sweep(workload=workloads.Gpt(), axes=axes, measure=Measure(repeats=1))
    (row,) = (
        row
        for row in rows(sweep, status="oom_device")
        if (row["micro_batch"], row["sync"], row["workload_width"]) == (2, "ddp", 64)
    )
    assert len(pruned(sweep, [row])) == 1


# What another harness measured


def test_what_was_measured_in_this_process_is_not_done_on_ray_nor_the_other_way_round() -> None:
    here, there = rows(harness="in_process"), rows(harness="ray")
    assert (plan(SWEEP, here), plan(SWEEP, here, harness="in_process")) == ((4, 0), (0, 4))
    assert (plan(SWEEP, there), plan(SWEEP, there, harness="in_process")) == ((0, 4), (4, 0))
    assert plan(SWEEP, there + here) == plan(SWEEP, there + here, harness="in_process") == (0, 4)
    # A newer failure there opens no trial again here.
    failed = rows(status="user_error") + rows(status="rank_died", harness="in_process")
    assert (plan(SWEEP, failed), plan(SWEEP, failed, harness="in_process")) == ((0, 4), (4, 0))
    # Nor do its results refuse a sweep, or say how long it takes.
    other = rows(harness="in_process", torch_version="2.0.0", window_s=1e6)
    made, without = (make_plan(SWEEP, candidates(SWEEP), stored) for stored in (other, []))
    assert (len(made.to_run), made.duration) == (4, without.duration)


# What can't be compared


def test_results_of_another_version_are_refused_until_all_is_measured_anew() -> None:
    old = rows(torch_version="2.0.0")
    with pytest.raises(SweepError, match=r"torch_version 2\.0\.0, this sweep has .*--rerun all"):
        plan(SWEEP, old)
    assert plan(SWEEP, old, "all") == (4, 0)
    assert plan(SWEEP, old + rows()) == (0, 4)
    # --rerun all was interrupted after two of four: the other two are still of the old version.
    assert plan(SWEEP, old + rows()[:2]) == (2, 2)


def test_results_of_another_source_are_refused_by_the_name_of_what_has_changed() -> None:
    (row, *_) = rows()
    sources = json.loads(row["sources"])
    edited = {**sources, "dtsweep/workloads/gpt.py": "0", "package timm": "1.0"}
    old = rows(workload_digest="old", sources=json.dumps(edited))
    with pytest.raises(
        SweepError,
        match=r"^these results were measured before dtsweep/workloads/gpt\.py changed; measure",
    ):
        plan(SWEEP, old)
    assert plan(SWEEP, old, "all") == (4, 0)
    assert plan(SWEEP, old + rows()[:2]) == (2, 2)
    made = make_plan(SWEEP, candidates(SWEEP), old + rows()[:2])
    assert {trial.why for trial in made.to_run} == {
        "measured before dtsweep/workloads/gpt.py changed"
    }
    # What only one of the two machines has installed is no other source.
    installed = rows(workload_digest="old", sources=json.dumps({**sources, "package timm": "1.0"}))
    assert plan(SWEEP, installed) == (0, 4)


def test_what_can_not_be_measured_any_more_is_not_tried_again_and_again() -> None:
    """Another source is measured by --rerun all, and some of its trials fail for good."""
    old = rows(workload_digest="old", sources='{"class Net": "1"}')
    failed = rows(status="user_error")
    assert plan(SWEEP, [*old, *rows()[:2], *failed[2:]]) == (0, 4)
    assert plan(SWEEP, [*old, *rows()[:2], *failed[2:]], "failed") == (2, 2)
    # Its source was mended or taken back since: the same command measures it.
    broken = rows(status="user_error", workload_digest="broken", sources='{"class Net": "2"}')
    assert plan(SWEEP, rows() + broken) == (4, 0)
    assert plan(SWEEP, broken) == (4, 0)
    # By the same source it was measured once, and counts.
    assert plan(SWEEP, rows() + failed) == (0, 4)
    assert plan(SWEEP, [*old, *rows()[:2], *rows(status="rank_died")[2:]]) == (2, 2)


def test_only_the_points_whose_data_have_changed_are_measured_by_other_data(tmp_path: Path) -> None:
    texts = {name: tmp_path / f"{name}.txt" for name in ("one", "two")}
    for text in texts.values():
        text.write_text("a text of some length")
    sweep = replace(
        SWEEP, axes={"workload.data": [str(text) for text in texts.values()]}, skip=None
    )
    stored = rows(sweep)
    assert plan(sweep, stored) == (0, 2)
    texts["one"].write_text("another text of some length")
    by_text = sorted(stored, key=lambda row: row["workload_data"] == str(texts["one"]))
    with pytest.raises(
        SweepError, match=r"the contents of the field data changed; measure everything again"
    ):
        plan(sweep, by_text)
    # The newest row agrees: what does not is measured again.
    assert plan(sweep, by_text[::-1]) == (1, 1)


# Many points


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "is_measured"), [("micro_batch", True), ("env.OMP_X", False)])
def test_the_work_of_a_plan_grows_with_its_points_alone(axis: str, is_measured: bool) -> None:
    def work(count: int) -> int:
        # Points of one world, and worlds of one point.
        sweep = replace(SWEEP, axes={axis: list(range(1, count + 1))}, measure=Measure(repeats=2))
        stored = rows(sweep) if is_measured else []

        def question() -> None:
            made = make_plan(sweep, candidates(sweep), stored)
            plan_json(made, None)
            choose_canaries(made.to_run)

        return calls_of(question)

    few, many = work(50), work(200)
    assert many < 4.5 * few
    # Calls take about 0.1 µs each.
    assert many < 200 * 1800

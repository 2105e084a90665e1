from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from dtsweep.report.as_json import report_json
from dtsweep.report.content import content_of
from dtsweep.report.labels import point_label
from dtsweep.report.remarks import Remark
from dtsweep.sweep.modes import AS_WRITTEN
from tests.frames import trials
from tests.report.study import canary, swept

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}
SLOW = {"point_id": "slow", "step_p50_s": 0.3, "samples_per_s": 20, "micro_batch": 8}


def test_the_highest_throughput_is_compared_with_the_runner_up() -> None:
    content = content_of(trials(SLOW, LARGE, FAST, FAST | {"point_id": "x", "samples_per_s": None}))
    assert content.varying == ["micro_batch"]
    assert content.constants["workload.layers"] == 4
    (frontier,) = content.frontiers
    assert frontier.best["point_id"].to_list() == ["fast", "large"]
    assert frontier.dominated["point_id"].to_list() == ["slow"]
    assert frontier.difference[["point_a", "point_b"]].drop_duplicates().to_numpy().tolist() == [
        ["large", "fast"]
    ]
    (alone,) = content_of(trials(SLOW)).frontiers
    assert alone.difference.empty


def test_a_runner_up_may_be_off_the_frontier_since_the_best_may_be_no_better() -> None:
    near = {"point_id": "near", "step_p50_s": 0.25, "samples_per_s": 70, "micro_batch": 32}
    (frontier,) = content_of(trials(FAST, LARGE, near | {"precision": "bf16"})).frontiers
    assert frontier.best["point_id"].to_list() == ["fast", "large"]
    assert set(frontier.difference["point_b"]) == {"near"}


def test_compared_are_the_hosts_that_stand_in_the_table() -> None:
    rows = [
        {"point_id": "a", "hosts": hosts, "step_p50_s": step_s, "samples_per_s": rate}
        for hosts, step_s, rate in ((1, 0.1, 40), (2, 0.2, 80))
    ]
    (frontier,) = content_of(trials(*rows)).frontiers
    assert {*zip(frontier.difference["hosts_a"], frontier.difference["hosts_b"], strict=True)} == {
        (2, 1)
    }
    assert frontier.labels.to_list() == ["ddp hosts=1", "ddp hosts=2"]


def test_what_launches_leave_open_is_said_of_a_frontier() -> None:
    noisy = [
        row
        | {"session": f"{row['point_id']}{n}", "samples_per_s": 40 - n % 2}
        | {"step_p50_s": step_s * noise}
        for row, step_s in ((FAST, 0.1), (SLOW, 0.3))
        for n, noise in enumerate((0.9, 1.0, 1.1))
    ]
    (untested,) = content_of(trials(SLOW, FAST)).frontiers
    assert (untested.dominated_count, untested.undecided) == ("1 beaten point", "")
    (single,) = content_of(trials(FAST, FAST | {"point_id": "near", "samples_per_s": 39})).frontiers
    words = "may be beaten: another point is better in all objectives, but"
    assert single.undecided == f"{words} not significantly"
    (undecided,) = content_of(trials(*noisy)).frontiers
    assert undecided.dominated.empty
    assert undecided.undecided == f"{words} not significantly"


@pytest.mark.slow
def test_each_kind_of_update_has_a_frontier_in_each_environment_with_its_name() -> None:
    rows = [{"semantics": "stale", "sync": sync} for sync in ("parameter_server", "hogwild")]
    rows.append({"semantics": "local", "sync": "local_sgd"})
    rows = [row | {"env_id": env_id} for row in rows for env_id in "ab"]
    frontiers = content_of(trials(*rows, step_p50_s=0.1, samples_per_s=40)).frontiers
    stale = "Frontier · stale updates, by gradients of earlier weights"
    assert [frontier.title for frontier in frontiers[::2]] == [
        f"{stale} · lock-free · hogwild · env_id a",
        f"{stale} · parameter server · parameter_server staleness=None shards=None · env_id a",
        "Frontier · local updates, latency is the mean step · local_sgd sync_period=None"
        " · env_id a",
    ]
    kinds = ["stale (lock-free)", "stale (parameter server)", "local"]
    assert [frontier.update for frontier in frontiers[1::2]] == kinds


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"semantics": "exact", "sync": "ddp"}, ""),
        ({"semantics": "exact", "sync": AS_WRITTEN}, "Exact here: all workers applied the same"),
        ({"semantics": "not_exchanged", "sync": AS_WRITTEN}, ""),
        ({"semantics": "unknown", "sync": AS_WRITTEN}, ""),
        ({"semantics": "local", "sync": "local_sgd"}, "Updates that are not exact may need more"),
        ({"semantics": "local", "sync": "local_sgd", "workers": 1}, ""),
    ],
)
def test_a_frontier_says_what_its_updates_mean_where_that_is_not_plain(
    row: dict[str, Any], words: str
) -> None:
    measured = {"workers": 2, "step_p50_s": 0.1, "step_mean_s": 0.1, "samples_per_s": 40}
    (frontier,) = content_of(trials(measured | row)).frontiers
    assert frontier.updates.startswith(words)
    assert bool(frontier.updates) == bool(words)


def test_labels_leave_quiet_settings_out_where_they_are_the_default() -> None:
    ddp, shards = {"sync": "ddp", "overlap": True}, {"sync": "hsdp", "overlap": None}
    expected = [
        (ddp, "ddp"),
        (ddp | {"overlap": False}, "ddp overlap=False"),
        (ddp | {"bucket_bytes": 2**20}, "ddp bucket_bytes=1048576"),
        (shards, "hsdp"),
        (shards | {"node_size": 2}, "hsdp node_size=2"),
    ]
    frame = trials(*(row for row, _ in expected))
    settings = ["overlap", "bucket_bytes", "node_size"]
    labels = [point_label(row, settings) for _, row in frame.iterrows()]
    assert labels == [label for _, label in expected]


@pytest.mark.slow
def test_labels_say_what_travels_and_tell_settings_of_a_compression_apart() -> None:
    rows: list[dict[str, Any]] = [
        {"compression": "int8"},
        {"compression": "topk", "compression_ratio": 0.01},
        {"compression": "topk", "compression_ratio": 0.123456789},
        {"compression": "powersgd", "compression_rank": 4, "sync": "ring"},
    ]
    measured: dict[str, Any] = {"semantics": "lossy", "step_p50_s": 0.1, "samples_per_s": 40}
    exact, other = content_of(
        trials({"semantics": "exact"}, *(measured | row for row in rows), **measured)
    ).frontiers
    assert exact.title == "Frontier · exact updates · ddp"
    assert other.title == "Frontier · lossy updates"
    assert sorted(other.labels) == [
        "ddp int8",
        "ddp topk ratio=0.01",
        "ddp topk ratio=0.123457",
        "ring powersgd rank=4",
    ]


def test_a_group_stands_by_the_throughput_that_its_lines_show_and_not_by_that_of_its_base() -> None:
    rows = [
        {"micro_batch": micro_batch, "workers": workers, "samples_per_s": rate, "step_p50_s": 0.1}
        for micro_batch, rates in ((4, (616.0, 507.9)), (8, (300.0, 571.8)))
        for workers, rate in zip((1, 2), rates, strict=True)
    ]
    weak, *_ = content_of(trials(*rows)).scaling
    assert [group["samples_per_s"].iloc[-1] for group in weak.groups] == [571.8, 507.9]


LOCAL = {"semantics": "local", "sync": "local_sgd", "sync_period": 8}
OUTER = LOCAL | {"sync": "diloco", "outer_learning_rate": 0.7, "outer_momentum": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "shown", "said"),
    [
        (LOCAL, ["large"], "1 point with one worker, where exact updates cost no exchange"),
        # Outer updates change the training of one worker, too.
        (OUTER, ["fast", "large"], ""),
        ({}, ["fast", "large"], ""),
    ],
)
def test_points_with_one_worker_of_a_mode_that_changes_the_update_are_not_shown_beside_others(
    mode: dict[str, Any], shown: list[str], said: str
) -> None:
    alone, pair = FAST | {"step_mean_s": 0.1}, LARGE | {"step_mean_s": 0.2, "workers": 2}
    (frontier,) = content_of(trials(alone | mode, pair | mode)).frontiers
    assert frontier.best["point_id"].to_list() == ["fast", "large"]
    assert frontier.shown["point_id"].to_list() == shown
    assert frontier.alone == said
    # Where there are no others, they are shown.
    (lonely,) = content_of(trials(alone | mode)).frontiers
    assert (lonely.shown["point_id"].to_list(), lonely.alone) == (["fast"], "")


def notes(*rows: dict[str, object]) -> list[Remark]:
    return list(content_of(trials(*rows)).notes)


SMALL = {"model_digest": "s", "flops_per_sample": 1e6, "parameters": 25_300, "workload_layers": 1}
BIG = {"model_digest": "b", "flops_per_sample": 2e6, "parameters": 512_000, "workload_layers": 2}


def test_models_are_named_by_what_tells_them_apart() -> None:
    rows = [FAST | SMALL, LARGE | SMALL | {"precision": "bf16"}, SLOW | BIG | {"point_id": "big"}]
    content = content_of(trials(*rows))
    assert [frontier.title for frontier in content.frontiers] == [
        "Frontier · exact updates · workload.layers=1",
        "Frontier · exact updates · workload.layers=2 · ddp fp32",
    ]
    assert [frontier.model_digest for frontier in content.frontiers] == ["s", "b"]
    assert content.frontiers[0].labels.to_list() == ["ddp fp32", "ddp bf16"]
    assert content.notes[0].text == (
        "2 models (by workload and model_digest), each on frontiers and ladders of its own: "
        "workload.layers=1; workload.layers=2."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "names"),
    [
        ((1, 2), ["workload.layers=1", "workload.layers=2"]),
        ((1, 1), ["model_digest=s", "model_digest=b"]),
    ],
)
def test_ladders_name_models_as_frontiers_do(layers: tuple[int, int], names: list[str]) -> None:
    rows = [
        model
        | {"workload_layers": own, "point_id": f"{model['model_digest']}{workers}"}
        | {"workers": workers, "samples_per_s": 40 * workers, "step_p50_s": 0.1}
        for model, own in zip((SMALL, BIG), layers, strict=True)
        for workers in (1, 2)
    ]
    labels = set(content_of(trials(*rows)).scaling[0].labels)
    assert labels == {f"ddp {name}" for name in names}


def test_the_optimizer_that_ran_is_named() -> None:
    own = {"optimizer": None, "optimizer_class": "Lion"}
    content = content_of(trials(FAST | own, SLOW | own))
    assert content.constants["optimizer"] == "Lion (the workload's own)"
    assert content_of(trials(FAST | {"optimizer_class": "SGD"})).constants["optimizer"] == "sgd"


def test_a_report_can_be_of_other_objectives_and_of_points_that_meet_a_condition() -> None:
    amounts = {"memory_peak_bytes": 2**30}
    rows = [FAST | amounts, LARGE | {"memory_peak_bytes": 2**31}, SLOW | amounts | {"workers": 2}]
    asked = {"minimize": ["memory_peak_bytes"], "maximize": ["samples_per_s"]}
    content = content_of(trials(*rows), **asked, where="workers<=1")
    (found,) = content.frontiers
    assert set(found.best["point_id"]) == {"fast", "large"}
    assert set(found.difference["point_b"]) == {"fast"}
    assert content.objectives == ["memory_peak_bytes"]
    objectives, condition = content.doubts[:2]
    assert objectives.numbers["objectives"] == ["memory_peak_bytes small", "samples_per_s large"]
    assert condition.text == (
        "Only points where workers<=1: 1 point left out, whose trials are counted above."
    )
    condition, unknown, *_ = content_of(trials(*rows), where="step_p99_s<=1").doubts
    assert condition.numbers == {"where": "step_p99_s<=1", "count": 0}
    assert (unknown.code, unknown.numbers["count"]) == ("where_unknown", 3)


def test_a_recommendation_is_for_the_one_objective_that_is_asked_for() -> None:
    rows = [FAST | {"tokens_per_s": 900.0}, LARGE | {"tokens_per_s": 80.0}]
    content = content_of(trials(*rows), minimize=[], maximize=["tokens_per_s"])
    first, *_ = content.advice[0].answer
    assert (first.code, first.numbers["goal"]) == ("single_launch", " by tokens_per_s")
    assert content.recommendations[0].point["point_id"] == "fast"


@pytest.mark.slow
def test_of_very_many_ladders_a_report_does_not_ask_what_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dtsweep.report.content.MOST_LADDERS", 1)
    shapes = [{"workers": n, "micro_batch": size} for n in (1, 2) for size in (4, 8)]
    worth = content_of(trials(*shapes, samples_per_s=9.0, step_p50_s=0.1)).worth
    assert worth.worthwhile.empty
    assert [one.code for one in worth.remarks] == ["many_groups"]


# JSON


def json_of(frame: pd.DataFrame) -> dict[str, Any]:
    return report_json(content_of(frame))


def test_json_has_every_point_and_no_value_that_json_lacks() -> None:
    report = report_json(swept())
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["trials"] == 51
    assert report["statuses"] == {"ok": 48, "skipped": 2, "oom_device": 1}
    assert report["headline"].endswith("51 trials: 48 ok, 2 skipped, 1 oom_device")
    assert (report["canaries"], report["flags"]) == ([], {})
    constants = report["constants"]
    assert (constants["optimizer"], constants["learning_rate"]) == ("sgd", 0.01)
    (recommended,) = report["recommendations"]
    assert recommended["remarks"][0]["code"] == "single_launch"
    assert recommended["remarks"][0]["numbers"]["point"].startswith("ddp workers=2 ")
    assert {one["code"] for one in report["remarks"]} >= {"bounds", "knees_unknown", "interval"}
    for table in ("frontiers", "frontier", "differences"):
        assert {row["semantics"] for row in report[table]} == {"exact", "stale", "local"}
    assert len(report["frontier"]) == 48
    assert report["frontier"][0]["sync_period"] is None
    assert {row["standing"] for row in report["frontier"]} == {"frontier", "undecided", "dominated"}
    assert {row["kind"] for row in report["scaling"]} == {"weak", "strong"}
    assert report["unmeasured"][0]["log"] == "results/logs/s1/0.log"
    reasons = {(row["verdict"], row["verdict_reason"]) for row in report["differences"]}
    assert reasons == {("unknown", "one_launch_each")}
    assert {row["verdict_reason"] for row in report["worthwhile"]} == {"too_few_launches"}


def test_json_has_canaries_apart_and_flags_counted() -> None:
    report = json_of(trials({"flags": ["drift"]}, canary("s", 0.1), canary("s", 0.102)))
    assert report["trials"] == 1
    assert report["flags"] == {"drift": 1}
    assert report["canaries"][0]["drift"] == pytest.approx(0.02)
    assert len(report["frontier"]) == 1


def test_json_marks_every_row_of_a_point_that_cannot_be_true_and_says_why() -> None:
    fields = [
        {"workers": workers, "samples_per_s": 100.0 * workers, "step_p50_s": 0.1 * workers}
        for workers in (1, 2)
    ]
    report = json_of(
        trials(
            fields[0], fields[1] | {"flags": ["drift", "implausible"], "implausible": "mfu is 1.37"}
        )
    )
    assert [row["caution"] for row in report["frontier"]] == ["", "implausible drift"]
    assert [row["caution"] for row in report["scaling"]] == ["", "implausible drift"]
    (compared,) = (row for row in report["differences"] if row["of"] == "samples_per_s")
    assert (compared["caution_a"], compared["caution_b"]) == ("implausible drift", "")
    named = {"trial_id": "trial1", "point_id": "point1", "repeat": 1, "implausible": "mfu is 1.37"}
    assert report["implausible"] == [named]

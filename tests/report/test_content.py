from __future__ import annotations

import pytest

from dtsweep.report.content import content_of
from dtsweep.report.labels import point_label
from dtsweep.report.remarks import Remark
from dtsweep.sweep.modes import AS_WRITTEN
from tests.frames import trials
from tests.report.study import canary, sweep

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}
SLOW = {"point_id": "slow", "step_p50_s": 0.3, "samples_per_s": 20, "micro_batch": 8}


def test_a_frontier_keeps_its_dominated_points_apart() -> None:
    (frontier,) = content_of(trials(SLOW, LARGE, FAST)).frontiers
    assert frontier.best["point_id"].to_list() == ["fast", "large"]
    assert frontier.dominated["point_id"].to_list() == ["slow"]


def test_the_verdict_is_on_the_highest_throughput_and_the_runner_up() -> None:
    (frontier,) = content_of(trials(SLOW, LARGE, FAST)).frontiers
    assert frontier.difference[["point_a", "point_b"]].drop_duplicates().to_numpy().tolist() == [
        ["large", "fast"]
    ]
    assert frontier.verdict_words is not None
    assert frontier.verdict_words.startswith("Highest throughput: 2.000 times the runner-up's")
    (alone,) = content_of(trials(SLOW)).frontiers
    assert alone.verdict_words is None
    assert alone.difference.empty


def test_a_runner_up_off_the_frontier_is_named_since_the_best_may_be_no_better() -> None:
    near = {
        "point_id": "near",
        "step_p50_s": 0.25,
        "samples_per_s": 70,
        "micro_batch": 32,
        "precision": "bf16",
    }
    (frontier,) = content_of(trials(FAST, LARGE, near)).frontiers
    assert frontier.best["point_id"].to_list() == ["fast", "large"]
    assert set(frontier.difference["point_b"]) == {"near"}
    assert frontier.verdict_words is not None
    assert frontier.verdict_words.startswith(
        "Highest throughput: 1.143 times the runner-up's, untested (one launch each)."
    )
    assert frontier.verdict_words.endswith(
        " The runner-up is off the frontier: ddp bf16 micro_batch=32."
    )
    (lone,) = content_of(trials(LARGE, near)).frontiers
    assert set(lone.difference["point_b"]) == {"near"}


def test_points_without_a_throughput_are_no_runners_up() -> None:
    (frontier,) = content_of(trials(FAST, LARGE | {"samples_per_s": None})).frontiers
    assert frontier.verdict_words is None
    (empty,) = content_of(
        trials(FAST | {"step_p50_s": None}, LARGE | {"step_p50_s": None})
    ).frontiers
    assert empty.verdict_words is None


def test_the_verdict_is_on_the_hosts_that_stand_in_the_table() -> None:
    rows = [
        {"point_id": "a", "hosts": hosts, "step_p50_s": step_s, "samples_per_s": rate}
        for hosts, step_s, rate in ((1, 0.1, 40), (2, 0.2, 80))
    ]
    content = content_of(trials(*rows))
    (frontier,) = content.frontiers
    assert frontier.difference[["hosts_a", "hosts_b"]].drop_duplicates().to_numpy().tolist() == [
        [2, 1]
    ]
    assert frontier.verdict_words is not None
    assert frontier.verdict_words.startswith("Highest throughput: 2.000 times")
    assert frontier.labels.to_list() == ["ddp hosts=1", "ddp hosts=2"]


def test_what_launches_leave_open_is_said_of_a_frontier() -> None:
    again = [row | {"session": f"{row['point_id']}{n}"} for row in (FAST, SLOW) for n in range(3)]
    noise = [0.9, 1.0, 1.1]
    noisy = [
        row | {"step_p50_s": float(row["step_p50_s"]) * noise[n % 3], "samples_per_s": 40 - n % 2}
        for n, row in enumerate(again)
    ]
    (untested,) = content_of(trials(SLOW, FAST)).frontiers
    assert (untested.dominated_count, untested.undecided) == ("1 beaten point", "")
    near = FAST | {"point_id": "near", "samples_per_s": 39}
    (single,) = content_of(trials(FAST, near)).frontiers
    words = "undecided: another point is better in all objectives, but"
    noise = "by less than the assumed noise of single launches (8 %)"
    assert single.undecided == f"{words} {noise}"
    (undecided,) = content_of(trials(*noisy)).frontiers
    assert undecided.dominated.empty
    assert undecided.undecided == f"{words} not significantly"


def test_there_is_a_frontier_for_each_semantics_in_each_environment() -> None:
    rows = [
        {"semantics": semantics, "env_id": env_id}
        for semantics in ("stale", "exact")
        for env_id in "ab"
    ]
    assert [
        frontier.title
        for frontier in content_of(trials(*rows, step_p50_s=0.1, samples_per_s=40)).frontiers
    ] == [
        "Frontier · exact updates · ddp · env_id a",
        "Frontier · exact updates · ddp · env_id b",
        "Frontier · stale updates, by gradients of earlier weights · ddp · env_id a",
        "Frontier · stale updates, by gradients of earlier weights · ddp · env_id b",
    ]


def test_kinds_of_update_are_named_where_a_semantics_has_several() -> None:
    rows = [{"semantics": "stale", "sync": sync} for sync in ("parameter_server", "hogwild")]
    rows.append({"semantics": "local", "sync": "local_sgd"})
    frontiers = content_of(trials(*rows, step_p50_s=0.1, samples_per_s=40)).frontiers
    assert [frontier.title.split(" · ")[1:-1] for frontier in frontiers] == [
        ["stale updates, by gradients of earlier weights", "lock-free"],
        ["stale updates, by gradients of earlier weights", "parameter server"],
        ["local updates, latency is the mean step"],
    ]
    assert [frontier.update for frontier in frontiers] == [
        "stale (lock-free)",
        "stale (parameter server)",
        "local",
    ]


@pytest.mark.parametrize(
    ("semantics", "sync", "workers", "words"),
    [
        ("exact", "ddp", 2, ""),
        ("exact", AS_WRITTEN, 2, "Exact here: all workers applied the same gradients."),
        ("unknown", AS_WRITTEN, 2, ""),
        ("not_exchanged", AS_WRITTEN, 2, ""),
        ("local", "local_sgd", 2, "Updates that are not exact may need more samples"),
        ("local", "local_sgd", 1, ""),
    ],
)
def test_a_frontier_says_what_its_updates_mean_where_that_is_not_plain(
    semantics: str, sync: str, workers: int, words: str
) -> None:
    row = {"semantics": semantics, "sync": sync, "workers": workers}
    measured = {"step_p50_s": 0.1, "step_mean_s": 0.1, "samples_per_s": 40}
    (frontier,) = content_of(trials(row, **measured)).frontiers
    assert frontier.updates.startswith(words)
    assert bool(frontier.updates) == bool(words)


def test_a_setting_either_varies_or_is_constant() -> None:
    content = content_of(trials(FAST, LARGE))
    assert content.varying == ["micro_batch"]
    assert content.constants["workload.layers"] == 4
    assert not {"micro_batch", "workload", "environment"} & content.constants.keys()


def test_labels_name_what_the_batch_columns_do_not() -> None:
    content = content_of(
        trials(FAST | {"precision": "bf16"}, LARGE | {"sync": "local_sgd", "sync_period": 8})
    )
    assert content.frontiers[0].labels.to_list() == ["ddp bf16", "local_sgd sync_period=8 fp32"]


def test_labels_leave_quiet_settings_out_where_they_are_the_default() -> None:
    ddp = FAST | {"sync": "ddp", "overlap": True}
    shards = FAST | {"sync": "hsdp", "overlap": None}
    rows = [
        ddp,
        ddp | {"overlap": False},
        ddp | {"bucket_bytes": 2**20},
        shards,
        shards | {"node_size": 2},
    ]
    labels = [
        point_label(row, ["overlap", "bucket_bytes", "node_size"])
        for _, row in trials(*rows).iterrows()
    ]
    assert labels == [
        "ddp",
        "ddp overlap=False",
        "ddp bucket_bytes=1048576",
        "hsdp",
        "hsdp node_size=2",
    ]


def test_labels_say_what_travels_and_tell_settings_of_a_compression_apart() -> None:
    lossy = {"semantics": "lossy", "step_p50_s": 0.1, "samples_per_s": 40}
    rows: list[dict[str, object]] = [
        {"step_p50_s": 0.1, "samples_per_s": 40},
        lossy | {"compression": "int8", "compression_coding": "zstd"},
        lossy | {"compression": "topk", "compression_ratio": 0.01},
        lossy | {"compression": "topk", "compression_ratio": 0.123456789},
        lossy | {"compression": "powersgd", "compression_rank": 4, "sync": "ring"},
    ]
    content = content_of(trials(*rows))
    exact, other = content.frontiers
    assert exact.title == "Frontier · exact updates · ddp"
    assert other.title == "Frontier · lossy updates"
    assert sorted(other.labels) == [
        "ddp int8 zstd",
        "ddp topk ratio=0.01",
        "ddp topk ratio=0.123457",
        "ring powersgd rank=4",
    ]
    (alone,) = content_of(trials(rows[1])).frontiers
    assert alone.title == "Frontier · lossy updates · ddp int8 zstd"


def test_a_ladder_of_compressed_points_stands_on_one_that_is_compressed_alike() -> None:
    rows = [
        {
            "workers": workers,
            "compression": name,
            "compression_ratio": ratio,
            "samples_per_s": rate * workers**0.5,
        }
        for workers in (1, 2, 4)
        for name, ratio, rate in ((None, None, 40.0), ("topk", 0.01, 20.0), ("topk", 0.1, 10.0))
    ]
    weak, *_ = content_of(trials(*rows, step_p50_s=0.1)).scaling
    assert [sorted(set(weak.labels[group.index])) for group in weak.groups] == [
        ["ddp"],
        ["ddp topk ratio=0.01"],
        ["ddp topk ratio=0.1"],
    ]
    assert weak.rows.groupby("group")["efficiency"].min().round(9).to_list() == [0.5] * 3


def test_the_scaling_group_with_the_highest_throughput_stands_first() -> None:
    content = content_of(sweep())
    assert [(scaling.per, scaling.title.split()[0]) for scaling in content.scaling] == [
        ("worker", "Weak"),
        ("worker", "Strong"),
    ]
    for scaling in content.scaling:
        highest = [group["samples_per_s"].iloc[1:].max() for group in scaling.groups]
        assert highest == sorted(highest, reverse=True)
        assert sum(map(len, scaling.groups)) == len(scaling.rows)
        assert all(group["workers"].is_monotonic_increasing for group in scaling.groups)


def test_a_group_stands_by_the_throughput_that_its_lines_show_and_not_by_that_of_its_base() -> None:
    def ladder(micro_batch: int, one: float, two: float) -> list[dict[str, object]]:
        rates = {1: one, 2: two}
        return [
            {"micro_batch": micro_batch, "workers": w, "samples_per_s": rates[w], "step_p50_s": 0.1}
            for w in rates
        ]

    weak, *_ = content_of(trials(*ladder(4, 616.0, 507.9), *ladder(8, 300.0, 571.8))).scaling
    assert [group["samples_per_s"].iloc[-1] for group in weak.groups] == [571.8, 507.9]


def test_points_with_one_worker_of_a_mode_that_changes_the_update_are_not_shown_beside_others() -> (
    None
):
    local = {"semantics": "local", "sync": "local_sgd", "sync_period": 8}
    alone, pair = (
        FAST | local | {"step_mean_s": 0.1},
        LARGE | local | {"step_mean_s": 0.2, "workers": 2},
    )
    (found,) = content_of(trials(alone, pair)).frontiers
    assert found.best["point_id"].to_list() == ["fast", "large"]
    assert found.shown["point_id"].to_list() == ["large"]
    assert found.alone == "1 point with one worker, where exact updates cost no exchange"
    (lonely,) = content_of(trials(alone)).frontiers
    assert (lonely.shown["point_id"].to_list(), lonely.alone) == (["fast"], "")
    # Outer updates change the training of one worker, too.
    outer = {"sync": "diloco", "outer_learning_rate": 0.7, "outer_momentum": 0.9}
    (found,) = content_of(trials(alone | outer, pair | outer)).frontiers
    assert (found.shown["point_id"].to_list(), found.alone) == (["fast", "large"], "")
    (exact,) = content_of(trials(FAST, LARGE | {"workers": 2})).frontiers
    assert (exact.shown["point_id"].to_list(), exact.alone) == (["fast", "large"], "")


def notes(*rows: dict[str, object]) -> list[Remark]:
    return list(content_of(trials(*rows)).notes)


def test_a_flag_is_one_note_with_its_meaning_below() -> None:
    (note,) = [one for one in notes(FAST | {"flags": ["drift"]}) if one.code == "flags"]
    assert note.numbers["counts"] == {"drift": 1}
    assert note.text.splitlines()[1].startswith("  drift: ")


def gradients(*rows: dict[str, object]) -> list[tuple[str, str | None, int, float]]:
    """Code, mode, trials and largest error of the remarks on gradients."""
    found = [one for one in notes(*rows) if one.code.startswith("gradients_")]
    return [
        (one.code, one.numbers.get("name"), one.numbers["count"], one.numbers["most"])
        for one in found
    ]


def test_a_note_says_whether_the_gradients_of_checked_trials_are_one_workers() -> None:
    bf16 = [LARGE | {"gradient_error": error, "precision": "bf16"} for error in (3e-3, 1e-3, 0.38)]
    apart = [("gradients_near", "ddp bf16", 2, 3e-3), ("gradients_other", "ddp bf16", 1, 0.38)]
    equal = [FAST | {"gradient_error": error} for error in (1e-7, None, 2.1e-7)]
    assert gradients(*equal, *bf16) == [("gradients_equal", None, 2, 2.1e-7), *apart]
    assert gradients(*bf16) == apart
    assert gradients(FAST) == []


def test_the_gradient_of_a_compressed_exchange_is_not_called_another_one() -> None:
    lossy = {"compression": "sign", "semantics": "lossy"}
    rows = [FAST | {"gradient_error": error} | lossy for error in (0.6, 0.02)]
    assert gradients(*rows) == [("gradients_lossy", "ddp sign fp32", 2, 0.6)]


def test_results_without_an_ok_trial_have_failures_alone() -> None:
    content = content_of(
        trials({"status": "hang"}, {"status": "skipped"}, {"status": "hang"}, canary("s", 0.1))
    )
    assert (content.trials, content.statuses) == (3, {"hang": 2, "skipped": 1})
    assert not [*content.frontiers, *content.scaling, *content.notes]
    assert content.unmeasured["count"].to_list() == [2, 1]
    assert len(content.canaries) == 1


def test_empty_results_have_empty_content() -> None:
    content = content_of(trials())
    assert content.trials == 0
    assert not content.constants
    assert content.unmeasured.empty


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
        "workload.layers=1 (25,300 parameters, 1.000M FLOP a sample); "
        "workload.layers=2 (512.0k parameters, 2.000M FLOP a sample)."
    )
    unnamed = content_of(trials(*(row | {"workload_layers": 1} for row in rows)))
    assert [frontier.title.split(" · ")[2] for frontier in unnamed.frontiers] == [
        "model s",
        "model b",
    ]
    assert "model s (25,300 parameters" in unnamed.notes[0].text


def test_settings_that_two_models_share_name_neither() -> None:
    other = LARGE | BIG | {"model_digest": "c"}
    content = content_of(trials(FAST | SMALL, SLOW | BIG | {"point_id": "big"}, other))
    named = ["model s", "model b", "model c"]
    assert [frontier.title.split(" · ")[2] for frontier in content.frontiers] == named
    assert content.frontiers[0].labels.to_list() == ["ddp workload.layers=1"]
    assert all(f"{name} (" in content.notes[0].text for name in named)


def test_a_model_that_is_unknown_is_called_so() -> None:
    unknown = SLOW | {"model_digest": None, "workload_layers": None}
    content = content_of(trials(FAST | SMALL | {"workload_layers": None}, unknown))
    assert [frontier.title.split(" · ")[2] for frontier in content.frontiers] == [
        "model s",
        "model unknown",
    ]
    assert "model unknown (of unknown size)" in content.notes[0].text


def test_ladders_name_models_as_frontiers_do() -> None:
    rows = [FAST | SMALL, LARGE | SMALL | {"workers": 2}, FAST | BIG, LARGE | BIG | {"workers": 2}]
    points = [row | {"point_id": str(n), "micro_batch": 4} for n, row in enumerate(rows)]
    assert set(content_of(trials(*points)).scaling[0].labels) == {
        "ddp workload.layers=1",
        "ddp workload.layers=2",
    }
    alike = [row | {"workload_layers": 1} for row in points]
    assert set(content_of(trials(*alike)).scaling[0].labels) == {
        "ddp model_digest=s",
        "ddp model_digest=b",
    }


def test_all_models_stand_on_one_frontier_where_that_is_asked_for() -> None:
    content = content_of(
        trials(FAST | SMALL, LARGE | SMALL, SLOW | BIG | {"point_id": "big"}), compare_models=True
    )
    (frontier,) = content.frontiers
    assert frontier.model_digest is None
    assert frontier.labels.to_list() == [
        "ddp workload.layers=1",
        "ddp workload.layers=1",
        "ddp workload.layers=2",
    ]
    assert content.notes[0].code == "models_compared"


def test_the_optimizer_that_ran_is_named() -> None:
    own = {"optimizer": None, "optimizer_class": "Lion"}
    assert (
        content_of(trials(FAST | own, SLOW | own)).constants["optimizer"]
        == "Lion (the workload's own)"
    )
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
        "Only points where workers<=1: 1 point left out; trials are counted of all."
    )
    condition, unknown, *_ = content_of(trials(*rows), where="step_p99_s<=1").doubts
    assert condition.numbers == {"where": "step_p99_s<=1", "count": 0}
    assert (unknown.code, unknown.numbers["count"]) == ("where_unknown", 3)


def test_a_recommendation_is_for_the_one_objective_that_is_asked_for() -> None:
    rows = [FAST | {"tokens_per_s": 900.0}, LARGE | {"tokens_per_s": 80.0}]
    content = content_of(trials(*rows), minimize=[], maximize=["tokens_per_s"])
    ((first, *_), *_) = content.advice[0]
    assert (first.code, first.numbers["goal"]) == ("single_launch", "the highest tokens_per_s")
    assert content.recommendations[0].point["point_id"] == "fast"


def test_more_workers_are_not_advised_where_one_more_does_not_pay() -> None:
    parts = {"compute_share": 0.6, "memory_share": 0.1, "launch_share": 0.02, "backend": "nccl"}
    parts |= {"data_share": 0.02, "data_share_low": 0.01, "data_share_high": 0.03}
    parts |= dict.fromkeys(("comm_share", "exchange_share", "wait_share"), 0.01)

    def advised(rates: tuple[float, float]) -> set[str]:
        rows = [
            {"point_id": str(workers), "workers": workers, "session": str(launch)}
            | {"samples_per_s": rate * (1 + launch / 1000), "samples_per_s_error": rate / 1000}
            | {"step_p50_s": 0.1, "step_mean_s": 0.1, "optimizer_s": 0.001, **parts}
            for launch in range(3)
            for workers, rate in zip((1, 2), rates, strict=True)
        ]
        bounds = content_of(trials(*rows)).bounds
        return {axis.axis for axes in bounds["next_axes"] for axis in axes}

    assert "workers" in advised((100, 190))
    assert "workers" not in advised((100, 101))


def test_of_very_many_ladders_a_report_does_not_ask_what_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = content_of(sweep()).worth
    assert len(few.worthwhile)
    monkeypatch.setattr("dtsweep.report.content.MOST_LADDERS", 3)
    many = content_of(sweep()).worth
    assert many.worthwhile.empty
    assert many.usl.empty
    (only,) = many.remarks
    assert (only.code, only.numbers["count"]) == ("many_groups", len(few.worthwhile))

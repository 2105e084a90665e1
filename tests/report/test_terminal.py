from __future__ import annotations

import functools
import re
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from dtsweep.report.content import Content, content_of
from dtsweep.report.terminal import print_report
from dtsweep.results.statuses import FLAG_MEANINGS
from tests.frames import trials
from tests.report.study import MODES, canary, measured, sweep


def printed(
    report: pd.DataFrame | Content, *, width: int = 120, show_all: bool = True, **asked: Any
) -> str:
    """The report of a frame, or a content that several reports show."""
    console = Console(width=width, force_terminal=False, color_system=None)
    content = report if isinstance(report, Content) else content_of(report, **asked)
    with console.capture() as capture:
        print_report(content, console=console, show_all=show_all)
    return capture.get()


@functools.cache
def swept(**common: float) -> Content:
    """The content of the made-up sweep, computed once for all reports of it."""
    return content_of(sweep(**common))


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_and_cuts_nothing(width: int) -> None:
    text = printed(swept(), width=width, show_all=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "parameter_server" in text.split("Frontier · stale")[0]


def test_the_first_line_counts_trials_by_status() -> None:
    assert (
        printed(swept()).splitlines()[0] == "Gpt · Xeon · 51 trials: 48 ok, 2 skipped, 1 oom_device"
    )


def test_what_does_not_vary_is_said_once() -> None:
    text = printed(swept())
    assert (
        "In all points: optimizer=sgd, learning_rate=0.01, precision=fp32, placement=pack, "
        "workload.layers=4" in text
    )
    assert text.count("sgd,") == 1


def test_each_semantics_has_a_table_named_with_its_mode() -> None:
    titles = [line for line in printed(swept()).splitlines() if line.startswith("Frontier")]
    assert titles == [
        "Frontier · exact updates",
        "Frontier · stale updates, by gradients of earlier weights · "
        "parameter_server staleness=None shards=2",
        "Frontier · local updates, latency is the mean step · local_sgd sync_period=8",
    ]


def test_a_row_of_the_frontier_has_all_its_figures() -> None:
    row = {
        "step_p50_s": 0.05,
        "step_p50_s_low": 0.048,
        "step_p50_s_high": 0.052,
        "samples_per_s": 80,
    }
    known = row | {"global_batch": 4, "tokens_per_s": 102400, "memory_peak_bytes": 3 * 2**29}
    lines = printed(
        trials(known, {"workers": 2, "samples_per_s": 20, "step_p50_s": 0.06})
    ).splitlines()
    header = next(n for n, line in enumerate(lines) if line.lstrip().startswith("workers "))
    assert lines[header + 2].split() == [
        "1",
        "4",
        "50.0",
        "±",
        "2.0",
        "80.00",
        "R",
        "1.50",
        "102.4k",
    ]
    assert lines[header - 1].split() == ["global", "step", "samples", "memory", "tokens"]


@pytest.mark.parametrize("width", [40, 60, 140])
def test_the_rate_and_the_mark_have_room_at_any_width_and_what_has_none_is_named(
    width: int,
) -> None:
    names = ("gradient_accumulation_steps", "per_device_train_batch_size")
    rows = [
        {"point_id": str(size), "samples_per_s": 80 + size, "step_p50_s": size / 90}
        | {f"workload_args.{name}": size for name in names}
        | {"micro_batch": size, "global_batch": size, "memory_peak_bytes": 2**30}
        for size in (1, 2)
    ]
    table = printed(trials(*rows, flags=["drift"]), width=width, show_all=False).split("Frontier")[
        1
    ]
    (head,) = [line.split() for line in table.splitlines() if "/s" in line]
    assert {"/s", "mark", "caution"} <= set(head)
    assert any("R" in line.split() and "drift" in line for line in table.splitlines())
    assert ("Without room here: " in table) is (width < 140)
    assert ("gradient_accumulation_steps" in table) is (width == 40)


def test_lossy_points_have_a_column_of_their_error_at_80_columns() -> None:
    lossy = {"semantics": "lossy", "samples_per_s": 80, "step_p50_s": 0.05, "compression": "topk"}
    rows = [
        lossy | {"point_id": "a", "compression_ratio": 0.01, "compression_error": error}
        for error in (0.94, 0.96)
    ]
    other = lossy | {
        "point_id": "b",
        "compression_ratio": 0.1,
        "compression_error": 0.6,
        "step_p50_s": 0.04,
    }
    exact = {"samples_per_s": 70, "step_p50_s": 0.06}
    text = printed(trials(*rows, other | {"samples_per_s": 60}, exact), width=80)
    lines = [line.split() for line in text.splitlines()]
    assert ["ddp", "topk", "ratio=0.01", "50", "±", "0", "80", "±", "0", "95.00"] in lines
    assert ["ddp", "topk", "ratio=0.1", "40.00", "60.00", "60.00"] in lines
    assert "error %: one compressed exchange against the mean of the values themselves." in text
    assert "error" not in printed(trials(exact), width=80)


def test_many_models_have_one_table_of_recommendations_and_few_a_paragraph_each() -> None:
    def text(models: int, **asked: Any) -> str:
        rows = [
            {
                "model_digest": f"m{width}",
                "workload_width": width,
                "samples_per_s": 900.0 / width,
                "flops_per_sample": width,
            }
            for width in range(1, models + 1)
        ]
        return printed(trials(*rows), width=80, show_all=False, **asked)

    few, many = text(2), text(4)
    assert len(re.findall(r"workload\.width=\d: Take ddp", few)) == 2
    lines = [" ".join(line.split()) for line in many.splitlines()]
    assert "workload.width=3 ddp 300.0 the only candidate" in lines
    assert "0 more frontiers" not in many


def test_dominated_points_are_counted_and_shown_on_request() -> None:
    good = {"step_p50_s": 0.1, "samples_per_s": 42}
    frame = content_of(trials(good, {"step_p50_s": 0.2, "samples_per_s": 17, "micro_batch": 8}))
    brief = printed(frame, show_all=False)
    assert "1 beaten point not shown: --all shows them." in brief
    assert "17.00" not in brief
    assert "1 beaten point:\n" in printed(frame, show_all=True)
    assert "17.00" in printed(frame, show_all=True)


def test_another_axis_that_varies_stands_beside_the_mode() -> None:
    small, large = (
        {"precision": "bf16", "workload_layers": 4},
        {"precision": "fp32", "workload_layers": 8},
    )
    text = printed(trials(small, large, step_p50_s=0.1, samples_per_s=1))
    assert "ddp bf16 workload.layers=4" in text
    assert "ddp fp32 workload.layers=8" in text


def test_a_long_setting_wraps_between_words_and_leaves_the_numbers_whole() -> None:
    settings = {
        "sync": "parameter_server",
        "staleness": 0,
        "shards": 1,
        "placement": "strict_spread",
    }
    rows = [
        measured(settings, workers=workers, micro_batch=4, accumulation=workers)
        for workers in (1, 2)
    ]
    frame = trials(*rows, measured(MODES[0], workers=1, micro_batch=8, accumulation=1))
    lines = printed(frame, width=80, show_all=True).split("Frontier")[1].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("parameter_server"))
    assert lines[first].split()[-3:] == ["119.8", "±", "1.2"]
    assert [line.strip() for line in lines[first + 1 : first + 3]] == [
        "staleness=0 shards=1",
        "strict_spread",
    ]
    assert sum(line.split()[-2:-1] == ["516"] for line in lines) == 2


def test_throughput_and_efficiency_have_their_intervals_and_points_their_probability() -> None:
    rows = [
        {
            "point_id": str(workers),
            "workers": workers,
            "step_p50_s": step_s * factor,
            "samples_per_s": rate / factor,
        }
        for workers, step_s, rate in ((1, 0.1, 100), (2, 0.12, 160), (4, 0.14, 159))
        for factor in (0.98, 1.0, 1.02)
    ]
    text = printed(trials(*rows, latency_s_error=0.002, samples_per_s_error=2.0), width=80)
    lines = [line.split() for line in text.splitlines()]
    assert next(line for line in lines if line[:1] == ["1"]) == [
        "1",
        "100.0",
        "±",
        "2.9",
        "100.0",
        "±",
        "3.0",
        "100",
        "0",
    ]
    assert next(line[-3:] for line in lines if line[:4] == ["ddp", "1", "→", "2"]) == [
        "80.0",
        "±",
        "3.6%",
    ]
    assert "frontier %: how often a point is on the frontier when all means are resampled" in text
    assert "frontier %" not in printed(trials(*rows[::3]), width=80)


def test_tokens_and_memory_have_no_column_where_they_are_unknown() -> None:
    text = printed(trials({"step_p50_s": 0.1, "samples_per_s": 1}))
    assert "tokens" not in text
    assert "memory" not in text


def test_scaling_names_the_batch_shapes_that_stand_for_the_worlds() -> None:
    fast = {"global_batch": 16, "micro_batch": 16, "samples_per_s": 100, "step_p50_s": 0.1}
    split = {
        "global_batch": 16,
        "micro_batch": 4,
        "accumulation": 2,
        "workers": 2,
        "samples_per_s": 150,
    }
    text = printed(trials(fast, split | {"step_p50_s": 0.1}))
    assert "Strong scaling by workers" in text
    assert "Weak scaling" not in text
    row = next(line for line in text.splitlines() if "1 → 2" in line)
    assert row.split() == ["ddp", *"1→2", "16", *"×1→4×2", "150.0", "1.50", "75%"]


def test_a_speed_up_says_what_puts_either_of_its_points_in_doubt() -> None:
    base, larger = (
        {"workers": workers, "samples_per_s": 100 * workers, "step_p50_s": 0.1}
        for workers in (1, 2)
    )
    text = printed(trials(base | {"flags": ["drift"]}, larger | {"flags": ["unstable", "drift"]}))
    row = next(line for line in text.splitlines() if "1 → 2" in line)
    assert row.split()[-3:] == ["100%", "drift", "unstable"]
    assert "caution" not in printed(trials(base, larger)).split("Weak scaling")[1]


def test_without_all_a_report_has_what_decides_and_says_what_else_there_is() -> None:
    brief = printed(swept(), width=80, show_all=False)
    assert len(brief.splitlines()) <= 62
    assert brief.count("1 → 2") == 2, "the fastest group of weak and of strong scaling"
    assert re.search(
        r"Weak scaling by workers: .* 1 → 2: [\d.]+ ± [\d.]+ times, [\d.]+ ± [\d.]+ %", brief
    )
    assert "4 points, up to 545.1 ± 5.5 samples/s" in " ".join(brief.split())
    assert "1  oom_device  OutOfMemoryError" in brief
    assert "over 512 samples" not in brief, "the headline counts what was skipped"
    assert brief.splitlines()[-1].startswith("--all shows all frontiers and columns")
    assert "How it was measured" not in brief
    assert printed(swept()).count("1 → 2") > 24


def test_failures_have_status_count_reason_and_log() -> None:
    below = printed(swept()).split("Not measured\n")[1].split("\n\n")[0]
    assert [line.strip() for line in below.splitlines()] == [
        "1  oom_device  OutOfMemoryError: [/red] of 2 GiB",
        "log: results/logs/s1/0.log",
        "2  skipped     over 512 samples a step",
    ]


def test_intervals_within_one_launch_are_called_so() -> None:
    figures = {
        "step_p50_s": 0.1,
        "step_p50_s_low": 0.09,
        "step_p50_s_high": 0.11,
        "samples_per_s": 1,
    }
    one: dict[str, Any] = {"point_id": "a", **figures}
    again = one | {"repeat": 2, "step_p50_s": 0.12}
    other = one | {"point_id": "b"}
    said = " ".join(printed(trials(one)).split())
    assert (
        "Intervals of 1 of 1 point are within one launch; a run with `--goal throughput` would "
        "show how far launches differ." in said
    )
    assert "Intervals of 1 of 2 points are" in printed(trials(one, again, other))
    assert "within one launch" not in printed(trials(one, again))


def test_one_launch_that_borrows_the_spread_of_others_is_called_so() -> None:
    figures = {"step_p50_s_low": 0.09, "step_p50_s_high": 0.11, "samples_per_s": 1}
    rows = [
        {"point_id": point, "step_p50_s": step, **figures}
        for point in "abcd"
        for step in (0.1, 0.12)
    ]
    text = printed(trials(*rows, {"step_p50_s": 0.1, **figures}))
    assert "1 point with one launch: widened by the spread between launches" in text


def test_results_of_two_environments_are_kept_apart_and_called_so() -> None:
    text = printed(
        trials({"env_id": "a1"}, {"env_id": "b2", "workers": 2}, step_p50_s=0.1, samples_per_s=1)
    )
    assert "Measured in 2 environments" in text
    assert "Frontier · exact updates · ddp · env_id a1" in text
    assert "caling" not in text


def test_a_skipped_point_is_no_environment() -> None:
    skipped = {"status": "skipped", "reason": "too large", "env_id": None}
    text = printed(trials({"workers": 1}, {"workers": 2}, skipped, step_p50_s=0.1, samples_per_s=1))
    assert "Weak scaling" in text
    assert "env_id" not in text


def test_flags_are_counted_and_explained() -> None:
    frame = content_of(trials({"flags": ["drift", "spiky"]}, {"flags": ["drift"]}, {"flags": None}))
    text = printed(frame)
    assert "Trials by flag: drift (2); spiky (1).\n" in text
    assert f"  drift: {FLAG_MEANINGS['drift']}\n  spiky: {FLAG_MEANINGS['spiky']}\n" in text


def test_a_point_whose_window_was_not_the_job_as_it_goes_on_says_so_beside_its_numbers() -> None:
    doubted = {
        "point_id": "a",
        "step_p50_s": 0.05,
        "samples_per_s": 80,
        "flags": ["spiky", "drift"],
    }
    again = doubted | {"repeat": 2, "flags": ["unstable"]}
    other = {
        "point_id": "b",
        "workers": 2,
        "step_p50_s": 0.06,
        "samples_per_s": 90,
        "flags": ["spiky"],
    }
    lines = [line.split() for line in printed(trials(doubted, again, other)).splitlines()]
    assert ["1", "drift", "unstable"] in [[*line[:1], *line[-2:]] for line in lines]
    assert ["2", "60.00", "90.00", "R"] in lines
    assert "caution" not in printed(trials(other))
    unknown = printed(trials(doubted | {"env_id": None}))
    assert ["50.00", "80.00", "R", "drift"] in [line.split() for line in unknown.splitlines()]


@pytest.mark.parametrize("width", [80, 140])
def test_numbers_that_cannot_be_true_are_marked_in_every_table_and_sentence_and_explained(
    width: int,
) -> None:
    true, wrong = (
        measured(MODES[0], workers=workers, micro_batch=8, accumulation=1) for workers in (1, 2)
    )
    words = (
        "mfu is 1.37 of a dense peak of 989 TFLOP/s (table): "
        "are flops_per_sample, precision and peak right?"
    )
    text = printed(
        trials(true, wrong | {"flags": ["implausible"], "implausible": words}), width=width
    )
    assert max(map(len, text.splitlines())) <= width
    table, scaling = text.split("Weak scaling")
    last = [line.split()[-1] for line in table.splitlines() if line.split()[:1] == ["2"]]
    # In the table of the frontier, and in that of reasons.
    assert set(last) == {"implausible"}
    assert "Highest throughput (implausible): 1.9" in table
    said = " ".join(table.split())
    assert f"Implausible: numbers of 1 trial can't all be true. ddp workers=2: {words}" in said
    assert (
        next(line for line in scaling.splitlines() if "1 → 2" in line).split()[-1] == "implausible"
    )
    assert "mplausible" not in printed(trials(true, wrong), width=width)


@pytest.mark.parametrize("width", [80, 140])
def test_a_share_that_cannot_be_true_is_marked_in_whichever_table_it_stands(width: int) -> None:
    rows = [
        measured(MODES[0], workers=workers, micro_batch=8, accumulation=1) for workers in (1, 2)
    ]
    known = {
        "comm_share": 0.123,
        "comm_share_low": 0.118,
        "comm_share_high": 0.128,
        "wait_share": 0.1,
    }
    wrong = {"mfu": 7.3, "flags": ["implausible"], "implausible": "mfu is 7.3"}
    frame = trials(rows[0] | known | {"mfu": 0.4}, rows[1] | known | wrong)
    lines = printed(frame, width=width, show_all=True).splitlines()
    assert max(map(len, lines)) <= width
    (marked,) = (line.split() for line in lines if "730.0" in line)
    assert marked[-2:] == ["730.0", "implausible"]


def test_of_many_implausible_trials_the_first_are_explained() -> None:
    rows = [
        {"micro_batch": size, "samples_per_s": 1.0, "step_p50_s": 0.1, "implausible": "x"}
        for size in range(1, 12)
    ]
    text = printed(trials(*rows, flags=["implausible"]))
    assert text.count(": x\n") == 8
    assert "  3 more: the table of trials has them\n" in text


def test_points_of_an_unknown_environment_are_compared_with_each_other_alone() -> None:
    points = [
        {"micro_batch": size, "step_p50_s": size / 90, "samples_per_s": 80 + size}
        for size in (4, 8)
    ]
    frame = trials(*points, *({**point, "env_id": None} for point in points))
    frame["env_id"] = frame["env_id"].astype(object).where(frame["env_id"].notna(), None)
    assert printed(frame).count("Highest throughput: 1.048 times the runner-up's") == 2


def test_a_missing_interval_is_explained() -> None:
    one = {"step_p50_s": 0.1, "samples_per_s": 20, "step_p50_s_low": 0.09, "step_p50_s_high": 0.11}
    text = printed(trials(one, {"step_p50_s": 0.05, "samples_per_s": 10, "micro_batch": 2}))
    assert "No interval of 1 point: too few steps, or they drift." in text
    assert "No interval" not in printed(trials(one))


def test_a_frontier_is_printed_where_each_point_is_beaten_by_another_one() -> None:
    pairs, speeds = [("a", "b"), ("b", "c"), ("c", "a")] * 2, (100, 130, 70, 101, 131, 71)
    rows = [
        {
            "point_id": point,
            "session": str(n),
            "samples_per_s": speed * factor,
            "step_p50_s": 4 / speed / factor,
        }
        for n, (pair, speed) in enumerate(zip(pairs, speeds, strict=True))
        for point, factor in zip(pair, (1.01, 1.0), strict=True)
    ]
    assert (
        "? undecided: another point is better in all objectives, but not significantly."
        in " ".join(printed(trials(*rows)).split())
    )


def test_what_ended_the_windows_is_counted() -> None:
    precise, failed = {"stop_reason": "precise"}, {"stop_reason": "max_steps", "status": "nan"}
    assert (
        "Trials by the end of their window: at the half_width asked for (2); at max_seconds (1).\n"
        in printed(trials(precise, precise, {"stop_reason": "max_seconds"}, failed))
    )


def test_windows_on_gpus_that_are_too_short_for_energy_are_told_once() -> None:
    short = {"backend": "nccl", "window_s": 2.0}
    long = {"backend": "nccl", "window_s": 8.0}
    said = printed(trials(short, short, long, {"backend": "gloo", "window_s": 2.0}))
    assert said.count("energy_j is null on 2 trials with a window under 5 s") == 1
    assert "Measure(energy=True)" in said
    assert "energy_j" not in printed(trials(long, short | {"energy_j": 9.0}))


def test_exchange_and_mfu_have_columns_where_they_are_known() -> None:
    share = {"comm_share": 0.123, "comm_share_low": 0.118, "comm_share_high": 0.128, "mfu": 0.4567}
    shared = printed(
        trials(
            {"step_p50_s": 0.1, "samples_per_s": 20} | share,
            {"step_p50_s": 0.05, "samples_per_s": 10},
        )
    )
    lines = [line.split() for line in shared.splitlines()]
    assert ["exchange", "mfu"] in [line[-2:] for line in lines]
    assert ["12.3", "±", "0.5", "45.7"] in [line[-4:] for line in lines]
    assert "+ wait %" not in printed(trials({"step_p50_s": 0.1, "samples_per_s": 20}))


def test_of_the_exchange_is_said_how_much_of_it_is_waiting_where_that_is_known() -> None:
    known = {"step_p50_s": 0.1, "samples_per_s": 20, "workers": 2, "comm_share": 0.123}
    lines = [line.split() for line in printed(trials(known | {"wait_share": 0.045})).splitlines()]
    assert ["12.3", "4.5"] in [line[-2:] for line in lines]
    assert "wait %" not in re.sub(r"\+ wait %", "", printed(trials(known)))


def test_where_the_exchange_is_empty_a_line_says_why() -> None:
    point = {"step_p50_s": 0.1, "samples_per_s": 20}
    known, alone = point | {"workers": 2, "comm_share": 0.1}, point | {"workers": 1}
    full, old = point | {"workers": 2, "comm_reason": "no memory for it"}, point | {"workers": 4}
    assert "without a share of exchange" not in printed(trials(known, known))
    assert "without a share of exchange" not in printed(trials(alone))
    said = printed(trials(known, alone))
    assert "Trials without a share of exchange + wait: one worker (1).\n" in said
    text = printed(trials(known, alone, full, full, old))
    assert "one worker (1); no memory for it (2); no reason stored (1).\n" in text


@pytest.mark.parametrize(("width", "tables"), [(80, 3), (140, 2)])
def test_columns_without_room_have_tables_of_their_own_alike_in_all_frontiers(
    width: int, tables: int
) -> None:
    known = {"comm_share": 0.123, "comm_share_low": 0.118, "comm_share_high": 0.128, "mfu": 0.4567}
    text = printed(swept(**known), width=width, show_all=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    exact, stale, local = (
        part.split("beaten point")[0] for part in text.split("\nFrontier · ")[1:]
    )
    headers = [
        [line.removeprefix("sync").split() for line in part.splitlines() if "workers batch" in line]
        for part in (
            re.sub(" +", " ", section).split("because")[0] for section in (exact, stale, local)
        )
    ]
    assert [len(lines) for lines in headers] == [tables + 1] * 3  # and what limits points
    assert [lines[:tables] for lines in headers] == [headers[0][:tables]] * 3
    assert len(re.findall("^ddp .* 12.3 ± 0.5$", exact, re.MULTILINE)) == 5
    assert len(re.findall("^ddp .* 45.7$", exact, re.MULTILINE)) == 5
    assert "parameter_server" in exact


def test_the_highest_throughput_is_compared_with_the_runner_up() -> None:
    def launches(point: str, step_s: float, *rates: float) -> list[dict[str, Any]]:
        return [{"point_id": point, "step_p50_s": step_s, "samples_per_s": rate} for rate in rates]

    low = launches("low", 0.05, 10, 10.1)
    near = printed(trials(*low, *launches("a", 0.1, 100, 110), *launches("b", 0.2, 104, 112)))
    assert "Highest throughput: 1.029 times the runner-up's (0.781–1.355), undecided." in near
    far = printed(trials(*low, *launches("a", 0.1, 100, 101), *launches("b", 0.2, 201, 202)))
    assert re.search(r"2\.005 times the runner-up's \(.*\), faster\.", far)
    once = printed(trials(*launches("a", 0.1, 100), *launches("b", 0.2, 200)))
    assert "2.000 times the runner-up's, untested (one launch each).\n" in once
    assert "runner-up" not in printed(trials(*low))


def test_canaries_are_counted_apart() -> None:
    row = {"step_p50_s": 0.1, "samples_per_s": 20}
    steady = [
        canary("s", 0.1, flags=["spiky"], samples_per_s=999.0),
        canary("s", 0.101),
        canary("t", 0.1, workers=2),
    ]
    text = printed(trials(row, *steady))
    assert text.splitlines()[0] == "Gpt · Xeon · 1 trial: 1 ok"
    assert "ran in 2 sessions of 2 worlds; largest drift within a session: 1.0 ± 1.4 %.\n" in text
    assert "999" not in text
    assert "Flags" not in text
    assert printed(trials(*steady)) == "No trials in these results.\n"


def told(*rows: dict[str, Any]) -> str:
    """What is printed, on one line."""
    return " ".join(printed(trials(*rows)).split())


def test_a_session_that_drifted_is_named_with_its_trials() -> None:
    row = {"step_p50_s": 0.1, "samples_per_s": 20, "session": "s"}
    text = told(row, row, canary("s", 0.1), canary("s", 0.11))
    assert (
        "largest drift within a session: 10.0 ± 1.6 %. "
        "Drift above 2 % in 1 session with 2 trials: s." in text
    )
    assert "too imprecise" not in text


def test_a_session_whose_canaries_are_too_imprecise_to_tell_is_named_and_called_no_steady_one() -> (
    None
):
    row = {"step_p50_s": 0.1, "samples_per_s": 20, "session": "s"}
    vague = told(row, canary("s", 0.1, half_width=0.03), canary("s", 0.104, half_width=0.03))
    assert (
        "largest drift within a session: 4.0 ± 4.4 %. "
        "Canaries are too imprecise to exclude a drift of 2 % in 1 session with 1 trial: s."
        in vague
    )
    unknown = told(row, canary("s", 0.1, half_width=None), canary("s", 0.11, half_width=None))
    assert (
        "largest drift within a session: 10.0 %. "
        "Canaries are too imprecise to exclude a drift of 2 % in 1 session with 1 trial: s."
        in unknown
    )


def test_one_canary_is_called_so() -> None:
    text = printed(trials({"step_p50_s": 0.1, "samples_per_s": 20}, canary("s", 0.1)))
    assert (
        "ran in 1 session of 1 world; largest drift within a session: unknown, as none has two.\n"
        in text
    )


def test_canaries_that_did_not_end_ok_are_counted_with_the_first_reason_of_each_status() -> None:
    row = {"step_p50_s": 0.1, "samples_per_s": 20}
    wrong = {
        "status": "user_error",
        "reason": "rank 0: ValueError: [/red] boom",
        "log": "logs/s/0.log",
    }
    unknown = {"status": "oom_device", "reason": None}
    failed = [
        canary("s", 0.1, **wrong),
        canary("t", 0.1, **wrong | {"reason": "else"}),
        canary("s", 0.1, **unknown),
    ]
    text = printed(trials(row, canary("s", 0.1), *failed, canary("s", 0.1, status="cancelled")))
    assert (
        "Canary: 3 of 4 did not end ok, so less is known of whether the machine drifted.\n"
        "  1 oom_device: no reason stored\n"
        "  2 user_error: rank 0: ValueError: [/red] boom (log: logs/s/0.log)\n"
    ) in text
    assert (
        "ran in 1 session of 1 world; largest drift within a session: unknown, as none has two.\n"
        in text
    )
    assert "Canary: 1 of 1 did not end ok" in printed(trials(row, failed[0]))
    assert "did not end ok" not in printed(trials(row, canary("s", 0.1)))


def test_what_two_environments_differ_in_is_said_where_it_is_known() -> None:
    old, new = {"env_id": "a1", "torch_version": "2.11"}, {"env_id": "b2", "torch_version": "2.13"}
    rows = [old, {"env_id": "b2", "torch_version": "2.13", "hosts": 2}, new]
    assert "  torch_version: a1: 2.11; b2: 2.13\n" in printed(trials(*rows))
    assert "Columns machine and threads" in printed(trials({"env_id": "a1"}, {"env_id": "b2"}))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (trials(), "No trials in these results."),
        (trials({"status": "hang"}), "No trial ended ok, so there is no frontier."),
        (trials({"status": "hang"}), "1  hang  no reason stored"),
        (trials({}), "No point has both a step time and a throughput."),
        (
            trials(dict.fromkeys(["workload", "env_id", "hosts", "devices", "flags"])),
            "1 trial: 1 ok",
        ),
    ],
)
def test_little_or_nothing_is_said_plainly(frame: pd.DataFrame, words: str) -> None:
    assert words in printed(frame)


def first_screen(frame: pd.DataFrame) -> str:
    return "\n".join(printed(frame, width=80, show_all=False).splitlines()[:24])


def test_the_first_screen_has_the_recommendation_what_to_ignore_and_the_plot() -> None:
    frame = pd.concat(
        [sweep(session="s"), trials(canary("s", 0.1), canary("s", 0.139))], ignore_index=True
    )
    screen = first_screen(frame)
    assert "Best of one launch each: ddp workers=2" in screen
    assert "Differences below 39 % may be drift" in " ".join(screen.split())
    assert "Noise: every point was started once; a run with `--goal throughput`" in screen
    assert "samples/s  ● exact  ▲ stale  ■ local  ○ hollow: beaten" in screen
    assert screen.splitlines()[-1].startswith("   └")


def test_the_steps_and_seconds_of_the_windows_are_said() -> None:
    windows = [(20, 0.81234), (1000, 2.0)]
    rows = [
        {"point_id": str(steps), "measured_steps": steps, "window_s": seconds, "step_p50_s": 0.1}
        for steps, seconds in windows
    ]
    text = " ".join(printed(trials(*rows)).split())
    assert "timed for 20 to 1,000 steps (0.812 to 2 s)." in text


def test_what_drift_makes_doubtful_is_said_above_all_tables() -> None:
    rows = [{"step_p50_s": 0.1, "samples_per_s": 20, "session": "s"}]
    text = printed(trials(*rows, canary("s", 0.139), canary("s", 0.1)))
    assert (
        "took up to 39 % longer at one time than at another, in sessions with 1 of 1 trial."
        in " ".join(text.split())
    )
    assert text.index("The machine drifted") < text.index("Frontier")
    steady = trials(*rows, canary("s", 0.1), canary("s", 0.1))
    assert "The machine drifted" not in printed(steady)
    vague = printed(
        trials(*rows, canary("s", 0.1, half_width=0.1), canary("s", 0.104, half_width=0.1))
    )
    assert "A drift of the machine below 15 % is not excluded" in vague


def test_columns_without_room_are_in_tables_of_their_own() -> None:
    share = {"comm_share": 0.123, "comm_share_low": 0.118, "comm_share_high": 0.128, "mfu": 0.4567}
    assert "45.7" not in printed(swept(**share), width=80, show_all=False)
    assert "45.7" in printed(swept(**share), width=80)


def test_only_exact_updates_are_recommended_and_the_report_says_so_where_there_are_none() -> None:
    local = {
        "semantics": "local",
        "sync": "local_sgd",
        "sync_period": 8,
        "step_mean_s": 0.1,
        "samples_per_s": 20,
    }
    assert "No recommendation: no point has exact updates" in printed(trials(local))


def test_a_frontier_on_which_no_point_can_stand_says_why() -> None:
    assert "No point of it is known to meet the condition." in printed(sweep(), where="workers > 5")
    assert "No point has all that frontiers are of." in printed(
        sweep(), minimize=["energy_j_per_sample"], maximize=[]
    )

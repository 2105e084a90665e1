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
from tests.report.study import MODES, canary, measured, sweep, swept


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
def swept_with_shares() -> Content:
    """The content of the made-up sweep with known shares of its steps, computed once."""
    known = {"comm_share": 0.123, "comm_share_low": 0.118, "comm_share_high": 0.128, "mfu": 0.4567}
    return content_of(sweep(**known))


def test_the_head_counts_trials_and_tables_are_of_one_semantics_each() -> None:
    text = printed(swept())
    lines = text.splitlines()
    assert lines[0] == "Gpt · Xeon · 51 trials: 48 ok, 2 skipped, 1 oom_device"
    assert (
        "In all points: optimizer=sgd, learning_rate=0.01, precision=fp32, placement=pack, "
        "workload.layers=4" in text
    )
    assert [line for line in lines if line.startswith("Frontier")] == [
        "Frontier · exact updates",
        "Frontier · stale updates, by gradients of earlier weights · "
        "parameter_server staleness=None shards=2",
        "Frontier · local updates, latency is the mean step · local_sgd sync_period=8",
    ]
    failures = text.split("Not measured\n")[1].split("\n\n")[0]
    assert [line.strip() for line in failures.splitlines()] == [
        "1  oom_device  OutOfMemoryError: [/red] of 2 GiB",
        "log: results/logs/s1/0.log",
        "2  skipped     over 512 samples a step",
    ]


def test_a_row_of_the_frontier_has_all_its_figures() -> None:
    row = {"step_p50_s": 0.05, "step_p50_s_low": 0.048, "step_p50_s_high": 0.052}
    known = {"global_batch": 4, "tokens_per_s": 102400, "memory_peak_bytes": 3 * 2**29}
    other = {"workers": 2, "samples_per_s": 20, "step_p50_s": 0.06}
    lines = printed(trials(row | known | {"samples_per_s": 80}, other)).splitlines()
    header = next(n for n, line in enumerate(lines) if line.lstrip().startswith("workers "))
    assert " ".join(lines[header + 2].split()) == "1 4 50.0 ± 2.0 80.00 R 1.50 102.4k"
    assert lines[header - 1].split() == ["global", "step", "samples", "memory", "tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 140])
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
    text = printed(trials(*rows, flags=["drift"]), width=width, show_all=False)
    table = text.split("Frontier")[1]
    (head,) = [line.split() for line in table.splitlines() if "/s" in line]
    assert {"/s", "mark", "caution"} <= set(head)
    assert any("R" in line.split() and "drift" in line for line in table.splitlines())
    assert ("Without room here: " in table) is (width == 40)
    assert ("gradient_accumulation_steps" in table) is (width == 40)


@pytest.mark.slow
def test_many_models_have_one_table_of_recommendations_and_few_a_paragraph_each() -> None:
    def text(models: int) -> str:
        rows = [
            {"model_digest": f"m{width}", "workload_width": width, "flops_per_sample": width}
            | {"samples_per_s": 900.0 / width}
            for width in range(1, models + 1)
        ]
        return printed(trials(*rows), width=80, show_all=False)

    assert len(re.findall(r"workload\.width=\d: Take ddp", text(2))) == 2
    lines = [" ".join(line.split()) for line in text(4).splitlines()]
    assert "workload.width=3 ddp 300.0 the only candidate" in lines


def test_dominated_points_are_counted_and_shown_on_request() -> None:
    good = {"step_p50_s": 0.1, "samples_per_s": 42}
    frame = content_of(trials(good, {"step_p50_s": 0.2, "samples_per_s": 17, "micro_batch": 8}))
    brief, whole = (printed(frame, show_all=show_all) for show_all in (False, True))
    assert "1 beaten point not shown: --all shows them." in brief
    assert "17.00" not in brief
    assert "1 beaten point:\n" in whole
    assert "17.00" in whole


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


def test_results_of_two_environments_are_kept_apart_and_a_skipped_point_is_none() -> None:
    one, two = ({"workers": workers, "step_p50_s": 0.1, "samples_per_s": 1} for workers in (1, 2))
    text = printed(trials(one | {"env_id": "a1"}, two | {"env_id": "b2"}))
    assert "Measured in 2 environments" in text
    assert "Frontier · exact updates · ddp · env_id a1" in text
    assert "caling" not in text
    skipped = {"status": "skipped", "reason": "too large", "env_id": None}
    text = printed(trials(one, two, skipped))
    assert "Weak scaling" in text
    assert "env_id" not in text


def test_a_point_whose_window_was_not_the_job_as_it_goes_on_says_so_beside_its_numbers() -> None:
    doubted = {"point_id": "a", "step_p50_s": 0.05, "samples_per_s": 80}
    other = {"point_id": "b", "workers": 2, "step_p50_s": 0.06, "samples_per_s": 90}
    rows = [
        doubted | {"flags": ["spiky", "drift"]},
        doubted | {"repeat": 2, "flags": ["unstable"]},
        other | {"flags": ["spiky"]},
    ]
    lines = [line.split() for line in printed(trials(*rows)).splitlines()]
    assert ["1", "drift", "unstable"] in [[*line[:1], *line[-2:]] for line in lines]
    sound = [line for line in lines if line[:1] == ["2"]]
    assert any("R" in line for line in sound)
    assert not any({"spiky", "drift"} & {*line} for line in sound)
    unknown = printed(trials(doubted | {"env_id": None, "flags": ["drift"]}))
    assert ["50.00", "80.00", "R", "drift"] in [line.split() for line in unknown.splitlines()]


def test_numbers_that_cannot_be_true_are_marked_in_every_table_and_sentence_and_explained() -> None:
    true, wrong = (
        measured(MODES[0], workers=workers, micro_batch=8, accumulation=1) for workers in (1, 2)
    )
    words = "mfu is 7.3 of a dense peak of 989 TFLOP/s (table): is peak right?"
    shares = {"comm_share": 0.123, "comm_share_low": 0.118, "comm_share_high": 0.128}
    true |= shares | {"wait_share": 0.1, "mfu": 0.4}
    wrong |= shares | {"wait_share": 0.1, "mfu": 7.3}
    wrong |= {"flags": ["implausible"], "implausible": words}
    text = printed(trials(true, wrong), width=80)
    table, scaling = text.split("Weak scaling")
    last = [line.split()[-1] for line in table.splitlines() if line.split()[:1] == ["2"]]
    assert set(last) == {"implausible"}, "in the tables of the frontier, and in that of reasons"
    (share,) = (line.split() for line in table.splitlines() if "730.0" in line)
    assert share[-2:] == ["730.0", "implausible"]
    said = " ".join(table.split())
    assert f"Implausible: numbers of 1 trial can't all be true. ddp workers=2: {words}" in said
    row = next(line for line in scaling.splitlines() if "1 → 2" in line)
    assert row.split()[-1] == "implausible"
    assert "mplausible" not in printed(trials(true, true | {"workers": 2}), width=80)


@pytest.mark.parametrize(("width", "tables"), [(80, 3), (140, 2)])
def test_columns_without_room_have_tables_of_their_own_alike_in_all_frontiers(
    width: int, tables: int
) -> None:
    text = printed(swept_with_shares(), width=width, show_all=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    sections = [part.split("beaten point")[0] for part in text.split("\nFrontier · ")[1:]]
    headers = [
        [line.removeprefix("sync").split() for line in part.splitlines() if "workers batch" in line]
        for part in (re.sub(" +", " ", section).split("because")[0] for section in sections)
    ]
    assert [len(lines) for lines in headers] == [tables + 1] * 3  # and what limits points
    assert [lines[:tables] for lines in headers] == [headers[0][:tables]] * 3
    exact = sections[0]
    assert len(re.findall("^ddp .* 12.3 ± 0.5$", exact, re.MULTILINE)) == 5
    assert len(re.findall("^ddp .* 45.7$", exact, re.MULTILINE)) == 5
    assert "parameter_server" in exact


def test_what_is_not_known_to_half_of_it_is_marked_and_the_mark_is_explained_once() -> None:
    rows = [
        {"point_id": str(step_s), "step_p50_s": step_s * of, "samples_per_s": rate / of}
        for step_s, rate in ((0.05, 10), (0.1, 104), (0.2, 112))
        for of in (0.8, 1.3)
    ]
    text = printed(trials(*rows), show_all=False)
    table = text.split("Frontier · ")[1]
    assert re.search(r"~\d+ +~\d+", table)
    assert table.count("~ is not known to better than ± 50 %.") == 1
    assert "±" not in re.sub("± 50 %", "", table)
    exact = printed(trials(*rows[::2]), show_all=False)
    assert "~" not in exact


def test_canaries_are_counted_apart() -> None:
    row = {"step_p50_s": 0.1, "samples_per_s": 20}
    spiky = canary("s", 0.1, flags=["spiky"], samples_per_s=999.0)
    steady = [spiky, canary("s", 0.101), canary("t", 0.1, workers=2)]
    text = printed(trials(row, *steady))
    assert text.splitlines()[0] == "Gpt · Xeon · 1 trial: 1 ok"
    assert "ran in 2 sessions of 2 worlds; largest drift within a session: at most 3 %.\n" in text
    assert "999" not in text
    assert "Flags" not in text
    assert printed(trials(*steady)) == "No trials in these results.\n"


POINT = {"step_p50_s": 0.1, "samples_per_s": 20}
ENDS = {"step_p50_s_low": 0.09, "step_p50_s_high": 0.11}
ONE = {"point_id": "a", **POINT, **ENDS}
AGAIN = ONE | {"repeat": 2, "step_p50_s": 0.12}
HANG, NAN = {"status": "hang"}, {"status": "nan"}
PRECISE = {"stop_reason": "precise"}
EMPTY = dict.fromkeys(["workload", "env_id", "hosts", "devices", "flags"])
LOCAL = {"semantics": "local", "sync": "local_sgd", "step_mean_s": 0.1, "samples_per_s": 20}
FULL = POINT | {"workers": 2, "comm_reason": "no memory for it"}
OLD = {"env_id": "a1", "torch_version": "2.11"}
NEW = {"env_id": "b2", "torch_version": "2.13"}
LARGEST = "largest drift within a session: "

Rows = list[dict[str, Any]]


def watched(*steps_s: float, half_width: float | None = 0.01) -> Rows:
    """A trial in a session with canaries."""
    return [
        POINT | {"session": "s"},
        *(canary("s", step_s, half_width=half_width) for step_s in steps_s),
    ]


SAID: list[tuple[Rows, str]] = [
    ([], "No trials in these results."),
    ([HANG], "No trial ended ok, so there is no frontier."),
    ([HANG], "1 hang no reason stored"),
    ([{}], "No point has both a step time and a throughput."),
    ([EMPTY], "1 trial: 1 ok"),
    ([LOCAL], "No recommendation: no point has exact updates"),
    (
        watched(0.1, 0.11),
        f"{LARGEST}10.0 ± 1.6 %. Drift above 2 % in 1 session with 1 trial: s.",
    ),
    (watched(0.1, 0.104, half_width=0.03), f"{LARGEST}at most 9 %."),
    (watched(0.1, 0.11, half_width=None), f"{LARGEST}10.0 %."),
    (watched(0.1), f"{LARGEST}unknown, as none has two."),
    (
        [*[PRECISE] * 2, {"stop_reason": "max_seconds"}, {"stop_reason": "max_steps", **NAN}],
        "Trials by the end of their window: at the half_width asked for (2); at max_seconds (1).",
    ),
]
"""Rows, and what a report says of them."""

SELDOM: list[tuple[Rows, str]] = [
    (
        [ONE, AGAIN, ONE | {"point_id": "b"}],
        "Intervals of 1 of 2 points are within one launch; a run with `--goal throughput` would "
        "show how far launches differ.",
    ),
    (
        [POINT | ENDS, {"step_p50_s": 0.05, "samples_per_s": 10, "micro_batch": 2}],
        "No interval of 1 point: too few steps, or they drift.",
    ),
    (
        [POINT, POINT | {"workers": 2, "comm_share": 0.1}, *[FULL] * 2, POINT | {"workers": 4}],
        "one worker (1); no memory for it (2); no reason stored (1).",
    ),
    (
        [OLD, NEW | {"hosts": 2}, NEW],
        "torch_version: a1: 2.11; b2: 2.13",
    ),
    (
        [ONE | {"switches": 1}, AGAIN | {"switches": 2}],
        "Launches of 1 point ran on nodes of one switch and of several",
    ),
    ([{"env_id": "a1"}, {"env_id": "b2"}], "Columns machine and threads"),
    (
        [{"flags": ["drift", "spiky"]}, {"flags": ["drift"]}],
        f"Trials by flag: drift (2); spiky (1). drift: {FLAG_MEANINGS['drift']}",
    ),
]


@pytest.mark.parametrize(
    ("rows", "words"),
    [*SAID, *(pytest.param(*row, marks=pytest.mark.slow) for row in SELDOM)],
)
def test_what_rows_say_of_themselves_is_said_once(rows: Rows, words: str) -> None:
    text = " ".join(printed(trials(*rows)).split())
    assert text.count(words) == 1


@pytest.mark.slow
def test_the_first_screen_has_the_recommendation_what_to_ignore_and_the_frontier() -> None:
    watched = trials(canary("s", 0.1), canary("s", 0.139))
    frame = pd.concat([sweep(session="s"), watched], ignore_index=True)
    lines = printed(frame, width=80, show_all=False).splitlines()[:24]
    screen = "\n".join(lines)
    assert "For now take ddp workers=2" in screen
    assert "The machine was busy" in screen
    assert "Frontier · exact updates" in screen
    assert any("ms" in line and "/s" in line for line in lines[-12:])


def test_a_frontier_on_which_no_point_can_stand_says_why() -> None:
    frame = trials({"step_p50_s": 0.1, "samples_per_s": 20})
    assert "No point of it is known to meet the condition." in printed(frame, where="workers > 5")
    unknown = printed(frame, minimize=["energy_j_per_sample"], maximize=[])
    assert "No point has all that frontiers are of." in unknown

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from dtsweep import Measure, Sweep
from dtsweep.driver.progress import Progress, short_name
from dtsweep.plan.estimate import Duration
from dtsweep.plan.plan import make_plan
from dtsweep.plan.policy import Round
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point
from tests.outcomes import Tokens

OK = {"status": "ok", "repeat": 1, "latency_s": 0.1, "semantics": "exact", "model_digest": "a"}


def ended_as(status: str, reason: str, *, repeat: int = 1) -> dict[str, object]:
    return {"status": status, "reason": reason, "repeat": repeat}


def console_of(out: StringIO, *, width: int = 80, is_terminal: bool = False) -> Console:
    return Console(file=out, width=width, force_terminal=is_terminal, color_system=None)


@pytest.mark.parametrize(
    ("axes", "point", "name"),
    [
        (["learning_rate"], Point(learning_rate=1 / 30), "learning_rate=0.0333333"),
        (["learning_rate"], Point(learning_rate=1e-5), "learning_rate=1e-05"),
        (["sync"], Point(), "sync=ddp"),
        (["sync"], Point(overlap=False, bucket_bytes=None), "sync=ddp overlap=False"),
        (["sync", "overlap"], Point(), "sync=ddp overlap=True"),
        (["sync", "overlap"], Point(sync="fsdp"), "sync=fsdp"),
        (["sync"], Point(sync="hsdp", node_size=2), "sync=hsdp node_size=2"),
        (["sync"], Point(sync="ring", compression="topk"), "sync=ring compression_ratio=0.01"),
        (["compression", "compression_ratio"], Point(), "compression=None"),
        (["sync"], Point(sync="parameter_server"), "sync=parameter_server staleness=None shards=1"),
    ],
)
def test_a_name_has_quiet_settings_where_they_are_swept_or_not_the_default(
    axes: list[str], point: Point, name: str
) -> None:
    assert short_name(point, axes) == name


def test_a_round_says_what_is_open_and_the_live_line_too() -> None:
    sweep = Sweep(workload=Tokens(), axes={"micro_batch": [2, 4]}, measure=Measure(canary=False))
    plan = make_plan(sweep, candidates(sweep), [])
    later = Round(repeat=3, points=[trial.point for trial in plan.to_run], measure=sweep.measure)
    took = Duration(100.0, 144.0, 1)
    out = StringIO()
    progress = Progress(axes=sweep.axes, console=console_of(out))
    progress.begin_round(replace(plan, last_round=later, duration=took))
    assert out.getvalue() == "round 3: 2 contenders, about 2 min\n"
    assert "round 3: 2 contenders" in progress._line().plain
    for left, words in ((1, "; it should decide"), (3, "; about 3 such rounds are needed, 6 min")):
        forecast = replace(later, rounds_left=left)
        progress.begin_round(replace(plan, last_round=forecast, duration=took))
        assert out.getvalue().endswith(f"round 3: 2 contenders, about 2 min{words}\n")
    progress.begin_round(replace(plan, duration=took))
    assert out.getvalue().endswith("round 1: 2 points, about 2 min\n")


def test_the_third_failure_of_a_kind_says_that_the_run_may_be_stopped() -> None:
    out = StringIO()
    progress = Progress(axes=["workers"], console=console_of(out, width=200))
    progress.total = 9
    for status in ("ok", "timeout", "timeout", "oom_device", "oom_device", "oom_device", "timeout"):
        row = OK | {"status": status, "samples_per_s": 40.0, "reason": "2 steps in max_seconds=1"}
        progress.ended(Point(), row)
    hints = [line for line in out.getvalue().splitlines() if "Ctrl-C" in line]
    assert hints == [
        "3 trials have ended as timeout. Ctrl-C stops the run and keeps its results. "
        "After a correction, `--rerun failed` measures them again."
    ]
    assert out.getvalue().splitlines()[-1] == hints[0]


def lines_of(out: StringIO) -> tuple[list[str], list[str]]:
    """What was printed, without what moves the cursor: the lines that stay, and the live lines."""
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", out.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", plain) if line]
    live = [line for line in lines if " trials  " in line]
    return [line for line in lines if line not in live], live


def test_a_terminal_names_each_trial_above_the_live_line_as_a_pipe_does() -> None:
    said = {}
    for is_terminal in (True, False):
        out = StringIO()
        console = console_of(out, is_terminal=is_terminal)
        with Progress(axes=["workers"], console=console) as progress:
            progress.total = 3
            progress.canary(Point(workers=2), OK)
            progress.ended(Point(workers=2), OK | {"samples_per_s": 251234.0})
            progress.ended(Point(workers=1), ended_as("hang", "no end in 60 s", repeat=2))
        said[is_terminal] = lines_of(out)[0]
    assert said[True] == said[False]
    assert said[False] == [
        "canary workers=2: 100.0 ms/step",
        "[1/3] workers=2: median 100.0 ms/step, 251.2k samples/s",
        "[2/3] workers=1 repeat 2: hang: no end in 60 s",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_breaks_what_ended_between_words_and_a_log_not_at_all(is_terminal: bool) -> None:
    out = StringIO()
    console = console_of(out, width=40, is_terminal=is_terminal)
    progress = Progress(axes=["workers", "micro_batch"], console=console)
    progress.total = 1
    progress.ended(Point(workers=2, micro_batch=16), OK | {"samples_per_s": 40.0})
    first, second = "[1/1] workers=2 micro_batch=16: median ", "100.0 ms/step, 40.00 samples/s"
    assert out.getvalue().splitlines() == ([first, second] if is_terminal else [first + second])


def test_the_live_line_says_how_long_it_still_takes_before_anything_is_cut_off() -> None:
    out = StringIO()
    axes = ["workers", "micro_batch", "accumulation", "sync"]
    progress = Progress(axes=axes, console=console_of(out, width=40, is_terminal=True))
    progress.total = 24
    with progress:
        progress.ended(Point(workers=1, sync="parameter_server"), OK | {"samples_per_s": 151234.0})
        progress.ended(Point(workers=2, sync="parameter_server"), OK | {"samples_per_s": 251234.0})
    live = lines_of(out)[1]
    assert live[0] == "0/24 trials  0 s so far  starting the f…"
    assert live[-1] == "2/24 trials  about 0 s left"


def test_the_time_left_counts_neither_the_start_nor_what_was_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("dtsweep.driver.progress.time.monotonic", lambda: now)
    progress = Progress(axes=["workers"], console=Console(file=StringIO(), width=80))
    progress.total = 10
    now = 160.0
    progress.ended(Point(), OK | {"samples_per_s": 1.0})
    assert str(progress._line()).startswith("1/10 trials  60 s so far")
    now = 162.0
    for status in ("oom_device", "skipped"):
        progress.ended(Point(), ended_as(status, "full"))
    # Seven are left, of 2 s each; what ran out of memory is an answer.
    assert str(progress._line()).startswith("3/10 trials  about 14 s left")
    progress.ended(Point(), ended_as("hang", "no end in 60 s"))
    assert "1 failed" in str(progress._line())


def test_an_attempt_that_takes_long_is_named_in_the_live_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("dtsweep.driver.progress.time.monotonic", lambda: now)
    progress = Progress(axes=["workers"], console=Console(file=StringIO(), width=80))
    progress.total = 3
    progress.began("a", Point(workers=2))
    now = 160.0
    # It is the start that takes long.
    assert str(progress._line()) == "0/3 trials  60 s so far  starting the first session"
    progress.over("a")
    progress.ended(Point(workers=2), ended_as("collateral", "killed"), again=True)
    progress.began("a", Point(workers=2))
    now = 174.0
    assert str(progress._line()) == "0/3 trials  74 s so far"
    now = 175.0
    assert str(progress._line()) == "0/3 trials  75 s so far  workers=2 for 15 s"
    progress.over("a")
    assert str(progress._line()) == "0/3 trials  75 s so far"


RATE = {"samples_per_s": 4e6}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"samples_per_s": 40.0}, ", 40.00 samples/s\n"),
        (RATE | {"implausible": "mfu is 1.37"}, ", 4.000M samples/s; implausible: mfu is 1.37\n"),
        ({"samples_reason": "no DataLoader"}, "; samples/s unknown: no DataLoader\n"),
    ],
)
def test_a_rate_that_is_unknown_or_cannot_be_true_is_named_so(
    row: dict[str, object], said: str
) -> None:
    out = StringIO()
    Progress(axes=["workers"], console=console_of(out, width=400)).ended(Point(), OK | row)
    assert out.getvalue().endswith(f"median 100.0 ms/step{said}")

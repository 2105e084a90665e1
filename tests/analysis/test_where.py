"""Conditions on points: a small grammar, three truth values, and errors with what was expected."""

from __future__ import annotations

import random

import pandas as pd
import pytest

from dtsweep.analysis.study import Study
from dtsweep.analysis.where import parse_condition
from dtsweep.errors import SweepError
from tests.frames import trials
from tests.report.study import canary

POINTS = pd.DataFrame(
    {
        "workers": pd.array([1, 2, 4, 8], dtype="Int64"),
        "android": [0, 0, 0, 0],
        "step_p99_s": [0.1, 0.2, float("nan"), 0.4],
        "unknown_s": [float("nan")] * 4,
        "sync": ["ddp", "local_sgd", "ddp", None],
        "compression": [None, "int8", None, "topk"],
        "overlap": pd.array([True, False, True, None], dtype="boolean"),
        "workload_width": [16.0, 16.0, 64.0, 64.0],
        "memory_peak_bytes": [2.0**20, 2.0**30, 2.0**31, 2.0**32],
    }
)


def holds(text: str) -> list[bool | None]:
    found = parse_condition(text, POINTS).holds(POINTS)
    return [None if pd.isna(value) else bool(value) for value in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers <= 2", [True, True, False, False]),
        ("workers=4", [False, False, True, False]),
        ("not workers == 4", [True, True, False, True]),
        ("step_p99_s<=200ms", [True, True, None, False]),
        ("step_p99_s <= 0.2 and workers <= 2", [True, True, False, False]),
        ("step_p99_s <= 0.2 and workers <= 4", [True, True, None, False]),
        ("step_p99_s <= 0.2 or workers >= 4", [True, True, True, True]),
        ("step_p99_s <= 0.2 or workers > 4", [True, True, None, True]),
        ("not step_p99_s <= 0.2", [False, False, None, True]),
        ("sync = ddp and (workers < 2 or workers > 3)", [True, False, True, False]),
        ("sync in (ddp, 'local_sgd')", [True, True, True, False]),
        ("workers in (1, 8)", [True, False, False, True]),
        ("compression = null", [True, False, True, False]),
        ("compression != null", [False, True, False, True]),
        ("compression != int8", [True, False, True, True]),
        ("step_p99_s = null", [False, False, True, False]),
        ("overlap = true", [True, False, True, False]),
        ("workload.width = 16", [True, True, False, False]),
        ("memory_peak_bytes <= 1GiB", [True, True, False, False]),
        ("workers > 1e0", [False, True, True, True]),
        ("workers >= 2 sync = ddp", [False, False, True, False]),
        ("not not sync = ddp (workers < 2 or android = 1)", [True, False, False, False]),
        # `and` binds more strongly than `or`.
        ("workers = 1 or workers = 2 and sync = ddp", [True, False, False, False]),
    ],
)
def test_a_condition_is_met_failed_or_unknown(text: str, expected: list[bool | None]) -> None:
    assert holds(text) == expected


def test_a_condition_names_the_columns_that_it_asks_for() -> None:
    found = parse_condition("workers < 8 and (step_p99_s < 1 or workers = 2)", POINTS)
    assert found.columns == ("workers", "step_p99_s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker <= 2", "did you mean 'workers'"),
        ("workers <=", "at the end: a number or a word is expected"),
        ("workers 2", "before '2': one of <= >= < > = == != or `in` is expected"),
        ("workers <= 2 4", "before '4': `and`, `or` or the end is expected"),
        ("sync = and", "before 'and': a number or a word is expected"),
        ("(workers <= 2 4", "before '4': `)` is expected"),
        ("(workers <= 2", "at the end: `)` is expected"),
        ("workers <= 2 and", "at the end: the name of a column"),
        ("workers <= 2 && sync = ddp", "before '&& sync = ddp'"),
        ("workers <= two", "workers is compared with 'two', but has numbers"),
        ("sync = 2", "sync is compared with 2.0, but has words"),
        ("sync < true", "sync is compared with True, but has words"),
        ("unknown_s > ddp", "unknown_s is compared with 'ddp', but has numbers"),
        ("overlap = ddp", "overlap is compared with 'ddp', but has true and false"),
        ("workers < null", "use = or !="),
        ("sync = dpp", "no point has sync=dpp; did you mean 'ddp'?"),
        (
            "workers = 2 or sync in (ddp, hearsay)",
            "no point has sync=hearsay; allowed: ddp, local_sgd",
        ),
        ("workers <= 2parsec", "one with a unit of s, ms"),
        ("__import__('os') = 1", "before \"('os') = 1\": one of"),
    ],
)
def test_what_can_not_be_read_is_refused_in_a_line_that_says_what_was_expected(
    text: str, said: str
) -> None:
    with pytest.raises(SweepError) as refused:
        holds(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_trials_of_points_that_are_not_known_to_meet_a_condition_are_left_out() -> None:
    rows = [
        {"point_id": str(workers), "workers": workers, "step_p99_s": p99}
        for workers, p99 in ((1, 0.1), (2, None))
    ]
    frame = trials(*rows, rows[0], canary("s", 0.1))
    kept = Study(frame).where("step_p99_s < 1").frame
    assert kept["workers"].to_list() == [1, 1, frame["workers"].iloc[-1]]
    assert Study(frame).where("workers > 2").frame["role"].to_list() == ["canary"]
    assert Study(frame).where("").frame is frame


LIMITS = [
    "(" * 2_000,
    " or ".join(["workers = 1"] * 150_000),
    "not " * 3_000 + "workers = 1",
    f"workers = 1 {'y' * 1_900}",
]


@pytest.mark.parametrize("text", LIMITS, ids=range(len(LIMITS)))
def test_a_condition_without_end_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(SweepError) as refused:
        holds(text)
    assert len(str(refused.value)) < 1_500


def test_brackets_and_nots_up_to_the_limit_are_read() -> None:
    inside = "workers in (1, 2) and sync = ddp"
    assert holds("(" * 49 + inside + ")" * 49) == holds(inside) == [True, False, False, False]
    assert holds("not " * 401 + f"({inside})") == holds(f"not ({inside})")
    frame = pd.DataFrame({"devices": ["(" * 60, "H100"]})
    assert [*parse_condition(f"devices = '{'(' * 60}'", frame).holds(frame)] == [True, False]


def test_any_comparison_is_judged_or_refused_in_a_line() -> None:
    draw = random.Random(20261128)
    points = Study(trials(*({"workers": n, "micro_batch": 4} for n in (1, 2)))).points
    signs = ["<", "<=", ">", ">=", "=", "!=", "in"]
    values = ["ddp", "2", "-0.5ms", "true", "null", "'2026-01-01'", "int8"]
    outcomes = set()
    for frame in (points, POINTS):
        for name in frame.columns:
            sign, value = draw.choice(signs), draw.choice(values)
            text = f"{name} {sign} {value}" if sign != "in" else f"{name} in (2, {value})"
            try:
                verdicts = parse_condition(text, frame).verdicts(frame)
            except SweepError as error:
                outcomes.add("refused")
                assert "\n" not in str(error)
            else:
                outcomes.add("judged")
                assert len(verdicts) == len(frame)
    assert outcomes == {"refused", "judged"}

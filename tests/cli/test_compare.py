"""`dtsweep difference` and `dtsweep compare`, as a user runs them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from dtsweep.cli import cli
from dtsweep.compare.compared_runs import MOST_RUNS, RUNS_FROM
from dtsweep.compare.regressions import COLUMNS
from dtsweep.compare.runs import BROKEN
from dtsweep.errors import SweepError
from tests.cli.called import as_json, called, in_one_line
from tests.compare.stored_runs import store_run
from tests.compare.test_runs import BIGGER, NEWER, SLOWER, STEADY
from tests.pages import ROOT, tables
from tests.schemas import SCHEMAS


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return store_run(tmp_path / "base", STEADY)


def test_two_points_that_differ_are_told_apart_by_their_settings(base: Path) -> None:
    said = in_one_line("difference", base, "micro_batch=16", "micro_batch=4")
    assert said.startswith("A is faster by samples_per_s: 2.000 times (")
    assert "A is slower by latency_s: 2.000 times (" in said
    assert "A: ddp micro_batch=16 (" in said
    assert "3 and 3 launches one by one)" in said
    assert "pooled" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["difference", "{}", "micro_batch=4", "micro_batch<8"], "are one point"),
        (["compare", "x", "y", "z"], "compare takes BASE and NEW, or NEW; it was given 3"),
        (["compare", "no_results", "neither"], "no results in no_results"),
    ],
)
def test_wrong_usage_is_refused_in_one_line(base: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        called(*(argument.format(base) for argument in arguments))


def test_undecided_equal_and_unknown_are_different_words(tmp_path: Path) -> None:
    near = store_run(tmp_path / "near", {4: [100.0, 103, 97], 16: [99.0, 100, 97]})
    asked = ("difference", near, "micro_batch=4", "micro_batch=16", "--of", "samples_per_s")
    said = in_one_line(*asked)
    assert said.startswith("Undecided by samples_per_s: 1.013 times (")
    assert re.search(r"A difference of [\d.]+ % would be found\.", said)
    said = in_one_line(*asked, "--indifference", "10%")
    assert said.startswith("A and B are equal within 10 % by samples_per_s: 1.013 times (")
    with pytest.raises(SweepError, match="indifference zone 2 must be at least 0 and below 1"):
        called(*asked, "--indifference", "2")
    once = store_run(tmp_path / "once", {4: [100.0], 16: [200.0]})
    said = in_one_line("difference", once, "micro_batch=4", "micro_batch=16")
    assert said.startswith(
        "Unknown by samples_per_s: 0.500 times by the means, but one launch each, "
        "and nothing says how far launches differ. Unknown by latency_s"
    )
    assert "Next: a run with `--goal throughput`, which shows how far launches differ." in said
    failed = store_run(tmp_path / "failed", {4: [None], 16: [None]})
    with pytest.raises(SweepError, match="no trial ended ok, so there is nothing to compare; the"):
        called("difference", failed, "micro_batch=4", "micro_batch=16")


def test_the_json_of_a_difference_has_both_points_and_a_row_for_each_quantity(base: Path) -> None:
    of = ("--of", "samples_per_s", "--of", "step_p50_s")
    found = as_json("difference", base, "micro_batch=16", "micro_batch=4", *of)
    assert found["a"]["label"] == "ddp micro_batch=16"
    assert [row["of"] for row in found["differences"]] == ["samples_per_s", "step_p50_s"]
    first = found["differences"][0]
    assert (first["verdict"], first["verdict_reason"]) == ("faster", None)
    assert 1 <= first["detectable_ratio"] < first["ratio"]
    assert found["notes"] == []


def test_what_differs_beside_the_numbers_is_said(tmp_path: Path, base: Path) -> None:
    newer = store_run(tmp_path / "newer", STEADY, env_id="c3d4", machine=NEWER)
    assert "Software differs: torch 2.13.0 → 2.14.0." in in_one_line("compare", base, newer)
    bigger = store_run(tmp_path / "bigger", STEADY, env_id="e5f6", machine=BIGGER)
    said = in_one_line("compare", base, bigger, "--other-machine")
    assert "Machine differs: cpus 2 → 64." in said
    store_run(base, {8: [100.0, 101]}, semantics="local", model_digest="m2")
    assert as_json("difference", base, "micro_batch=8", "micro_batch=4")["notes"] == [
        "Updates of A are local, of B exact: faster is not sooner at the same loss.",
        "A and B train different models: a sample of one is none of the other.",
    ]


@pytest.mark.parametrize(
    ("rates", "words", "point"),
    [
        (
            SLOWER,
            "1 point slower by more than 2 %, significant among 4 comparisons.",
            "ddp micro_batch=4",
        ),
        (
            {4: STEADY[4], 16: [None]},
            "1 point ran before and failed now. "
            "No longer runs: ddp micro_batch=16: nan: rank 0: the loss is nan",
            "ddp micro_batch=16",
        ),
    ],
)
def test_a_regression_is_exit_code_1_and_the_first_line(
    tmp_path: Path, base: Path, rates: Any, words: str, point: str
) -> None:
    done = called("compare", base, store_run(tmp_path / "new", rates, day=2))
    assert done.exit_code == 1
    said = " ".join(done.stdout.split())
    assert said.startswith(f"Regression: {words}")
    assert point in said


def test_the_json_of_a_comparison_has_both_runs_and_a_row_for_each_quantity(
    tmp_path: Path, base: Path
) -> None:
    slower = store_run(tmp_path / "slower", SLOWER, day=2)
    assert called("compare", slower, base).exit_code == 0
    assert called("compare", base, slower, "--threshold", "0.3").exit_code == 0
    found = as_json("compare", base, slower)
    assert (found["verdict"], found["unit"], found["comparisons"]) == ("regression", "launch", 4)
    (base_facts,) = found["base"]
    assert base_facts["trials"] == 6
    assert base_facts["started_at"].startswith("2026-01-01")
    assert found["new"]["env_id"] == "a1b2"


def test_where_nothing_is_told_the_words_say_what_would_have_been(
    tmp_path: Path, base: Path
) -> None:
    again = store_run(tmp_path / "again", STEADY, day=2)
    said = in_one_line("compare", base, again)
    found = r"a slowdown of [\d.]+ % would be found with a probability of 80 %\. "
    assert re.match(rf"No regression found in 4 comparisons; {found}", said)
    assert "4 comparisons without a significant difference: --all shows them" in said
    assert "ddp" not in said
    assert in_one_line("compare", base, again, "--all").count("not significant") == 4
    assert "it is measured from 5 earlier runs in the same results on." in said
    # Where nothing can be told, that is said, and not that nothing changed.
    once, half = (
        store_run(tmp_path / name, {4: [rate], 16: [2 * rate]})
        for name, rate in (("once", 100.0), ("half", 50.0))
    )
    assert called("compare", once, half).exit_code == 0
    told = as_json("compare", once, half)
    assert told["verdict"] == "unknown"
    nothing = "Nothing can be tested: one launch each, and nothing says how far launches differ."
    assert told["words"].startswith(nothing)
    assert "No regression" not in told["words"]


@pytest.mark.slow
def test_of_points_of_one_run_alone_the_first_are_named(tmp_path: Path, base: Path) -> None:
    new = store_run(tmp_path / "new", {size: [100.0] for size in (4, 21, 22, 23, 24, 25)})
    found = as_json("compare", base, new)
    assert [point["label"] for point in found["only_base"]] == ["ddp micro_batch=16"]
    assert len(found["only_new"]) == 5
    said = in_one_line("compare", base, new)
    assert (
        "Only in the earlier run: 1 point ddp micro_batch=16 Only in the new run: 5 points" in said
    )
    assert (said.count("ddp micro_batch=2"), "2 more: --all shows them" in said) == (3, True)
    assert in_one_line("compare", base, new, "--all").count("ddp micro_batch=2") == 5


def test_a_table_of_comparisons_fits_a_terminal_and_counts_launches(
    tmp_path: Path, base: Path
) -> None:
    both = store_run(tmp_path / "both", {4: [80.0, 81, 79], 16: [160.0, 162, 158]}, day=2)
    said = called("compare", base, both).stdout
    assert said.count("3, 3") == said.count("ddp micro_batch=") == 4
    assert all(len(line.rstrip()) <= 80 for line in said.splitlines())


@pytest.mark.slow
def test_the_last_run_of_results_is_compared_with_the_earlier_ones_there(tmp_path: Path) -> None:
    place = tmp_path / "all"

    def store(day: int, rate: float, **options: Any) -> None:
        rates = {4: [rate + day % 3], 16: [200.0 - day % 2]}
        store_run(place, rates, day=day, has_record=True, **options)

    store(1, 100)
    alone = as_json("compare", place)["words"]
    assert "There is one run of this machine, and nothing to compare it with." in alone
    for day in range(2, 7):
        store(day, 100)
    assert called("compare", place).exit_code == 0
    store(7, 80)
    assert called("compare", place).exit_code == 1
    found = as_json("compare", place)
    assert (len(found["base"]), found["unit"], found["new"]["name"]) == (6, "run", "day7")
    store(8, 80, env_id="c3d4", machine=BIGGER)
    assert "Left out: 7 earlier runs of other machines." in in_one_line("compare", place)
    assert len(as_json("compare", place, "--other-machine")["base"]) == 7


# What docs/monitoring.md says of a workflow and of JSON

PAGE = "monitoring.md"


(JOB,) = yaml.safe_load((ROOT / "docs" / "workflows" / "speed.yml").read_text())["jobs"].values()


def commands() -> list[list[str]]:
    lines = [line for step in JOB["steps"] for line in step.get("run", "").splitlines()]
    ours = [Template(line.partition(" > ")[0]) for line in lines if ".venv/bin/dtsweep " in line]
    return [shlex.split(line.substitute(JOB["env"]))[1:] for line in ours]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_of_the_workflow_exist_with_their_options(arguments: list[str]) -> None:
    name, *own = arguments
    cli.commands[name].make_context(name, own)


def test_the_workflow_measures_compares_shows_and_fails() -> None:
    measure, compare = commands()
    assert (measure[0], compare[0], measure[measure.index("--rerun") + 1]) == (
        "run",
        "compare",
        "all",
    )
    assert (ROOT / JOB["env"]["SWEEP"]).exists()
    assert measure[measure.index("--results") + 1] == compare[1]
    uses = {text for step in JOB["steps"] for text in re.findall(r"speed\.(?:md|html)", str(step))}
    assert uses == {"speed.md", "speed.html"}
    (of_compare,) = (step for step in JOB["steps"] if "compare" in step.get("run", ""))
    after = JOB["steps"][JOB["steps"].index(of_compare) + 1 :]
    assert "continue-on-error" not in of_compare
    assert len(after) == 3
    assert all(step["if"].startswith("always()") for step in after)


def test_every_key_of_the_json_of_a_comparison_is_listed() -> None:
    rows = {row["key"]: row["value"] for row in tables(PAGE, first="key")}
    listed = {name for keys in rows for name in re.findall(r"\w+", keys)}
    assert listed == {*SCHEMAS["compare"]["properties"]}
    named = set(re.findall(r"`(\w+)`", rows["`rows`"]))
    assert named == {*COLUMNS, "label"}


def test_statuses_and_numbers_of_runs_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    (listed,) = re.findall(r"does not now\s+\(([^)]*)\)", text)
    assert set(re.findall(r"`(\w+)`", listed)) == BROKEN
    assert (RUNS_FROM, MOST_RUNS) == (5, 20)
    assert "From five on each **run** counts" in text
    assert "The newest 20 runs count." in text

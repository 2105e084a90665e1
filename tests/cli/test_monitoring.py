"""What docs/monitoring.md says of a workflow and of JSON is so."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from dtsweep.cli import cli
from dtsweep.compare.compared_runs import MOST_RUNS, RUNS_FROM
from dtsweep.compare.regressions import COLUMNS
from dtsweep.compare.runs import BROKEN
from tests.cli.test_compare import KEYS
from tests.pages import ROOT, blocks, tables

PAGE = "monitoring.md"


def workflow() -> dict[Any, Any]:
    (block,) = (block for block in blocks("yaml") if block.page == PAGE)
    return dict(yaml.safe_load(block.text))


def steps() -> list[dict[str, Any]]:
    (job,) = workflow()["jobs"].values()
    return list(job["steps"])


def commands() -> list[list[str]]:
    lines = [
        line
        for step in steps()
        for line in step.get("run", "").splitlines()
        if ".venv/bin/dtsweep " in line
    ]
    return [shlex.split(line.partition(" > ")[0])[1:] for line in lines]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_of_the_workflow_exist_with_their_options(arguments: list[str]) -> None:
    name = arguments[0] if arguments[0] in cli.commands else "run"
    own = arguments[1:] if name == arguments[0] else arguments
    cli.commands[name].make_context(name, list(own))


def test_the_workflow_measures_compares_and_reports() -> None:
    assert [arguments[0] for arguments in commands()] == [
        "sweeps/batchsize.py",
        "compare",
        "report",
    ]
    assert (ROOT / "sweeps" / "batchsize.py").exists()
    places = {
        arguments[arguments.index("--results") + 1]
        for arguments in commands()
        if "--results" in arguments
    }
    assert places == {
        arguments[1] for arguments in commands() if arguments[0] in ("compare", "report")
    }


def test_every_key_of_the_json_of_a_comparison_is_listed() -> None:
    rows = {row["key"]: row["value"] for row in tables(PAGE, first="key")}
    assert {name for keys in rows for name in re.findall(r"\w+", keys)} == KEYS
    named = set(re.findall(r"`(\w+)`", rows["`rows`"]))
    assert named == {*COLUMNS, "label"}


def test_statuses_and_numbers_of_runs_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    (listed,) = re.findall(r"does not now\s+\(([^)]*)\)", text)
    assert set(re.findall(r"`(\w+)`", listed)) == BROKEN
    assert (RUNS_FROM, MOST_RUNS) == (5, 20)
    assert "From five on each **run** counts" in text
    assert "The newest 20 runs count." in text

"""What commands print with `--json` is what docs/schemas say, and the schemas are strict."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from dtsweep.cli import cli
from dtsweep.inference import verdicts
from dtsweep.report.remark_table import Severity
from dtsweep.results import campaign
from dtsweep.results.statuses import FLAG_MEANINGS, STATUS_MEANINGS
from dtsweep.sweep.evidence import MACHINES
from dtsweep.sweep.mode_info import SEMANTICS
from tests.cli.called import as_json
from tests.pages import ROOT
from tests.schemas import SCHEMAS, validator

SAMPLES = [*sorted((ROOT / "notebooks/samples").iterdir()), ROOT / "tests/data/three_modes"]
SAMPLE = ROOT / "notebooks/samples/campaign"
POINTS = ("sync=ddp workers=1 micro_batch=4", "sync=ddp workers=2 micro_batch=4")

FREE = {
    *("settings", "constants", "numbers", "statuses", "flags", "environment", "node_s"),
    "usd_per_hour",
}
"""Objects whose keys are names of users, or of remarks."""

NEW = "no_such_key"

OPEN = r"workload_|.*_ratio"
"""Keys of rows that depend on the workload, or on what is better."""


def test_every_command_with_json_has_a_schema_of_its_own() -> None:
    commands = {
        name
        for name, command in cli.commands.items()
        if any(option.name == "as_json" for option in command.params)
    }
    assert commands == SCHEMAS.keys() - {"common", "columns", "claim", "claim-check"}
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_codes_of_the_schemas_are_those_of_the_code() -> None:
    common, columns = SCHEMAS["common"]["$defs"], SCHEMAS["columns"]["$defs"]
    states = (campaign.STARTING, campaign.RUNNING, campaign.ENDING, campaign.ENDED)
    codes: dict[str, Any] = {
        "verdict": verdicts.Verdict,
        "knee_verdict": verdicts.KneeVerdict,
        "run_verdict": verdicts.RunVerdict,
        "answer": verdicts.Answer,
        "condition_verdict": verdicts.ConditionVerdict,
        "reason": [*verdicts.Reason, None],
        "method": verdicts.Method,
        "severity": get_args(Severity),
        "flag": FLAG_MEANINGS,
        "state": [*states, campaign.KILLED, campaign.UNKNOWN],
    }
    assert {name: common[name]["enum"] for name in codes} == {n: [*c] for n, c in codes.items()}
    untried = common["untried"]["properties"]
    assert untried["tried"]["enum"] == [*MACHINES] == ["nowhere", *untried["wanted"]["enum"]]
    assert columns["status"]["enum"] == [*STATUS_MEANINGS, None]
    assert columns["semantics"]["enum"] == [*SEMANTICS, None]


@pytest.mark.slow
@pytest.mark.parametrize("results", SAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize("command", ["report", "recommend", "status", "compare"])
def test_outputs_on_samples_are_as_the_schemas_say(command: str, results: Path) -> None:
    # as_json checks what it reads.
    assert as_json(command, results)


def _objects(values: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of the objects in an output whose keys are its own, the first one of each list."""
    if isinstance(values, list):
        yield from _objects(values[0], (*place, 0)) if values else ()
    elif isinstance(values, dict) and not FREE & {*place}:
        yield place
        for key, value in values.items():
            yield from _objects(value, (*place, key))


def _changed(values: Any, place: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield an output with a key more at a place, and without each of its keys there."""
    for key in [NEW, *_at(values, place)]:
        if re.match(OPEN, key):
            continue
        changed = copy.deepcopy(values)
        target = _at(changed, place)
        if target.pop(key, None) is None and key == NEW:
            target[NEW] = 1
        yield key, changed


def _at(values: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def _shortened(values: Any) -> Any:
    """Keep the first row of each list."""
    if isinstance(values, list):
        return [_shortened(value) for value in values[:1]]
    if isinstance(values, dict):
        return {key: _shortened(value) for key, value in values.items()}
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("status", SAMPLE),
        ("compare", SAMPLE),
        ("difference", SAMPLE, *POINTS),
        ("predict", SAMPLE, "workers=4 micro_batch=8"),
        ("plan", ROOT / "sweeps/compression.py", "--results", "no"),
        ("recommend", SAMPLE),
        ("report", SAMPLE),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_key_can_be_missing_or_new(arguments: tuple[str, Any]) -> None:
    values, check = _shortened(as_json(*arguments)), validator(arguments[0])
    assert check.is_valid(values)
    for place in _objects(values):
        found = [key for key, changed in _changed(values, place) if check.is_valid(changed)]
        assert found in ([], ["environment"]), (place, found)

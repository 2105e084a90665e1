from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from dtsweep.report.as_json import report_json
from dtsweep.report.content import content_of
from tests.frames import trials
from tests.report.study import canary, swept


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
    assert {one["code"] for one in report["remarks"]} >= {"limit", "knees_unknown", "interval"}
    assert all(one.keys() == {"code", "severity", "numbers", "text"} for one in report["remarks"])
    assert all("untested" in each["words"] for each in report["frontiers"])
    for table in ("frontiers", "frontier", "differences", "hypervolume"):
        assert {row["semantics"] for row in report[table]} == {"exact", "stale", "local"}
    assert len(report["frontier"]) == 48
    assert report["frontier"][0]["sync_period"] is None
    assert {row["standing"] for row in report["frontier"]} == {"frontier", "undecided", "dominated"}
    assert {row["kind"] for row in report["scaling"]} == {"weak", "strong"}
    assert report["unmeasured"][0]["log"] == "results/logs/s1/0.log"
    reasons = {(row["verdict"], row["verdict_reason"]) for row in report["differences"]}
    assert reasons == {("unknown", "one_launch_each")}
    assert all(0 < row["hypervolume"] <= 1 for row in report["hypervolume"])
    assert {row["verdict_reason"] for row in report["worthwhile"]} == {"too_few_launches"}
    assert ("too_few_sizes", 4) in {(row["reason"], row["sizes_needed"]) for row in report["usl"]}
    assert json_of(trials()).keys() == report.keys()


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

"""Trials are redacted before anything is made of them, and stay trials."""

from __future__ import annotations

import json

from dtsweep.analysis import Study
from dtsweep.privacy import Redactor, redacted_trials, redactor_of_trials
from dtsweep.report.content import content_of
from dtsweep.report.redacted import redacted
from tests.frames import trials
from tests.hostile import GIVEN_AWAY, private_trials

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}


def test_free_text_is_replaced_and_what_readers_decide_by_stays() -> None:
    log = {"log": "/home/ann/a.log", "status": "ok"}
    shown = redacted_trials(trials(FAST | log), Redactor(users=["ok", "ddp", "exact", "fast"]))
    row = shown.iloc[0]
    assert row["log"] == "~/a.log"
    assert list(row[["status", "sync", "semantics", "point_id"]]) == ["ok", "ddp", "exact", "fast"]


def test_settings_that_differ_stay_different() -> None:
    settings = ({"workload_data": f"/home/{user}/data"} for user in ("ann", "bob"))
    rows = [row | one for row, one in zip((FAST, LARGE), settings, strict=True)]
    shown = redacted_trials(trials(*rows), Redactor())
    assert list(shown["workload_data"]) == ["~/data", "~/data (2)"]


def test_json_stays_json() -> None:
    shown = redacted_trials(trials(FAST | {"command": '["train.py", "/home/ann/x"]'}), Redactor())
    assert json.loads(shown["command"].iloc[0]) == ["train.py", "~/x"]


def test_trials_without_anything_private_are_the_same_table() -> None:
    frame = trials(FAST, LARGE)
    assert redacted_trials(frame, Redactor(users=["ann"])) is frame


def test_private_trials_show_only_their_names_and_are_redacted_once() -> None:
    frame = private_trials()
    redactor = redactor_of_trials(frame)
    shown = redacted_trials(frame, redactor)
    names = ["attempt_id", "trial_id", "point_id", "measure", "question", "stop_reason"]
    texts = shown.drop(columns=[*names, "workload_digest", "model_digest"]).to_csv()
    hosts = ["node-7", "corp.example"]
    assert [part for part in GIVEN_AWAY if part in texts and part not in hosts] == []
    assert redacted_trials(shown, redactor) is shown


def test_a_condition_on_a_private_text_holds_for_the_same_points() -> None:
    rows = (FAST | {"workload_data": "/home/ann/x"}, LARGE | {"workload_data": "y"})
    study = Study(trials(*rows))
    content = content_of(study, where="workload_data = '/home/ann/x'")
    shown = redacted(content, Redactor()).frontiers[0].shown
    assert list(shown["workload_data"]) == ["~/x"]

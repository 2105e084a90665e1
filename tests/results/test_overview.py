"""Trials in brief: counted by the attempt that stands for each, named by what differs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dtsweep.results.overview import Overview, overview_of
from dtsweep.results.store import Results

START = datetime(2026, 1, 1, tzinfo=UTC)


def stored(folder: Path, *rows: dict[str, Any]) -> Results:
    results = Results(folder)
    usual = {"role": "trial", "status": "ok", "sync": "ddp", "workers": 1, "repeat": 1, "flags": []}
    for number, row in enumerate(rows, start=1):
        ids = {"attempt_id": f"attempt{number}", "trial_id": f"trial{number}"}
        order = {"row_number": number, "started_at": START + timedelta(seconds=number)}
        results.commit(usual | ids | order | row)
    return results


def seen(folder: Path, *rows: dict[str, Any], last: int = 5) -> Overview:
    return overview_of(stored(folder, *rows), last=last)


def test_a_trial_counts_by_its_newest_ok_attempt_and_a_canary_not_at_all(tmp_path: Path) -> None:
    overview = seen(
        tmp_path,
        {"trial_id": "a", "status": "node_lost", "reason": "gone"},
        {"trial_id": "a"},
        {"trial_id": "b"},
        {"trial_id": "b", "status": "node_lost", "reason": "gone"},
        {"trial_id": "c", "role": "canary"},
        {"trial_id": "d", "status": "skipped", "reason": "impossible"},
    )
    assert overview.statuses == {"ok": 2, "skipped": 1}
    assert overview.failures == []
    assert [row.trial_id for row in overview.last] == ["a", "a", "b", "b"]


def test_failures_have_their_number_and_the_newest_reason(tmp_path: Path) -> None:
    overview = seen(
        tmp_path,
        {"workers": 1, "status": "hang", "reason": "first"},
        {"workers": 2, "status": "nan", "reason": "not finite"},
        {"workers": 4, "status": "hang", "reason": "second"},
        {"workers": 8, "status": "cancelled", "reason": "interrupted"},
        {"workers": 16, "status": "oom_device", "reason": "full"},
    )
    failures = [(f.status, f.trials, f.name, f.reason) for f in overview.failures]
    assert failures == [("hang", 2, "workers=4", "second"), ("nan", 1, "workers=2", "not finite")]


def test_the_last_attempts_come_by_their_number_whatever_the_clock_says(tmp_path: Path) -> None:
    rows = [{"workers": number, "started_at": START - timedelta(days=number)} for number in (1, 2)]
    overview = seen(tmp_path, *rows, {"workers": 3, "latency_s": 0.25, "samples_per_s": 8.0})
    assert [row.name for row in overview.last] == ["workers=1", "workers=2", "workers=3"]
    newest = overview.last[-1]
    assert (newest.latency_s, newest.samples_per_s, newest.cost_usd) == (0.25, 8.0, None)
    assert newest.started_at == (START + timedelta(seconds=3)).timestamp()
    results = Results(tmp_path)
    assert [row.name for row in overview_of(results, last=2).last] == ["workers=2", "workers=3"]
    assert overview_of(results, last=0).last == []


def test_a_point_is_named_by_what_differs_and_by_settings_that_are_not_the_default(
    tmp_path: Path,
) -> None:
    one = {"overlap": True, "micro_batch": 4, "learning_rate": 0.1}
    local = {"sync": "local_sgd", "sync_period": 8, "micro_batch": 4, "learning_rate": 0.1 + 0.2}
    overview = seen(tmp_path, one, local, one | {"repeat": 2})
    assert [row.name for row in overview.last] == [
        "sync=ddp learning_rate=0.1",
        "sync=local_sgd sync_period=8 learning_rate=0.3",
        "sync=ddp learning_rate=0.1 repeat 2",
    ]


def test_a_point_has_the_environment_variables_that_differ(tmp_path: Path) -> None:
    environments = [{"LANG": "C", "MODE": "a"}, {"LANG": "C", "MODE": "b"}, {"LANG": "C"}]
    overview = seen(tmp_path, *[{"environment": json.dumps(own)} for own in environments])
    assert [row.name for row in overview.last] == ["env.MODE=a", "env.MODE=b", "workers=1"]


def test_a_reader_that_keeps_files_sees_what_is_added_and_what_is_merged(tmp_path: Path) -> None:
    writer = stored(tmp_path, {"workers": 1}, {"workers": 2})
    reader = Results(tmp_path, keeps_files=True)
    assert overview_of(reader).statuses == {"ok": 2}
    ids = {"attempt_id": "c", "trial_id": "c", "row_number": 3}
    writer.commit({**ids, "status": "nan", "flags": []})
    assert overview_of(reader).statuses == {"ok": 2, "nan": 1}
    writer.compact()
    assert overview_of(reader).statuses == {"ok": 2, "nan": 1}
    (files,) = reader._files._kept.values()
    assert [name.partition("-")[0] for name in files] == ["compacted"]

"""A report of measured and imported rows names each by what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep.report.content import Content, content_of
from tests.frames import trials
from tests.report.study import canary

NOT_KNOWN = {"environment": None, "overlap": None, "optimizer": None, "backend": None}
IMPORTED = {"harness": "imported", "env_id": "imported:lab", "hosts": None, **NOT_KNOWN}
MEASURED = {"harness": "ray", "env_id": "a1", "hosts": 1, "backend": "gloo", "environment": "{}"}


def row(name: str, step_s: float, kind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"point_id": name, "step_p50_s": step_s, "samples_per_s": 8 / step_s, **kind, **fields}


def mixed(**imported: Any) -> Content:
    rows = [
        row("one", 0.1, MEASURED, session="s1"),
        row("two", 0.2, MEASURED, session="s1", micro_batch=16),
        row("three", 0.3, IMPORTED, **imported),
        row("four", 0.4, IMPORTED, micro_batch=16, **imported),
    ]
    watched = [canary("s1", 0.1, **MEASURED), canary("s1", 0.2, **MEASURED)]
    return content_of(trials(*rows, *watched))


def test_settings_that_imported_rows_lack_are_in_no_label() -> None:
    content = mixed()
    assert content.varying == ["micro_batch"]
    labels = [label for frontier in content.frontiers for label in frontier.labels]
    assert not [label for label in labels if "=" in label]
    assert "overlap" not in content.constants


@pytest.mark.slow
def test_settings_of_rows_that_are_compared_are_in_their_labels() -> None:
    assert mixed(env_id="a1", precision="bf16").varying == ["micro_batch", "precision"]


def test_what_is_not_known_of_an_environment_is_unknown() -> None:
    (doubt,) = [one.text for one in mixed().doubts if one.code == "environments"]
    assert "imported:lab: unknown" in doubt
    assert "nan" not in doubt
    assert "NA" not in doubt
    assert "None" not in doubt


def test_canaries_watch_measured_trials_alone() -> None:
    (drifted,) = [one.numbers for one in mixed().doubts if one.code == "drift"]
    assert (drifted["concerned"], drifted["trials"]) == (2, 2)

"""Importance of axes in a report."""

from __future__ import annotations

import io
import json

from rich.console import Console

from dtsweep import load
from dtsweep.analysis import Study
from dtsweep.report.sections import Importance, importance_of_axes
from tests import frames
from tests.pages import ROOT


def printed(section: Importance) -> str:
    written = io.StringIO()
    section.print(console=Console(file=written, width=80))
    return " ".join(written.getvalue().split())


def test_the_report_names_axes_by_their_shares() -> None:
    study = Study(load(str(ROOT / "notebooks" / "samples" / "campaign")))
    section = importance_of_axes(study)
    assert printed(section).startswith("What matters for the step time micro_batch ")
    assert json.loads(json.dumps(section.as_json()))["importance"][0]["axes"] == "micro_batch"


def test_axes_that_were_varied_together_are_named() -> None:
    rows = [
        {"workers": workers, "micro_batch": 4 * workers, "precision": precision}
        | {"samples_per_s": 100.0 * workers, "overlap": True, "harness": "ray"}
        for workers in (1, 2, 4, 8)
        for precision in ("fp32", "bf16")
    ]
    said = printed(importance_of_axes(Study(frames.trials(*rows))))
    assert "Not identifiable: workers and micro_batch were varied together" in said


def test_a_report_of_few_points_has_no_such_section() -> None:
    section = importance_of_axes(Study(frames.trials({"samples_per_s": 1.0})))
    assert (printed(section), section.as_json()) == ("", {"importance": []})

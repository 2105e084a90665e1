"""The notebook of the frontier, cell by cell, on results of two models and an implausible point."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dtsweep.results.store import Results
from tests.pages import ROOT

SMALL = {"model_digest": "s", "flops_per_sample": 1e6, "workload_layers": 1}
BIG = {"model_digest": "b", "flops_per_sample": 2e6, "workload_layers": 2}
FALSE = {"micro_batch": 8, "implausible": "mfu is 7", "flags": ["implausible"]}
LOCAL = {"semantics": "local", "sync": "local_sgd", "sync_period": 8}
ROWS: tuple[dict[str, Any], ...] = (
    SMALL | {"latency_s": 0.1, "samples_per_s": 40.0},
    SMALL | {"latency_s": 0.15, "samples_per_s": 70.0, "workers": 2},
    SMALL | FALSE | {"latency_s": 0.08, "samples_per_s": 900.0},
    BIG | {"latency_s": 0.3, "samples_per_s": 10.0},
    BIG | {"latency_s": 0.5, "samples_per_s": 5.0, "workers": 2},
    SMALL | LOCAL | {"latency_s": 0.01, "samples_per_s": 5.0},
)


def stored(rows: tuple[dict[str, Any], ...], where: str | Path) -> None:
    usual = {
        **{"status": "ok", "role": "trial", "repeat": 1, "flags": [], "workload": "Gpt"},
        **{"workers": 1, "micro_batch": 4, "accumulation": 1, "sync": "ddp", "hosts": 1},
        **{"semantics": "exact", "env_id": "e"},
    }
    for number, row in enumerate(rows):
        names = {
            name: f"{name}{number}" for name in ("attempt_id", "trial_id", "point_id", "session")
        }
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
        Results(where).commit(
            usual | names | {"started_at": started} | row, workload_types={"layers": int}
        )


@pytest.mark.slow
def test_models_have_lines_of_their_own_and_a_decision_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(ROWS, tmp_path / "r")
    monkeypatch.setenv("DTSWEEP_RESULTS", str(tmp_path / "r"))
    known: dict[str, Any] = {"display": repr}
    figures = []
    for cell in json.loads((ROOT / "notebooks" / "frontier.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), known)
            figures += [known.pop("figure").to_dict()] if "figure" in known else []

    frontier, shares = figures
    lines = {trace["name"]: trace for trace in frontier["data"] if trace.get("showlegend")}
    assert list(lines) == [
        "exact · ddp · workload.layers=1",
        "exact · ddp · workload.layers=2",
        "local · local_sgd · workload.layers=1",
    ]
    small, big, local = lines.values()
    symbols = [line["marker"]["symbol"] for line in lines.values()]
    assert symbols == ["circle", "circle-dot", "diamond"]
    assert small["line"]["dash"] == big["line"]["dash"] != local["line"]["dash"]
    assert small["line"]["color"] == big["line"]["color"] != local["line"]["color"]
    assert small["text"][0] == "ddp workload.layers=1 workers=1 micro_batch=8 (implausible)"
    beaten = [trace for trace in frontier["data"] if trace.get("showlegend") is False]
    named = [text for trace in beaten for text in trace["text"]]
    assert "ddp workload.layers=2 workers=2 micro_batch=4" in named
    assert not shares["data"]

    doubts, first, second = capsys.readouterr().out.split(": For now take ")
    assert "numbers of 1 trial can't all be true" in doubts
    assert first.startswith("ddp workers=2 micro_batch=4: best of 2")
    assert "70.00 samples/s" in first
    assert "Left out: 1 point whose numbers can't be trusted." in first
    assert second.startswith("ddp workers=1 micro_batch=4: best of 2")

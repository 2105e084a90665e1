"""A search on Ray: one session for the points of its world, and the certificate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dtsweep
from dtsweep.page import page_of
from tests.conftest import Command
from tests.linear import sweep_text

pytestmark = pytest.mark.ray


def test_a_search_stays_in_its_session_and_ends_with_a_certificate(
    tmp_path: Path, ray_address: str, dtsweep_command: Command
) -> None:
    steps = 'min_seconds=0, min_steps=5, max_steps=20, exchange="off"'
    text = sweep_text(
        {"micro_batch": [1, 4, 16, 256], "accumulation": [1, 2]},
        measure=f"Measure(half_width=None, {steps})",
        more="search=Search(max_points=7), max_launches=2",
    )
    text = text.replace("import Measure,", "import Measure, Search,")
    (tmp_path / "few.py").write_text(text.replace("Linear()", "Linear(inputs=64, outputs=64)"))
    done = dtsweep_command("run", "few.py", "--address", ray_address, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    frame = dtsweep.load(tmp_path / "results/few", canaries=True)
    first = frame[(frame["repeat"] == 1) & (frame["role"] == "trial")]
    assert 6 <= len(first) <= 7
    assert first["session"].nunique() == 1
    assert frame.loc[frame["session"].isin(first["session"]), "role"].eq("canary").sum() == 2
    # A later launch is one: it has processes of its own.
    later = frame.loc[(frame["repeat"] == 2) & (frame["role"] == "trial"), "session"]
    assert len(later) > 0
    assert not later.isin(first["session"]).any()
    assert "search: 6 points" in done.stderr
    assert f"{len(first)} of 8 points measured" in " ".join(done.stdout.split())
    (record,) = (tmp_path / "results/few/runs").glob("*.json")
    assert json.loads(record.read_text())["certificate"]["measured"] == len(first)
    assert f"{len(first)} of 8 points measured; " in page_of(str(tmp_path / "results/few"))

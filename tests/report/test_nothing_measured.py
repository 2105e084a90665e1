"""Reports of runs that ended before the first trial was measured."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtsweep.cli.decide import print_results
from dtsweep.metrics.rows import task_row
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types
from tests.pages import ROOT


def test_a_question_whose_first_attempt_was_cut_has_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, candidates = read_sweep(ROOT / "sweeps" / "batchsize.py")
    assert sweep.question is not None
    point = candidates[0].point
    row = task_row(sweep, point, task_of(sweep, point)) | {
        "role": "trial",
        "status": "budget",
        "reason": "cut, because the money was spent; the next run measures it again",
        "started_at": datetime(2026, 11, 26, tzinfo=UTC),
    }
    Results(tmp_path / "r").commit(row, workload_types=column_types(sweep.workload))
    print_results(str(tmp_path / "r"), as_json=False, question=sweep.question)
    assert "Frontier" not in capsys.readouterr().out

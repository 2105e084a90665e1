"""Texts that somebody else chose end up as texts in every tool, and inside of the named place."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtsweep.escape import FORMULA, NUMBER
from dtsweep.results.schema import TEXT, TRIALS
from dtsweep.results.store import Results
from tests.trackers.stored import export

PAYLOAD = '=HYPERLINK("http://x","y")</script>\x00\x1b[2J\u202e/../../up\n![](http://x)'

OWN = {
    "semantics": "exact",
    "attempt_id": "a" * 32,
    "status": "ok",
    "role": "trial",
    "harness": "ray",
    "sources": "{}",
    "environment": "{}",
}
"""Columns that dtsweep itself reads back."""

JSON_COLUMNS = {
    *("question", "measure", "command", "machine"),
}
"""Columns that are refused where they are not JSON of their form."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial whose every other text column holds the payload."""
    folder = tmp_path_factory.mktemp("hostile") / "r"
    texts = {
        column.name: PAYLOAD
        for column in TRIALS
        if column.type == TEXT and column.name not in JSON_COLUMNS
    }
    numbers = {"latency_s": 0.5, "repeat": 1, "attempt": 1, "row_number": 1}
    times = {"started_at": datetime(2026, 3, 1, tzinfo=UTC)}
    Results(folder).commit(texts | numbers | times | OWN)
    return folder


@pytest.mark.parametrize(
    "to", [pytest.param("wandb", marks=pytest.mark.slow), "mlflow", "tensorboard", "json", "csv"]
)
def test_texts_of_others_are_exported_into_the_place_alone(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "a" / "b" / "out.x"
    out.parent.mkdir(parents=True)
    export(results, "--to", to, "--out", out.as_uri() if to == "mlflow" else out)
    written = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert written
    assert all(str(file).startswith(str(out.with_suffix(""))) for file in written)


def test_no_cell_of_a_csv_is_a_formula(results: Path, tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    export(results, "--to", "csv", "--out", file)
    for path in tmp_path.iterdir():
        with path.open(encoding="utf-8", newline="") as lines:
            cells = [cell for row in csv.reader(lines) for cell in row]
        formulas = [cell for cell in cells if FORMULA.match(cell) and not cell.startswith("'")]
        assert all(NUMBER.fullmatch(cell) for cell in formulas)
        assert "\x1b" not in path.read_text("utf-8")

"""The notebooks on their samples: they run as they are, and use public names alone."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dtsweep.results.store import Results
from notebooks.sample import make_sample
from tests.pages import ROOT
from tests.report.stored_models import ROWS, stored

FOLDER = ROOT / "notebooks"

NAMES = ["frontier", "scaling", "sync_modes", "time_to_loss", "campaign"]

SAMPLES = sorted(path.name for path in (FOLDER / "samples").iterdir())


def cells_of(name: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return cells


def code_of(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in cells_of(name) if cell["cell_type"] == "code"]


def run_cells(name: str) -> None:
    """Run the code of a notebook in this process, without a kernel."""
    known: dict[str, Any] = {"display": repr}
    for code in code_of(name):
        exec(code, known)


@pytest.fixture(scope="module", params=NAMES)
def ran(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A notebook that has run on its sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("DTSWEEP_RESULTS", raising=False)
        book = nbformat.read(FOLDER / f"{request.param}.ipynb", as_version=4)
        client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(FOLDER)}})
        client.execute()
        yield book


@pytest.mark.slow
def test_a_notebook_runs_on_its_sample_without_warnings(ran: Any) -> None:
    outputs = [output for cell in ran.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
def test_a_notebook_ends_with_a_decision(ran: Any) -> None:
    headings = [cell.source for cell in ran.cells if cell.cell_type == "markdown"]
    assert headings[-1].startswith("## The decision")
    last = ran.cells[-1].outputs
    texts = [
        output.get("text", "") + output.get("data", {}).get("text/html", "") for output in last
    ]
    text = " ".join(texts)
    assert re.search(r"(Take|For now take)", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_without_outputs(name: str) -> None:
    cells = cells_of(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert 10 <= len(cells) <= 18
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_public_names_alone(name: str) -> None:
    for node in ast.walk(ast.parse("\n".join(code_of(name)))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.startswith("dtsweep")]
            assert modules in ([], ["dtsweep"])
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dtsweep"):
            public = importlib.import_module(str(node.module)).__all__
            assert [alias.name for alias in node.names if alias.name not in public] == []


def test_the_samples_are_small() -> None:
    files = [path for path in (FOLDER / "samples").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2**20


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)
    if isinstance(value, list):
        for item in value:
            yield from texts_of(item)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_sound_and_identifies_nobody(name: str) -> None:
    sample = Results(FOLDER / "samples" / name)
    ranks = sample.table("ranks").to_pylist()
    rows = [*sample.table("trials").to_pylist(), *ranks]
    assert sample.quarantined == []
    assert sample.table("steps").num_rows > 0
    assert all(re.fullmatch(r"host \d+", rank["node"]) for rank in ranks)
    assert {rank["pid"] for rank in ranks} | {row["log"] for row in rows} == {None}
    hosts = [run.record.host for run in sample.run_records()]
    assert hosts
    assert all(re.fullmatch(r"host \d+", host) for host in hosts)
    private = re.compile(r"/root|/home|/Users|/tmp|\d+\.\d+\.\d+\.\d+")
    assert [text for text in texts_of(rows) if private.search(text)] == []


def test_a_sample_has_the_rows_of_its_source_without_names(tmp_path: Path) -> None:
    named = {"straggler": "rank 0 on node-7.example", "reason": "see /home/ada/log"}
    stored(tuple({**row, **named, "workers": 2} for row in ROWS), tmp_path / "source")
    (row, *_) = Results(tmp_path / "source").attempts()
    Results(tmp_path / "source").commit(
        {**row, "attempt_id": "new"},
        ranks=[{"rank": 0, "node": "node-7.example", "node_id": "f0", "pid": 17, "log": "a/0.log"}],
        steps={"rank": [0, 0], "step": [0, 1], "step_s": [0.1, 0.2]},
        workload_types={"layers": int},
    )
    sample = Results(tmp_path / "sample")
    make_sample(Results(tmp_path / "source"), sample)
    rows = sample.attempts()
    assert len(rows) == len(ROWS) + 1
    assert {(row["straggler"], row["reason"]) for row in rows} == {(None, None)}
    rates = {row["attempt_id"]: row["samples_per_s"] for row in rows}
    assert rates.pop("new") == ROWS[0]["samples_per_s"]
    assert sorted(rates.values()) == sorted(row["samples_per_s"] for row in ROWS)
    (rank,) = sample.table("ranks").to_pylist()
    named = (rank["node"], rank["node_id"], rank["pid"], rank["log"])
    assert named == ("host 1", "node 1", None, None)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_says_so_where_no_trial_ended_ok(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(({"status": "hang"},), tmp_path / "r")
    monkeypatch.setenv("DTSWEEP_RESULTS", str(tmp_path / "r"))
    run_cells(name)
    assert "No recommendation: no trial ended ok" in capsys.readouterr().out

"""Results, plans and runs in a real kernel of Jupyter: HTML, progress, completion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jupyter_client.manager import start_new_kernel

import dtsweep
from tests.pages import ROOT
from tests.report.stored_models import ROWS, stored

pytestmark = pytest.mark.slow

PAYLOAD = "<script>alert(1)</script>"

SWEEP = """
from dtsweep import Measure, Sweep, workloads
sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=16, sequence=8),
    axes={"workers": [1], "micro_batch": [1, 2, 4]},
    measure=Measure(repeats=1, half_width=None, max_steps=3, max_seconds=0.5, canary=False),
)
"""


class Output(NamedTuple):
    """A message of a cell."""

    kind: str
    content: dict[str, Any]


class Kernel:
    """A kernel that runs cells."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def outputs(self, code: str) -> list[Output]:
        outputs: list[Output] = []

        def note(message: dict[str, Any]) -> None:
            outputs.append(Output(message["msg_type"], message["content"]))

        reply = self._client.execute_interactive(code, timeout=120, output_hook=note)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", []))
        return [output for output in outputs if output.kind not in ("status", "execute_input")]

    def html(self, code: str) -> str:
        (result,) = [out for out in self.outputs(code) if out.kind == "execute_result"]
        return str(result.content["data"]["text/html"])

    def completions(self, text: str) -> list[str]:
        return list(self._client.complete(text, reply=True, timeout=60)["content"]["matches"])


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    straggler = {"straggler": "rank 0 on secret-host"}
    rows = [row | (straggler if row.get("workers") == 2 else {}) for row in ROWS]
    foreign = {"implausible": f"{PAYLOAD} secret-host /home/ada/x"}
    rows = [row | (foreign if "implausible" in row else {}) for row in rows]
    stored(tuple(rows), folder / "r")
    (folder / "small.py").write_text(SWEEP)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=environment)
    try:
        shell = Kernel(client)
        shell.outputs(
            "import dtsweep\n"
            "from dtsweep import analysis, plots, predict, report\n"
            "frame = dtsweep.load('r', canaries=True)\n"
            "study = analysis.Study(frame)\n"
            "content = report.content_of(study)\n"
            "from small import sweep"
        )
        yield shell
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_recommendation_has_its_code_and_a_report_its_tables(kernel: Kernel) -> None:
    html = kernel.html("analysis.recommend(study)[0]")
    assert "For now take ddp workers=2" in html
    assert "To use it: Point(" in html
    html = kernel.html("content")
    for title in ("Frontier", "samples", "How it was measured"):
        assert title in html


def test_foreign_text_is_escaped_without_home_folders(kernel: Kernel) -> None:
    html = kernel.html("content")
    assert "&lt;script&gt;alert(1)" in html
    assert "<script" not in html
    assert "secret-host ~/x" in html
    assert "ada" not in html


def test_a_representation_is_one_short_line(kernel: Kernel) -> None:
    (printed,) = kernel.outputs(
        "for shown in (study, content, *analysis.recommend(study), *content.frontiers):\n"
        "    print(repr(shown))"
    )
    lines = printed.content["text"].splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) < 150
    said = "<Recommendation: single_launch, workers=2 samples_per_s=70, of 2 candidates>"
    assert lines[2] == said


def test_a_run_prints_a_line_for_each_trial(kernel: Kernel) -> None:
    outputs = kernel.outputs(
        "rows = dtsweep.run(sweep, 'measured', in_process=True)\nassert len(rows) == 3"
    )
    assert {output.kind for output in outputs} == {"stream"}
    lines = "".join(output.content["text"] for output in outputs).splitlines()
    assert sum("samples/s" in line for line in lines) == 3


@pytest.mark.parametrize("name", ["dtsweep", "analysis", "plots", "predict", "report"])
def test_tab_offers_what_is_public_and_nothing_else(kernel: Kernel, name: str) -> None:
    module = dtsweep if name == "dtsweep" else getattr(dtsweep, name)
    assert dir(module) == sorted(module.__all__)
    completed = [match.rpartition(".")[2] for match in kernel.completions(f"{name}.")]
    assert sorted(completed) == sorted(module.__all__)


@pytest.mark.parametrize("name", ["dtsweep", "analysis", "plots", "predict", "report"])
def test_what_is_public_is_documented(name: str) -> None:
    page = Path(ROOT / "docs" / "notebooks.md").read_text("utf-8")
    module = dtsweep if name == "dtsweep" else getattr(dtsweep, name)
    prefix = "dtsweep." if name == "dtsweep" else f"{name}."
    assert [public for public in module.__all__ if f"`{prefix}{public}`" not in page] == []

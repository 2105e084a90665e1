"""Reasons of a script that fails: its own words, with its own file and line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dtsweep import Measure, Point, Resources, Sweep, workloads
from dtsweep.metrics.rank_result import RankResult
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.in_process import only_rank
from dtsweep.worker.script import LastLine

TRAIN = """\
import argparse, os, sys, time
import torch
from torch import distributed, nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
options = parser.parse_args()
print("reading", open("data.txt").read())
open("log.txt", "w").write("mine")
distributed.init_process_group("gloo")
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    try:
        model(torch.ones(8, 2)).sum().backward()
        optimizer.step()
        time.sleep(0.001)
    except EXCEPT
FAIL
"""

ENDS = "KeyError: raise"
"""End of a handler that catches nothing."""


def measured(folder: Path, text: str, *arguments: str) -> RankResult:
    """Run a script in this process; its attempt ends in any way."""
    script = folder / "train.py"
    script.write_text(text)
    (folder / "data.txt").write_text("data")
    sweep = Sweep(
        workload=workloads.Script(str(script), arguments=arguments),
        axes={"workers": [1]},
        measure=Measure(
            half_width=None, warmup_steps=1, min_steps=5, min_seconds=0, max_seconds=30
        ),
        resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
    )
    with only_rank(sweep) as context:
        task = task_of(sweep, Point(workload=sweep.workload, sync=AS_WRITTEN))
        return run_attempt(context, task)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise ValueError('bad width')", "ValueError: bad width (train.py:1)"),
        ("import helper; helper.fail()", "KeyError: 'rows' (helper.py:2)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (tr"),
        ("import broken", "SyntaxError: '(' was never closed (broken.py:2)"),
        ("x = (", "SyntaxError: '(' was never closed (train.py:1)"),
        ("import sys; sys.exit(3)", "the script ended with exit code 3 (train.py:1)"),
        (
            "import sys; print('no\\npaper', file=sys.stderr); sys.exit(3)",
            "the script ended with exit code 3; its last line on stderr: paper (train.py:1)",
        ),
        ("exit('no data')", "the script ended with exit code 1: no data (train.py:1)"),
        ("import os; os._exit(5)", "the script ended its process by os._exit(5) (train.py:1)"),
        ("pass", "the training loop ended after 0 optimizer steps, before it was measured: 7 mo"),
    ],
)
def test_a_failure_has_the_scripts_file_and_line(line: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def fail():\n    raise KeyError('rows')\n")
    (tmp_path / "broken.py").write_text("\nx = (\n")
    result = measured(tmp_path, line)
    assert result.status == "user_error"
    assert str(result.reason).startswith(reason)
    assert (result.left_state, result.needs_new_process) == ((), False)


def test_the_log_has_the_scripts_output_and_its_traceback_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TRAIN.replace("EXCEPT", ENDS).replace("FAIL", "raise ValueError('late')")
    assert measured(tmp_path, text.replace("100", "2")).reason == "ValueError: late (train.py:19)"
    said = capsys.readouterr()
    assert "reading data\n" in said.out
    traceback = said.err.partition("Traceback (most recent call last):\n")[2].splitlines()
    assert traceback[0] == f'  File "{tmp_path}/train.py", line 19, in <module>'
    assert traceback[-1] == "ValueError: late"
    assert "dtsweep/worker" not in "".join(traceback)


def test_an_argument_that_its_parser_refuses_is_named(tmp_path: Path) -> None:
    result = measured(tmp_path, TRAIN.replace("EXCEPT", ENDS), "--batch-sise", "8")
    assert result.status == "user_error"
    assert result.reason == "train.py: error: unrecognized arguments: --batch-sise 8"


def test_steps_of_a_loop_that_ends_are_counted(tmp_path: Path) -> None:
    text = TRAIN.replace("EXCEPT", ENDS).replace("100", "3").replace("FAIL", "")
    reason = str(measured(tmp_path, text).reason)
    assert reason.startswith("the training loop ended after 3 optimizer steps")
    assert "4 more are needed" in reason
    assert reason.endswith("give it more epochs or data")


@pytest.mark.parametrize("handler", ["BaseException: continue", "(OSError, BaseException): pass"])
def test_a_loop_that_catches_every_exception_is_measured(handler: str, tmp_path: Path) -> None:
    text = TRAIN.replace("EXCEPT", handler).replace("range(100)", "iter(int, 1)")
    result = measured(tmp_path, text.replace("FAIL", ""))
    assert (result.status, result.reason) == ("ok", None)
    # It has run in a folder of its own.
    assert not (tmp_path / "log.txt").exists()


def test_a_progress_bar_leaves_no_growing_line() -> None:
    stream = LastLine(io.StringIO())
    for step in range(100):
        stream.write(f"\rstep {step}")
    assert stream.line == "step 99"

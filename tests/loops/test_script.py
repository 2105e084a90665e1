"""A user's script as the main program of a process: what it sees, and how it fails."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dtsweep import Measure, workloads
from dtsweep.loops.script import LastLine, ScriptExitError, run_script, script_here
from tests.loops.trials import Ended, run_trial
from tests.ranks import spawn

MEASURE = Measure(half_width=None, warmup_steps=1, min_steps=5, min_seconds=0, max_seconds=30)

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


Run = Callable[..., Ended]


@pytest.fixture
def measured(tmp_path: Path) -> Run:
    """Run a script, which may end in any way."""

    def run(text: str, *arguments: str) -> Ended:
        script = tmp_path / "train.py"
        script.write_text(text)
        (tmp_path / "data.txt").write_text("data")
        workload = workloads.Script(str(script), arguments=arguments)
        return run_trial(workload, MEASURE, folder=tmp_path)

    return run


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise ValueError('bad width')", "ValueError: bad width (train.py:1)"),
        ("import helper; helper.fail()", "KeyError: 'rows' (helper.py:2)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (tr"),
        ("import broken", "SyntaxError: '(' was never closed (broken.py:2)"),
        (
            "import sys; print('no\\npaper', file=sys.stderr); sys.exit(3)",
            "the script ended with exit code 3; its last line on stderr: paper (train.py:1)",
        ),
        ("exit('no data')", "the script ended with exit code 1: no data (train.py:1)"),
        ("pass", "the training loop ended after 0 optimizer steps, before it was measured: 7 mo"),
    ],
)
def test_a_failure_has_the_scripts_file_and_line(
    line: str, reason: str, measured: Run, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("def fail():\n    raise KeyError('rows')\n")
    (tmp_path / "broken.py").write_text("\nx = (\n")
    (result,) = measured(line).results
    assert result.status == "user_error"
    assert str(result.reason).startswith(reason)
    assert (result.left_state, result.needs_new_process) == ((), False)


def test_the_log_has_the_scripts_output_and_its_traceback_alone(
    measured: Run, tmp_path: Path
) -> None:
    text = TRAIN.replace("EXCEPT", ENDS).replace("FAIL", "raise ValueError('late')")
    ended = measured(text.replace("100", "2"))
    assert ended.results[0].reason == "ValueError: late (train.py:19)"
    (said,) = ended.said
    assert said.startswith("reading data\n")
    traceback = said.partition("Traceback (most recent call last):\n")[2].splitlines()
    assert traceback[0] == f'  File "{tmp_path}/train.py", line 19, in <module>'
    assert traceback[-1] == "ValueError: late"
    assert "dtsweep/worker" not in "".join(traceback)


def test_an_argument_that_its_parser_refuses_is_named(measured: Run) -> None:
    (result,) = measured(TRAIN.replace("EXCEPT", ENDS), "--batch-sise", "8").results
    assert result.status == "user_error"
    assert result.reason == "train.py: error: unrecognized arguments: --batch-sise 8"


@pytest.mark.parametrize("handler", ["BaseException: continue", "(OSError, BaseException): pass"])
def test_a_loop_that_catches_every_exception_is_measured(
    handler: str, measured: Run, tmp_path: Path
) -> None:
    text = TRAIN.replace("EXCEPT", handler).replace("range(100)", "iter(int, 1)")
    (result,) = measured(text.replace("FAIL", "")).results
    assert (result.status, result.reason) == ("ok", None)
    # It has run in a folder of its own.
    assert not (tmp_path / "log.txt").exists()


def test_a_progress_bar_leaves_no_growing_line() -> None:
    stream = LastLine(io.StringIO())
    for step in range(100):
        stream.write(f"\rstep {step}")
    assert stream.line == "step 99"


ENDING = """
import atexit, multiprocessing, time

def wait():
    time.sleep(3600)

atexit.register(lambda: print("at the end:", open("data.txt").read()))
multiprocessing.get_context("fork").Process(target=wait).start()
"""


def test_functions_for_the_end_of_the_process_run_in_the_scripts_folder(measured: Run) -> None:
    ended = measured(ENDING + TRAIN.replace("EXCEPT", ENDS).replace("FAIL", ""))
    assert ended.results[0].status == "ok"
    # Nothing waits for the process that it has left.
    assert ended.said[0].endswith("at the end: data\n")


# Without an attempt

SCRIPT = """
import argparse, sys
from pathlib import Path

import helper_of_the_script
# Folders without __init__.py.
import space_of_the_script.inner.values

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--amp", action="store_true")
    options = parser.parse_args()
    out = Path(sys.argv[0]).parent / "out.txt"
    out.write_text(f"{options.batch_size} {options.amp} {helper_of_the_script.COUNT}")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_the_script.py").write_text("COUNT = 3\n")
    inner = tmp_path / "space_of_the_script" / "inner"
    inner.mkdir(parents=True)
    (inner / "values.py").write_text("")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run_alone(_: int, script: Path, arguments: list[str]) -> None:
    run_script(script, arguments)


def test_a_script_sees_its_arguments_and_its_folder(script: Path) -> None:
    spawn(run_alone, args=(script, ["--batch-size", "8", "--amp"]), nprocs=1)
    assert (script.parent / "out.txt").read_text() == "8 True 3"


def exit_with(_: int, script: Path) -> None:
    run_script(script, ["0"])
    with pytest.raises(ScriptExitError, match="exit code 3"):
        run_script(script, ["3"])
    script.write_text("import os; os.environ['SEEN'] = 'yes'")
    run_script(script, [])
    assert os.environ["SEEN"] == "yes"


def test_an_exit_code_is_an_error_and_none_or_0_is_not(script: Path) -> None:
    script.write_text("import sys; sys.exit(int(sys.argv[1]))")
    spawn(exit_with, args=(script,), nprocs=1)


def test_a_node_without_the_script_or_with_another_one_runs_what_ray_sent(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "py_modules_files" / "_ray_pkg_1" / "train.py"
    sent.parent.mkdir(parents=True)
    shutil.copy(script, sent)
    monkeypatch.syspath_prepend(str(sent.parent))
    assert script_here(script) == script
    script.write_text("pass")
    assert script_here(script) == sent
    script.unlink()
    assert script_here(script) == sent
    sent.unlink()
    with pytest.raises(FileNotFoundError, match=r"train.py is not on this node"):
        script_here(script)

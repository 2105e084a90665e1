"""A user's script in this process: what it sees, that nothing of it stays, and how it fails."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dtsweep import Measure, Point, Resources, Sweep, workloads
from dtsweep.loops.script import LastLine, ScriptExitError, run_script, script_here
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.session.in_process import only_rank
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import RankContext

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


def task_for(folder: Path, text: str, *arguments: str) -> tuple[Sweep, Task]:
    """A sweep of a script with this text, and its one task."""
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
    return sweep, task_of(sweep, Point(workload=sweep.workload, sync=AS_WRITTEN))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankContext]:
    """The only rank, which runs one script after another."""
    sweep, _ = task_for(tmp_path_factory.mktemp("any"), "")
    with only_rank(sweep) as rank:
        yield rank


Run = Callable[..., RankResult]


@pytest.fixture
def measured(context: RankContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a script in this process; its attempt ends in any way."""

    def run(text: str, *arguments: str) -> RankResult:
        sweep, task = task_for(tmp_path, text, *arguments)
        return run_attempt(replace(context, workload=sweep.workload), task)

    monkeypatch.chdir(tmp_path)
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
        ("import os; os._exit(5)", "the script ended its process by os._exit(5) (train.py:1)"),
        ("pass", "the training loop ended after 0 optimizer steps, before it was measured: 7 mo"),
    ],
)
def test_a_failure_has_the_scripts_file_and_line(
    line: str, reason: str, measured: Run, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("def fail():\n    raise KeyError('rows')\n")
    (tmp_path / "broken.py").write_text("\nx = (\n")
    result = measured(line)
    assert result.status == "user_error"
    assert str(result.reason).startswith(reason)
    assert (result.left_state, result.needs_new_process) == ((), False)


def test_the_log_has_the_scripts_output_and_its_traceback_alone(
    measured: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TRAIN.replace("EXCEPT", ENDS).replace("FAIL", "raise ValueError('late')")
    assert measured(text.replace("100", "2")).reason == "ValueError: late (train.py:19)"
    said = capsys.readouterr()
    assert "reading data\n" in said.out
    traceback = said.err.partition("Traceback (most recent call last):\n")[2].splitlines()
    assert traceback[0] == f'  File "{tmp_path}/train.py", line 19, in <module>'
    assert traceback[-1] == "ValueError: late"
    assert "dtsweep/worker" not in "".join(traceback)


def test_an_argument_that_its_parser_refuses_is_named(measured: Run) -> None:
    result = measured(TRAIN.replace("EXCEPT", ENDS), "--batch-sise", "8")
    assert result.status == "user_error"
    assert result.reason == "train.py: error: unrecognized arguments: --batch-sise 8"


@pytest.mark.parametrize("handler", ["BaseException: continue", "(OSError, BaseException): pass"])
def test_a_loop_that_catches_every_exception_is_measured(
    handler: str, measured: Run, tmp_path: Path
) -> None:
    text = TRAIN.replace("EXCEPT", handler).replace("range(100)", "iter(int, 1)")
    result = measured(text.replace("FAIL", ""))
    assert (result.status, result.reason) == ("ok", None)
    # It has run in a folder of its own.
    assert not (tmp_path / "log.txt").exists()


def test_a_progress_bar_leaves_no_growing_line() -> None:
    stream = LastLine(io.StringIO())
    for step in range(100):
        stream.write(f"\rstep {step}")
    assert stream.line == "step 99"


# Without an attempt

SCRIPT = """
import argparse, atexit, json, sys
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
    helper_of_the_script.COUNT += 1
    out.write_text(f"{options.batch_size} {options.amp} {helper_of_the_script.COUNT}")
    atexit.register(lambda: out.write_text(out.read_text() + " ended"))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_the_script.py").write_text("COUNT = 0\n")
    inner = tmp_path / "space_of_the_script" / "inner"
    inner.mkdir(parents=True)
    (inner / "values.py").write_text("")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_sees_its_arguments_and_its_folder_and_leaves_nothing(script: Path) -> None:
    before = (list(sys.argv), list(sys.path), set(sys.modules), atexit.register)
    for batch in (8, 16):
        run_script(script, ["--batch-size", str(batch), "--amp"])
        # Its modules are executed again.
        assert (script.parent / "out.txt").read_text() == f"{batch} True 1 ended"
    assert before[0] == sys.argv
    assert before[1] == sys.path
    assert not [name for name in sys.modules if "of_the_script" in name]
    assert before[3] is atexit.register


def test_an_exit_code_is_an_error_and_none_or_0_is_not(script: Path) -> None:
    script.write_text("import sys; sys.exit(int(sys.argv[1]))")
    run_script(script, ["0"])
    with pytest.raises(ScriptExitError, match="exit code 3"):
        run_script(script, ["3"])


def test_the_end_of_a_child_process_is_its_own(script: Path) -> None:
    script.write_text(
        "import os\nif (pid := os.fork()) == 0:\n    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
    )
    end_process = os._exit
    run_script(script, [])
    assert os._exit is end_process


def test_stderr_is_given_back_and_has_been_the_streams_own(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stderr = sys.stderr
    script.write_text("import sys; sys.stderr.writelines(['a', 'b\\n']); sys.stderr.flush()")
    run_script(script, [])
    assert sys.stderr is stderr
    assert capsys.readouterr().err == "ab\n"


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

"""A user's script in this process: what it sees, and that nothing of it stays."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from pathlib import Path

import pytest

from dtsweep.worker.script import ScriptExitError, run_script, script_here

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

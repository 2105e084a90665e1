"""A user's script in this process: what it sees, and that nothing of it stays."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

import pytest

from dtsweep.worker.script import run_script
from dtsweep.worker.script_exit import ScriptExitError

SCRIPT = """
import argparse, atexit, json, sys
from pathlib import Path

import helper_of_the_script

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
    assert "helper_of_the_script" not in sys.modules
    assert before[3] is atexit.register


def test_an_exit_code_is_an_error_and_none_or_0_is_not(script: Path) -> None:
    script.write_text("import sys; sys.exit(int(sys.argv[1]))")
    run_script(script, ["0"])
    with pytest.raises(ScriptExitError, match="exit code 3"):
        run_script(script, ["3"])

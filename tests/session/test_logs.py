"""Log files of ranks: who may read them, how long they stay, how large they get."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

import pytest

from dtsweep import Sweep, SweepError
from dtsweep.session.logs import (
    KEPT_BYTES,
    KEPT_S,
    LOG_BYTES,
    RankLog,
    open_log,
    sweep_away_dead,
    trial_in,
)
from dtsweep.session.worker_loop import begin_trial
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import HEADING, Task, task_of
from tests.outcomes import Tokens
from tests.processes import python_begun, wait_for


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_log_is_its_users_alone_even_where_the_folder_was_open_before(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir(mode=0o755)
    path, file = open_log("s1", 0, root=root)
    with file:
        assert [mode_of(each) for each in (root, path.parent, path)] == [0o700, 0o700, 0o600]


def test_no_link_is_followed_to_where_another_user_wants_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "logs").symlink_to(elsewhere)
    message = r"is not a folder of this user.*; remove it, or set TMPDIR to a folder of yours"
    with pytest.raises(SweepError, match=message):
        open_log("s1", 0, root=tmp_path / "logs")
    root = tmp_path / "own"
    (root / "s1").mkdir(parents=True)
    (root / "s1" / "0.log").symlink_to(elsewhere / "target")
    with pytest.raises(OSError, match="symbolic links"):
        open_log("s1", 0, root=root)
    assert not list(elsewhere.iterdir())
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    with pytest.raises(SweepError, match="is not a folder of this user"):
        open_log("s2", 0, root=root)


OPEN = """
import sys
from pathlib import Path
from dtsweep.session.logs import open_log
path, file = open_log(sys.argv[2], 0, root=Path(sys.argv[1]))
file.write(b"said")
print("open", flush=True)
sys.stdin.read()
"""


def test_the_logs_of_a_dead_session_are_swept_away_and_those_of_a_living_process_stay(
    tmp_path: Path,
) -> None:
    root = tmp_path / "logs"
    living, dead = (python_begun(OPEN, root, name) for name in ("living", "dead"))
    for rank in (living, dead):
        assert rank.stdout is not None
        assert rank.stdout.readline() == "open\n"
    dead.kill()
    dead.communicate()
    sweep_away_dead(root)
    assert (root / "dead" / "0.log").read_bytes() == b"said"
    sweep_away_dead(root, now=time.time() + KEPT_S + 60)
    assert [folder.name for folder in root.iterdir()] == ["living"]
    living.communicate()
    sweep_away_dead(root, now=time.time() + KEPT_S + 60)
    assert list(root.iterdir()) == []


def numbered(count: int) -> bytes:
    return b"".join(b"line %07d\n" % number for number in range(count))


def test_of_a_trial_with_much_output_the_first_and_the_last_stay_with_the_bytes_left_out(
    tmp_path: Path,
) -> None:
    """The log is cut twice in the trial, and once more when it is read."""
    path, file = open_log("s1", 0, root=tmp_path / "logs")
    log = RankLog(path, most_bytes=4 * KEPT_BYTES)
    with file:
        file.write(b"--- dtsweep: one\nof the first\n")
        log.begin_trial()
        output = b"--- dtsweep: two\n" + numbered(90_000) + b"Traceback\n"
        for start in range(0, len(output), 400_000):
            file.write(output[start : start + 400_000])
            if path.stat().st_size > 4 * KEPT_BYTES:
                log.cut()
                assert path.stat().st_size < 3 * KEPT_BYTES
    shown = trial_in(path, "--- dtsweep: two")
    first, left_out, last = re.split(r"dtsweep: … ([0-9,]+) bytes left out …\n", shown)
    assert output.startswith(first.encode())
    assert output.endswith(last.encode())
    assert all(0.9 * KEPT_BYTES < len(part) <= KEPT_BYTES for part in (first, last))
    assert len(first) + int(left_out.replace(",", "")) + len(last) == len(output)
    assert path.read_bytes().startswith(b"--- dtsweep: one\nof the first\n--- dtsweep: two\n")


def test_a_flood_of_one_trial_does_not_touch_the_output_of_another(tmp_path: Path) -> None:
    path, file = open_log("s1", 0, root=tmp_path / "logs")
    log = RankLog(path)
    with file:
        file.write(b"--- dtsweep: one\nValueError: of the first\n")
        log.begin_trial()
        file.write(b"--- dtsweep: flood\n" + numbered(LOG_BYTES // 10))
        log.begin_trial()
        file.write(b"--- dtsweep: three\nof the third\n")
    assert path.stat().st_size < 3 * KEPT_BYTES
    assert trial_in(path, "--- dtsweep: three") == "--- dtsweep: three\nof the third\n"
    assert "ValueError: of the first" in path.read_text()


def test_a_log_of_many_trials_has_no_more_than_its_limit_before_the_next(tmp_path: Path) -> None:
    path, file = open_log("s1", 0, root=tmp_path / "logs")
    log = RankLog(path)
    with file:
        for _ in range(80):
            log.begin_trial()
            assert path.stat().st_size <= LOG_BYTES
            file.write(numbered(8_000))


def test_a_line_that_is_cut_is_left_out_whole_as_it_may_hold_a_password(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"begin\n" + b"hunter2 " * 2**15 + b"\nthe end\n")
    shown = trial_in(tmp_path / "0.log", "begin")
    assert shown == f"begin\ndtsweep: … {2**18 + 1:,} bytes left out …\nthe end\n"
    # Bytes that are no text are kept as escapes.
    (tmp_path / "0.log").write_bytes(b"caf\xe9\n")
    assert trial_in(tmp_path / "0.log", "--- dtsweep: lost") == "caf\\xe9\n"


def test_a_log_that_never_ends_is_cut_within_the_trial_and_goes_on(tmp_path: Path) -> None:
    path, file = open_log("s1", 0, root=tmp_path / "logs")
    watch = RankLog(path, most_bytes=4 * KEPT_BYTES).keep_bounded(look_s=0.01)
    with file:
        file.write(numbered(80_000))
        wait_for(lambda: path.stat().st_size <= 3 * KEPT_BYTES)
        file.write(b"the end")
        assert path.stat().st_size < 3 * KEPT_BYTES
        assert path.read_bytes().endswith(b"the end")
    path.unlink()
    watch.join(60)
    assert not watch.is_alive()


# The heading of a trial


def task(**point: object) -> Task:
    of = Point(workload=Tokens(words=("two\nlines",)), **point)
    return task_of(Sweep(workload=Tokens(), axes={}), of, attempt=2)


def test_a_trial_begins_with_one_line_that_names_it_and_its_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.log").write_text("of the trial before\n")
    given = task(workers=2, sync="local_sgd", environment={"A": "1"})
    begin_trial(RankLog(tmp_path / "0.log"), given)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"{HEADING}trial {given.trial_id} attempt 2: workers=2 micro_batch=32 ")
    assert " sync=local_sgd sync_period=8 " in line
    assert line.endswith(" env.A=1 workload.width=8 workload.words=('two\\nlines',)")
    assert (tmp_path / "0.log").read_text() == "of the trial before\n"
    # A log that was cleaned away costs no trial.
    begin_trial(RankLog(tmp_path / "gone.log"), task())
    assert capfd.readouterr().err.startswith(HEADING)

"""Log files of ranks: who may read them, how long they stay, how large they get."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtsweep import SweepError
from dtsweep.session.logs import KEPT_S, keep_bounded, open_log, sweep_away_dead


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_log_is_its_users_alone_even_where_the_folder_was_open_before(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir(mode=0o755)
    path, file = open_log("s1", 0, root=root)
    with file:
        assert [mode_of(each) for each in (root, path.parent, path)] == [0o700, 0o700, 0o600]


def test_no_link_is_followed_to_where_another_user_wants_the_logs(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "logs").symlink_to(elsewhere)
    with pytest.raises(SweepError, match=r"is not a folder of this user.*; remove it"):
        open_log("s1", 0, root=tmp_path / "logs")
    root = tmp_path / "own"
    (root / "s1").mkdir(parents=True)
    (root / "s1" / "0.log").symlink_to(elsewhere / "target")
    with pytest.raises(OSError, match="symbolic links"):
        open_log("s1", 0, root=root)
    assert not list(elsewhere.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir()
    os.chown(root, 65534, 65534)
    with pytest.raises(SweepError, match="is not a folder of this user"):
        open_log("s1", 0, root=root)


def test_the_logs_of_a_dead_session_are_swept_away_and_those_of_a_living_process_stay(
    tmp_path: Path,
) -> None:
    root = tmp_path / "logs"
    code = (
        "import sys; from pathlib import Path; from dtsweep.session.logs import open_log\n"
        "path, file = open_log(sys.argv[2], 0, root=Path(sys.argv[1])); file.write(b'said')\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, root, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("living", "dead")
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "open\n"
    ranks[1].kill()
    ranks[1].wait()
    sweep_away_dead(root)
    assert (root / "dead" / "0.log").read_bytes() == b"said"
    sweep_away_dead(root, now=time.time() + KEPT_S + 60)
    assert [folder.name for folder in root.iterdir()] == ["living"]
    ranks[0].communicate()
    for rank in ranks:
        assert rank.stdin is not None
        assert rank.stdout is not None
        rank.stdin.close()
        rank.stdout.close()
    sweep_away_dead(root, now=time.time() + KEPT_S + 60)
    assert list(root.iterdir()) == []


def test_a_log_that_never_ends_is_cut_within_the_trial_and_goes_on(tmp_path: Path) -> None:
    path, file = open_log("s1", 0, root=tmp_path / "logs")
    watch = keep_bounded(path, most_bytes=4096, look_s=0.01)
    with file:
        file.write(b"x" * 5000)
        deadline = time.monotonic() + 10
        while path.stat().st_size and time.monotonic() < deadline:
            watch.join(0.01)
        file.write(b"the end")
        assert path.read_bytes() == b"the end"
    path.unlink()
    watch.join(10)
    assert not watch.is_alive()

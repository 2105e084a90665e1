"""One run at a time on a place of results: refused, given back, taken over."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dtsweep.errors import SweepError
from dtsweep.results import lease
from dtsweep.results.lease import FOLDER, holder, leased
from dtsweep.results.storage import Storage, StoredFile
from tests.processes import python_begun, wait_for


def quiet(_: str) -> None:
    """Take no notice of a line."""


def lease_of(**fields: Any) -> bytes:
    owner = {"host": "elsewhere", "pid": 1, "process": "other boot", "started_at": "2026-01-01"}
    return json.dumps(owner | fields).encode()


def test_a_second_run_is_refused_by_the_name_of_the_first_and_goes_on_after_it(
    tmp_path: Path,
) -> None:
    place = Storage(tmp_path)
    with leased(place, quiet, run_id="a"):
        said = f"is in use: a run on {socket.gethostname()} \\(process {os.getpid()}, since "
        with pytest.raises(SweepError, match=said), leased(Storage(tmp_path), quiet):
            pass
        run = holder(place)
        assert run is not None
        assert (run.host, run.pid, run.run_id) == (socket.gethostname(), os.getpid(), "a")
    assert holder(place) is None
    assert list((tmp_path / FOLDER).iterdir()) == []
    with leased(place, quiet):
        pass


HOLD = """
import sys, time
from dtsweep.results.lease import leased
from dtsweep.results.storage import Storage
with leased(Storage(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lease_of_a_killed_run_on_this_machine_is_taken_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, place = python_begun(HOLD, tmp_path), Storage(tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    said = rf"\(process {process.pid}, "
    with pytest.raises(SweepError, match=said), leased(place, quiet):
        pass
    # Where the kernel hides it, it lives as long as its id exists.
    read = lease._process_of
    with monkeypatch.context() as patched:
        patched.setattr(lease, "_process_of", lambda pid: "" if pid == process.pid else read(pid))
        assert holder(place) is not None
        process.kill()
        process.wait()
        assert holder(place) is None
    process.stdout.close()
    lines: list[str] = []
    with leased(place, lines.append):
        assert len(list((tmp_path / FOLDER).iterdir())) == 1
    assert len(lines) == 1
    assert "from a run that ended without a word" in lines[0]


def test_a_take_that_is_interrupted_leaves_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Storage, "ages", interrupt)
        with pytest.raises(KeyboardInterrupt), leased(Storage(tmp_path), quiet):
            pass
    assert list((tmp_path / FOLDER).iterdir()) == []
    with leased(Storage(tmp_path), quiet):
        pass


def test_a_sign_of_life_that_comes_too_late_leaves_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_JOINED_S", 0.0)
    write, is_beating, may_write = Storage.write, threading.Event(), threading.Event()

    def late(storage: Storage, file: StoredFile) -> None:
        if threading.current_thread().name == "dtsweep-lease":
            is_beating.set()
            may_write.wait()
        write(storage, file)

    monkeypatch.setattr(Storage, "write", late)
    with leased(Storage(tmp_path), quiet, beat_s=0.01):
        is_beating.wait()
    may_write.set()
    for thread in threading.enumerate():
        if thread.name == "dtsweep-lease":
            thread.join()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_elsewhere_the_age_of_the_last_sign_of_life_decides(tmp_path: Path) -> None:
    place = Storage(tmp_path)
    place.write(StoredFile(FOLDER, "other.json", lease_of()))
    with pytest.raises(SweepError, match="a run on elsewhere"), leased(place, quiet, stale_s=60):
        pass
    old = time.time() - 61
    os.utime(tmp_path / FOLDER / "other.json", (old, old))
    with leased(place, quiet, stale_s=60):
        assert not (tmp_path / FOLDER / "other.json").exists()


def test_a_live_run_shows_that_it_lives_and_says_so_when_its_lease_is_gone(tmp_path: Path) -> None:
    lines: list[str] = []
    with leased(Storage(tmp_path), lines.append, beat_s=0.05):
        (file,) = (tmp_path / FOLDER).iterdir()
        os.utime(file, (1, 1))
        wait_for(lambda: file.stat().st_mtime >= 2)
        file.unlink()
        wait_for(lambda: lines)
    assert lines[0].startswith("another run has taken ")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"host": 1}', lease_of(pid="x")])
def test_what_is_no_lease_is_in_nobodys_way(tmp_path: Path, content: bytes) -> None:
    place = Storage(tmp_path)
    place.write(StoredFile(FOLDER, "other.json", content))
    with leased(place, quiet):
        pass


def test_of_runs_that_start_at_once_one_holds_the_lease(tmp_path: Path) -> None:
    held, refused = [], []
    start = threading.Barrier(4)
    end = threading.Event()

    def hold() -> None:
        start.wait()
        try:
            with leased(Storage(tmp_path), quiet):
                held.append(1)
                end.wait(60)
        except SweepError:
            refused.append(1)

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(held) + len(refused) == 4)
    assert len(held) == 1
    end.set()
    for thread in threads:
        thread.join()

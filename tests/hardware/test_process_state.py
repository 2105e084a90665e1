"""State of a process after an attempt: restored, named where it had changed, or reported."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dtsweep.hardware import process_state
from dtsweep.hardware.process_state import LeftState, ProcessState


def move_to_a_removed_folder() -> None:
    folder = Path("gone").absolute()
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


CHANGES: dict[str, Callable[[], Any]] = {
    "environment variables (DTSWEEP_A)": lambda: os.environ.update(DTSWEEP_A="1"),
    "environment variables (HOME)": lambda: os.environ.pop("HOME"),
    "working directory": move_to_a_removed_folder,
    "sys.path": lambda: sys.path.insert(0, "/nowhere"),
    "sys.stdout": lambda: setattr(sys, "stdout", sys.__stderr__),
}
CPUS = os.sched_getaffinity(0)
if len(CPUS) > 1:
    CHANGES["CPU affinity"] = lambda: os.sched_setaffinity(0, {min(CPUS)})


def snapshot() -> list[Any]:
    return [
        dict(os.environ),
        Path.cwd(),
        list(sys.path),
        os.sched_getaffinity(0),
        sys.stdout,
    ]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_undone_and_named(what: str) -> None:
    before, state = snapshot(), ProcessState()
    CHANGES[what]()
    assert state.restore() == LeftState(restored=(what,))
    assert snapshot() == before


def test_without_a_change_nothing_is_named_and_no_descriptor_stays_open() -> None:
    descriptors = psutil.Process().num_fds()
    for _ in range(3):
        assert ProcessState().restore() == LeftState()
    assert psutil.Process().num_fds() == descriptors


def test_a_child_process_is_ended_with_its_own_children() -> None:
    before = psutil.Process().children(recursive=True)
    state = ProcessState()
    child = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"])
    (said,) = state.restore().restored
    assert said == f"child process {child.pid} (sh)"
    assert psutil.Process().children(recursive=True) == before


def test_in_a_shared_process_children_of_other_threads_are_left_alone() -> None:
    state = ProcessState(is_shared=True)
    own = subprocess.Popen(["sleep", "600"])
    others: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
    done = threading.Event()

    def start() -> None:
        others.put(subprocess.Popen(["sleep", "600"]))
        done.wait()  # the kernel gives children of an ended thread to another one

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    other = others.get(timeout=60)
    try:
        assert state.restore().restored == (f"child process {own.pid} (sleep)",)
        assert other.poll() is None
    finally:
        done.set()
        thread.join()
        for child in (own, other):
            child.kill()
            child.wait()


def test_a_child_that_can_not_be_ended_is_left_and_costs_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    state = ProcessState()
    child = subprocess.Popen(["sleep", "600"])
    with monkeypatch.context() as context:
        context.setattr(psutil.Process, "kill", refuse)
        left = state.restore()
    assert left.remaining == (f"child process {child.pid} (sleep)",)
    child.kill()
    child.wait()


def test_a_thread_that_goes_on_can_not_be_undone_and_one_that_ends_is_no_change() -> None:
    state, stop = ProcessState(), threading.Event()
    threads = [
        threading.Thread(target=stop.wait, name="goes on", daemon=True),
        threading.Thread(target=lambda: None, name="ends"),
    ]
    for thread in threads:
        thread.start()
    assert state.restore() == LeftState(remaining=("thread goes on",))
    # To the next attempt it is no news.
    assert ProcessState().restore() == LeftState()
    stop.set()


def test_what_ends_by_itself_is_waited_for_and_is_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_state, "_END_S", 60)
    thread = threading.Thread(target=lambda: None)
    starter = threading.Timer(0.1, thread.start)
    starter.start()
    state = ProcessState()
    child = subprocess.Popen(["sleep", "0.1"])
    # As `start` does before the thread runs.
    threading._limbo[thread] = thread  # type: ignore[attr-defined]  # missing in the stub
    assert state.restore() == LeftState()
    starter.join()
    thread.join()
    child.wait()

"""Folders of dead runs are removed with their processes; those of others and of live runs stay."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dtsweep.cluster import run_folders
from dtsweep.cluster.run_folders import (
    FOLDER_VARIABLE,
    LOCK,
    RAY_PREFIX,
    TRAIN_PREFIX,
    remove_left_folders,
    run_folder,
)

DRIVER = """
import subprocess, sys, time
from dtsweep.cluster.run_folders import FOLDER_VARIABLE, RAY_PREFIX, run_folder

with run_folder(RAY_PREFIX, parent=sys.argv[1]) as folder:
    asleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    its_own = {FOLDER_VARIABLE: str(folder)}
    agent = subprocess.Popen(asleep, env=its_own, stdout=subprocess.DEVNULL)
    print(folder, agent.pid, flush=True)
    time.sleep(600)
"""
"""A run with a process of its private Ray that outlives it."""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that is looked through."""
    monkeypatch.setattr(run_folders, "RAY_PARENT", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def driver(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """A live driver, the folder of its Ray, and the id of a process of that Ray."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, parent], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        folder, agent = process.stdout.readline().split()
        yield process, Path(folder), int(agent)
    finally:
        process.kill()
        process.communicate()


def is_running(process_id: int) -> bool:
    """True if a process has not ended; a zombie has, that nobody has waited for."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_folder_is_this_user_s_alone_and_goes_with_its_block(parent: Path) -> None:
    with run_folder(TRAIN_PREFIX) as folder:
        assert folder.parent == parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [path.name for path in folder.iterdir()] == [LOCK]
    assert [*parent.iterdir()] == []


def test_what_a_killed_run_left_is_removed_by_the_next_start_and_what_a_live_one_has_is_not(
    parent: Path,
) -> None:
    with driver(parent) as (killed, folder, agent), driver(parent) as (_, other, other_agent):
        assert remove_left_folders() == []
        killed.kill()
        killed.wait()
        assert is_running(agent)
        assert remove_left_folders() == [folder]
        assert not folder.exists()
        assert not is_running(agent)
        assert is_running(other_agent)
        assert other.exists()
    assert remove_left_folders() == [other]
    assert not is_running(other_agent)


def test_links_folders_of_others_and_those_without_a_lock_stay(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = parent / "target"
    target.mkdir()
    (target / LOCK).write_text(socket.gethostname())
    (parent / f"{RAY_PREFIX}link").symlink_to(target)
    (parent / f"{RAY_PREFIX}starts").mkdir()
    (parent / f"{TRAIN_PREFIX}file").touch()
    (parent / f"{TRAIN_PREFIX}linked").mkdir()
    (parent / f"{TRAIN_PREFIX}linked" / LOCK).symlink_to(target / LOCK)
    assert remove_left_folders() == []
    dead = parent / f"{TRAIN_PREFIX}dead"
    dead.mkdir()
    (dead / LOCK).write_text("another machine")
    assert remove_left_folders() == []
    (dead / LOCK).write_text(socket.gethostname())
    (dead / "way out").symlink_to(target)
    with monkeypatch.context() as context:
        context.setattr(os, "getuid", lambda: dead.stat().st_uid + 1)
        assert remove_left_folders() == []
    assert remove_left_folders() == [dead]
    assert (target / LOCK).exists()


def test_processes_end_that_run_for_a_ray_and_those_that_only_name_or_read_its_files_do_not(
    parent: Path,
) -> None:
    script = ["-c", "import time; time.sleep(600)"]
    with run_folder(RAY_PREFIX, parent=str(parent)) as folder, (folder / "log").open("w") as log:
        agent = subprocess.Popen([sys.executable, *script], env={FOLDER_VARIABLE: str(folder)})
        # Its variables are lost, as those are that a title overwrites.
        titled = subprocess.Popen(
            ["ray::Agent", *script], executable=sys.executable, env={}, stdout=log
        )
        others = [
            subprocess.Popen([sys.executable, *script, folder], env={}, stdout=log),
            subprocess.Popen([sys.executable, *script], env={FOLDER_VARIABLE: f"{folder}2"}),
            subprocess.Popen(["ray::IDLE", *script], executable=sys.executable, env={}),
        ]
    try:
        assert agent.wait(timeout=60) < 0
        assert titled.wait(timeout=60) < 0
        assert [other.poll() for other in others] == [None] * 3
    finally:
        for other in others:
            other.kill()
            other.wait()

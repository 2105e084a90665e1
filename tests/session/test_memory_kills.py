"""Processes that the kernel has killed for want of memory, counted by control group."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtsweep.session.memory_kills import GROUPS, MemoryKills, kills_in, memory_kills

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"

LIMIT_BYTES = 128 * 2**20

KILLED = """
import os, subprocess, sys
from pathlib import Path
from dtsweep.session.memory_kills import kills_in, memory_kills
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
before = memory_kills()
done = subprocess.run([sys.executable, "-c", "bytearray(2**29)"], stderr=subprocess.DEVNULL)
print(before.path, done.returncode, kills_in(before.path) - before.count)
"""


@pytest.mark.parametrize(
    ("own", "place", "text", "count"),
    [
        ("0::/kubepods/pod7\n", "kubepods/pod7/memory.events", V2, 2),
        ("0::/of/the/host\n", "memory.events", V2, 2),
        ("5:cpu:/x\n4:memory:/box\n0::/\n", "memory/box/memory.oom_control", V1, 5),
        ("4:hugetlb,memory:/of/the/host\n0::/\n", "memory/memory.oom_control", V1, 5),
    ],
)
def test_kills_are_counted_where_either_version_of_control_groups_has_them(
    tmp_path: Path, own: str, place: str, text: str, count: int
) -> None:
    (tmp_path / "own").write_text(own)
    file = tmp_path / "groups" / place
    file.parent.mkdir(parents=True)
    file.write_text(text)
    counted = memory_kills(tmp_path / "groups", tmp_path / "own")
    assert counted == MemoryKills(path=str(file), count=count)
    assert kills_in(str(file)) == count


def test_where_nothing_is_counted_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    assert memory_kills(tmp_path, tmp_path / "own") is None
    (tmp_path / "memory.events").write_text("low 0\n")
    assert memory_kills(tmp_path, tmp_path / "own") is None
    assert kills_in(str(tmp_path / "gone")) is None


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory."""
    v1 = (GROUPS / "memory" / "memory.limit_in_bytes").exists()
    place, limit = (GROUPS / "memory", "memory.limit_in_bytes") if v1 else (GROUPS, "memory.max")
    group = place / f"dtsweep-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"making a control group needs rights: {error}")
    yield group
    group.rmdir()


def test_a_process_that_the_kernel_really_kills_is_counted(small_group: Path) -> None:
    code = [sys.executable, "-c", KILLED, str(small_group)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=True)
    path, returned, kills = done.stdout.split()
    assert Path(path).parent == small_group
    assert (int(returned), int(kills)) == (-9, 1)

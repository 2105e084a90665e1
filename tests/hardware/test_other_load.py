"""Load of other processes: the kernel's counters, real busy processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dtsweep.hardware.other_load import (
    CpuReading,
    OtherLoad,
    other_load_words,
    others_use,
    read_cpus,
)

START = CpuReading(at_s=0, busy_s=0, own_s=0, cores=8)
SPIN = "import time\nuntil = time.monotonic() + 20\nwhile time.monotonic() < until: pass"


@contextmanager
def spinning() -> Iterator[int]:
    """A child process that takes a core."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        time.sleep(0.3)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def used(*, busy_s: float, own_s: float = 0) -> float:
    return others_use(START, replace(START, at_s=1, busy_s=busy_s, own_s=own_s))[0]


def test_what_is_ours_is_no_load_of_others() -> None:
    assert used(busy_s=3, own_s=2) == 1
    # Counters move in steps: ours may be ahead of the sum.
    assert used(busy_s=3, own_s=3.2) == 0
    assert used(busy_s=9) == 8


def test_little_load_needs_no_words() -> None:
    assert other_load_words(0.24, 2) is None
    assert "use 0.2 of 2 cores" in str(other_load_words(0.25, 2))
    assert other_load_words(3.1, 64) is None
    assert "use 3.2 of 64 cores" in str(other_load_words(3.2, 64))


def kernel(root: Path, files: dict[str, str]) -> CpuReading:
    core = min(os.sched_getaffinity(0))
    files |= {"proc/stat": f"cpu 9 9 9 9\ncpu{core} 100 20 30 999 50 4 5 6 0 0\ncpu9999 1 1 1 1\n"}
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    reading = read_cpus(root=root)
    assert reading is not None
    return reading


def test_only_cores_that_we_may_use_count_and_waiting_for_a_disk_does_not(tmp_path: Path) -> None:
    reading = kernel(tmp_path, {})
    assert reading.busy_s == pytest.approx(165 / os.sysconf("SC_CLK_TCK"))
    assert read_cpus(root=tmp_path / "none") is None


def test_a_busy_process_is_load_of_others_unless_it_is_ours() -> None:
    with spinning() as pid:
        others, own = OtherLoad(pids=[]), OtherLoad(pids=[os.getpid(), pid])
        use_of_all, use_of_others = others.use(), own.use()
        words = others.words()
    assert use_of_all is not None
    assert use_of_others is not None
    # A share of a core at least, whatever else runs here.
    assert use_of_all[0] > 0.25
    assert use_of_all[0] - use_of_others[0] > 0.2
    assert words is not None
    assert words.startswith("other processes use ")


def test_children_that_have_ended_are_ours() -> None:
    with spinning():
        first = read_cpus()
        time.sleep(0.5)
    last = read_cpus()
    assert first is not None
    assert last is not None
    assert last.own_s - first.own_s > 0.1


def test_the_load_of_this_machine_does_not_matter_where_ranks_run_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with spinning():
        assert OtherLoad("10.0.0.1:6379").words() is None
        monkeypatch.setenv("RAY_ADDRESS", "auto")
        assert OtherLoad(pids=[]).words() is None

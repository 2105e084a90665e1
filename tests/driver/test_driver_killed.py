"""A driver that is killed at once: no row is lost or stored twice, and the next run cleans up."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from dtsweep.cluster.run_folders import FOLDER_VARIABLE, TRAIN_PREFIX, processes_of
from tests.linear import sweep_text
from tests.processes import begun, processes_with, values_of

pytestmark = pytest.mark.ray

SWEEP = sweep_text(
    {"micro_batch": [1, 2, 3, 4, 5, 6]},
    measure="Measure(repeats=1, half_width=None, canary=False, min_seconds=1, max_steps=10**6)",
)


def started(folder: Path) -> subprocess.Popen[str]:
    (folder / "sweep.py").write_text(SWEEP)
    (folder / "temporary").mkdir(exist_ok=True)
    return begun(
        *("run", "sweep.py", "--address", "local", "--results", "r"),
        folder=folder,
        TMPDIR=str(folder / "temporary"),
        DTSWEEP_TEST_MARK=str(folder),
    )


def run_folders(folder: Path) -> set[Path]:
    """Temporary folders of runs: of the private Rays of which a process runs, and for Ray Train."""
    rays = values_of(FOLDER_VARIABLE, mark=f"DTSWEEP_TEST_MARK={folder}")
    return {*map(Path, rays), *(folder / "temporary").glob(f"{TRAIN_PREFIX}*")}


def kill_once(folder: Path, has_come: Callable[[], bool]) -> set[Path]:
    """Kill a driver as soon as something has come; return the folders that its run had."""
    process = started(folder)
    until = time.monotonic() + 120
    while not has_come():
        assert time.monotonic() < until
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(process.wait(timeout=0.05), process.communicate()[1])
    folders = run_folders(folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return folders


def test_a_driver_that_is_killed_loses_nothing_and_leaves_nothing_after_the_next_run(
    tmp_path: Path,
) -> None:
    folder = tmp_path
    trials = folder / "r" / "trials"
    while_ray_starts = kill_once(folder, lambda: len(run_folders(folder)) > 1)
    in_sweep = kill_once(folder, lambda: len([*trials.glob("*.parquet")]) > 1)
    assert len(while_ray_starts | in_sweep) == 4
    # A run of another test that starts meanwhile may have removed the folder of the private Ray.
    assert [path for path in in_sweep if path.exists()]
    last = started(folder)
    _, talk = last.communicate(timeout=200)
    assert last.returncode == 0, talk
    rows = pd.read_parquet(trials)
    assert rows["status"].tolist() == ["ok"] * 6
    assert rows["trial_id"].is_unique
    assert [path for path in while_ray_starts | in_sweep if path.exists()] == []
    assert run_folders(folder) == set()
    assert [processes_of(path) for path in while_ray_starts | in_sweep] == [[]] * 4
    assert processes_with(f"DTSWEEP_TEST_MARK={folder}") == []

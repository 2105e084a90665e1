"""Faults by real processes that fail: each costs its own trial, and the next is measured."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import ray

import dtsweep
from dtsweep.sweep.task import HEADING
from tests.conftest import Command
from tests.faulty import TOKEN
from tests.processes import begun, processes_with, read_until

pytestmark = pytest.mark.ray

FAULTY = Path(__file__).parents[1] / "faulty.py"
RANK = f"rank 1 on {socket.gethostname()}"
KERNEL = f"{RANK} ended: CUDA error: device-side assert triggered (faulty.py:"


class Faults(NamedTuple):
    """What a sweep of all faults has left."""

    first: pd.DataFrame
    """First attempts, by the fault and the micro-batch."""
    results: Path
    said: str


@pytest.fixture(scope="module")
def faults(
    tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command, ray_address: str
) -> Faults:
    folder = tmp_path_factory.mktemp("faults")
    arguments = ["run", FAULTY, "--address", ray_address, "--results", folder / "r"]
    done = dtsweep_command(*arguments, folder=folder, timeout_s=600, DTSWEEP_TEST_MARK=str(folder))
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    assert done.returncode == 1, done.stderr
    rows = pd.read_parquet(folder / "r" / "trials").query("status != 'skipped'")
    first = rows.sort_values("attempt").drop_duplicates("trial_id")
    return Faults(first.set_index(["workload_fault", "micro_batch"]), folder / "r", done.stderr)


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("raise", "user_error", "rank 1: ValueError: wrong on one rank"),
        ("kill", "rank_died", "rank 1 on "),
        ("kernel", "user_error", KERNEL),
        ("hang", "hang", f"no answer from {RANK} "),
        ("stop", "hang", f"{RANK} is stopped by a signal (SIGSTOP); no answer after 15 s "),
    ],
)
def test_a_fault_is_a_row_with_its_status_reason_and_log(
    faults: Faults, fault: str, status: str, reason: str
) -> None:
    frame, results, _ = faults
    row = frame.loc[(fault, 1)]
    assert (row["status"], row["reason"][: len(reason)]) == (status, reason)
    text = (results / row["log"]).read_text()
    # A trial that failed has a log of its own.
    assert text.count(HEADING) == 1
    assert f"{HEADING}trial {row['trial_id']} attempt {row['attempt']}: workers=2 " in text
    assert f" workload.fault='{fault}'" in text


def test_the_token_that_a_trial_prints_and_raises_is_nowhere(
    faults: Faults, forked_command: Command
) -> None:
    frame, results, _ = faults
    row = frame.loc[("raise", 1)]
    shown = re.escape(" at https://hub/x? --hf-token ").join(["hidden:[0-9a-f]{4}"] * 2)
    assert re.search(rf"wrong on one rank: 401 for {shown}", row["reason"])
    assert re.search("the token is hidden:", (results / row["log"]).read_text())
    for command in (
        ("report", results, "--html", "page.html"),
        ("export", results, "--out", "trials.csv"),
    ):
        done = forked_command(*command, folder=results.parent)
        assert done.returncode == 0, done.stderr
    files = [file for file in results.parent.rglob("*") if file.is_file()]
    assert {"page.html", "said.txt"} < {file.name for file in files}
    assert [file for file in files if TOKEN.encode() in file.read_bytes()] == []
    for table in ("trials", "ranks"):
        assert TOKEN not in pd.read_parquet(results / table).to_json(default_handler=str)


def test_a_step_that_takes_most_of_the_window_is_flagged(faults: Faults) -> None:
    assert "stalled" in faults.first.loc[("slow", 1)]["flags"]


def test_what_a_trial_leaves_is_named_and_does_not_reach_the_next(faults: Faults) -> None:
    frame, results, _ = faults
    row = frame.loc[("leave", 1)]
    assert "left_state" in row["flags"]
    ranks = pd.read_parquet(results / "ranks").set_index(["attempt_id", "rank"])
    named = ranks.loc[(row["attempt_id"], 1), "left_state"]
    for change in ("DTSWEEP_TEST_LEFT", "working directory", "sleep", "_spin"):
        assert change in named
    others = frame.drop(index=["leave", "raise"], level=0)
    assert not any("left_state" in flags for flags in others["flags"].dropna())


def test_the_trials_after_a_fault_are_measured(faults: Faults) -> None:
    assert faults.first.loc["none"]["status"].tolist() == ["ok", "ok"]


def test_a_killed_rank_is_tried_again_and_its_last_words_are_kept(faults: Faults) -> None:
    frame, results, talk = faults
    row = frame.loc[("kill", 1)]
    assert row["attempt"] == 1
    assert "its last words: about to kill" in row["reason"]
    again = dtsweep.load(results).set_index("trial_id").loc[row["trial_id"]]
    assert (again["status"], again["attempt"]) == ("ok", 2)
    assert again["session"] != row["session"]
    assert talk.count("measured again") == 1


def test_a_hang_leaves_the_stacks_of_all_ranks(faults: Faults) -> None:
    frame, results, _ = faults
    row = frame.loc[("hang", 1)]
    files = (results / row["log"]).parent.glob(f"{row['attempt_id'][:12]}-*.log")
    stacks = [path.read_text() for path in sorted(files)]
    assert len(stacks) == 2
    assert "in _fail" in stacks[1]
    assert all("Current thread" in text or "Thread 0x" in text for text in stacks)


def interrupted(
    folder: Path, address: str, *, number: int, workers: int = 1
) -> subprocess.Popen[str]:
    """Send a signal to the process group of a run whose second trial waits for ever.

    The command, which has ended; its results and its mark are `folder / "r"`.
    """
    results = str(folder / "r")
    arguments = ["--address", address, "--results", results, "--set", "workload.fault=hang,fine"]
    # Shuffled, the trial that is measured comes first, and the signal finds the other one waiting.
    size = ["--set", "micro_batch=1", "--set", f"workers={workers}"]
    process = begun("run", FAULTY, *arguments, *size, folder=folder, DTSWEEP_TEST_MARK=results)
    read_until("ms/step", process)
    os.killpg(process.pid, number)
    process.communicate(timeout=120)
    return process


def assert_what_is_done_is_stored(results: Path) -> None:
    rows = dtsweep.load(results).set_index("workload_fault")
    statuses = rows["status"].to_dict()
    assert statuses.pop("fine") == "ok"
    # One that comes between two trials finds none under way.
    assert set(statuses.values()) <= {"cancelled"}
    assert (results / rows.loc["fine", "log"]).read_text()


def test_a_signal_to_the_group_leaves_no_process_of_a_private_ray(tmp_path: Path) -> None:
    # As `timeout` and batch systems send it.
    process = interrupted(tmp_path, "local", number=signal.SIGTERM)
    assert process.returncode == 143
    assert_what_is_done_is_stored(tmp_path / "r")
    marker = f"DTSWEEP_TEST_MARK={tmp_path / 'r'}"
    deadline = time.monotonic() + 60
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        os.sched_yield()
    assert left == []


def test_a_signal_stores_what_is_done_and_leaves_nothing_of_ray_train_on_its_cluster(
    tmp_path: Path, ray_address: str
) -> None:
    # Tune has a handler of its own for this one.
    process = interrupted(tmp_path, ray_address, number=signal.SIGUSR1, workers=2)
    assert process.returncode == 138
    assert_what_is_done_is_stored(tmp_path / "r")
    assert_nothing_is_left(ray_address)


def test_a_run_that_ends_by_an_error_of_storage_leaves_nothing_of_ray_train_on_its_cluster(
    tmp_path: Path, ray_address: str
) -> None:
    results = tmp_path / "r"
    size = ["--set", "workers=2", "--set", "micro_batch=" + ",".join(map(str, range(1, 65)))]
    process = begun(
        *("run", FAULTY, "--address", ray_address, "--results", results),
        *("--set", "workload.fault=fine", *size),
        folder=tmp_path,
        DTSWEEP_TEST_MARK=str(results),
    )
    # By then the session lives, and more trials are to be stored.
    assert "ms/step" in read_until("ms/step", process)
    (results / "trials").rename(tmp_path / "stored")
    (results / "trials").write_text("in the way of a folder")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 5, said
    assert_nothing_is_left(ray_address)


def assert_nothing_is_left(address: str) -> None:
    """See that no actor of Ray Train lives on a cluster, and that nothing is reserved there."""
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        alive = {
            a["ActorClassName"]
            for a in ray._private.state.actors().values()
            if a["State"] == "ALIVE"
        }
        reserved = [group["state"] for group in ray.util.placement_group_table().values()]
    finally:
        ray.shutdown()
    # One of its actors is made once for a cluster, and stays.
    assert alive <= {"_AutoscalingCoordinatorActor"}
    assert set(reserved) == {"REMOVED"}

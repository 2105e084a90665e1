"""Smaller worlds in the processes of a larger one: what a fault there costs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dtsweep
from dtsweep import Measure
from tests.conftest import Command

pytestmark = pytest.mark.ray

SMALLER = Path(__file__).parents[1] / "smaller.py"


@pytest.fixture(scope="module")
def attempts(
    tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command, ray_address: str
) -> tuple[pd.DataFrame, Path]:
    """All attempts of the sweep."""
    folder = tmp_path_factory.mktemp("smaller")
    arguments = ["run", SMALLER, "--address", ray_address, "--results", folder / "r"]
    done = dtsweep_command(*arguments, folder=folder, DTSWEEP_TEST_MARK=str(folder))
    assert done.returncode == 0, done.stderr
    frame = pd.read_parquet(folder / "r" / "trials").sort_values("started_at")
    return frame[frame["status"] != "skipped"], folder / "r"


def test_every_trial_is_measured_in_the_end(attempts: tuple[pd.DataFrame, Path]) -> None:
    trials = dtsweep.load(attempts[1])
    assert trials["status"].value_counts().to_dict() == {"ok": 6, "skipped": 2}


def test_the_larger_world_is_one_session_with_the_smaller_one_until_a_process_ends(
    attempts: tuple[pd.DataFrame, Path],
) -> None:
    frame = attempts[0]
    large, small = (frame[frame["workers"] == workers] for workers in (2, 1))
    assert large["status"].tolist() == ["ok"] * 3
    assert large["session"].nunique() == 1
    # The first small trial begins where the large ones have ended.
    assert small["session"].iloc[0] == large["session"].iloc[0]
    assert frame["session"].nunique() == 2


def test_an_idle_process_that_ends_is_named_by_its_place_in_the_session(
    attempts: tuple[pd.DataFrame, Path],
) -> None:
    frame, results = attempts
    (died,) = frame[frame["status"] == "rank_died"].to_dict("records")
    assert (died["workload_dies"], died["workers"]) == ("idle", 1)
    assert died["reason"].startswith("process 1 of the session, idle in this trial, on ")
    # The log of a rank of the trial would explain nothing.
    assert died["log"].endswith("-1.log")
    assert (results / died["log"]).is_file()


def test_a_collective_of_each_world_waits_longer_than_the_slot(
    attempts: tuple[pd.DataFrame, Path],
) -> None:
    told = {file.name: float(file.read_text()) for file in attempts[1].parent.glob("timeout-*")}
    assert sorted(told) == ["timeout-1-0", "timeout-2-0", "timeout-2-1"]
    assert min(told.values()) > Measure(repeats=1).max_warmup_seconds

"""Killed processes of a run: what each had is given back, and the next trial is measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dtsweep
from tests.conftest import Command
from tests.processes import processes_with

pytestmark = pytest.mark.ray

KILLS = Path(__file__).parents[1] / "struck" / "kills.py"


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command) -> pd.DataFrame:
    """All attempts of a run on a private Ray whose CPUs one session takes.

    They are sorted by what is killed, the first ones first.
    """
    folder = tmp_path_factory.mktemp("kills")
    # Its ranks are not to be killed on their import.
    (folder / "import").touch()
    # A session that waited for what a killed one holds would not come up in that time.
    arguments = ["run", KILLS, "--address", "local", "--node-timeout", "30"]
    arguments += ["--results", folder / "r"]
    done = dtsweep_command(*arguments, folder=folder, DTSWEEP_TEST_MARK=str(folder))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert processes_with(f"DTSWEEP_TEST_MARK={folder}") == []
    assert dtsweep.load(folder / "r")["status"].tolist() == ["ok"] * 4
    return (
        pd.read_parquet(folder / "r" / "trials").sort_values("started_at").set_index("workload_by")
    )


@pytest.mark.parametrize(
    ("killed", "status", "reason"),
    [
        ("Slot", "collateral", "the session's process was killed"),
        ("Shard", "collateral", "rank 0: ActorDiedError"),
    ],
)
def test_a_kill_costs_one_attempt_and_gives_back_what_the_process_had(
    attempts: pd.DataFrame, killed: str, status: str, reason: str
) -> None:
    first, second = attempts.loc[killed].to_dict("records")
    assert (first["status"], second["status"]) == (status, "ok")
    assert first["reason"].startswith(reason)


def test_a_killed_tune_process_costs_neither_the_attempt_nor_its_session(
    attempts: pd.DataFrame,
) -> None:
    (row,) = attempts.loc[["ResourceTrainable"]].to_dict("records")
    assert row["status"] == "ok"

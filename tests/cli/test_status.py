"""`dtsweep status` on real runs: while they measure, afterwards, after a kill, and on S3."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dtsweep.errors import SweepError
from tests.cli.called import as_json, called
from tests.conftest import Command
from tests.linear import sweep_text
from tests.processes import begun
from tests.schemas import check_output

RAISE = """
    def batch(self, samples, device):
        if len(samples) == 3:
            raise ValueError("a batch of three")
"""

LONG, SHORT = "6", "0.1"
"""Seconds of each window."""


def write_sweep(folder: Path, seconds: str) -> None:
    """Write a sweep of eight trials, of which the third fails."""
    window = f"min_seconds={seconds}, max_steps=10**7"
    measure = f"Measure(repeats=1, half_width=None, canary=False, {window})"
    text = sweep_text({"workers": [1], "micro_batch": [*range(1, 9)]}, measure=measure)
    batch = "\n    def batch(self, samples, device):\n"
    (folder / "study.py").write_text(text.replace(batch, RAISE))


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is killed at the end if it has not ended."""
    process = begun(*arguments, folder=folder)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waited_for(
    look: Callable[[], dict[str, Any] | None],
    holds: Callable[[dict[str, Any]], bool],
    process: subprocess.Popen[str],
) -> dict[str, Any]:
    """Look until it holds, as long as the run lives."""
    until = time.monotonic() + 300
    while (seen := look()) is None or not holds(seen):
        assert time.monotonic() < until, seen
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(process.wait(timeout=0.2), process.communicate()[1], seen)
    return seen


def looker(command: Command, folder: Path, place: str) -> Callable[[], dict[str, Any] | None]:
    """Run `status --json` from another process; None as long as there are no results."""

    def look() -> dict[str, Any] | None:
        done = command("status", place, "--json", folder=folder)
        if done.returncode == 2:
            assert f"no results in {place.partition('?')[0]}" in done.stderr
            return None
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        check_output("status", seen)
        return seen

    return look


@pytest.mark.slow
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_another_process_sees_a_run_measure_die_go_on_and_end(
    where: str, tmp_path: Path, request: pytest.FixtureRequest, forked_command: Command
) -> None:
    place = request.getfixturevalue("bucket") if where == "s3" else "r"
    write_sweep(tmp_path, LONG)
    look = looker(forked_command, tmp_path, place)
    run = ("run", "study.py", "--in-process", "--results", place)
    with started(tmp_path, *run, "--max-hours", "1") as process:
        seen = waited_for(look, lambda seen: (seen["trials"] or {"done": 0})["done"] > 0, process)
        assert (seen["state"], seen["trials"]["total"]) == ("running", 8)
        expected = {"pid": process.pid, "sweep": "study", "max_hours": 1.0}
        assert expected.items() <= seen["run"].items()
        assert seen["run"]["silent_s"] < 100
        (running,) = waited_for(look, lambda seen: bool(seen["running"]), process)["running"]
        assert re.fullmatch(r"workers=1 micro_batch=\d", running["name"])
        assert seen["expected_left_s"] is not None
        text = forked_command("status", place, folder=tmp_path).stdout
        assert re.search(rf"Running on \S+ \(process {process.pid}\)\s+since", text)
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = look() or {}
    assert (killed["state"], killed["running"]) == ("killed", [])
    trials = killed["trials"]
    assert trials["left"] == 8 - trials["done"] - trials["failed"]
    shown = forked_command("status", place, folder=tmp_path)
    assert "Killed, or cut off from its results" in shown.stdout
    assert shown.returncode == 0

    write_sweep(tmp_path, "1")
    with started(tmp_path, *run) as process:
        waited_for(look, lambda seen: seen["state"] == "running", process)
        assert process.wait(timeout=300) == 1
    seen = look() or {}
    assert (seen["state"], seen["run"]["ended_as"], seen["runs"]) == ("ended", "done", 2)
    assert seen["statuses"] == {"ok": 7, "user_error": 1}
    assert seen["trials"]["left"] == 0
    assert seen["time_s"] > seen["run_s"] > 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda place: None, "no results in {}; make some with: dtsweep run SWEEP.py --results {}"),
        (
            lambda place: (place / "sweeps" / "train" / "trials").mkdir(parents=True),
            "no results in {}; there are some in {}/sweeps/train: name one",
        ),
        (Path.touch, "{} is a file; results are a folder"),
    ],
)
def test_a_place_without_results_is_refused_in_a_line(
    make: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "r")
    with pytest.raises(SweepError, match=re.escape(said.replace("{}", str(tmp_path / "r")))):
        called("status", tmp_path / "r")


@pytest.mark.slow
def test_a_run_that_has_ended_is_described_and_foreign_files_are_named(tmp_path: Path) -> None:
    write_sweep(tmp_path, SHORT)
    run = ("run", tmp_path / "study.py", "--in-process", "--results", tmp_path / "r")
    assert called(*run).exit_code == 1
    seen = as_json("status", tmp_path / "r")
    assert (seen["state"], seen["run"]["ended_as"], seen["runs"]) == ("ended", "done", 1)
    assert seen["statuses"] == {"ok": 7, "user_error": 1}
    (failure,) = seen["failures"]
    assert "a batch of three" in failure["reason"]
    (tmp_path / "r" / "runs" / "other.json").write_text('{"run_id": "x", "running": []}')
    done = called("status", tmp_path / "r")
    assert "r/runs/other.json is left out: not the record of a run" in done.stderr
    assert "all planned trials have ended" in done.stdout
    # A run that finds nothing to do leaves no record.
    assert called(*run).exit_code == 0
    assert as_json("status", tmp_path / "r")["runs"] == 1


@pytest.mark.ray
def test_a_run_on_ray_says_what_runs_and_how_it_ended(
    tmp_path: Path, ray_address: str, forked_command: Command
) -> None:
    write_sweep(tmp_path, "1.5")
    look = looker(forked_command, tmp_path, "r")
    run = ("run", "study.py", "--address", ray_address, "--results", "r")
    with started(tmp_path, *run) as process:
        seen = waited_for(look, lambda seen: bool(seen["running"]), process)
        assert seen["state"] == "running"
        assert re.fullmatch(r"workers=1 micro_batch=\d", seen["running"][0]["name"])
        assert process.wait(timeout=200) == 1
    seen = look() or {}
    assert (seen["state"], seen["run"]["ended_as"]) == ("ended", "done")
    assert seen["run"]["statuses"] == {"ok": 7, "user_error": 1}

"""The checklists of GPUs: how lines are judged, on canned rows, and a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from benchmarks import checklist, gpu_checklist, node_checklist
from benchmarks.checklist import (
    Bench,
    Expected,
    Line,
    NotRunError,
    judged,
    lacking,
    run_lines,
    within,
)
from benchmarks.gpu_checklist import compared_with_smi, counts_of
from benchmarks.node_checklist import Ran
from dtsweep.results.schema import RANKS, TRIALS
from tests.pages import ROOT

GPU_LINES = {line.name: line for line in gpu_checklist.LINES}
NODE_LINES = {line.name: line for line in node_checklist.LINES}

LARGE = {
    **{"status": "ok", "backend": "nccl", "flags": ["throttled"], "exit_code": 0},
    **{"mfu": 0.41, "step_p50_s": 0.0123, "launch_share": 0.3},
    **{"device_idle_low": 0.0, "device_idle_high": 0.02},
}
"""A row as an H100 might give it."""


JUDGED = [
    ("4", {}, None),
    ("4", {"mfu": 0.1}, "mfu is 0.1, expected 0.2 to 0.6"),
    ("4", {"flags": ["timer_mismatch"]}, "flags is ['timer_mismatch'], expected without"),
    ("4", {"exit_code": -6, "status": None}, "status is unknown, expected ok"),
    ("5", {"step_over_line_4": 1.03}, "step_over_line_4 is 1.03, expected 0.99 to 1.01"),
    ("6", {"device_idle_low": 0.55, "launch_share": 0.9}, None),
    ("6", {"device_idle_low": None}, "device_idle_low is unknown, expected 0.3 to 1"),
    ("7", {"status": "user_error", "reason": "CUDA error: device-side assert triggered"}, None),
    ("8", {"status": "oom_device", "reason": "CUDA out of memory", "exit_code": 1}, None),
    ("9", {"by_axis": 1.0, "outside": 1.4}, "by_axis is 1, expected at least 1.05"),
]
"""Lines of one GPU, what differs from `LARGE` in their rows, and why they fail."""


@pytest.mark.parametrize(("line", "other", "reason"), JUDGED)
def test_a_line_of_one_gpu_is_judged_by_its_row(
    line: str, other: dict[str, Any], reason: str | None
) -> None:
    outcome = judged(GPU_LINES[line], LARGE | other)
    assert outcome.verdict == ("pass" if reason is None else "differs")
    assert (outcome.reason or "").startswith(reason or "")
    assert bool(outcome.reason) == bool(reason)


def test_every_column_that_a_line_reads_is_a_column_of_a_trial() -> None:
    columns = {column.name for column in TRIALS}
    computed = {"exit_code", "last_words", "step_over_line_4"}
    for name in ("4", "5", "6", "7", "8", "8b", "8c"):
        line = GPU_LINES[name]
        read = {*(expected.name for expected in line.expected), *line.shows}
        assert read <= columns | computed, name


def test_tests_count_by_how_they_ended() -> None:
    found = counts_of("..s\nSKIPPED [1] a.py:3: two GPUs\n2 passed, 1 skipped in 3.10s")
    assert found == {"passed": 2, "skipped": 1, "failed": 0, "broken": []}
    broken = counts_of("FAILED a.py::b - assert 0\nERROR c.py\n1 failed, 1 error in 3.10s")
    assert (broken["passed"], broken["failed"]) == (0, 1)
    assert broken["broken"] == ["FAILED a.py::b - assert 0", "ERROR c.py"]
    for said, verdict in (("12 passed", "pass"), ("12 skipped", "differs"), ("no", "differs")):
        assert judged(GPU_LINES["2"], counts_of(f"{said} in 8.00s")).verdict == verdict


def test_power_is_compared_with_the_highest_readings() -> None:
    readings = "\n".join(["70.5, 345, 40"] * 30 + ["600.0, 1755, 60"] * 10)
    row = LARGE | {"power_w": 606.0, "energy_j": 3030.0, "window_s": 5.0}
    found = compared_with_smi(row, readings)
    assert (found["smi_power_w"], found["power_over_smi"]) == (600, 1.01)
    assert judged(GPU_LINES["12"], found).verdict == "pass"
    without = compared_with_smi(row | {"energy_j": None}, readings)
    reason = judged(GPU_LINES["12"], without).reason
    assert reason == "energy_over_smi is unknown, expected 0.9 to 1.1"
    with pytest.raises(NotRunError, match="0 readings"):
        compared_with_smi(row, "[N/A], 345, 40")


def trial(**values: Any) -> dict[str, Any]:
    row = {column.name: None for column in TRIALS}
    usual = {"attempt_id": "a", "status": "ok", "session": "s", "workers": 8, "sync": "ddp"}
    return row | usual | {"role": "trial"} | values


def rank(**values: Any) -> dict[str, Any]:
    return {column.name: None for column in RANKS} | values


def a_run(*trials: dict[str, Any], ranks: tuple[dict[str, Any], ...] = ()) -> Ran:
    return Ran(trials, ranks, Path(), 0, "")


def test_scaling_has_its_efficiency_and_tells_of_ranks_that_share_a_gpu() -> None:
    trials = [
        trial(attempt_id=attempt, workers=workers, samples_per_s=rate)
        for attempt, workers, rate in (("a", 1, 100.0), ("b", 2, 190.0))
    ]
    for last, reason in (("1", None), ("0", "worlds_with_a_shared_gpu is [2], expected []")):
        places = (("a", "0"), ("b", "0"), ("b", last))
        ranks = tuple(rank(attempt_id=attempt, device_uuid=uuid) for attempt, uuid in places)
        found = node_checklist.read_scaling(a_run(*trials, ranks=ranks))
        assert found["efficiency"] == 0.95
        assert judged(NODE_LINES["14"], found).reason == reason


def test_modes_that_fail_or_disagree_are_named() -> None:
    fine = [trial(sync=mode, gradients_agree=True) for mode in node_checklist.MODES]
    assert judged(NODE_LINES["15"], node_checklist.read_modes(a_run(*fine))).verdict == "pass"
    fine[0] |= {"gradients_agree": False}
    fine[1] |= {"status": "hang", "reason": "no answer from rank 3"}
    outcome = judged(NODE_LINES["15"], node_checklist.read_modes(a_run(*fine)))
    assert outcome.verdict == "differs"
    assert outcome.found["failed"] == {fine[1]["sync"]: "no answer from rank 3"}
    assert outcome.found["gradients_disagree"] == [fine[0]["sync"]]


def test_a_fault_names_its_rank_and_the_trials_after_it_are_well() -> None:
    plain = [
        trial(workload_kind="plain", row_number=number, status=status)
        for number, status in ((0, "collateral"), (3, "ok"), (4, "ok"))
    ]
    died = [
        trial(workload_kind="dies", row_number=number, status="rank_died", reason=reason)
        for number, reason in ((1, "rank 3 on a ended"), (2, "rank 3 on a ended; its last words"))
    ]
    left_out = trial(workload_kind="dies", row_number=5, status="skipped", reason="one")
    found = node_checklist.read_fault(a_run(*plain, *died, left_out), "dies", rank=3)
    died_as = "rank_died: rank 3 on a ended; its last words"
    assert found == {"dies": died_as, "names_dies": True, "after_dies": ["ok"]}
    other = node_checklist.read_fault(a_run(*died, plain[0]), "dies", rank=1)
    assert (other["names_dies"], other["after_dies"]) == (False, None)


def test_exchanges_without_peer_access_are_compared_with_those_with_it() -> None:
    trials = [
        trial(session=at, environment=f'{{"NCCL_P2P_DISABLE": "{at}"}}', exchange_isolated_s=took)
        for at, took in (("0", 0.01), ("1", 0.03))
    ]
    assert node_checklist.read_peers(a_run(*trials)) == {
        "without_p2p_over_with": 3.0,
        "sessions": 2,
    }


def test_the_doctor_is_read_by_the_nodes_its_gpus_and_its_links() -> None:
    rows = [
        {"backend": "nccl", "size_bytes": size, "busbw_bytes_per_s": rate}
        for size, rate in ((8, 1e6), (2**26, 2e11))
    ]
    diagnosis = {
        "hosts": [{"gpus": [{}] * 8}, {"gpus": None}],
        "nodes": [{"rates": {"bf16": {"share": 0.7}}}, {"error": "no answer"}],
        "links": [{"is_within": True, "latency_s": 2e-5, "all_reduces": rows}],
        "problems": [],
    }
    found = node_checklist.read_diagnosis(diagnosis, gpus=8)
    assert judged(NODE_LINES["13b"], found).verdict == "pass"
    fewer = node_checklist.read_diagnosis(diagnosis | {"links": []}, gpus=9)
    assert judged(NODE_LINES["13b"], fewer).reason == (
        "gpus_missing is 1, expected 0; latency_s is unknown, expected 1e-05 to 3e-05; "
        "busbw_bytes_per_s is unknown, expected at least 1.5e+11"
    )


def made_line(name: str, find: Any, *expected: Expected, needs_gpus: int = 0) -> Line:
    return Line(name=name, title=name, find=find, expected=expected, needs_gpus=needs_gpus)


def fails(_: Bench) -> dict[str, Any]:
    raise ValueError("no row")


def not_here(_: Bench) -> dict[str, Any]:
    raise NotRunError("nvidia-smi is not installed")


def test_a_line_that_fails_does_not_end_the_checklist_and_all_is_in_the_report(
    tmp_path: Path,
) -> None:
    lines = [
        made_line("1", lambda _: {"gpus": 1, "facts": {"driver": "570.1"}}, within("gpus", 1)),
        made_line("2", fails, within("mfu", 0.2)),
        made_line("3", not_here),
        made_line("4", lambda _: {"flags": ["x"]}, lacking("flags", "x"), needs_gpus=1),
        made_line("5", lambda _: {}, needs_gpus=2),
        made_line("6", lambda _: {}),
    ]
    said: list[str] = []
    report = tmp_path / "report.json"
    assert run_lines(lines[:1], Bench(tmp_path), tell=print, report=report) == 0
    code = run_lines(lines, Bench(tmp_path), tell=said.append, report=report)
    assert code == 1
    stored = json.loads(report.read_text())
    assert stored["facts"] == {"driver": "570.1"}
    assert [line["verdict"] for line in stored["lines"]] == [
        *("pass", "differs", "not run", "differs", "not run", "not run"),
    ]
    assert [line["reason"] for line in stored["lines"]] == [
        None,
        "ValueError: no row",
        "nvidia-smi is not installed",
        "flags is ['x'], expected without 'x'",
        *["2 GPUs: torch sees 1 here"] * 2,
    ]
    assert stored["lines"][1]["expected"] == {"mfu": "at least 0.2"}
    assert said[-2].startswith("line 5 needs 2 GPUs: torch sees 1 here; it and the lines after it")
    assert said[-1].startswith("1 pass, 2 differs, 3 not run: ")


def test_a_command_that_does_not_end_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checklist, "COMMAND_S", 2.0)
    script = "sleep 600 & echo $! > child; wait"
    with pytest.raises(TimeoutError, match="no end after 2 s"):
        Bench(tmp_path).call("sh", "-c", f"cd {tmp_path}; {script}")
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def done_here(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a module of Python does in this folder."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("module", "line"), [("gpu_checklist", "line 2 needs a GPU"), ("node_checklist", "2 GPUs")]
)
def test_without_a_gpu_a_checklist_ends_at_the_first_line_that_needs_one(
    module: str, line: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = done_here(f"benchmarks.{module}", "--report", str(report), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert line in done.stdout
    verdicts = [each["verdict"] for each in json.loads(report.read_text())["lines"]]
    assert verdicts == ["differs", *["not run"] * (len(verdicts) - 1)]
    assert len(verdicts) > 8


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_tests_on_a_gpu_fail_where_one_is_needed_and_there_is_none() -> None:
    words = ("pytest", "-q", "-p", "no:cacheprovider", "tests/gpu")
    done = done_here(*words, DTSWEEP_NEEDS_GPU="1")
    assert done.returncode == 1
    assert "no test of tests/gpu can run here" in done.stdout + done.stderr

"""A run in this very process: one worker, no Ray; for debuggers, first mistakes and tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, distributed, nn

import dtsweep
from dtsweep import Measure, Resources, Sweep, SweepError
from dtsweep.results.store import Results
from tests.conftest import Command, without_ray
from tests.pages import ROOT
from tests.processes import begun, read_until
from tests.ranks import run_forked

QUICK = Measure(
    repeats=1, half_width=None, min_seconds=0, min_steps=5, max_steps=20, warmup_steps=1
)

FILE = """
from dataclasses import dataclass
import torch
from torch import nn
from dtsweep import Measure, Sweep

@dataclass(frozen=True)
class Net:
    def build(self):
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        return torch.ones(len(samples), 2, device=device)

    def loss(self, model, batch):
        LOSS

sweep = Sweep(
    workload=Net(),
    axes={"workers": [1, 2]},
    measure=Measure(repeats=1, half_width=None, min_seconds=0, min_steps=5, max_seconds=MAX),
)
"""

SQUARE = "return model(batch).square().mean()"
"""The loss of a model in that file."""


@dataclass(frozen=True)
class Line:
    width: int = 2
    fails: bool = False

    def build(self) -> nn.Module:
        return nn.Linear(2, self.width)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 2, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        if self.fails:
            raise ValueError("a mistake in loss")
        loss: Tensor = model(batch).square().mean()
        return loss


def swept(axes: dict[str, list[Any]], **settings: Any) -> Sweep:
    return Sweep(axes=axes, **{"workload": Line(), "measure": QUICK, **settings})


def run(folder: Path, axes: dict[str, list[Any]], **settings: Any) -> pd.DataFrame:
    return dtsweep.run(swept(axes, **settings), folder / "r", in_process=True)


def test_a_run_in_process_says_that_it_does_not_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"search": dtsweep.Search(), "measure": replace(QUICK, repeats=None)}
    frame = run(tmp_path, {"workers": [1], "micro_batch": list(range(1, 10))}, **settings)
    assert len(frame) == 9
    assert "--in-process does not search" in capsys.readouterr().err


def test_points_with_one_worker_are_measured_and_the_others_skipped_with_the_reason(
    tmp_path: Path,
) -> None:
    axes = {"workers": [1, 2], "sync": ["ddp", "local_sgd", "parameter_server"]}
    frame = run(tmp_path, axes).set_index(["workers", "sync"])
    ok = frame[frame["status"] == "ok"]
    assert set(ok.index) == {(1, "ddp"), (1, "local_sgd")}
    assert set(frame["status"]) == {"ok", "skipped"}
    assert len(frame) == 6
    assert frame.loc[(2, "ddp")]["reason"] == "in this process there is one worker, not 2"
    assert frame.loc[(1, "parameter_server")]["reason"] == "parameter_server needs Ray"
    assert set(frame["harness"]) == {"in_process"}
    assert ok["samples_per_s"].gt(0).all()
    assert ok["measured_steps"].ge(5).all()
    assert ok["session"].nunique() == 1


def test_the_loss_of_a_compression_is_known_of_one_worker_too(tmp_path: Path) -> None:
    frame = run(tmp_path, {"compression": ["fp16", None]}).set_index("compression", drop=False)
    # Numbers of 11 bits are off by at most 2 ** -11 of themselves.
    assert 0 <= frame.loc["fp16"]["compression_error"] <= 2**-11
    assert pd.isna(frame[frame["compression"].isna()]["compression_error"]).all()


def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    before, threads = dict(os.environ), torch.get_num_threads()
    resources = Resources(cpus_per_worker=1, environment={"DTSWEEP_EXAMPLE": "set"})
    run(tmp_path, {"workers": [1]}, resources=resources)
    assert dict(os.environ) == before
    assert torch.get_num_threads() == threads
    assert not distributed.is_initialized()


def test_a_mistake_is_a_row_with_its_reason_and_the_next_trial_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = run(tmp_path, {"workload.fails": [True, False]}).set_index("workload_fails")
    assert frame["status"].to_dict() == {True: "user_error", False: "ok"}
    said = r"rank 0: ValueError: a mistake in loss \(test_in_process_run\.py:\d+\)"
    assert re.fullmatch(said, frame.loc[True]["reason"])
    # The traceback is where the user looks.
    assert 'raise ValueError("a mistake in loss")' in capsys.readouterr().err


@dataclass(frozen=True)
class Full(Line):
    """Runs out of a device's memory from a number of samples on."""

    fits: int = 4

    def batch(self, samples: range, device: torch.device) -> Tensor:
        if len(samples) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().batch(samples, device)


def test_larger_batches_than_one_that_ran_out_of_memory_are_skipped_until_they_are_asked_for(
    tmp_path: Path,
) -> None:
    def statuses(*sizes: int, **measure: Any) -> dict[int, str]:
        changed = {"workload": Full(), "measure": replace(QUICK, **measure)}
        frame = run(tmp_path, {"micro_batch": [*sizes]}, **changed)
        skipped = frame[frame["status"] == "skipped"]
        assert set(skipped["reason"]) <= {"micro_batch=8 ran out of memory; --try-all measures it"}
        return dict(zip(frame["micro_batch"], frame["status"], strict=True))

    assert statuses(4, 8) == {4: "ok", 8: "oom_device"}
    # By what is stored.
    by_stored = {4: "ok", 8: "oom_device", 16: "skipped", 32: "skipped"}
    assert statuses(8, 16, 32) == statuses(8, 16, 32) == by_stored
    assert len(Results(tmp_path / "r").attempts()) == 4
    assert statuses(8, 16, prune=False) == by_stored | {16: "oom_device"}
    # By what the same run found.
    sizes = [8 * 2**power for power in range(8)]
    frame = run(tmp_path / "same", {"micro_batch": sizes}, workload=Full(), measure=QUICK)
    assert (len(frame), set(frame["status"])) == (8, {"oom_device", "skipped"})


@pytest.mark.parametrize("question", [{}, {"goal": "energy"}])
def test_there_is_one_launch_and_no_canary(tmp_path: Path, question: dict[str, str]) -> None:
    measure = replace(QUICK, repeats=None if question else 3, fresh=True)
    run(tmp_path, {"micro_batch": [1, 2, 4]}, measure=measure, **question)
    rows = Results(tmp_path / "r").attempts()
    launches = [(row["repeat"], row["role"], row["fresh"], row["question"]) for row in rows]
    assert launches == [(1, "trial", False, None)] * 3


def test_another_device_than_the_results_have_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    run(tmp_path, {"micro_batch": [1]})
    (row,) = Results(tmp_path / "r").attempts()
    now = datetime.now(UTC)
    changed = {"attempt_id": "other", "trial_id": "other", "devices": "H100", "started_at": now}
    store = Results(tmp_path / "other")
    store.commit({**row, **changed}, workload_types={"width": int, "fails": bool})
    with pytest.raises(SweepError, match=r"measured on H100, this run is on .*--rerun all"):
        dtsweep.run(swept({"micro_batch": [2]}), tmp_path / "other", in_process=True)
    assert [row["attempt_id"] for row in store.attempts()] == ["other"]


def command(
    tmp_path: Path,
    loss: str,
    *arguments: str,
    limit: str = "9",
    before: str = "",
    said: str = "print('rank', 0)\nq\n",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """A run of the sweep with this loss, in a process that has its imports already."""
    write_sweep(tmp_path, loss, limit=limit, before=before)
    words = ["run", "study.py", "--in-process", *arguments]
    return run_forked(words, folder=tmp_path, environment=without_ray(**environment), said=said)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What the command has stored."""
    return Results(folder / "results" / "study-in-process").attempts()


def write_sweep(folder: Path, loss: str, *, limit: str = "9", before: str = "") -> None:
    (folder / "study.py").write_text(before + FILE.replace("LOSS", loss).replace("MAX", limit))


@pytest.mark.slow
def test_the_command_needs_no_ray_and_has_results_of_its_own(tmp_path: Path) -> None:
    write_sweep(tmp_path, SQUARE)
    report = "print('ray' in sys.modules, file=sys.stderr)"
    watch = f"import atexit, sys; atexit.register(lambda: {report})"
    called = [sys.executable, "-c", f"{watch}; from dtsweep.cli import main; main()"]
    done = subprocess.run(
        [*called, "run", "study.py", "--in-process"],
        cwd=tmp_path,
        env=without_ray(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().endswith("False")
    assert "Frontier" in done.stdout
    assert len(dtsweep.load(tmp_path / "results" / "study-in-process")) == 2


@pytest.mark.parametrize("harness", [(), ("--in-process",)])
def test_results_that_can_not_be_written_are_found_before_anything_starts(
    tmp_path: Path, forked_command: Command, harness: tuple[str, ...]
) -> None:
    write_sweep(tmp_path, "raise KeyError")
    (tmp_path / "file").write_text("in the way of a folder")
    for where in ("file", "file/results", "/proc/nowhere/results"):
        done = forked_command("run", "study.py", "--results", where, *harness, folder=tmp_path)
        assert done.returncode == 5
        planned, said = done.stderr.splitlines()
        assert "to run" in planned
        assert said.startswith(f"dtsweep: can't write results in {tmp_path / where}: ")
        assert said.endswith("; put that right and run the same command again")
    assert [path.name for path in tmp_path.iterdir() if path.name != "study.py"] == ["file"]


@pytest.mark.slow
def test_an_edit_of_a_module_that_a_method_imports_refuses_to_go_on_and_says_which(
    tmp_path: Path,
) -> None:
    loss = "import numpy; from my_sizes import SIZE; " + SQUARE + " * SIZE"
    (tmp_path / "my_sizes.py").write_text("SIZE = 1\n")
    assert command(tmp_path, loss).returncode == 0
    results = Results(tmp_path / "results" / "study-in-process")
    rows, machines = results.attempts(), results.table("ranks")["machine"].to_pylist()
    # The skipped point has them, too.
    assert {tuple(json.loads(row["sources"])) for row in rows} == {
        ("class Net", "my_sizes.py", "package numpy")
    }
    assert [json.loads(machine)["packages"] for machine in machines] == [{"numpy": np.__version__}]
    assert {row["numpy_version"] for row in rows if row["status"] == "ok"} == {np.__version__}
    (tmp_path / "my_sizes.py").write_text("SIZE = 1  # inch\n")
    assert command(tmp_path, loss).returncode == 0
    (tmp_path / "my_sizes.py").write_text("SIZE = 2\n")
    done = command(tmp_path, loss)
    line = (
        "dtsweep: these results were measured before my_sizes.py changed; "
        "measure everything again with --rerun all, or keep both"
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(line)
    assert len(results.attempts()) == len(rows)


STOPS = "import os, signal; os.environ.get('STOP') and os.kill(os.getpid(), signal.SIGINT); "


@pytest.mark.slow
def test_after_ctrl_c_what_is_measured_is_reported_and_the_way_to_go_on_is_named(
    tmp_path: Path,
) -> None:
    loss = STOPS + SQUARE
    assert command(tmp_path, loss).returncode == 0
    more = ("--set", "micro_batch=32,64")
    stopped = command(tmp_path, loss, *more, STOP="1")
    assert stopped.returncode == 130, stopped.stderr
    way_on = "dtsweep: interrupted; what was done is stored; the same command goes on\n"
    assert way_on in stopped.stderr
    assert "Frontier · exact updates" in stopped.stdout
    assert "1  cancelled  interrupted; the next run measures it again" in stopped.stdout
    assert command(tmp_path, loss, *more).returncode == 0


@pytest.mark.parametrize("ends", ["SIGTERM", "SIGUSR1", "debugger"])
def test_whatever_ends_a_run_has_what_is_measured_stored_too(tmp_path: Path, ends: str) -> None:
    # A debugger reads that it is left.
    stops = "breakpoint(); " if ends == "debugger" else STOPS.replace("SIGINT", ends)
    more = ("--rerun", "all") if ends == "SIGUSR1" else ()
    stopped = command(tmp_path, stops + SQUARE, *more, STOP="1")
    code = 130 if ends == "debugger" else 128 + signal.Signals[ends]
    assert stopped.returncode == code, stopped.stderr
    assert "dtsweep: interrupted; what was done is stored" in stopped.stderr
    assert ("starts over, without --rerun all it measures" in stopped.stderr) == bool(more)
    assert ("rank 0" in stopped.stdout) == (ends == "debugger")
    assert sorted(row["status"] for row in rows_of(tmp_path)) == ["cancelled", "skipped"]


@pytest.mark.slow
def test_another_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    assert command(tmp_path, STOPS + SQUARE).returncode == 0
    process = begun(
        *("run", "study.py", "--in-process", "--set", "micro_batch=32,64"),
        folder=tmp_path,
        PYTHONPATH=str(ROOT),
        STOP="1",
    )
    assert "the same command goes on" in read_until("the same command goes on", process)
    process.send_signal(signal.SIGINT)
    assert "Frontier" not in process.communicate(timeout=60)[0]
    assert process.returncode == -signal.SIGINT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "is_limited"),
    [("", True), ("import sys; sys.settrace(lambda *_: None)", False)],
    ids=["none", "traces"],
)
def test_no_limit_of_time_ends_a_window_while_a_debugger_is_attached(
    tmp_path: Path, before: str, *, is_limited: bool
) -> None:
    slow = f"import time; time.sleep(0.1); {SQUARE}"
    done = command(tmp_path, slow, limit="0.01", before=before)
    (row,) = (row for row in rows_of(tmp_path) if row["workers"] == 1)
    assert (row["status"], row["stop_reason"] == "max_seconds") == ("ok", is_limited), done.stderr

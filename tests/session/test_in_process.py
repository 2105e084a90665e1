"""A world of one rank in this very process: what it runs, and what it gives back."""

from __future__ import annotations

import bdb
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import distributed, nn

from dtsweep import Measure, Point, Resources, Sweep, SweepError, workloads
from dtsweep.session.attempt import run_attempt
from dtsweep.session.in_process import only_rank
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.timing import NO_LIMIT_S, without_deadline
from tests.outcomes import Tokens
from tests.ranks import alone

ROOT = Path(__file__).parents[2]
OTHER_THREADS = 2 if torch.get_num_threads() == 1 else 1

WORKLOAD = workloads.Gpt(layers=1, width=16, sequence=8)
SWEEP = Sweep(
    workload=WORKLOAD,
    axes={"workers": [1]},
    measure=Measure(half_width=None, warmup_steps=1, min_steps=4, min_seconds=0, max_seconds=30),
    resources=Resources(
        gpus_per_worker=0, cpus_per_worker=OTHER_THREADS, environment={"DTSWEEP_TEST": "its own"}
    ),
)


def task_at(**fields: str) -> Task:
    return task_of(SWEEP, Point(workload=WORKLOAD, micro_batch=2, **fields))  # type: ignore[arg-type]  # no numbers


class Quits(Tokens):
    """Its user leaves the debugger in `build`."""

    def build(self) -> nn.Module:
        raise bdb.BdbQuit


@pytest.fixture
def _no_debugger() -> Iterator[None]:
    """Without the trace function that a debugger, or a run for coverage, has set."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def test_variables_that_libraries_have_read_already_are_refused_by_name() -> None:
    variables = {"OMP_DYNAMIC": "true", "NCCL_ALGO": "Ring", "MY_DATA": "/data"}
    sweep = replace(SWEEP, resources=replace(SWEEP.resources, environment=variables))
    with pytest.raises(SweepError, match=r"^OMP_DYNAMIC of .* start it as OMP_DYNAMIC=true"):
        only_rank(sweep).__enter__()
    assert "MY_DATA" not in os.environ


def test_the_rank_has_the_sweeps_threads_and_variables_and_says_where_it_runs() -> None:
    for sync, steps in (("ddp", 4), ("local_sgd", 8)):
        with only_rank(SWEEP) as context:
            assert (context.rank, context.device.type, context.workload) == (0, "cpu", WORKLOAD)
            assert distributed.get_world_size() == 1
            group = weakref.ref(distributed.group.WORLD)
            assert os.environ["DTSWEEP_TEST"] == "its own"
            facts = context.facts
            assert facts.threads == torch.get_num_threads() == OTHER_THREADS
            assert (facts.pid, facts.node_id, facts.log) == (os.getpid(), None, None)
            result = run_attempt(context, task_at(sync=sync))
        assert (result.status, result.reason) == ("ok", None)
        assert result.measured is not None
        assert result.measured.window_steps == steps
        assert not distributed.is_initialized()
        assert group() is None


def test_threads_and_environment_are_given_back_even_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST", "as it was")
    threads, environment = torch.get_num_threads(), dict(os.environ)
    with pytest.raises(KeyboardInterrupt), only_rank(SWEEP):
        os.environ["DTSWEEP_TEST_OTHER"] = "set by a workload"
        raise KeyboardInterrupt
    assert dict(os.environ) == environment
    assert torch.get_num_threads() == threads
    assert not distributed.is_initialized()


def test_a_start_that_fails_half_way_leaves_nothing_behind() -> None:
    environment = dict(os.environ)
    variables = {"DTSWEEP_TEST": "its own", "NCCL_ALGO": "Ring"}
    resources = Resources(environment=variables, gpus_per_worker=1)
    with pytest.raises(SweepError, match="GPU"), only_rank(replace(SWEEP, resources=resources)):
        pass
    assert dict(os.environ) == environment
    assert not distributed.is_initialized()


def test_what_stood_in_memory_before_is_collected_when_it_is_garbage() -> None:
    model = nn.Linear(1, 1)
    model.itself = [model]  # type: ignore[assignment]  # a cycle that only the collector ends
    seen = weakref.ref(model)
    with only_rank(SWEEP):
        pass
    del model
    gc.collect()
    assert seen() is None


def test_a_process_that_is_in_a_group_is_refused_and_stays_in_it() -> None:
    words = "in a process group already; call destroy_process_group"
    with alone():
        with pytest.raises(SweepError, match=words):
            only_rank(SWEEP).__enter__()
        assert distributed.is_initialized()
        assert "DTSWEEP_TEST" not in os.environ


@pytest.mark.usefixtures("_no_debugger")
def test_while_a_debugger_looks_time_ends_no_window_whether_it_traces_or_not() -> None:
    measure = Measure()
    if sys.version_info >= (3, 12):
        sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "a test")
        try:
            assert without_deadline(measure).max_seconds == NO_LIMIT_S
        finally:
            sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)
    assert without_deadline(measure) is measure
    sys.settrace(lambda *_: None)
    assert without_deadline(measure) == replace(measure, max_seconds=NO_LIMIT_S)


@pytest.mark.parametrize("is_own_process", [False, True])
def test_leaving_the_debugger_ends_the_run_in_this_process_and_is_a_failure_elsewhere(
    is_own_process: bool,
) -> None:
    task = task_at()
    with only_rank(SWEEP) as context:
        broken = replace(context, workload=Quits(), is_own_process=is_own_process)
        if is_own_process:
            with pytest.raises(bdb.BdbQuit):
                run_attempt(broken, replace(task, workload={}))
        else:
            result = run_attempt(broken, replace(task, workload={}))
            line = Quits.build.__code__.co_firstlineno + 1
            reason = f"BdbQuit (test_in_process.py:{line})"
            assert (result.status, result.reason) == ("user_error", reason)


SCRIPT = """
import sys
import torch
import helper, parts.inner

sys.argv[1:] = ["other"]
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(8, 2)).sum().backward()
    optimizer.step()
"""


def test_a_script_leaves_the_interpreter_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name in ("helper.py", "parts/inner.py"):
        (tmp_path / name).touch()
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sweep = replace(SWEEP, workload=workloads.Script(str(script)))
    task = task_of(sweep, Point(workload=sweep.workload, sync=AS_WRITTEN))
    before = sys.modules["__main__"], [*sys.argv], [*sys.path_hooks]
    with only_rank(sweep) as context:
        result = run_attempt(context, task)
    assert (result.status, result.reason) == ("ok", None)
    assert (sys.modules["__main__"], [*sys.argv], [*sys.path_hooks]) == before
    assert {"helper", "parts", "parts.inner"}.isdisjoint(sys.modules)

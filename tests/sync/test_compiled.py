"""The axis `compile`: what compiles, when, and that nothing of it is in a window."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from dtsweep.measure.flops import count_flops
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.sync.compiled import compile_model, compiled_so_far
from tests.sync.test_checkpoints import CPU, Stack
from tests.worker.on_ranks import Trials, run_trials, window

WIDE = Stack(width=16, hidden=24, depth=12)


@dataclass(frozen=True)
class Apart(Stack):
    """A loss that never calls the model."""

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return sum(parameter.sum() for parameter in model.parameters())  # type: ignore[return-value]


COMPILED: dict[str, dict[str, Any]] = {
    "eager": {},
    "ddp": {"compile": True},
    "ddp again": {"compile": True},
    "one bucket": {"compile": True, "overlap": False},
    "fsdp": {"sync": "fsdp", "compile": True},
    "checkpointed": {"sync": "fsdp", "compile": True, "checkpointing": "blocks"},
    "apart": {"compile": True, "workload": Apart()},
}


@functools.cache
def trials() -> Trials:
    usual: dict[str, Any] = {"workers": 2, "micro_batch": 4, "workload": WIDE}
    return run_trials(
        {
            name: (window(6, exchange="off"), Point(**{**usual, **fields}))
            for name, fields in COMPILED.items()
        }
    )


def graphs(name: str) -> int:
    return 2 if COMPILED[name].get("sync") == "fsdp" else 1


def test_trials_of_a_session_compile_before_their_windows_and_begin_without_compiled_code() -> None:
    rows = {name: trials().row(name) for name in COMPILED if name != "apart"}
    assert {name: row["reason"] for name, row in rows.items()} == dict.fromkeys(rows)
    eager = rows.pop("eager")
    assert eager["compile_s"] is eager["compiled_graphs"] is eager["recompiles"] is None
    assert eager["flops_per_sample"] > 0
    for name, row in rows.items():
        # In shards the 12 blocks share kernels; the first has an input without a gradient. The
        # second trial compiles again.
        assert (row["compiled_graphs"], row["recompiles"]) == (graphs(name), 0), name
        assert "left_state" not in row["flags"]
        first, _ = trials().measured(name)
        assert 0 < row["compile_s"] < first.warmup_s
        assert row["flops_per_sample"] == eager["flops_per_sample"], name
        assert first.work is None


def test_a_trial_that_compiles_nothing_is_not_stored_as_compiled() -> None:
    status, reason = trials().failure("apart")
    assert status == "user_error"
    assert reason is not None
    assert "compile=True compiled nothing of the model" in reason


def without_compiler(context: Any, task: Any) -> Any:
    """Run an attempt on ranks of which the last lacks a compiler."""
    with pytest.MonkeyPatch.context() as patch:
        if context.rank == 1:
            patch.setenv("CXX", "no-such-compiler")
            patch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
        return run_attempt(context, task)


def test_a_point_is_infeasible_where_a_rank_has_no_compiler() -> None:
    point = Point(workers=2, workload=Stack(), compile=True)
    found = run_trials({"lacks": (window(2), point)}, attempt=without_compiler)
    status, reason = found.failure("lacks")
    assert status == "infeasible"
    assert reason is not None
    assert "compile needs a C++ compiler (g++) for CPUs" in reason


@pytest.mark.parametrize("by_blocks", [False, True])
def test_names_stay_and_a_copy_is_not_compiled(by_blocks: bool) -> None:
    workload = Stack()
    model = workload.build()
    names = [name for name, _ in model.named_modules()], list(model.state_dict())
    checkpoint_blocks(model, workload)
    compile_model(model, workload, by_blocks=by_blocks)
    assert ([name for name, _ in model.named_modules()], list(model.state_dict())) == names
    compiled = [m for m in model.modules() if m._compiled_call_impl is not None]
    assert compiled == (list(model) if by_blocks else [model])
    assert all(m._compiled_call_impl is None for m in copy.deepcopy(model).modules())
    before = compiled_so_far()
    assert count_flops(workload, model=model, precision="fp32", device=CPU) is not None
    assert compiled_so_far() == before

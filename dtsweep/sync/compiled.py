"""Kernels that `torch.compile` makes of a model: the axis `compile`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from dtsweep.sync.model_blocks import blocks_of


def compile_model(model: nn.Module, workload: Any, *, by_blocks: bool) -> None:
    """Let modules compile themselves with inductor when they are first called.

    Names of modules and parameters stay as they are, and a deep copy of the model is not compiled.
    Compile a model after `checkpoint_blocks`, and before its mode takes it over.

    Args:
        model: freshly built, in place.
        workload: may name the blocks by `blocks(model)`.
        by_blocks: compile each block by itself, and nothing between them, for modes in shards: what
            gathers parameters is not compiled. A model without blocks is compiled as a whole.
    """
    modules = blocks_of(workload, model) if by_blocks else []
    for module in modules or [model]:
        module.forward = functools.partial(_forwarded, module.forward)
        module.compile()


def _forwarded(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    # torch skips frames of its own modules: of an `nn.Sequential` nothing would be compiled.
    return forward(*inputs, **named)


def is_compiled(model: nn.Module) -> bool:
    """True if a module of it is, in place or by a wrapper of torch's."""
    return any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )


class _Compiled(NamedTuple):
    """Counters of torch's compiler in this process."""

    graphs: int
    seconds: float

    def columns(self, before: _Compiled) -> dict[str, Any]:
        """`compiled_graphs` and `compile_s` of what was compiled since then; none without any."""
        graphs = self.graphs - before.graphs
        if not graphs:
            return {}
        return {"compiled_graphs": graphs, "compile_s": self.seconds - before.seconds}


def compiled_so_far() -> _Compiled:
    """Read torch's counters."""
    # Reading them would import the compiler, which takes seconds.
    if "torch._dynamo" not in sys.modules:
        return _Compiled(0, 0.0)
    counters = torch._dynamo.utils.counters["stats"]
    spent_s = torch._dynamo.utils.calculate_time_spent()
    return _Compiled(int(counters["unique_graphs"]), float(spent_s["total_wall_time"]))


def never_uncompiled(*, wanted: bool) -> Any:
    """Refuse code that torch has compiled too often, where it would go on without compiling it."""
    if not wanted:
        return contextlib.nullcontext()
    import torch._dynamo.config

    return torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)


NOTHING_COMPILED = (
    "compile=True compiled nothing of the model: its loss does not call it, or it can't be traced; "
    "see the rank's log, and use compile=False"
)
"""Message where a trial would be stored as compiled, and was not."""

"""A trial in a sync mode on one rank: its model is built, handed to the mode, and timed."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

from dtsweep.hardware.random_states import set_seed
from dtsweep.measure.flops import given_flops
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.task import Task
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.sync.compiled import compile_model, never_uncompiled
from dtsweep.sync.mode import Job, SyncMode, load_mode
from dtsweep.sync.model_blocks import WHOLE, described, has_repeated_modules
from dtsweep.sync.pass_time import pass_time_of
from dtsweep.sync.passes import loss_in_precision, make_optimizer
from dtsweep.sync.weights import weight_of
from dtsweep.worker.attention import AttentionRan, attention_kernel
from dtsweep.worker.batch_checks import check_batch
from dtsweep.worker.loop import ModeLoop
from dtsweep.worker.model_work import describe_model, described_parameters, device_rates
from dtsweep.worker.rank import RankContext
from dtsweep.worker.timing import Parts, time_trial, turns_of
from dtsweep.worker.to_target import Training

_OWN_WRAPPER = (
    "build gave a model with a DistributedDataParallel in it; give the plain model: the sync mode "
    "wraps it"
)
"""Message where gradients would be exchanged twice."""


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A model that its mode has taken over, and what is known of it before it trains."""

    model: nn.Module
    """As the mode trains it."""

    parameters: Sequence[Any]
    """Shape, type and `requires_grad` of each, of the whole model."""

    facts: Mapping[str, Any]
    """Fields of `Measured`; of a divided model also those of `describe_model`."""

    flags: Sequence[str]


def measure_in_mode(
    context: RankContext, task: Task, servers: Sequence[Any], on_warm: Callable[[float], None]
) -> Measured:
    """Build the trial and have it timed."""

    def time_it(loop: ModeLoop, built: _Built) -> Parts:
        yield from ()
        return time_trial(loop, built.model, task, context=context, on_warm=on_warm)

    parts = _trial(context, task, servers, time_it)
    try:
        with (
            never_uncompiled(wanted=task.point.compile),
            attention_kernel(task.point.attention),
        ):
            next(parts)
    except StopIteration as end:
        measured: Measured = end.value
        return measured
    raise AssertionError("a window is one part")


def trial_in_turn(context: RankContext, task: Task, on_warm: Callable[[float], None]) -> Parts:
    """Build the trial, and measure it in turn with others; nothing follows the window."""

    def time_turns(loop: ModeLoop, built: _Built) -> Parts:
        del built
        measured = yield from turns_of(loop, task, context, on_warm)
        return measured

    return _trial(context, task, (), time_turns)


def _trial(
    context: RankContext,
    task: Task,
    servers: Sequence[Any],
    timed: Callable[[ModeLoop, _Built], Parts],
) -> Parts:
    """Build the trial, have it timed in parts, and describe it."""
    began = time.perf_counter()
    point = task.point_of(context.workload)
    # Refused before anything is measured.
    given_flops(point.workload)
    set_precision(point.precision)
    attention = AttentionRan(loss_in_precision(point, context.device))
    job = Job(
        point=point,
        rank=context.rank,
        device=context.device,
        loss=attention,
        ddp_options=getattr(point.workload, "ddp_options", {}),
        servers=servers,
        scaler=GradScaler(context.device.type) if PRECISIONS[point.precision].is_scaled else None,
        seed=seed_of(task),
        pass_time=pass_time_of(point, context.rank, context.device),
    )
    rates = device_rates(context, task, point)
    with ExitStack() as stack:
        mode = stack.enter_context(closing(load_mode(point.mode)(job)))
        built = _build(context, task, job, mode, rates)
        build_s = time.perf_counter() - began
        set_seed(_seeds_of(job)[job.data_rank])
        loop = stack.enter_context(closing(ModeLoop(job, mode)))
        if context.watch is not None:
            context.watch.follow(loop)
        facts = {**rates, **built.facts}
        training = Training(loop, built.model, task)
        facts |= training.run()
        began_warmup = time.perf_counter()
        measured = yield from timed(loop, built)
        facts["attention_ran"] = ",".join(sorted(attention.names)) or None
        if not job.divides_model:
            optimizer = mode.optimizer_class
            facts |= describe_model(
                job, built.model, built.parameters, rates=rates, optimizer=optimizer
            )
        training.forget()
        after_s = None
        # Between turns others take theirs.
        if not measured.is_in_turn:
            after_warmup_s = time.perf_counter() - began_warmup
            after_s = after_warmup_s - (measured.warmup_s or 0.0) - measured.window_s
        return replace(
            measured,
            **facts,
            build_s=build_s,
            after_window_s=after_s,
            flags=[*built.flags, *measured.flags],
        )


def seed_of(task: Task) -> int:
    """Seed of a trial: the same on all ranks, another for each repeat."""
    digest = hashlib.sha256(f"{task.seed}/{task.repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _seeds_of(job: Job) -> Sequence[int]:
    """Seeds of the data-parallel groups from the first pass on.

    Equal dropout masks on all would be a smaller batch.
    """
    return range(job.seed + 1, job.seed + 1 + job.point.data_parallel)


def _build(
    context: RankContext, task: Task, job: Job, mode: SyncMode, rates: Mapping[str, Any]
) -> _Built:
    """Build the model and have the mode take it over."""
    point = job.point
    model, flags = _model_of(job)
    if PRECISIONS[point.precision].is_beyond(context.facts.compute_capability):
        # The GPU emulates it; precisions that it would replace are refused before.
        flags.append("bf16_emulated")
    blocks = None
    if point.checkpointing is not None:
        blocks = described(checkpoint_blocks(model, point.workload))
    if point.compile:
        compile_model(model, point.workload, by_blocks=point.mode.shards)
    # Before the mode takes the model over, which may leave a part of each parameter here.
    parameters = described_parameters(model)
    facts: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "is_weighted": weight_of(point.workload) is not None,
    }
    # What is counted of a model is counted of a whole one.
    if job.divides_model:
        facts |= describe_model(job, model, parameters, rates=rates)
    # A workload of its own: this one travels to the parameter servers, without what `batch` has
    # cached.
    make = functools.partial(make_optimizer, point=task.point_of(context.workload))
    could_have_blocks = has_repeated_modules(model)
    mode.prepare(model, make)
    if mode.blocks == WHOLE and could_have_blocks:
        flags.append("one_block")
    facts |= {"optimizer_class": mode.optimizer_class, "blocks": mode.blocks or blocks}
    return _Built(model=mode.trained or model, parameters=parameters, facts=facts, flags=flags)


def _model_of(job: Job) -> tuple[nn.Module, list[str]]:
    """Make the model and the first batch with the same seed on all ranks; report its flags."""
    set_seed(job.seed)
    model = job.point.workload.build().to(job.device).train()
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise ValueError(_OWN_WRAPPER)
    return model, check_batch(job, seed=job.seed)


def set_precision(precision: str) -> None:
    """Set the flags of the point's precision; `run_attempt` restores them."""
    is_tf32 = PRECISIONS[precision].is_tf32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.backends.cudnn.benchmark = False

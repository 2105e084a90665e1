"""The model of a trial and the work of its step, and the rates of the device that does it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dtsweep.errors import error_line
from dtsweep.hardware.bandwidth import operation_rates
from dtsweep.hardware.peaks import choose_peak, matmul_rates, peak_flops
from dtsweep.measure.flops import count_flops, count_operations
from dtsweep.measure.operations import update_operations
from dtsweep.measure.work import StepWork, step_work
from dtsweep.metrics.product import model_digest
from dtsweep.secret import without_secrets
from dtsweep.sweep.modes import OWN
from dtsweep.sweep.point import Point, tokens_per_sample
from dtsweep.sweep.task import Task
from dtsweep.sync.compiled import is_compiled
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import make_optimizer
from dtsweep.worker.rank import RankContext


def device_rates(context: RankContext, task: Task, point: Point) -> dict[str, Any]:
    """Rates of the device, measured on all ranks at once.

    The sweep or a table may give its peak rate; else it is measured.
    """
    on_cpu = context.device.type == "cpu"
    other_ranks = 0
    if on_cpu:
        other_ranks = point.workers - 1
    matmul = matmul_rates(context.device, point.precision, other_ranks=other_ranks)
    moving = operation_rates(context.device, other_ranks=other_ranks)
    table = None
    if not on_cpu:
        table = peak_flops(context.facts.device, point.precision)
    peak, source = choose_peak(given=task.peak_flops_per_s, table=table, measured=matmul.alone)
    return {
        "matmul_flops_per_s": matmul.reached,
        "peak_flops_per_s": peak,
        "peak_source": source,
        "moved_bytes_per_s": moving.peak_bytes_per_s,
        "launch_s": moving.launch_s,
    }


def describe_model(
    job: Job,
    model: nn.Module,
    parameters: Sequence[Any],
    *,
    rates: Mapping[str, Any],
    optimizer: str | None = None,
) -> dict[str, Any]:
    """Describe the model and the work of a sample and a step: on rank 0, of the whole model."""
    if job.rank:
        return {}
    point = job.point
    facts = facts_of_model(point, model, parameters, job.device)
    work = None
    # How workers divide a model is not known.
    is_divided = point.sync == OWN or point.grid.model > 1
    if not is_divided and _steps_alone(point, optimizer):
        work = _step_work(job, model, rates)
    return {**facts, "work": work}


def facts_of_model(
    point: Point, model: nn.Module, parameters: Sequence[Any], device: torch.device
) -> dict[str, Any]:
    """Digest of a model, and the arithmetic of a sample.

    Args:
        point: whose workload has built it.
        model: on the device.
        parameters: shape, type and `requires_grad` of each, before a mode took it over.
        device: where it computes.
    """
    counted = count_flops(
        point.workload,
        model=model,
        precision=point.precision,
        device=device,
        checkpointing=point.checkpointing,
        serves=point.is_inference,
    )
    flops, hardware_flops = None, None
    if counted:
        flops, hardware_flops = counted.model_per_sample, counted.hardware_per_sample
    digest = model_digest(
        parameters, flops_per_sample=flops, tokens_per_sample=tokens_per_sample(point)
    )
    return {
        "model_digest": digest,
        "flops_per_sample": flops,
        "hardware_flops_per_sample": hardware_flops,
    }


def described_parameters(model: nn.Module) -> list[Any]:
    """Shape, type and `requires_grad` of each parameter."""
    return [[list(p.shape), str(p.dtype), p.requires_grad] for p in model.parameters()]


def _steps_alone(point: Point, optimizer: str | None) -> bool:
    """True if the optimizer is known not to communicate.

    An optimizer that communicates would wait for the other ranks while its update is counted.
    """
    return not point.has_own_optimizer or point.workers == 1 or optimizer in vars(torch.optim)


def _step_work(job: Job, model: nn.Module, rates: Mapping[str, Any]) -> StepWork | None:
    """Work of a worker's step.

    None where its operations, or its optimizer's, can't be counted, or are compiled.
    """
    point, device = job.point, job.device
    # What a compiler makes one operation is launched once, and moves less.
    if is_compiled(model):
        return None
    passes = count_operations(
        point.workload,
        model=model,
        precision=point.precision,
        device=device,
        checkpointing=point.checkpointing,
        serves=point.is_inference,
    )
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    try:
        update = update_operations(
            functools.partial(make_optimizer, point=point), sizes, device=device
        )
    except Exception as error:  # noqa: BLE001  # the workload's own optimizer may want other parameters
        reason = without_secrets(error_line(error))
        print(f"operations of the optimizer are not counted: {reason}", file=sys.stderr)  # noqa: T201
        return None
    if passes is None:
        return None
    # A worker's device updates its part of the parameters, and none where servers or its host do.
    info = point.mode
    operations, moved_bytes = update
    if point.servers or point.offload or point.is_inference:
        operations = operations * 0
        moved_bytes = 0
    elif info.shards_optimizer:
        operations = operations / point.workers
    other_ranks = 0
    if device.type == "cpu":
        other_ranks = point.workers - 1
    return step_work(
        # Those of rank 0, which counts.
        passes.at(point.micro_batch),
        (operations, moved_bytes),
        accumulation=point.accumulation,
        # What this rank has measured already.
        rates=operation_rates(device, other_ranks=other_ranks),
        flops_per_s=rates["peak_flops_per_s"],
    )

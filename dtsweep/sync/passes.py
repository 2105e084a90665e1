"""Forward and backward passes of a step in all modes, with its samples, loss and optimizer."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dtsweep.measure.clock import StepClock
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sync.batches import BatchSource
from dtsweep.sync.buckets import trainable_parameters
from dtsweep.sync.mode import Job, Loss
from dtsweep.sync.weights import PassFactors, weight_of


class LossError(TypeError):
    """Error for a `loss` that returned nothing to train on."""


def passes(
    job: Job,
    model: nn.Module,
    batches: Iterator[Any],
    clock: StepClock,
    *,
    exchange: bool = True,
    is_joint: bool = False,
) -> Loss:
    """Run a forward and backward pass on each of a step's batches, adding up gradients.

    Passes count equally, or as the workload's `weight` says.

    Args:
        job: the trial.
        model: called with each batch; where it has `no_sync`, only the last pass exchanges
            gradients.
        batches: `accumulation` batches.
        clock: called with data, forward and backward.
        exchange: False lets no pass exchange.
        is_joint: True if all workers' passes make this update, also in a mode of local updates.

    Returns:
        This worker's part of the mean loss: the mean over workers is the mean over all
        passes. Gradients are those of this value.

    Raises:
        LossError: the loss is not a scalar tensor, or has no gradient.
    """
    count = job.point.accumulation
    losses: list[Any] = []
    factors = None
    if weight := weight_of(job.point.workload):
        # All of a step's, because the first pass needs the sum of their weights.
        loaded = list(batches)
        batches = iter(loaded)
        exchange_weights = exchange and (is_joint or job.point.is_joint)
        factors = PassFactors(job, weight, loaded, exchange=exchange_weights)
    for index in range(count):
        batch = next(batches)
        clock.mark("data")
        # DDP decides in forward whether it will exchange: forward must be inside no_sync as well.
        silent = None
        if index < count - 1 or not exchange:
            silent = getattr(model, "no_sync", None)
        with silent() if silent else contextlib.nullcontext():
            with job.pass_time.forward():
                loss = job.loss(model, batch)
            # Looked at only when it has failed: nothing is added to a step.
            try:
                clock.mark("forward")
                if factors is not None:
                    factors.wait()
                    clock.mark("sync")
                    factor = factors.of(index)
                    loss = loss * factor.to(torch.promote_types(loss.dtype, torch.float32))
                elif count != 1:
                    loss = loss / count
                with job.pass_time.backward(loss):
                    _backward(job, loss)
            except Exception as error:
                raise loss_error(job.point.workload, loss) or error from error
        losses.append(kept_loss(loss, job.device))
        clock.mark("backward")
    return sum_of_losses(losses, job.device)


def _backward(job: Job, loss: torch.Tensor) -> None:
    """Run backward; of the scaled loss where the trial scales it."""
    if job.scaler is not None:
        loss = job.scaler.scale(loss)
    loss.backward()


def sum_of_losses(losses: list[Any], device: torch.device) -> torch.Tensor | float:
    """Sum of a step's losses, one at least, as `kept_loss` gives them."""
    if device.type == "cpu":
        return float(sum(losses))
    total: torch.Tensor = losses[0]
    if len(losses) > 1:
        total = torch.stack(losses).sum()
    return total


def kept_loss(loss: torch.Tensor | float, device: torch.device) -> torch.Tensor | float:
    """A loss as the loop keeps it: a number on a CPU, on a GPU a scalar that nobody waits for."""
    if not isinstance(loss, torch.Tensor):
        return float(loss)
    if device.type == "cpu":
        return loss.item()
    # A copy: compiled models may write the next loss into the same memory.
    return loss.detach().to(torch.float32, copy=True).reshape(())


def loss_error(workload: Any, loss: Any) -> LossError | None:
    """Say what is wrong with the value that `loss` returned, with its place and the way out.

    None if the value is right.
    """
    if not isinstance(loss, torch.Tensor):
        is_number = isinstance(loss, int | float)
        returned = "None"
        if loss is not None:
            returned = f"a {type(loss).__name__}"
        way_out = "return that alone"
        if is_number:
            way_out = "leave .item() and float() out"
    elif loss.numel() != 1:
        returned = f"a tensor of shape {tuple(loss.shape)}"
        way_out = "take its mean, with .mean()"
    elif not loss.requires_grad:
        returned = "a tensor without a gradient"
        way_out = "leave .detach() and torch.no_grad() out"
    else:
        return None
    code = getattr(inspect.unwrap(type(workload).loss), "__code__", None)
    where = ""
    if code:
        where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})"
    named = f"{type(workload).__name__}.loss{where} gave {returned}"
    return LossError(f"{named}; loss must return a scalar tensor: {way_out}")


def batches_of_steps(
    job: Job, slot: Callable[[], int | None] = lambda: None, source: BatchSource | None = None
) -> Iterator[Iterator[Any]]:
    """Yield this rank's batches, step after step, without end.

    Sample numbers are global: a step's samples follow those of the step before, pass after pass and
    in a pass data-parallel group after group, so that every number of workers trains on the same
    ones. Ranks of a group read the same ones. Groups that don't train in a step leave no gap.

    Args:
        job: the trial.
        slot: gives `SyncMode.slot`; called when a batch is taken.
        source: makes or loads the batches; None makes them in this process.
    """
    accumulation = job.point.accumulation
    made = source or BatchSource(job)

    def batches(first_pass: int) -> Iterator[Any]:
        place = slot()
        if place is None:
            place = job.data_rank
        for number in range(first_pass, first_pass + accumulation):
            yield made.take(number, place)

    for step in itertools.count():
        yield batches(step * accumulation)


def loss_in_precision(
    point: Point, device: torch.device
) -> Callable[[nn.Module, Any], torch.Tensor]:
    """Wrap the workload's loss in autocast if the precision needs it; parameters stay fp32."""
    plain: Callable[[nn.Module, Any], torch.Tensor] = getattr(point.workload, "loss", _no_loss)
    precision = PRECISIONS[point.precision]
    if not precision.is_autocast:
        return plain
    dtype = getattr(torch, precision.dtype)

    def under_autocast(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast(device.type, dtype=dtype):
            return plain(model, batch)

    return under_autocast


def _no_loss(*_: Any) -> torch.Tensor:
    raise LossError("the workload has no loss, only a train_step, which sync=own calls")


def make_optimizer(parameters: Iterable[Any], *, point: Point) -> torch.optim.Optimizer:
    """Make the workload's own optimizer, else the point's."""
    if point.has_own_optimizer:
        optimizer: torch.optim.Optimizer = point.workload.optimizer(parameters, point.learning_rate)
        return optimizer
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": torch.optim.SGD,
        "momentum": functools.partial(torch.optim.SGD, momentum=0.9),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    options = {"fused": True} if point.fused else {}
    return kinds[point.optimizer](parameters, lr=point.learning_rate, **options)


def optimizer_name(optimizer: torch.optim.Optimizer) -> str:
    """Class of an optimizer, and that it is fused where it is.

    >>> optimizer_name(torch.optim.SGD([torch.zeros(1)], lr=1, fused=True))
    'SGD (fused)'
    """
    name = type(optimizer).__name__
    if any(group.get("fused") for group in getattr(optimizer, "param_groups", ())):
        return f"{name} (fused)"
    return name


def refuse_sparse_adam(optimizer: object, mode: str) -> None:
    """Refuse the optimizer that takes sparse gradients alone, in a mode that makes them dense.

    Raises:
        ValueError: names the way out.
    """
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ValueError(
            f"SparseAdam takes sparse gradients alone, and {mode} makes them dense; use Adam, or "
            "sync=ddp"
        )


def make_contiguous(model: nn.Module) -> None:
    """Lay parameters out in memory in the order of their indices, for modes that divide them."""
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()


def _is_ignored(tensor: torch.Tensor) -> bool:
    """True for a parameter or buffer that the user has told DDP to leave alone."""
    return bool(getattr(tensor, "_ddp_ignored", False))


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters whose gradients DDP exchanges."""
    return [p for p in trainable_parameters(model) if not _is_ignored(p)]


def refuse_shared_memory(model: nn.Module) -> None:
    """Refuse buffers that can't be sent because their elements share memory.

    Raises:
        ValueError: names the buffer and the way out.
    """
    for name, buffer in model.named_buffers():
        if buffer.layout != torch.strided or _is_ignored(buffer):
            continue
        sides = zip(buffer.shape, buffer.stride(), strict=True)
        if any(size > 1 and not step for size, step in sides):
            raise ValueError(
                f"elements of the buffer {name} share memory (it was expanded), so workers can't "
                "send it; add .clone() where it is made"
            )


def share_weights(model: nn.Module) -> None:
    """Give all ranks rank 0's parameters and buffers, whatever a workload's `build` drew.

    Raises:
        ValueError: as `refuse_shared_memory`.
    """
    refuse_shared_memory(model)
    for tensor in (*model.parameters(), *model.buffers()):
        torch.distributed.broadcast(tensor.data, src=0)

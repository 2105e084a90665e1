"""Arithmetic per sample: counted on tensors without numbers, or given by the workload."""

from __future__ import annotations

import copy
import functools
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from dtsweep.errors import SweepError, quoted
from dtsweep.hardware.random_states import random_states_kept, set_seed
from dtsweep.measure.operations import Attention, OperationLog
from dtsweep.measure.work import PassOperations
from dtsweep.secret import without_secrets
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.values import workload_fields
from dtsweep.workloads.datasets import batch_maker

SAMPLES = (2, 4)
"""Micro-batches that are counted, to verify that the work is linear in samples.

Not 1: batch normalization refuses a single sample.
"""

_TOLERANCE = 0.01
"""By which share of itself the count may differ from linear."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a forward and backward pass, per sample."""

    model_per_sample: float
    """Operations that the mathematics needs, each counted once."""

    hardware_per_sample: float | None
    """With what is computed again to save memory; None where only the model's are known."""


@dataclass(frozen=True)
class _Counted:
    """Known operations of a setting of a workload."""

    flops: Flops | None = None
    operations: PassOperations | None = None


_counted: dict[tuple[type, str, str, str | None, bool], _Counted] = {}


def count_flops(
    workload: Any,
    *,
    model: nn.Module,
    precision: str,
    device: torch.device,
    checkpointing: str | None = None,
    serves: bool = False,
) -> Flops | None:
    """Count what a sample of a workload takes, once per process for each of its settings.

    A copy of the model runs on tensors that have shapes but no numbers (`FakeTensorMode`), which
    takes no memory and little time; the batches are real. Call it when the trial has trained, so
    that what the workload keeps between calls has been made with numbers. The model, random states
    and torch's flags stay as they are.

    `FlopCounterMode` counts matrix products, convolutions and attention, two operations for a
    multiplication with its addition. It leaves out norms, activations, the optimizer, and kernels
    that it does not know. Attention counts whole, as if it were not causal, and as its two matrix
    products: what a flash kernel computes again in backward is in neither figure.

    What is computed again (`torch.utils.checkpoint`, `use_reentrant` or not) is distinguished from
    the rest of backward by autograd, which is on while it runs; it is in the hardware's figure
    alone.

    Args:
        workload: the one that trained, with the fields of the point. Its `flops_per_sample`, where
            it has one, is the model's figure; the hardware's is then larger by the share that was
            counted.
        model: what the workload built, as a mode trains it: whole, on `device`.
        precision: of the point.
        device: where the trial computes.
        checkpointing: of the point, as the model has it.
        serves: True counts `serve` of the workload in place of the passes.

    Returns:
        None where it can't be counted, because the model can't be copied or its loss needs numbers,
        or the count is not linear in the samples; a line on stderr says why.

    Raises:
        SweepError: `flops_per_sample` is not a positive number.
    """
    counted = _count_once(workload, model, precision, device, checkpointing, serves=serves).flops
    model_flops = given_flops(workload)
    # What a workload gives is of forward and backward.
    if model_flops is None or serves:
        return counted
    if counted is None or counted.hardware_per_sample is None:
        return Flops(model_flops, None)
    return Flops(model_flops, model_flops * counted.hardware_per_sample / counted.model_per_sample)


def count_operations(
    workload: Any,
    *,
    model: nn.Module,
    precision: str,
    device: torch.device,
    checkpointing: str | None = None,
    serves: bool = False,
) -> PassOperations | None:
    """List the operations of a forward and backward pass, as `count_flops` sees them.

    Arguments are as in `count_flops`. Torch's own attention counts as its matrix products, without
    their scores, which its kernels never write.

    Returns:
        None where they can't be counted, or their number depends on the number of samples.
    """
    return _count_once(workload, model, precision, device, checkpointing, serves=serves).operations


def _count_once(
    workload: Any,
    model: nn.Module,
    precision: str,
    device: torch.device,
    checkpointing: str | None,
    *,
    serves: bool,
) -> _Counted:
    """Count the operations of a workload's setting once; say on stderr why that fails."""
    settings = json.dumps(workload_fields(workload), sort_keys=True)
    key = (type(workload), settings, precision, checkpointing, serves)
    if key not in _counted:
        counted = _Counted()
        try:
            with random_states_kept(device):
                tallies, recorders = _counts(workload, model, precision, device, serves=serves)
            counted = _Counted(
                operations=PassOperations.of([recorder.noted for recorder in recorders], SAMPLES)
            )
            counted = replace(counted, flops=_per_sample(tallies))
        except Exception as error:  # noqa: BLE001  # users' code, on tensors that it was not written for
            message = " ".join(str(error).split())[:300]
            reason = without_secrets(f"{type(error).__name__}: {message}")
            print(  # noqa: T201  # the rank's log
                f"FLOPs of {type(workload).__name__} are not counted: {reason}; a workload can "
                "give flops_per_sample",
                file=sys.stderr,
            )
        _counted[key] = counted
    return _counted[key]


def given_flops(workload: Any) -> float | None:
    """Return the FLOPs of a sample that a workload gives itself as `flops_per_sample`, if it does.

    Raises:
        SweepError: it is not a positive number.
    """
    flops = getattr(workload, "flops_per_sample", None)
    if flops is None:
        return None
    if isinstance(flops, bool) or not isinstance(flops, int | float) or not 0 < flops < math.inf:
        name = type(workload).__name__
        raise SweepError(
            f"{name}.flops_per_sample is {quoted(flops)}; it must be a positive number, or None"
        )
    return float(flops)


def _per_sample(counts: Sequence[_Tally]) -> Flops:
    """Divide by the samples.

    Raises:
        ValueError: nothing was counted, or the quotients differ.
    """
    model, hardware = (
        [getattr(count, figure) / samples for count, samples in zip(counts, SAMPLES, strict=True)]
        for figure in ("model", "hardware")
    )
    if not model[-1]:
        raise ValueError("it does no matrix product, convolution or attention that is known")
    for small_batch, large_batch in (model, hardware):
        if abs(small_batch - large_batch) > _TOLERANCE * large_batch:
            counted = " and ".join(
                f"{count.hardware:,} for {n}" for count, n in zip(counts, SAMPLES, strict=True)
            )
            raise ValueError(f"they don't grow with the samples ({counted})")
    return Flops(model[-1], hardware[-1])


def _counts(
    workload: Any, model: nn.Module, precision: str, device: torch.device, *, serves: bool
) -> tuple[list[_Tally], list[OperationLog]]:
    """Count a forward and a backward pass on each number of `SAMPLES`, or a serving."""
    make = batch_maker(workload)
    batches = [make(range(samples), device) for samples in SAMPLES]
    # What loss keeps in its workload has no numbers and must not reach the trial.
    workload_copy = copy.copy(workload)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    batches = [tree_map_only(torch.Tensor, fake.from_tensor, batch) for batch in batches]
    with FakeCopyMode(fake):
        shapes = copy.deepcopy(model)
    with fake, _plain_kernels():
        counts = []
        for batch in batches:
            # What a loss draws must not make one count differ from the next.
            set_seed(0)
            # Nor is a first gradient added to another.
            shapes.zero_grad(set_to_none=True)
            if serves:
                forward = functools.partial(_serve, workload_copy, shapes, batch)
            else:
                forward = functools.partial(workload_copy.loss, shapes, batch)
            counts.append(_count(forward, precision, device))
        tallies, recorders = zip(*counts, strict=True)
        return list(tallies), list(recorders)


@torch.no_grad()
def _serve(workload: Any, model: nn.Module, batch: Any) -> None:
    """Make all outputs of a batch."""
    outputs = workload.serve(model, batch)
    if isinstance(outputs, Iterator):
        deque(outputs, maxlen=0)


@dataclass
class _Tally:
    """Operations of one forward and backward pass."""

    model: int = 0
    again: int = 0
    in_backward: bool = False

    @property
    def hardware(self) -> int:
        return self.model + self.again

    def counting(self, formula: Callable[..., int]) -> Callable[..., int]:
        """Let a formula of `FlopCounterMode` add to this tally what it gives."""

        @functools.wraps(formula)
        def count(*args: Any, **kwargs: Any) -> int:
            flops = formula(*args, **kwargs)
            if self.in_backward and torch.is_grad_enabled():
                self.again += flops
            else:
                self.model += flops
            return flops

        count._get_raw = True  # type: ignore[attr-defined]  # takes the operation's arguments, not their shapes
        return count


def _count(
    forward: Callable[[], torch.Tensor | None], precision: str, device: torch.device
) -> tuple[_Tally, OperationLog]:
    tally = _Tally()
    formulas = flop_registry | {torch.ops.aten.convolution_backward: _convolution_backward}
    counting = {operation: tally.counting(formula) for operation, formula in formulas.items()}
    recorder = OperationLog(lambda: tally.hardware)
    with FlopCounterMode(display=False, custom_mapping=counting), recorder, Attention(recorder):
        settings = PRECISIONS[precision]
        with torch.autocast(
            device.type, dtype=getattr(torch, settings.dtype), enabled=settings.is_autocast
        ):
            loss = forward()
        if loss is not None:
            tally.in_backward = True
            loss.backward()
    return tally, recorder


def _convolution_backward(
    grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, *rest: Any, **_: Any
) -> int:
    """Each gradient takes what forward took; torch's own formula forgets the groups.

    Args:
        grad: of the output, (samples, channels, ...).
        images: the input, (samples, channels, ...).
        weight: (channels, channels of a group, ...).
        rest: the bias' sizes, stride, padding, dilation, whether it is transposed, output padding,
            groups, and which of input, weight and bias need a gradient is wanted.
        _: not needed.
    """
    transposed, wanted = rest[4], rest[7]
    positions = (images if transposed else grad).shape
    forward = 2 * positions[0] * math.prod(positions[2:]) * weight.numel()
    return int(forward * sum(wanted[:2]))


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Let attention and recurrent layers run as matrix products, which are counted."""
    libraries: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.mkldnn)
    before = [library.enabled for library in libraries]
    try:
        for library in libraries:
            library.enabled = False
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for library, enabled in zip(libraries, before, strict=True):
            library.enabled = enabled

"""Check of the first step's gradient against one worker that runs all ranks' passes."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dtsweep.errors import error_line
from dtsweep.hardware.memory import peak_bytes, release_memory, reserved_peak_bytes, restart_peak
from dtsweep.hardware.random_states import random_states_kept, set_seed
from dtsweep.metrics.rank_result import Measured
from dtsweep.sync.mode import Job, SyncMode
from dtsweep.sync.passes import batches_of_steps, is_ignored, loss_in_precision
from dtsweep.sync.weights import weight_of
from dtsweep.worker.gradients import sums_and_norms

LIMIT_S = 120.0
"""Time limit of one worker's passes: other ranks wait in a collective, which ends after 300 s."""


class UncheckedError(RuntimeError):
    """One worker's gradient can't be computed, for a reason that says nothing against the trial."""

    is_whole_reason = True


class GradientCheck:
    """Compares the first gradient that a trial exchanges with one worker's; on rank 0.

    Of a divided model all ranks gather their parts. Where it gives up, the trial goes on without.
    """

    def __init__(
        self, job: Job, mode: SyncMode, model: nn.Module, *, seeds: Sequence[int], limit_s: float
    ) -> None:
        """Compute one worker's gradient on rank 0; model and random states stay as they are.

        Args:
            job: the trial.
            mode: that will train it.
            model: freshly built, the mode does not have it yet: rank 0's weights are everybody's.
            seeds: what each rank draws from in its steps.
            limit_s: what it may take.
        """
        self.error: float | None = None
        self.flags: list[str] = []
        self.unchecked_reason: str | None = None
        self.expected: dict[str, torch.Tensor] = {}
        self._mode = mode
        self._model = model
        self._errors: dict[str, float] = {}
        self._norms: list[float] = []
        self._job = job
        self._peak_before = peak_bytes(job.device)
        self._reserved_before = reserved_peak_bytes(job.device)
        if job.rank:
            return
        try:
            with random_states_kept(job.device):
                gradients = gradient_of_one_worker(job, model, seeds=seeds, limit_s=limit_s)
            # By name: a mode may put shards in the place of the parameters.
            self.expected = dict(zip(dict(model.named_parameters()), gradients, strict=True))
        except Exception as error:  # noqa: BLE001  # users' code, called in another way than they know
            self._give_up(error_line(error))
        finally:
            release_memory(job.device)

    def __enter__(self) -> Self:
        """Look at the gradients of the next step."""
        self._mode.before_update = self._look
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Look no more, let go of one worker's gradient, and judge."""
        self._mode.__dict__.pop("before_update", None)
        self.expected.clear()
        restart_peak(self._job.device)
        if kind or self.flags or self._job.rank:
            return
        difference = math.hypot(*self._errors.values())
        norm = math.hypot(*self._norms)
        if not 0 < difference + norm < math.inf:
            self._give_up("gradients are zero or not finite, or no parameter is compared")
            return
        # One worker's may be zero: then as a share of the exchanged one's.
        self.error = difference / norm if norm else 1.0
        worst = max(self._errors, key=self._errors.__getitem__)
        print(f"gradient_error {self.error:.2g}, most of it in {worst}", file=sys.stderr)  # noqa: T201

    def added_to(self, measured: Measured) -> Measured:
        """Measurements, with the results of this check, and the peaks of memory before it."""
        reserved = measured.memory_reserved_peak_bytes
        if reserved is not None and self._reserved_before is not None:
            reserved = max(reserved, self._reserved_before)
        return replace(
            measured,
            gradient_error=self.error,
            flags=[*measured.flags, *self.flags],
            unchecked_reason=self.unchecked_reason,
            memory_peak_bytes=max(measured.memory_peak_bytes or 0, self._peak_before),
            memory_reserved_peak_bytes=reserved,
        )

    def _look(self) -> None:
        # The first step alone.
        del self._mode.before_update
        trained = self._mode.trained or self._model
        gradient_of = _gathered if self._job.divides_model else _dense
        for name, parameter in trained.named_parameters():
            # Of a divided model on all ranks in one order, also when rank 0 has given up: the
            # others would wait for it.
            gradient = gradient_of(parameter)
            expected = self.expected.get(name)
            # Other shapes: divided by the workload's or the mode's own code, which alone knows how.
            if expected is None or gradient.shape != expected.shape:
                continue
            del self.expected[name]
            if not is_ignored(parameter):
                # In main memory: the device may have no room.
                sums = sums_and_norms([gradient.cpu() - expected, expected], counts=[0, 0])
                self._errors[name] = float(sums[0, 1])
                self._norms.append(float(sums[1, 1]))
        if self.expected:
            name = next(iter(self.expected))
            self._give_up(f"the trained model has no parameter {name} of the same shape")

    def _give_up(self, why: str) -> None:
        self.expected.clear()
        self.flags = ["unchecked"]
        self.unchecked_reason = why
        print(f"the first step's gradient is not checked: {why}", file=sys.stderr)  # noqa: T201


def gradient_of_one_worker(
    job: Job, model: nn.Module, *, seeds: Sequence[int], limit_s: float
) -> list[torch.Tensor]:
    """Compute the gradient of the mean over all ranks' passes of the first step, in main memory.

    Ranks run one after another, each on a new copy of the model; none begins after `limit_s`.

    Raises:
        UncheckedError: it takes too long, the loss needs other workers, or the model has no copy.
    """
    # Zeros that take no memory.
    total = [torch.zeros(()).expand(parameter.shape) for parameter in model.parameters()]
    total_weight = 0.0
    end_s = time.perf_counter() + limit_s
    for number, seed in enumerate(seeds):
        if time.perf_counter() > end_s:
            raise UncheckedError(f"one worker's passes for all take more than {limit_s:.3g} s")
        gradients, weight = _passes_of_group(job, model, data_rank=number, seed=seed)
        total = [sums + gradient.cpu() for sums, gradient in zip(total, gradients, strict=True)]
        total_weight += weight
    # Not the loss: in bf16 every gradient would be rounded for it.
    return [gradient / total_weight for gradient in total]


def _passes_of_group(
    job: Job, model: nn.Module, *, data_rank: int, seed: int
) -> tuple[list[torch.Tensor], float]:
    """Sum the weighted gradients of a data-parallel group's first step, and the weights."""
    replica = copy.deepcopy(model)
    for original, copied in zip(model.parameters(), replica.parameters(), strict=True):
        # `deepcopy` leaves the hooks of parameters out.
        copied._backward_hooks = original._backward_hooks
    wrapper = _Wrapper(replica)
    # With all that it keeps, also in slots: `copy` goes by the class's own `__getstate__`.
    original = job.point.workload
    workload = object.__new__(type(original))
    state: Any = object.__getstate__(original)
    if not isinstance(state, tuple):
        state = (state,)
    for values in filter(None, state):
        for name, value in values.items():
            object.__setattr__(workload, name, value)
    point = replace(job.point, workload=workload)
    loss, weight = loss_in_precision(point, job.device), weight_of(workload)
    job_of_group = replace(job, point=point, rank=data_rank * point.grid.model)
    total_weight = 0.0
    set_seed(seed)
    try:
        with _Alone():  # type: ignore[no-untyped-call]  # torch's own
            batches = next(batches_of_steps(job_of_group))
            # With weights `passes` loads all of them first, which draws random numbers.
            for batch in list(batches) if weight else batches:
                counts = float(weight(batch)) if weight else 1 / job_of_group.divisor
                (loss(wrapper, batch) * counts).backward()
                total_weight += counts
    finally:
        strays = any(parameter.grad is not None for parameter in model.parameters())
        model.zero_grad()
    if strays:
        raise UncheckedError("a copy of the model does not hold all of it: a function has the rest")
    sends_buffers = bool(point.mode.can_leave_out) and not point.mode.shards
    buffers = zip(model.buffers(), replica.buffers(), strict=True)
    is_changed = any(not torch.equal(before, after) for before, after in buffers)
    if sends_buffers and is_changed and wrapper.calls > point.accumulation:
        raise UncheckedError("DDP sends buffers of the model before each of its several calls")
    return [_dense(parameter) for parameter in replica.parameters()], total_weight


class _Wrapper(nn.Module):
    """Stand-in for a mode's wrapper in a loss: it is called, or its `module` is used."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.module(*args, **kwargs)


class _Alone(TorchDispatchMode):
    """Refuses every collective: the other ranks would not answer."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in func.namespace:
            raise UncheckedError(
                "the workload exchanges with the other workers by itself, as SyncBatchNorm does"
            )
        return func(*args, **(kwargs or {}))


def _dense(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient of a parameter, dense; zeros that take no memory where it has none."""
    if parameter.grad is None:
        return parameter.detach().new_zeros(()).expand_as(parameter)
    return parameter.grad.detach().to_dense()


def _gathered(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient of a parameter in shards; called on all ranks."""
    if not isinstance(parameter, DTensor):
        return _dense(parameter)
    shard: Any = parameter.grad
    if shard is None:
        shard = torch.zeros_like(parameter)
    # A shard that is kept in main memory can't be exchanged there.
    gradient: torch.Tensor = shard.detach().to(shard.device_mesh.device_type).full_tensor()
    return gradient

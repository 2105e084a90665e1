"""Check of the first step's gradient against one worker that runs all ranks' passes."""

from __future__ import annotations

import bdb
import copy
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dtsweep.errors import error_line
from dtsweep.hardware.memory import release_memory, restart_peak
from dtsweep.hardware.random_states import random_states_kept, set_seed
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
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

    Of a divided model all ranks gather their parts; else no collective is in it. Where it gives up,
    the trial goes on without. As a context it stands around the first steps.

    It gives up where it can't say: a batch's loss needs other workers (SyncBatchNorm), two passes
    from the same random states differ, a copy of the model is not the model, parameters are divided
    by the workload's own code, or it takes too long.
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
        self._squared_errors: dict[str, float] = {}
        self._squared_norm = 0.0
        self._job = job
        self._calls_again = False
        if job.rank:
            return
        try:
            with random_states_kept(job.device):
                gradients, self._calls_again = gradient_of_one_worker(
                    job, model, seeds=seeds, limit_s=limit_s
                )
            # By name: a mode may put shards in the place of the parameters.
            names = (name for name, _ in model.named_parameters())
            self.expected = dict(zip(names, gradients, strict=True))
        except bdb.BdbQuit:
            raise
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
        difference = math.sqrt(sum(self._squared_errors.values()))
        norm = math.sqrt(self._squared_norm)
        if not self._squared_errors:
            self._give_up("no step came to its update, or no parameter is compared")
        elif not math.isfinite(difference + norm):
            self._give_up("gradients are not finite")
        elif not difference and not norm:
            self._give_up("gradients are zero")
        elif difference > tolerance_of(self._job.point) * norm and self._sends_buffers():
            self._give_up("DDP sends buffers of the model before each of its several calls")
        else:
            # One worker's may be zero: then as a share of the exchanged one's.
            self.error = difference / norm if norm else 1.0
            message = f"gradient_error {self.error:.2g}"
            if difference > 0:
                worst = max(self._squared_errors, key=self._squared_errors.__getitem__)
                message += f", most of it in {worst}"
            _say(message)

    def _sends_buffers(self) -> bool:
        """True if passes can be unlike one worker's: DDP sends buffers, other modes none."""
        info = self._job.point.mode
        has_buffers = any(True for _ in self._model.buffers())
        return self._calls_again and has_buffers and bool(info.can_leave_out) and not info.shards

    def added_to(self, measured: Measured) -> Measured:
        """Measurements, with the results of this check."""
        return replace(
            measured,
            gradient_error=self.error,
            flags=[*measured.flags, *self.flags],
            unchecked_reason=self.unchecked_reason,
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
            expected = self.expected.pop(name, None)
            if expected is not None and not is_ignored(parameter):
                self._compare(name, gradient, expected)
        if self.expected:
            name, *others = self.expected
            more = f" and {len(others)} others" if others else ""
            self._give_up(f"the trained model has no parameter of the name {name}{more}")

    def _compare(self, name: str, gradient: torch.Tensor, expected: torch.Tensor) -> None:
        if gradient.shape != expected.shape:
            # Divided by the workload's or the mode's own code, which alone knows how.
            shapes = f"{tuple(gradient.shape)}, not {tuple(expected.shape)}"
            self._give_up(f"the gradient of {name} has the shape {shapes}")
            return
        self._squared_errors[name], squared_norm = squares(gradient, expected)
        self._squared_norm += squared_norm

    def _give_up(self, why: str) -> None:
        self.expected.clear()
        self.flags = ["unchecked"]
        self.unchecked_reason = why
        _say(f"the gradient of the first step is not checked: {self.unchecked_reason}")


def gradient_of_one_worker(
    job: Job, model: nn.Module, *, seeds: Sequence[int], limit_s: float
) -> tuple[list[torch.Tensor], bool]:
    """Run the first step's passes of all ranks one after another, each on a new copy of the model.

    Args:
        job: the trial.
        model: freshly built.
        seeds: (workers,) what each rank draws from.
        limit_s: what it may take; more than a rank's passes are begun only where all seem to fit.

    Returns:
        Of each parameter the gradient of the mean over all passes, in main memory; zeros where it
        has none. And whether the model is called several times in a pass.

    Raises:
        UncheckedError: one of the reasons of `GradientCheck`.
    """
    # Zeros that take no memory.
    total = [torch.zeros(()).expand(parameter.shape) for parameter in model.parameters()]
    total_weight, calls_again = 0.0, False
    for number, seed in enumerate(seeds):
        began = time.perf_counter()
        gradients, weight, calls = _passes_of_group(job, model, data_rank=number, seed=seed)
        needed_s = (time.perf_counter() - began) * len(seeds)
        if number == 0 and len(seeds) > 1 and needed_s > limit_s:
            words = f"one worker's passes for all {len(seeds)} would take {needed_s:.3g} s"
            raise UncheckedError(f"{words} of the {limit_s:.3g} s that they may")
        if number == 0:
            _refuse_unrepeatable(job, model, gradients, seed=seed)
        total = [sums + gradient.cpu() for sums, gradient in zip(total, gradients, strict=True)]
        total_weight += weight
        calls_again |= calls > job.point.accumulation
    # Not the loss: in bf16 every gradient would be rounded for it.
    return [gradient / total_weight for gradient in total], calls_again


def _passes_of_group(
    job: Job, model: nn.Module, *, data_rank: int, seed: int
) -> tuple[list[torch.Tensor], float, int]:
    """Run the first step's passes of a data-parallel group on a copy of the model.

    Returns:
        Gradients summed over the passes, weighted; the sum of the weights; and calls of the model.
    """
    replica = copy.deepcopy(model)
    for original, copied in zip(model.parameters(), replica.parameters(), strict=True):
        # `deepcopy` leaves the hooks of parameters out.
        copied._backward_hooks = original._backward_hooks
    wrapper = _Wrapper(replica)
    point = replace(job.point, workload=_twin(job.point.workload))
    loss, weight = loss_in_precision(point, job.device), weight_of(point.workload)
    job_of_group = replace(job, point=point, rank=data_rank * point.grid.model)
    total_weight = 0.0
    set_seed(seed)
    try:
        with _Alone():  # type: ignore[no-untyped-call]  # torch's own
            batches: Iterable[Any] = next(batches_of_steps(job_of_group))
            if weight:
                # As `passes` loads them, so that the same random numbers are drawn.
                batches = list(batches)
            for batch in batches:
                counts = float(weight(batch)) if weight else 1 / job_of_group.divisor
                (loss(wrapper, batch) * counts).backward()
                total_weight += counts
    finally:
        strays = any(parameter.grad is not None for parameter in model.parameters())
        model.zero_grad()
    if strays:
        raise UncheckedError("a copy of the model does not hold all of it: a function has the rest")
    return [_dense(parameter) for parameter in replica.parameters()], total_weight, wrapper.calls


def _refuse_unrepeatable(
    job: Job, model: nn.Module, gradients: Sequence[torch.Tensor], *, seed: int
) -> None:
    """Run rank 0's passes again, from the same random states: they must have the same gradient."""
    again, _, _ = _passes_of_group(job, model, data_rank=0, seed=seed)
    pairs = [squares(one, other) for one, other in zip(again, gradients, strict=True)]
    squared_error, squared_norm = map(sum, zip(*pairs, strict=True))
    if squared_error > (tolerance_of(job.point) / 10) ** 2 * squared_norm:
        apart = math.sqrt(squared_error / squared_norm) if squared_norm else math.inf
        raise UncheckedError(
            f"two passes of one worker from the same random states have gradients {apart:.2g} apart"
        )


def tolerance_of(point: Point) -> float:
    """Largest `gradient_error` of an exact point: its precision's, or the workload's own."""
    own_mode = point.own_mode
    if own_mode is not None and own_mode.gradient_tolerance is not None:
        return own_mode.gradient_tolerance
    return PRECISIONS[point.precision].gradient_tolerance


def squares(gradient: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """Return squared norms of a gradient's error and of the expected one, in double precision."""
    expected = expected.to(gradient.device)
    norms = sums_and_norms([gradient - expected, expected], counts=[0, 0])[:, 1]
    squared_error, squared_norm = norms.square().tolist()
    return squared_error, squared_norm


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


def _twin(workload: Any) -> Any:
    """Another workload with all that this one keeps; `copy` goes by `__getstate__`."""
    twin = object.__new__(type(workload))
    values = {field.name: getattr(workload, field.name) for field in fields(workload)}
    for name, value in (values | getattr(workload, "__dict__", {})).items():
        object.__setattr__(twin, name, value)
    return twin


def _dense(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient of a parameter, dense; zeros that take no memory where it has none."""
    if parameter.grad is None:
        return parameter.detach().new_zeros(()).expand_as(parameter)
    return parameter.grad.detach().to_dense()


def _gathered(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient of a parameter in shards; called on all ranks."""
    if not isinstance(parameter, DTensor):
        return _dense(parameter)
    if parameter.grad is None:
        shard: Any = torch.zeros_like(parameter)
    else:
        shard = parameter.grad
    # A shard that is kept in main memory can't be exchanged there.
    gradient: torch.Tensor = shard.detach().to(shard.device_mesh.device_type).full_tensor()
    return gradient


def _say(message: str) -> None:
    print(message, file=sys.stderr)  # noqa: T201  # the rank's log

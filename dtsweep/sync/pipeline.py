"""Pipeline parallel: consecutive stages of a model, by torch's schedules.

A step's passes are the micro-batches of a schedule.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from dtsweep.hardware.random_states import set_seed
from dtsweep.measure.clock import StepClock
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sync.groups import uncounted
from dtsweep.sync.mode import Job, Loss
from dtsweep.sync.model_blocks import blocks_of
from dtsweep.sync.passes import kept_loss, loss_error, sum_of_losses

_SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
}
"""Torch's classes, by the values of `pipeline_schedule`."""

_ONLY_CALLS = "pipeline_parallel needs a loss that calls model(...) once, with one tensor"
"""Message for other losses."""

_CHUNKS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
"""Methods of a stage that compute."""


class _Called(BaseException):
    """Raised in place of a forward, with what the model was called with."""

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()
        self.inputs = inputs


class _StandIn:
    """Model that a loss calls where the stages are on other workers."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer, self.calls = answer, 0

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.calls += 1
        return self._answer(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"{_ONLY_CALLS}, and has no use for model.{name}")


class Stage(nn.Module):
    """Consecutive parts of a model, in the point's precision."""

    def __init__(self, job: Job, parts: Sequence[nn.Module]) -> None:
        """Take parts that were made in a row."""
        super().__init__()
        self.parts = nn.Sequential(*parts)
        precision = PRECISIONS[job.point.precision]
        self._autocast = functools.partial(
            torch.autocast,
            job.device.type,
            dtype=getattr(torch, precision.dtype),
            enabled=precision.is_autocast,
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Give what the next stage takes.

        Raises:
            ValueError: it is not a tensor.
        """
        with self._autocast():
            outputs: Any = self.parts(inputs)
        if not isinstance(outputs, Tensor):
            raise ValueError(
                "pipeline_parallel needs stages that give a tensor each, here: "
                f"{type(outputs).__name__}"
            )
        return outputs


def stages_of(workload: Any, model: nn.Module, count: int) -> list[list[nn.Module]]:
    """Divide a model that is a sequence into stages with as many blocks, the first with the rest.

    Args:
        workload: may have `blocks(model)`.
        model: an `nn.Sequential`.
        count: of the stages.

    Returns:
        The parts of each stage. What comes before the first block is in the first stage.

    Raises:
        ValueError: the model is not a sequence, has too few blocks, or two stages share a
            parameter.
    """
    name = type(workload).__name__
    if not isinstance(model, nn.Sequential):
        raise ValueError(
            f"pipeline_parallel needs a sequence of blocks; let {name}.build give an nn.Sequential"
        )
    parts = list(model)
    blocks = set(blocks_of(workload, model)) & set(parts)
    starts = [index for index, part in enumerate(parts) if part in blocks]
    if len(starts) < count:
        raise ValueError(
            f"{len(starts)} blocks in the sequence that {name}.build gives are too few for {count} "
            "stages of a pipeline; use a smaller pipeline_parallel"
        )
    firsts = [int(own[0]) for own in torch.tensor(starts).tensor_split(count)]
    bounds = [0, *firsts[1:], len(parts)]
    stages = [parts[begin:end] for begin, end in itertools.pairwise(bounds)]
    counts = [len({p for part in stage for p in part.parameters()}) for stage in stages]
    if sum(counts) > len(list(model.parameters())):
        raise ValueError(
            f"two stages of {name} share a parameter, which a pipeline would train apart; untie "
            "them, or use pipeline_parallel=1"
        )
    return stages


class Pipeline:
    """A worker's stages, and the schedule that runs the passes of a step through them."""

    def __init__(self, job: Job, stages: dict[int, nn.Module], group: ProcessGroup) -> None:
        """Take stages by their number.

        Args:
            job: the trial.
            stages: of this worker.
            group: of the workers with the other stages.
        """
        self._job, self._group = job, group
        self._batches: list[Any] = []
        self._steps = 0
        self._timer = _Timer(job.device)
        count = job.point.stages
        self._is_first, self._is_last = 0 in stages, count - 1 in stages
        made = [
            self._timed(PipelineStage(stage, number, count, job.device, group=group))
            for number, stage in stages.items()
        ]
        kind = _SCHEDULES[job.point.pipeline_schedule or "1f1b"]
        is_single = job.point.pipeline_parallel == count
        self._schedule = kind(
            made[0] if is_single else made,
            n_microbatches=job.point.accumulation,
            loss_fn=self._timer.timed(self._loss_of),
            scale_grads=False,
        )
        # What is wrong with the loss is then found by all ranks, and none waits for another one.
        self._call_of(job.make_batch(range(job.point.micro_batch), job.device), 0)
        # The outputs of all passes together may not fit; torch before 2.10 always joins them.
        can_leave_out = "return_outputs" in inspect.signature(self._schedule.step).parameters
        self._options = {"return_outputs": False} if can_leave_out else {}

    def run(self, batches: Iterator[Any], clock: StepClock) -> Loss:
        """Run a step's passes, adding up gradients.

        Returns:
            As `passes`, on the worker with the last stage; None on the others.
        """
        inputs = []
        self._steps += 1
        if self._is_first or self._is_last:
            self._seed_pass(0)
            self._batches = list(batches)
        if self._is_first:
            inputs = [self._inputs()]
        clock.mark("data")
        losses: list[Tensor] = []
        target = torch.arange(len(self._batches)) if self._is_last else None
        with uncounted(self._group), self._timer.whole():
            self._schedule.step(*inputs, target=target, losses=losses, **self._options)
        self._batches = []
        clock.mark("loop")
        if not self._is_last:
            return None
        return sum_of_losses(
            [kept_loss(loss, self._job.device) for loss in losses], self._job.device
        )

    def take_times(self) -> dict[str, float]:
        """Fields of `Measured` with seconds since the last call."""
        return self._timer.take()

    def _inputs(self) -> Tensor:
        """Inputs of the model in a step, all passes one after another.

        Raises:
            ValueError: passes have different numbers of samples.
        """
        called = [self._call_of(batch, number) for number, batch in enumerate(self._batches)]
        if len({inputs.shape[:1] for inputs in called}) > 1:
            raise ValueError("pipeline_parallel needs passes with equal numbers of samples")
        if len(called) == 1:
            return called[0]
        return torch.cat(called)

    def _call_of(self, batch: Any, number: int) -> Tensor:
        """Inputs with which the workload's loss calls the model in a pass.

        Raises:
            ValueError: it does not call the model with a tensor alone.
        """

        def note(*inputs: Any, **named: Any) -> Any:
            if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
                raise ValueError(_ONLY_CALLS)
            raise _Called(inputs[0])

        model: Any = _StandIn(note)
        self._seed_pass(number)
        try:
            self._job.loss(model, batch)
        except _Called as called:
            return called.inputs
        raise ValueError(_ONLY_CALLS)

    def _loss_of(self, outputs: Any, number: Tensor) -> Tensor:
        """This worker's part of the mean loss by what the last stage gave for a pass.

        Raises:
            LossError: it is not a scalar with a gradient.
            ValueError: the workload's loss calls the model more than once.
        """
        model: Any = _StandIn(lambda *_: outputs)
        self._seed_pass(int(number))
        loss = self._job.loss(model, self._batches[int(number)])
        if error := loss_error(self._job.point.workload, loss):
            raise error
        if model.calls > 1:
            raise ValueError(_ONLY_CALLS)
        return loss / self._job.point.accumulation

    def _seed_pass(self, number: int) -> None:
        """Let the first and the last stage draw the same numbers for a pass."""
        point = self._job.point
        passes = (self._steps * point.accumulation + number) * point.data_parallel
        set_seed(self._job.seed + passes + self._job.data_rank)

    def _timed(self, stage: PipelineStage) -> PipelineStage:
        """Time the work of a stage."""
        for name in _CHUNKS:
            setattr(stage, name, self._timer.timed(getattr(stage, name)))
        return stage


class _Timer:
    """Seconds of a worker's steps in a pipeline, and of its own work in them."""

    def __init__(self, device: torch.device) -> None:
        """Begin with none."""
        self._device = device
        self._spans: dict[str, list[tuple[Any, Any]]] = {"pipeline_s": [], "stage_busy_s": []}

    def whole(self) -> _Span:
        """A context around a step."""
        return _Span(self._now, self._spans["pipeline_s"])

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose calls count as work."""

        @functools.wraps(work)
        def run(*given: Any, **named: Any) -> Any:
            with _Span(self._now, self._spans["stage_busy_s"]):
                return work(*given, **named)

        return run

    def take(self) -> dict[str, float]:
        """Seconds since the last call, by name; called when the device is idle."""
        seconds = {
            name: sum(_between(*span) for span in spans) for name, spans in self._spans.items()
        }
        for spans in self._spans.values():
            spans.clear()
        return seconds

    def _now(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class _Span:
    """A context whose begin and end are kept."""

    def __init__(self, now: Callable[[], Any], spans: list[tuple[Any, Any]]) -> None:
        self._now, self._spans = now, spans
        self._began: Any = None

    def __enter__(self) -> None:
        self._began = self._now()

    def __exit__(self, *_: object) -> None:
        self._spans.append((self._began, self._now()))


def _between(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    return float(begin.elapsed_time(end)) / 1e3

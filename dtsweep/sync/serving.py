"""`closed_loop`: each worker is a replica that serves batch after batch; nothing is exchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import nn

from dtsweep.hardware.device import wait_for
from dtsweep.measure.clock import StepClock
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode

_Serve = Callable[[nn.Module, Any], Iterator[Any]]
"""From a model and a batch to its outputs: one, or one for each token that was made."""


def ready_to_serve(model: nn.Module, point: Point) -> nn.Module:
    """Set a model to evaluation, its weights once in the type of an autocast precision."""
    precision = PRECISIONS[point.precision]
    if precision.is_autocast:
        model = model.to(getattr(torch, precision.dtype))
    return model.eval()


def serve_in_precision(point: Point, device: torch.device) -> _Serve:
    """Wrap the workload's `serve`: without gradients, in autocast if the precision needs it."""
    precision = PRECISIONS[point.precision]
    serve: Callable[[nn.Module, Any], Any] = point.workload.serve

    @contextlib.contextmanager
    def modes() -> Iterator[None]:
        dtype = getattr(torch, precision.dtype)
        autocast = torch.autocast(device.type, dtype=dtype, enabled=precision.is_autocast)
        with torch.inference_mode(), autocast:
            yield

    def outputs(model: nn.Module, batch: Any) -> Iterator[Any]:
        with modes():
            made = serve(model, batch)
        if not isinstance(made, Iterator):
            yield made
            return
        count = 0
        # The modes belong to the thread: they are off while the caller has an output.
        while True:
            with modes():
                output = next(made, _END)
            if output is _END:
                break
            count += 1
            yield output
        if not count:
            raise ValueError("serve gave no output; return one, or yield one for each token")

    return outputs


_END = object()
"""Stands for the end of a generator."""


class ClosedLoop(SyncMode):
    """A step serves one batch; the next begins when its last output is there."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._serve = serve_in_precision(job.point, job.device)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:  # noqa: ARG002  # nothing is trained
        """Take the model as it was built."""
        self._model = ready_to_serve(model, self._job.point)

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:  # noqa: ARG002  # nothing is exchanged
        """Serve a batch: `forward` lasts until its first output, `decode` until its last."""
        batch = next(batches)
        clock.mark("data")
        phase = "forward"
        for _ in self._serve(self._model, batch):
            # Whoever asked has an output when the device has made it.
            wait_for(self._job.device)
            clock.mark(phase)
            phase = "decode"
        return None

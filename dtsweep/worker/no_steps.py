"""Signs that a training loop of the user trains without steps that can be seen."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dtsweep.metrics.own_loops import NO_STEP
from dtsweep.text import count_of
from dtsweep.worker.past_handlers import raise_past_handlers

FEW_PASSES = 200
"""Backward passes without an optimizer step after which parameters are compared."""

SOON_S = 60.0
"""Seconds of training after which they are compared; with those of half the time."""

SPAWNED_S = 120.0
"""Seconds that a script may wait for processes of its own."""

MOST_ELEMENTS = 1_000_000
"""Elements of parameters that are compared, at most."""

LOOK_EVERY_S = 2.0

SPAWN = "torch/multiprocessing/spawn.py"
"""File in which a script waits for the processes that it has started as ranks."""

OWN_UPDATES = (
    f"{NO_STEP} {{passes}} backward passes and {{seconds:.0f}} s: the loop updates its parameters "
    "by hand, or by an optimizer that is not a subclass of torch.optim.Optimizer; derive the "
    "optimizer from it"
)
OWN_PROCESSES = (
    f"{NO_STEP} {{seconds:.0f}} s: the script has waited for {{processes}} that it has started by "
    "torch.multiprocessing.spawn, and dtsweep measures steps of the script's own process; let it "
    "train there when torchrun's variable RANK is set"
)
"""Reasons, in words."""


class NoStepsError(RuntimeError):
    """A training loop trains, and no step of it is seen."""

    is_whole_reason = True


class LoopWithoutSteps(BaseException):  # no error: training code swallows those
    """Raised in a loop that trains without steps."""


class NoSteps:
    """Ends a loop that trains before its first step is seen."""

    def __init__(
        self, steps: Callable[[], int], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Count nothing yet.

        Args:
            steps: says how many have ended.
            now: the clock, in seconds.
        """
        self._steps = steps
        self._now = now
        self._passes = 0
        self._first_at = 0.0
        self._parameters: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.reason: str | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loop of this thread in this context.

        Raises:
            NoStepsError: it was ended.
        """
        ended = threading.Event()
        here = threading.get_ident()
        looks = threading.Thread(
            target=self._look_for_processes,
            args=(here, ended),
            name="dtsweep-no-steps",
            daemon=True,
        )
        backward = torch.autograd.backward
        torch.autograd.backward = self._counted(backward)
        looks.start()
        try:
            yield
        except LoopWithoutSteps:
            raise NoStepsError(self.reason) from None
        finally:
            torch.autograd.backward = backward
            ended.set()

    def _counted(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def counted(*args: Any, **kwargs: Any) -> Any:
            # A backward inside another one belongs to it, as checkpointing has one for each layer.
            if not self._steps() and torch._C._current_graph_task_id() == -1:
                self.note_pass()
            return backward(*args, **kwargs)

        return counted

    def note_pass(self) -> None:
        """Note a backward pass before the first step; end a loop that changes its parameters."""
        now = self._now()
        self._first_at = self._first_at or now
        self._passes += 1
        seconds = now - self._first_at
        if not self._parameters and seconds > SOON_S / 2:
            self._parameters = [(found, found.detach().clone()) for found in _parameters()]
        if self._passes <= FEW_PASSES or seconds <= SOON_S:
            return
        if all(torch.equal(found, before) for found, before in self._parameters):
            # It accumulates, or its parameters are not plain tensors.
            self._passes, self._first_at = 0, now
            return
        self.reason = OWN_UPDATES.format(passes=self._passes, seconds=seconds)
        raise_past_handlers(LoopWithoutSteps())

    def _look_for_processes(self, thread_id: int, ended: threading.Event) -> None:
        """End the processes that the script waits for, if it does so for long."""
        waits_since: float | None = None
        while not ended.wait(LOOK_EVERY_S) and not self._steps():
            if not _waits_for_ranks(thread_id):
                waits_since = None
                continue
            waits_since = waits_since or self._now()
            children = multiprocessing.active_children()
            seconds = self._now() - waits_since
            if seconds >= SPAWNED_S and children:
                processes = count_of(len(children), "process")
                self.reason = OWN_PROCESSES.format(seconds=seconds, processes=processes)
                for child in children:
                    child.terminate()
                return


def _parameters() -> list[torch.Tensor]:
    """Small plain tensors of this process that are trained, the smallest first."""
    found: list[torch.Tensor] = [
        item
        for item in gc.get_objects()
        if type(item) in (torch.Tensor, nn.Parameter) and item.is_leaf and item.requires_grad
    ]
    found.sort(key=torch.Tensor.numel)
    sizes = itertools.accumulate(item.numel() for item in found)
    return [item for item, size in zip(found, sizes, strict=True) if size <= MOST_ELEMENTS]


def _waits_for_ranks(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)
    stack = traceback.walk_stack(frame)
    return any(entry.f_code.co_filename.endswith(SPAWN) for entry, _ in stack)

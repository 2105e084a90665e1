"""Ends of optimizer steps, of any training loop: torch calls a hook after each."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

_OnStep = Callable[[Optimizer, bool], None]
"""Called with the optimizer, and whether its step was left out."""

_MOST_REPEATS = 8
"""Steps of the same parameters without a backward, after which backward is taken for not seen."""


class OptimizerSteps:
    """Follows the optimizer that steps first; a step of it inside another one counts once.

    Where several optimizers step in turn, as in adversarial training, a step of the loop is one of
    the first of them. Its steps without a backward between them count once: DeepSpeed calls one
    optimizer for each group of parameters.
    """

    def __init__(self, on_step: _OnStep) -> None:
        """Call a function at each step, in the thread of the loop."""
        self._on_step = on_step
        self._running: list[tuple[Optimizer, FrameType]] = []
        """Optimizers whose steps have begun, with the frame of torch's that calls the hooks."""
        self.followed: Optimizer | None = None
        """The optimizer whose steps count."""
        self.follows_all = False
        """True if from now on every optimizer's step counts: the loop is to end."""
        self.on_begin: Callable[[Optimizer], None] | None = None
        """Called before the step of each optimizer that is in no other one's step."""
        self.on_end: Callable[[Optimizer], None] | None = None
        """Called after each of these steps, and before `on_step`."""
        self.on_loss: Callable[[torch.Tensor], None] | None = None
        """Called with each scalar from which a backward begins, before a scaler has scaled it."""
        self._scaled: tuple[Any, Any] = None, None
        """The last result of a scaler, and the loss that it has scaled."""
        self._last_ended: Optimizer | None = None
        self._has_backward = True
        """True if a backward has begun since the step that counted last."""
        self._updated: set[int] = set()
        """First parameters of the steps since then, by identity."""
        self._repeats = 0
        """Steps of the same ones since then."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all optimizers of this process."""
        # A loop may compile a function with its optimizer's step in it.
        before = register_optimizer_step_pre_hook(torch.compiler.disable(self._begins))
        after = register_optimizer_step_post_hook(torch.compiler.disable(self._ends))
        scaler: Any = torch.amp.GradScaler
        scaler_step, scaler_scale = scaler.step, scaler.scale
        scaler.step = self._with_skips(scaler_step)
        scaler.scale = self._remembering(scaler_scale)
        # Both `backward` and `grad` call it, even if a loop imported them before.
        autograd: Any = torch.autograd
        run_backward = autograd._engine_run_backward
        autograd._engine_run_backward = self._with_note(run_backward)
        try:
            yield
        finally:
            autograd._engine_run_backward = run_backward
            scaler.step, scaler.scale = scaler_step, scaler_scale
            self._scaled = None, None
            before.remove()
            after.remove()
            self._running.clear()
            self.followed = self._last_ended = None

    def _begins(self, optimizer: Optimizer, *_: Any) -> None:
        # Past the frame of `torch.compiler.disable`.
        frame = sys._getframe(2)
        if self._running:
            # A step that raised, such as one whose closure did, left its optimizer behind.
            active = _callers(frame)
            self._running = [entry for entry in self._running if entry[1] in active]
        if self.on_begin is not None and not self._running:
            self.on_begin(optimizer)
        self._running.append((optimizer, frame))

    def _ends(self, optimizer: Optimizer, *_: Any) -> None:
        while self._running and self._running.pop()[0] is not optimizer:
            pass
        self._last_ended = optimizer
        if not self._running:
            if self.on_end is not None:
                self.on_end(optimizer)
            self._note(optimizer, is_skipped=False)

    def _note(self, optimizer: Optimizer, *, is_skipped: bool) -> None:
        if self.followed is None or _have_same_parameters(self.followed, optimizer):
            self.followed = optimizer
        if self.follows_all or (optimizer is self.followed and self._is_another(optimizer)):
            self._on_step(optimizer, is_skipped)

    def _is_another(self, optimizer: Optimizer) -> bool:
        """False if an optimizer's step belongs to the one that counted last.

        Backward is not seen where a CUDA graph has it, or gradients are set by hand. The same
        parameters are then updated again and again without one.
        """
        if self._repeats >= _MOST_REPEATS:
            return True
        first = id(next(_parameters(optimizer), None))
        if self._has_backward:
            self._has_backward, self._repeats, self._updated = False, 0, {first}
            return True
        self._repeats += first in self._updated
        self._updated.add(first)
        return False

    def _with_note(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The start of autograd's engine, which notes that a backward has begun."""

        @functools.wraps(run)
        def noting(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._has_backward = True
            # `grad` adds nothing to gradients; a backward inside another one belongs to it.
            is_outermost = torch._C._current_graph_task_id() == -1
            if self.on_loss is not None and is_outermost and kwargs.get("accumulate_grad"):
                scaled, loss = self._scaled
                if not any(one is scaled for one in outputs):
                    (loss, *_) = outputs
                if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                    self.on_loss(loss)
            return run(outputs, *args, **kwargs)

        return noting

    def _remembering(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        """`GradScaler.scale`, whose result is not the loss."""

        @functools.wraps(scale)
        def remembering(scaler: Any, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if isinstance(outputs, torch.Tensor):
                self._scaled = scaled, outputs
            return scaled

        return remembering

    def _with_skips(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`GradScaler.step`, which leaves the optimizer's step out where gradients overflow."""

        @functools.wraps(step)
        def watched(scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._last_ended = None
            value = step(scaler, optimizer, *args, **kwargs)
            if self._last_ended is not optimizer:
                self._note(optimizer, is_skipped=True)
            return value

        return watched


def _have_same_parameters(first: Optimizer, second: Optimizer) -> bool:
    """True if optimizers have the same parameters: a loop may make a new one in each epoch."""
    if first is second:
        return True
    pairs = itertools.zip_longest(_parameters(first), _parameters(second))
    # Ends at the first parameter that differs.
    return all(one is other for one, other in pairs)


def _parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _callers(frame: FrameType | None) -> set[FrameType]:
    """Frames that have called a frame."""
    callers = set()
    while frame is not None:
        frame = frame.f_back
        if frame is not None:
            callers.add(frame)
    return callers

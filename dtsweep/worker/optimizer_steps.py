"""Ends of optimizer steps, of any training loop: torch calls a hook after each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

OnStep = Callable[[Optimizer, bool], None]
"""Called with the optimizer, and whether its step was left out."""


class OptimizerSteps:
    """Follows the optimizer that steps first; a step of it inside another one counts once.

    Where several optimizers step in turn, as in adversarial training, a step of the loop is one of
    the first of them.
    """

    def __init__(self, on_step: OnStep) -> None:
        """Call a function at each step, in the thread of the loop."""
        self._on_step = on_step
        self._running: list[Optimizer] = []
        self.followed: Optimizer | None = None
        """The optimizer whose steps count."""
        self.follows_all = False
        """True if from now on every optimizer's step counts: the loop is to end."""
        self.others: set[str] = set()
        """Classes of other optimizers that stepped."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all optimizers of this process."""
        before = register_optimizer_step_pre_hook(self._begins)
        after = register_optimizer_step_post_hook(self._ends)
        scaler_step = torch.amp.GradScaler.step
        torch.amp.GradScaler.step = self._with_skips(scaler_step)  # type: ignore[method-assign]  # given back below
        try:
            yield
        finally:
            torch.amp.GradScaler.step = scaler_step  # type: ignore[method-assign]  # as it was
            before.remove()
            after.remove()
            self._running.clear()

    def _begins(self, optimizer: Optimizer, *_: Any) -> None:
        self._running.append(optimizer)

    def _ends(self, optimizer: Optimizer, *_: Any) -> None:
        # A step that raised left its optimizer behind.
        while self._running and self._running.pop() is not optimizer:
            pass
        if not self._running:
            self._note(optimizer, is_skipped=False)

    def _note(self, optimizer: Optimizer, *, is_skipped: bool) -> None:
        if self.followed is None:
            self.followed = optimizer
        if self.follows_all or optimizer is self.followed:
            self._on_step(optimizer, is_skipped)
        else:
            self.others.add(type(optimizer).__name__)

    def _with_skips(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`GradScaler.step`, which leaves the optimizer's step out where gradients overflow."""

        @functools.wraps(step)
        def watched(scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            ended = False

            def note_end(*_: Any) -> None:
                nonlocal ended
                ended = True

            handle = optimizer.register_step_post_hook(note_end)
            try:
                value = step(scaler, optimizer, *args, **kwargs)
            finally:
                handle.remove()
            if not ended:
                self._note(optimizer, is_skipped=True)
            return value

        return watched

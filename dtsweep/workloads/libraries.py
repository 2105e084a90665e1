"""Training loops of Transformers, Lightning and Accelerate; none of them is required."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.workloads.own import Loop

_ENDLESS = 10**9
"""Optimizer steps that a Trainer of Transformers plans: the measurement ends it long before."""


class _Adapter:
    """A function of the user from which a library's training loop is made."""

    def __new__(cls, function: Any, **options: Any) -> Any:
        """Make a workload whose name is the function's.

        Args:
            function: as the adapter says.
            options: `args` and `samples_per_step` of `Loop`.

        Raises:
            SweepError: it is not a function.
        """
        if not callable(function):
            raise SweepError(f"workloads.{cls.__name__} needs a function", word=cls.__name__)

        @functools.wraps(function)
        def train(point: Any) -> None:
            cls._train(function, point)

        return Loop(train, **options)

    @staticmethod
    def _train(function: Any, point: Any) -> None:
        raise NotImplementedError


class HuggingFace(_Adapter):
    """A function that makes a `Trainer` of Transformers: `workloads.HuggingFace(make)`.

    `make(point)` returns the Trainer. Its `max_steps` and `num_train_epochs` don't count: it trains
    until it is measured, and saves nothing.
    """

    @staticmethod
    def _train(make: Callable[[Any], Any], point: Any) -> None:
        trainer = make(point)
        with tempfile.TemporaryDirectory(prefix="dtsweep-") as folder:
            trainer.args.max_steps = _ENDLESS
            trainer.args.save_strategy = "no"
            trainer.args.output_dir = folder
            trainer.train()


class Lightning(_Adapter):
    """A function that makes what Lightning trains: `workloads.Lightning(make)`.

    `make(point)` returns `(trainer, module, loader)`, the Trainer and what its `fit` takes. Its
    `max_steps` and `max_epochs` don't count: it trains until it is measured, and saves no
    checkpoint. On several workers it needs `devices=` and `num_nodes=` as under `torchrun`.
    """

    @staticmethod
    def _train(make: Callable[[Any], Any], point: Any) -> None:
        trainer, *parts = make(point)
        trainer.fit_loop.max_epochs = -1
        trainer.fit_loop.epoch_loop.max_steps = -1
        # Each of them would save at the end of an epoch.
        trainer.callbacks = [
            callback
            for callback in trainer.callbacks
            if not any(kind.__name__ == "Checkpoint" for kind in type(callback).__mro__)
        ]
        trainer.fit(*parts)


class Accelerate(_Adapter):
    """A function that trains with Accelerate: `workloads.Accelerate(train)`.

    It is called with the point and an `Accelerator` that accumulates as often as the point says,
    and trains as long as it is let. An `Accelerator` with other options is made in a `Loop`.
    """

    @staticmethod
    def _train(train: Callable[[Any, Any], object], point: Any) -> None:
        from accelerate import Accelerator

        train(point, Accelerator(gradient_accumulation_steps=point.accumulation))

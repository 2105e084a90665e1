"""A TorchTrainer that starts fewer processes: a session's start is mostly their imports."""

from __future__ import annotations

import asyncio
from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import WorkerGroup


class _Workers(WorkerGroup):  # type: ignore[misc]  # Ray has no types
    """Ends its workers where their start fails after they have come up.

    Ray Train leaves them to the end of its controller's process, which here lives on.
    """

    def _start(self) -> None:
        try:
            super()._start()
        except Exception:
            if self.has_started():
                self.shutdown()
            raise


class _Controller(TrainController):  # type: ignore[misc]  # Ray has no types
    worker_group_cls = _Workers


class SessionTrainer(TorchTrainer):  # type: ignore[misc]  # Ray has no types
    """Runs its controller in this process, and starts no actors that a session does not need.

    It has no data sets. Placement groups of a process that has died are removed by
    `dtsweep.session.orphans`, which asks no dashboard. Ray has no settings for that: a test says if
    a release has other methods.
    """

    def _initialize_and_run_controller(self, **options: Any) -> Any:
        controller = _Controller(**options)
        asyncio.run(controller.run())
        return controller.get_result()

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        unused = (DatasetsCallback, PlacementGroupCleanerCallback)
        return [one for one in callbacks if not isinstance(one, unused)]

"""A TorchTrainer that starts fewer processes: a session's start is mostly their imports."""

from __future__ import annotations

import asyncio
from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController


class SessionTrainer(TorchTrainer):  # type: ignore[misc]  # Ray has no types
    """Runs its controller in this process, and starts no actors that a session does not need.

    It has no data sets. Placement groups of a process that has died are removed by
    `dtsweep.session.orphans`, which asks no dashboard. Ray has no settings for that: a test says if
    a release has other methods.
    """

    def _initialize_and_run_controller(self, **options: Any) -> Any:
        controller = TrainController(**options)
        asyncio.run(controller.run())
        return controller.get_result()

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        unused = (DatasetsCallback, PlacementGroupCleanerCallback)
        return [one for one in callbacks if not isinstance(one, unused)]

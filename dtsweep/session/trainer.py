"""The TorchTrainer of a session."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dtsweep.session.settings import Settings
from dtsweep.session.worker_loop import serve
from dtsweep.sweep.point import World

RENDEZVOUS_S = 300
"""How long the ranks of a session have to find each other; a task sets how long its collectives may take."""


def trainer_of(world: World, settings: Settings, *, session: str, lane: Any) -> Any:
    """Make the trainer whose workers are a session's ranks.

    Args:
        world: how many workers, where, with which variables.
        settings: of the run.
        session: its name.
        lane: the actor that the ranks ask for tasks.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = {"CPU": settings.cpus_per_worker}
    if settings.gpus_per_worker:
        resources["GPU"] = settings.gpus_per_worker
    variables = {"OMP_NUM_THREADS": str(settings.cpus_per_worker), **settings.environment, **dict(world.environment)}
    return TorchTrainer(
        serve,
        train_loop_config={
            "lane": lane,
            "session": session,
            "settings": settings,
            "variables": frozenset(variables),
        },
        scaling_config=ScalingConfig(
            num_workers=world.workers,
            use_gpu=settings.gpus_per_worker > 0,
            resources_per_worker=resources,
            placement_strategy=world.placement.upper(),
            label_selector={"ray.io/node-id": f"in({','.join(settings.nodes)})"} if settings.nodes else None,
        ),
        torch_config=TorchConfig(backend="nccl" if settings.gpus_per_worker else "gloo", timeout_s=RENDEZVOUS_S),
        run_config=RunConfig(
            name=session,
            storage_path=settings.storage,
            failure_config=FailureConfig(**no_restarts()),
            worker_runtime_env={"env_vars": variables},
        ),
    )


def no_restarts() -> dict[str, int]:
    """All limits on restarts that this Ray's `FailureConfig` has, at 0: the lane starts anew itself, and says why.

    A worker group that Train restarted would be other ranks under the name of the session.
    """
    from ray.train import FailureConfig

    limits = ("max_failures", "controller_failure_limit", "max_preemption_failures")
    known = {field.name for field in fields(FailureConfig)}
    return {name: 0 for name in limits if name in known}

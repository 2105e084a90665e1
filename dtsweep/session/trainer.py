"""The TorchTrainer of a session."""

from __future__ import annotations

from typing import Any

from dtsweep.session.settings import Settings
from dtsweep.session.worker_loop import serve
from dtsweep.sweep.point import World

COLLECTIVE_TIMEOUT_S = 300


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
            "timeout_s": COLLECTIVE_TIMEOUT_S,
        },
        scaling_config=ScalingConfig(
            num_workers=world.workers,
            use_gpu=settings.gpus_per_worker > 0,
            resources_per_worker=resources,
            placement_strategy=world.placement.upper(),
            label_selector={"ray.io/node-id": f"in({','.join(settings.nodes)})"} if settings.nodes else None,
        ),
        torch_config=TorchConfig(
            backend="nccl" if settings.gpus_per_worker else "gloo", timeout_s=COLLECTIVE_TIMEOUT_S
        ),
        run_config=RunConfig(
            name=session,
            storage_path=settings.storage,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            worker_runtime_env={"env_vars": variables},
        ),
    )

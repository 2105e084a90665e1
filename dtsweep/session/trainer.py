"""The TorchTrainer of a session."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dtsweep.hardware.variables import NCCL_SETTINGS, NO_GPUS
from dtsweep.secret import is_secret
from dtsweep.session.node_choice import ANY_NODES, SessionNodes
from dtsweep.session.session_settings import Settings
from dtsweep.session.worker_loop import take_tasks
from dtsweep.sweep.point import World

_RENDEZVOUS_S = 300
"""Time limit for the ranks of a session to find each other."""


def train_settings(node_timeout_s: float, *, is_private: bool) -> dict[str, str]:
    """The environment of a session, which Ray Train reads.

    Args:
        node_timeout_s: how long nodes may take to come.
        is_private: True where Ray was started for this run, on this machine.
    """
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": f"{node_timeout_s:g}",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        # It would tell the dashboard and its exports what the ranks are given, secrets among it.
        "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
        # On this machine alone no node is taken back: a process less to start.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0" if is_private else "1",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        # Until then Train delays the news of a dead rank for peers that can't leave an exchange, on
        # any backend. It kills them after that, which frees devices and connections as well.
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }


def trainer_of(
    world: World, settings: Settings, *, session: str, slot: Any, nodes: SessionNodes = ANY_NODES
) -> Any:
    """Make the trainer whose workers are a session's ranks.

    Args:
        world: how many workers, where, with which variables.
        settings: of the run.
        session: its name.
        slot: the actor that the ranks ask for tasks.
        nodes: those that it uses.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig

    from dtsweep.session.session_trainer import SessionTrainer

    resources = {"CPU": settings.cpus_per_worker}
    if settings.gpus_per_worker:
        resources["GPU"] = settings.gpus_per_worker
    variables = {
        "OMP_NUM_THREADS": str(settings.cpus_per_worker),
        **settings.environment,
        **dict(world.environment),
    }
    defaults = NCCL_SETTINGS if settings.gpus_per_worker else NO_GPUS
    variables = {**defaults, **variables}
    return SessionTrainer(
        take_tasks,
        train_loop_config={
            "slot": slot,
            "session": session,
            "settings": settings,
            # The names of what the sweep sets, and what of it Ray does not set.
            "variables": frozenset(variables),
            "secrets": {name: value for name, value in variables.items() if is_secret(name, value)},
        },
        scaling_config=ScalingConfig(
            num_workers=world.workers,
            use_gpu=settings.gpus_per_worker > 0,
            resources_per_worker=resources,
            placement_strategy=world.placement.upper(),
            label_selector=nodes.selectors(world.workers),
        ),
        torch_config=TorchConfig(
            backend="nccl" if settings.gpus_per_worker else "gloo", timeout_s=_RENDEZVOUS_S
        ),
        run_config=RunConfig(
            name=session,
            storage_path=settings.storage,
            failure_config=FailureConfig(**no_restarts()),
            # Ray shows these in its dashboard, state and logs; secrets go with the config.
            worker_runtime_env={
                "env_vars": {n: value for n, value in variables.items() if not is_secret(n, value)}
            },
        ),
    )


def no_restarts() -> dict[str, int]:
    """All restart limits of this Ray's `FailureConfig`, at 0: the slot restarts by itself.

    A worker group that Train restarted would be other ranks under the name of the session.
    """
    from ray.train import FailureConfig

    limits = ("max_failures", "controller_failure_limit", "max_preemption_failures")
    supported = {field.name for field in fields(FailureConfig)}
    return {name: 0 for name in limits if name in supported}

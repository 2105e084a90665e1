"""What Ray Train is told of a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.train.torch import TorchTrainer

from dtsweep.session.session_settings import Settings
from dtsweep.session.session_trainer import SessionTrainer
from dtsweep.session.trainer import train_settings, trainer_of
from dtsweep.sweep.point import Point
from tests.session.test_slot import settings


def settings_of(environment: dict[str, str], *, gpus_per_worker: int) -> Settings:
    own: dict[str, Any] = {"environment": environment, "gpus_per_worker": gpus_per_worker}
    return replace(settings(Path("unused")), **own)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_ray_exports_nothing_of_a_session_and_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {"HF_TOKEN": "hunter2", "NCCL_ALGO": "Ring"}
    settings = settings_of(environment, gpus_per_worker=0)

    def trainer() -> Any:
        return trainer_of(Point().world, settings, session="s", slot=None)

    def callbacks() -> list[str]:
        return [type(callback).__name__ for callback in trainer()._create_default_callbacks()]

    assert not {"DatasetsCallback", "PlacementGroupCleanerCallback"} & {*callbacks()}
    monkeypatch.setenv("RAY_TRAIN_ENABLE_STATE_TRACKING", "1")
    assert "StateManagerCallback" in callbacks()
    for name, value in train_settings(1.0, is_private=True).items():
        monkeypatch.setenv(name, value)
    assert "StateManagerCallback" not in callbacks()
    shown = trainer().run_config.worker_runtime_env["env_vars"]
    assert set(shown) == {"OMP_NUM_THREADS", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_what_a_session_replaces_in_a_trainer_is_there_in_this_ray() -> None:
    trainer = trainer_of(Point().world, settings_of({}, gpus_per_worker=0), session="s", slot=None)
    replaced = {name for name in vars(SessionTrainer) if not name.startswith(("__", "_abc"))}
    assert replaced <= {*dir(TorchTrainer)}
    usual = [type(one).__name__ for one in TorchTrainer._create_default_callbacks(trainer)]
    assert {"DatasetsCallback", "PlacementGroupCleanerCallback"} <= {*usual}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.parametrize(
    ("variable", "gpus_per_worker", "own", "value"),
    [
        ("TORCH_NCCL_RETHROW_CUDA_ERRORS", 1, {}, "0"),
        ("TORCH_NCCL_RETHROW_CUDA_ERRORS", 1, {"TORCH_NCCL_RETHROW_CUDA_ERRORS": "1"}, "1"),
        ("CUDA_VISIBLE_DEVICES", 0, {}, ""),
        ("CUDA_VISIBLE_DEVICES", 1, {}, None),
        ("CUDA_VISIBLE_DEVICES", 0, {"CUDA_VISIBLE_DEVICES": "1"}, "1"),
    ],
)
def test_nccl_rethrows_nothing_and_ranks_see_no_foreign_gpu_unless_a_sweep_wants_otherwise(
    variable: str, gpus_per_worker: int, own: dict[str, str], value: str | None
) -> None:
    settings = settings_of(own, gpus_per_worker=gpus_per_worker)
    trainer = trainer_of(Point().world, settings, session="s", slot=None)
    assert trainer.run_config.worker_runtime_env["env_vars"].get(variable) == value

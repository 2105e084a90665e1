"""World of one rank in this process, for debugging; it needs neither Ray nor torchrun."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import distributed

from dtsweep.errors import SweepError
from dtsweep.hardware.backend_flags import backend_flags_kept
from dtsweep.hardware.random_states import random_states_kept
from dtsweep.hardware.variables import NCCL_SETTINGS, read_at_start, set_defaults
from dtsweep.provenance.sources import sources_of
from dtsweep.sweep.settings import Sweep
from dtsweep.worker.rank import RankContext, become_rank, take_device


@contextmanager
def only_rank(sweep: Sweep) -> Iterator[RankContext]:
    """Be rank 0 of 1 for a while.

    What a trial sets in this process is given back: threads, environment, seeds, flags.

    Raises:
        SweepError: this process is in a process group already, or has no GPU where the sweep asks
            for one, or the sweep sets variables that have no effect here any more.
    """
    if distributed.is_initialized():
        raise SweepError(
            "this process is in a process group already; call destroy_process_group() first"
        )
    with _settings_kept(), _world_of_one(sweep) as device, random_states_kept(device):
        packages = sources_of(sweep.workload, file=sweep.file).packages
        yield become_rank(
            0,
            device,
            workload=sweep.workload,
            own_variables=sweep.resources.environment,
            packages=packages,
            is_own_process=True,
        )


@contextmanager
def _world_of_one(sweep: Sweep) -> Iterator[torch.device]:
    """A process group of one rank, on the device that it computes on."""
    _check_variables(sweep.resources.environment)
    os.environ.update(sweep.resources.environment)
    device = take_device(sweep.resources, index=0)
    backend = "gloo"
    if device.type == "cuda":
        backend = "nccl"
        set_defaults(NCCL_SETTINGS)
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield device
    finally:
        # A training loop has a group of its own.
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _check_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables that libraries of this process have read already, with another value."""
    lacking = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    if late := read_at_start(lacking):
        settings = " ".join(f"{name}={lacking[name]}" for name in late)
        raise SweepError(
            f"{', '.join(late)} of Resources(environment=…) has no effect in a process that runs "
            f"already; start it as {settings} python …",
            word=late[0],
        )


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Give back what ranks set for themselves: this process goes on to do other things."""
    environment = dict(os.environ)
    try:
        with backend_flags_kept():
            yield
    finally:
        # What was frozen would never be collected.
        gc.unfreeze()
        os.environ.clear()
        os.environ.update(environment)

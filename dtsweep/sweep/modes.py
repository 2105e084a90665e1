"""Sync modes: how workers combine their work. This page is their list; each mode has a file beside it.

A new mode is one file and one entry in `MODES`. This module needs no torch: plans are made from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dtsweep.measure.clock import Clock
    from dtsweep.sync.passes import Job, MakeOptimizer

SEMANTICS = ("exact", "lossy", "stale", "local")
"""From the strongest to the weakest: what an update means."""


class SyncMode(Protocol):
    """What the common loop asks of a mode; `tests/test_sync_modes.py` holds every mode to it."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Take over the freshly built model, the same on all ranks, on its device."""

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> torch.Tensor:
        """Do one optimizer step: a pass for each batch, then the exchange and the update.

        Args:
            batches: `accumulation` batches of this rank, on its device.
            clock: told when each phase ends.
            exchange: False leaves the exchange out, where `can_skip_exchange`; the model is lost then.

        Returns:
            The mean loss of this rank's passes: a detached scalar on the device.
        """

    def drain(self) -> None:
        """End what is still under way; called inside the window, after its last step."""

    def exchange_alone(self) -> int:
        """Do the exchange of a step by itself, with nothing to hide behind, where `can_skip_exchange`.

        Returns:
            How many steps share one such exchange.

        Raises:
            MemoryError: a rank has no memory for it; on all ranks, and before anything is exchanged.
        """

    def counters(self) -> Mapping[str, Any]:
        """What the mode counted since the last call: any of `bytes_sent`, `staleness` (one per step)."""

    def close(self) -> None:
        """Let go of the model and of everything shared; also called after a failure."""


@dataclass(frozen=True, kw_only=True)
class ModeInfo:
    """What a mode declares, readable without importing it."""

    implementation: str
    """`module:class` of the mode."""

    semantics: Callable[[Mapping[str, Any]], str]
    """From the fields of a point to one of `SEMANTICS`."""

    reads: Mapping[str, Any]
    """The fields of a point that only some modes read, with this mode's own defaults."""

    needs_ray: bool = False
    """Whether it works in a Ray session alone."""

    can_skip_exchange: bool = False
    """Whether `step(exchange=False)` and `exchange_alone` work, which measure the exchange."""

    def load(self) -> type[SyncMode]:
        """Import the mode (and with it torch)."""
        module, name = self.implementation.split(":")
        mode: type[SyncMode] = getattr(importlib.import_module(module), name)
        return mode


MODES: Mapping[str, ModeInfo] = {
    "ddp": ModeInfo(
        implementation="dtsweep.sync.ddp:Ddp",
        semantics=lambda _: "exact",
        reads={},
        can_skip_exchange=True,
    ),
    "local_sgd": ModeInfo(
        implementation="dtsweep.sync.local_sgd:LocalSgd",
        semantics=lambda _: "local",
        reads={"sync_period": 8},
        can_skip_exchange=True,
    ),
    "parameter_server": ModeInfo(
        implementation="dtsweep.sync.parameter_server:ParameterServer",
        semantics=lambda fields: "exact" if fields["staleness"] == 0 else "stale",
        reads={"staleness": None, "shards": 1},
        needs_ray=True,
    ),
}
"""Every mode by the name that an axis uses."""

MODE_FIELDS = tuple(dict.fromkeys(name for mode in MODES.values() for name in mode.reads))
"""The fields of a point that only some modes read."""

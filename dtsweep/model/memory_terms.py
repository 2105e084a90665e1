"""Arithmetic of a worker's memory: what it holds at the moments when most is there, by its mode.

The formulas are those of docs/sync-modes.md, with optimizer state and activations apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

STATE_SHARES: Mapping[str, float] = {"sgd": 0.0, "momentum": 1.0, "adam": 2.0, "adamw": 2.0}
"""Bytes of optimizer state for a byte of parameters, by `optimizer`."""

PIECE_BYTES = 16.0 * 2**20
"""Bytes of a piece of `hierarchical`'s exchange."""


_WHOLE_MODELS = ("local_sgd", "gossip", "federated", "ring", "tree", "hierarchical")
"""Modes that exchange after backward what they have in whole models."""


class Held(NamedTuple):
    """Memory at one moment, in units that the model of a workload has.

    >>> Held(parameters=2) + Held(parameters=1, largest=2)
    Held(parameters=3, state=0.0, largest=2.0, block=0.0, fixed=0.0)
    """

    parameters: float = 0.0
    """Times the bytes of all parameters."""

    state: float = 0.0
    """Times the bytes of all optimizer state."""

    largest: float = 0.0
    """Times the bytes of the largest parameter."""

    block: float = 0.0
    """Times the bytes of the largest block that is gathered at once."""

    fixed: float = 0.0
    """Bytes."""

    def __add__(self, other: Held) -> Held:  # type: ignore[override]  # sums, as of a vector
        """Hold both."""
        return Held(*(one + another for one, another in zip(self, other, strict=True)))


class Moments(NamedTuple):
    """Memory of a worker at the moments of a step when most is there."""

    update: Held
    """While the optimizer updates the parameters."""

    passes: Held
    """At the end of forward, without the activations that come to it."""

    exchange: Held
    """During the exchange, in modes with shards in the midst of backward."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a configuration that its memory depends on."""

    sync: str
    workers: int
    node_workers: int
    """Workers of a node, `node_size` where that is set."""

    state_share: float | None
    """Value of `STATE_SHARES`; None of an optimizer of the workload's own."""

    accumulates: bool = False
    """True if a step has several passes: gradients stay from one to the next."""

    accrues: bool = False
    """True if gradients are kept from step to step, for a later push."""

    casts: bool = False
    """True if autocast keeps copies of the parameters in bf16."""

    gathers_halves: bool = False
    """True with `shard_precision=bf16`."""

    reshard: str | None = None
    topology: str | None = None
    participants: int = 1
    """Workers that train in a step."""

    compresses: bool = False
    is_gpu: bool = False
    offload: bool = False

    @property
    def sharing_workers(self) -> int:
        """Workers that share the shards, in modes that have them."""
        if self.sync == "hsdp":
            return self.node_workers
        return self.workers

    @property
    def update(self) -> Held:
        """Numbers of an update that are neither parameters nor state: of an Adam with no shards.

        One parameter after another on a CPU; all at once on a GPU (`foreach`).
        """
        if self.state_share in (0.0, 1.0):
            return Held()
        if self.is_gpu:
            return Held(parameters=1)
        return Held(largest=2)

    @property
    def kept_between_passes(self) -> float:
        """Gradients at the end of forward, in units of the parameters."""
        return float(self.accumulates)

    @property
    def cast_copies(self) -> float:
        """Copies in bf16 that wait for backward, in units of the parameters."""
        return 0.5 * self.casts


def moments_of(setting: Setting) -> Moments:
    """Give the memory of a worker; of a mode that is not dtsweep's own, the memory of `ddp`.

    >>> moments_of(Setting(sync="ddp", workers=2, node_workers=2, state_share=2.0)).update
    Held(parameters=3.0, state=1.0, largest=2.0, block=0.0, fixed=0.0)
    """
    if setting.sync in ("fsdp", "fsdp_grad", "hsdp"):
        return _of_shards(setting)
    if setting.sync in _WHOLE_MODELS:
        return _of_whole_models(setting)
    if setting.sync == "diloco":
        # Parameters, those of the period's start, changes, and the outer optimizer's momentum.
        gradients = Held(parameters=1)
        kept = Held(parameters=4, state=1)
        return _with_copies(setting, kept, update=gradients + setting.update)
    if setting.sync == "parameter_server":
        # The state is on the servers.
        kept = Held(parameters=1 + float(setting.accrues))
        return _with_copies(setting, kept, update=Held(parameters=1, largest=1))
    if setting.sync == "hogwild":
        # The parameters are in pages that a process's memory does not count.
        return _with_copies(setting, Held(state=1), update=Held(parameters=1) + setting.update)
    buckets = Held(parameters=2, state=1)
    update = setting.update
    if setting.sync == "zero1":
        buckets = Held(parameters=2, state=1 / setting.workers)
        update = update._replace(parameters=update.parameters / setting.workers)
    # With a compression gradients are views of the buckets.
    gradients = Held(parameters=float(not setting.compresses))
    return _with_copies(setting, buckets, update=gradients + update)


def _with_copies(
    setting: Setting, kept: Held, *, update: Held, exchange: Held | None = None
) -> Moments:
    """Memory of a mode whose workers have whole parameters."""
    more = Held(parameters=setting.kept_between_passes + setting.cast_copies)
    return Moments(
        update=kept + update,
        passes=kept + more,
        exchange=kept + (exchange or update),
    )


def _of_whole_models(setting: Setting) -> Moments:
    """Modes that exchange whole gradients, changes or parameters after backward."""
    gradients = Held(parameters=1)
    travelling = Held()
    if setting.workers > 1:
        has_one_neighbour = setting.workers == 2 or setting.topology == "exponential"
        travelling = {
            # Parameters are sent, when there are no gradients any more.
            "gossip": Held(parameters=1.0 if has_one_neighbour else 2.0),
            "federated": Held(parameters=1 - 1 / setting.participants),
            "ring": Held(parameters=1 / setting.workers),
            "tree": Held(parameters=1),
            "hierarchical": Held(fixed=(1 + 1 / setting.node_workers) * PIECE_BYTES),
        }.get(setting.sync, Held())
    return _with_copies(
        setting,
        Held(parameters=1, state=1),
        update=gradients + setting.update,
        exchange=gradients + travelling,
    )


def _of_shards(setting: Setting) -> Moments:
    """Modes on FSDP2: shards stay, and blocks are whole while they compute."""
    shard = 1 / setting.sharing_workers
    if setting.offload and setting.is_gpu:
        shard = 0.0
    frees = setting.sync != "fsdp_grad" and setting.reshard != "never"
    kept = Held(parameters=shard, state=shard)
    gathered = 1.0 - 0.5 * setting.gathers_halves
    # gloo has a copy of what travels.
    copies = float(not setting.is_gpu)
    after_forward = 0.0
    blocks = 3.0 - 2 * shard + copies - setting.gathers_halves
    if setting.reshard == "node":
        after_forward = 1 / setting.node_workers
        blocks = 3.0 - 2 * after_forward + shard + copies - setting.gathers_halves
    backward = kept + Held(parameters=after_forward or shard, block=blocks)
    whole = Held(parameters=gathered, block=1.0 + copies)
    if frees:
        whole = Held(parameters=after_forward, block=gathered * (2.0 + copies))
    more = Held(parameters=shard * setting.kept_between_passes + setting.cast_copies)
    update = setting.update
    own_part = Held(parameters=shard * (1 + update.parameters), largest=shard * update.largest)
    return Moments(update=kept + own_part, passes=kept + whole + more, exchange=backward)

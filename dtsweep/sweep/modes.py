"""The list of sync modes, readable without torch: plans are made from it.

Each mode is a file in `dtsweep.sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.provenance.installed import (
    DeclarationError,
    check_reads,
    declaration_of,
    is_declared,
    load,
)
from dtsweep.sweep.compressions import EXCHANGES

SEMANTICS = ("exact", "lossy", "stale", "local", "not_exchanged", "unknown")
"""Semantics of an update, from the strongest to the weakest.

The last two are those of training loops of the user: workers train models of their own, or what
they exchange can't be seen.
"""

Fields = Mapping[str, Any]
"""Fields of a point by name."""


def latency_column(semantics: str) -> str:
    """Name the step time that is the frontier's latency, `latency_s`: the one definition of it.

    The median step; where updates are local the mean, because the exchange falls on one step in
    `sync_period`, which a median would not see.

    >>> latency_column("exact"), latency_column("local")
    ('step_p50_s', 'step_mean_s')
    """
    if semantics == "local":
        return "step_mean_s"
    return "step_p50_s"


@dataclass(frozen=True, kw_only=True)
class ModeInfo:
    """Declaration of a mode; all fields but the first three have defaults."""

    implementation: str
    """`module:class` of the mode."""

    semantics: Callable[[Fields], str]
    """From the fields of a point to one of `SEMANTICS`."""

    reads: Mapping[str, Any]
    """The fields of a point that only some modes read, with this mode's own defaults."""

    needs_ray: bool = False
    """True if it works in a Ray session alone."""

    servers: Callable[[Fields], int] = lambda _: 0
    """From the fields of a point to the server processes that its ranks need in addition."""

    same_gradients: bool = False
    """True if all ranks give their optimizers equal gradients, else it is `wrong_gradient`."""

    shards: bool = False
    """True if a rank keeps a part of each parameter and gradient alone, as a `DTensor`."""

    shards_optimizer: bool = False
    """True if a rank keeps only its part of the optimizer's state; it may fit where `ddp` won't."""

    exchanges_each_pass: bool = False
    """True if each pass of a step exchanges, not the last alone."""

    can_skip_exchange: bool = False
    """True if `step(exchange=False)` works, which measures an overlapped exchange.

    Otherwise steps mark the time spent on the exchange as `sync`.
    """

    can_exchange_alone: bool = False
    """True if `exchange_alone` works, which times the exchange by itself."""

    carries: tuple[str, ...] = ()
    """Ways to combine payloads of a compression in this mode, of `EXCHANGES`.

    Empty where nothing can be compressed.
    """

    exchanges_pieces: bool = False
    """True if what can be compressed are pieces of parameters, not whole ones."""

    can_restart: bool = True
    """True if steps can follow the window's last: another window, a profile."""

    sends: str = "unknown"
    """Bytes that a worker sends per step: a formula in the symbols of docs/sync-modes.md."""

    memory: str = "unknown"
    """Bytes that a worker holds at most, without activations: a formula like `sends`."""


MODES: Mapping[str, ModeInfo] = {
    "ddp": ModeInfo(
        implementation="dtsweep.sync.ddp:Ddp",
        semantics=lambda _: "exact",
        reads={"overlap": True, "bucket_bytes": None},
        same_gradients=True,
        can_skip_exchange=True,
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S",
        memory="(3 + k) S + 2 P: parameters, gradients, buckets, state, update",
    ),
    "zero1": ModeInfo(
        implementation="dtsweep.sync.zero1:Zero1",
        semantics=lambda _: "exact",
        reads={"overlap": True, "bucket_bytes": None},
        same_gradients=True,
        shards_optimizer=True,
        can_skip_exchange=True,
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="3 (n−1)/n S",
        memory="3 S + k O + 2 P",
    ),
    "fsdp_grad": ModeInfo(
        implementation="dtsweep.sync.fsdp:FsdpGrad",
        semantics=lambda _: "exact",
        reads={},
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_skip_exchange=True,
        sends="2 (n−1)/n S per pass",
        memory="(1 + (1 + k)/n) S + 2 B, or as `fsdp` if that is more",
    ),
    "fsdp": ModeInfo(
        implementation="dtsweep.sync.fsdp:Fsdp",
        semantics=lambda _: "exact",
        reads={},
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_skip_exchange=True,
        sends="3 (n−1)/n S per pass",
        memory="(2 + k)/n S + (4 − 2/n) B",
    ),
    "hsdp": ModeInfo(
        implementation="dtsweep.sync.fsdp:Hsdp",
        semantics=lambda _: "exact",
        reads={"node_size": None},
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_skip_exchange=True,
        sends="(3 (m−1) + 2 (1 − m/n)) S/m per pass",
        memory="(2 + k)/m S + (4 − 2/m) B",
    ),
    "hierarchical": ModeInfo(
        implementation="dtsweep.sync.hierarchical:Hierarchical",
        semantics=lambda _: "exact",
        reads={"node_size": None, "bucket_bytes": None},
        same_gradients=True,
        can_exchange_alone=True,
        carries=EXCHANGES,
        exchanges_pieces=True,
        sends="(2 (m−1) + 2 (1 − m/n)) S/m",
        memory="(2 + k) S + 2 P or (1 + 1/m) 16 MiB",
    ),
    "ring": ModeInfo(
        implementation="dtsweep.sync.ring:Ring",
        semantics=lambda _: "exact",
        reads={"bucket_bytes": None},
        same_gradients=True,
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S",
        memory="(2 + k) S + 2 P or S/n",
    ),
    "tree": ModeInfo(
        implementation="dtsweep.sync.tree:Tree",
        semantics=lambda _: "exact",
        reads={"bucket_bytes": None},
        same_gradients=True,
        can_exchange_alone=True,
        carries=("all_reduce",),
        sends="2 (n−1)/n S, rank 0 log2 n S",
        memory="(2 + k) S + 2 P or S; leaves 2 P",
    ),
    "local_sgd": ModeInfo(
        implementation="dtsweep.sync.local_sgd:LocalSgd",
        semantics=lambda _: "local",
        reads={"sync_period": 8},
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S every `sync_period` steps",
        memory="(2 + k) S + 2 P",
    ),
    "parameter_server": ModeInfo(
        implementation="dtsweep.sync.parameter_server:ParameterServer",
        semantics=lambda fields: "exact" if fields["staleness"] == 0 else "stale",
        reads={"staleness": None, "shards": 1},
        needs_ray=True,
        servers=lambda fields: int(fields["shards"]),
        carries=EXCHANGES,
        can_restart=False,
        sends="S",
        memory="2 S + P, and (2 + k) S on the servers",
    ),
}
"""Every mode by the name that an axis uses."""

AS_WRITTEN = "as_written"
"""Mode of a training loop of the user, which exchanges what it likes."""

_OF_THE_USER = ModeInfo(
    implementation="",
    # What it is, is measured.
    semantics=lambda _: "exact",
    reads={},
)


def mode_of(name: str) -> ModeInfo:
    """Declaration of one of `MODES`, of an installed package, or of `AS_WRITTEN`.

    Raises:
        SweepError: nobody declares it here, or the declaration can't be used.

    >>> mode_of("ddp").same_gradients, mode_of("as_written").same_gradients
    (True, False)
    """
    if name == AS_WRITTEN:
        return _OF_THE_USER
    if name in MODES:
        return MODES[name]
    try:
        return _installed(name)
    except LookupError:
        raise SweepError(
            f"no package that is installed here declares the mode {name!r}; install the one that "
            "does",
            word=name,
        ) from None


@cache
def _installed(name: str) -> ModeInfo:
    info: ModeInfo = load("mode", name, ModeInfo)
    one = declaration_of("mode", name)
    check_reads(one, info.reads, MODE_FIELDS)
    for way in info.carries:
        if way not in EXCHANGES:
            raise DeclarationError(
                f"{one} carries {way!r}; allowed: {', '.join(EXCHANGES)} ({one.again})", word=name
            )
    return info


@cache
def mode_in_results(name: str) -> ModeInfo:
    """Declaration of a mode that results name; of a package that isn't here, `UNDECLARED`.

    Results can be read without the package that measured them.

    >>> mode_in_results("of_a_package_elsewhere") is UNDECLARED
    True
    """
    if name in MODES or name == AS_WRITTEN or is_declared("mode", name):
        return mode_of(name)
    return UNDECLARED


UNDECLARED = ModeInfo(implementation="", semantics=lambda _: "unknown", reads={})
"""What is known of a mode whose package is not installed here."""


MODE_FIELDS = tuple(dict.fromkeys(name for mode in MODES.values() for name in mode.reads))
"""The fields of a point that only some modes read."""


def modes_reading(field: str) -> list[str]:
    """Name the modes that read a field of `MODE_FIELDS`.

    >>> modes_reading("sync_period")
    ['local_sgd']
    """
    return [name for name, mode in MODES.items() if field in mode.reads]

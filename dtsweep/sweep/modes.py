"""The list of sync modes, readable without torch: plans are made from it.

Each mode is a file in `dtsweep.sync`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from dtsweep.errors import SweepError, nearest, quoted
from dtsweep.secret import without_credentials
from dtsweep.sweep.compressions import EXCHANGES
from dtsweep.sweep.mode_info import EXCHANGE_PARTS, Fields, Grid, ModeInfo, OwnMode

PERIODS = ("sync_period", "push_period", "pull_period")
"""Fields of a point that are a number of steps from one exchange to the next."""


def period_of(fields: Fields) -> int:
    """Steps after which the pattern of work repeats; a period of None counts as 1.

    >>> period_of({"push_period": 2, "pull_period": 3}), period_of({"sync_period": None})
    (6, 1)
    """
    periods = (fields.get(name) for name in PERIODS)
    return math.lcm(*(int(steps) for steps in periods if steps is not None))


def latency_column(semantics: str, *, period: int) -> str:
    """Name the step time that is the frontier's latency, `latency_s`: the one definition of it.

    The median step; where updates are local, or not every step exchanges, the mean: the exchange
    falls on one step of a period, which a median would not see.

    >>> latency_column("exact", period=1), latency_column("stale", period=4)
    ('step_p50_s', 'step_mean_s')
    >>> latency_column("local", period=1)
    'step_mean_s'
    """
    if semantics == "local" or period > 1:
        return "step_mean_s"
    return "step_p50_s"


def _server_semantics(fields: Fields) -> str:
    if fields["staleness"] != 0:
        return "stale"
    if fields.get("drop_slowest"):
        return "lossy"
    return "exact"


def _drawn_workers(fields: Fields) -> int:
    """The nearest whole number; not `round`, which rounds halves to even numbers."""
    # By decimal digits: 0.29 × 50 is below 14.5 in binary ones.
    drawn = Decimal(str(float(fields["participation"]))) * int(fields["workers"])
    return max(1, int(drawn.quantize(Decimal(1), ROUND_HALF_UP)))


def _steps_per_server_update(fields: Fields) -> int:
    if fields["staleness"] != 0:
        return int(fields["push_period"])
    # With no gradient left the point is impossible.
    return max(1, int(fields["workers"] - fields["drop_slowest"]))


_DIVISION: Mapping[str, Any] = {
    "tensor_parallel": 1,
    "sequence_parallel": False,
    "pipeline_parallel": 1,
    "pipeline_schedule": None,
}
"""Fields of modes in which workers can share a model, with their defaults."""


MODES: Mapping[str, ModeInfo] = {
    "ddp": ModeInfo(
        implementation="dtsweep.sync.ddp:Ddp",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"overlap": True, "bucket_bytes": None, **_DIVISION},
        agree="gradients",
        can_leave_out=("gradients",),
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S",
        memory="(3 + k) S + 2 P: parameters, gradients, buckets, state, update",
    ),
    "zero1": ModeInfo(
        implementation="dtsweep.sync.zero1:Zero1",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"overlap": True, "bucket_bytes": None},
        agree="gradients",
        shards_optimizer=True,
        can_leave_out=EXCHANGE_PARTS,
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="3 (n−1)/n S",
        memory="3 S + k O + 2 P",
    ),
    "fsdp_grad": ModeInfo(
        implementation="dtsweep.sync.fsdp:FsdpGrad",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"shard_precision": None, "offload": False, **_DIVISION},
        agree="parameters",
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_leave_out=EXCHANGE_PARTS,
        sends="2 (n−1)/n S per pass",
        memory="(1 + (1 + k)/n) S + 2 B, or as `fsdp` if that is more; with "
        "`shard_precision=bf16` (1/2 + (1 + k)/n) S + 2 B",
    ),
    "fsdp": ModeInfo(
        implementation="dtsweep.sync.fsdp:Fsdp",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"shard_precision": None, "offload": False, **_DIVISION},
        agree="parameters",
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_leave_out=EXCHANGE_PARTS,
        sends="3 (n−1)/n S per pass",
        memory="(2 + k)/n S + (4 − 2/n) B; with `shard_precision=bf16` (2 + k)/n S + (3 − 2/n) B",
    ),
    "hsdp": ModeInfo(
        implementation="dtsweep.sync.fsdp:Hsdp",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"node_size": None, "shard_precision": None, "reshard": None, "offload": False},
        agree="parameters",
        shards=True,
        shards_optimizer=True,
        exchanges_each_pass=True,
        can_leave_out=EXCHANGE_PARTS,
        sends="(3 (m−1) + 2 (1 − m/n)) S/m per pass; with `reshard=never` 2 (m−1) in place of "
        "3 (m−1)",
        memory="(2 + k)/m S + (4 − 2/m) B; with `reshard=never` (1 + (1 + k)/m) S + 2 B",
    ),
    "hierarchical": ModeInfo(
        implementation="dtsweep.sync.hierarchical:Hierarchical",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"node_size": None, "bucket_bytes": None},
        agree="gradients",
        can_exchange_alone=True,
        carries=EXCHANGES,
        exchanges_pieces=True,
        sends="(2 (m−1) + 2 (1 − m/n)) S/m",
        memory="(2 + k) S + 2 P or (1 + 1/m) 16 MiB",
    ),
    "ring": ModeInfo(
        implementation="dtsweep.sync.ring:Ring",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"bucket_bytes": None},
        agree="gradients",
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S",
        memory="(2 + k) S + 2 P or S/n",
    ),
    "tree": ModeInfo(
        implementation="dtsweep.sync.tree:Tree",
        semantics=lambda _: "exact",
        scales_loss=True,
        reads={"bucket_bytes": None},
        agree="gradients",
        can_exchange_alone=True,
        carries=("all_reduce",),
        sends="2 (n−1)/n S, rank 0 log2 n S",
        memory="(2 + k) S + 2 P or S; leaves 2 P",
    ),
    "local_sgd": ModeInfo(
        implementation="dtsweep.sync.local_sgd:LocalSgd",
        semantics=lambda _: "local",
        kind="periodic averaging",
        reads={"sync_period": 8, "synchronous_steps": 0, "local_momentum": "keep"},
        first_steps=lambda fields: int(fields["synchronous_steps"]),
        renews_optimizer=lambda fields: fields["local_momentum"] == "reset",
        agree="parameters",
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S every `sync_period` steps; with `local_momentum=average` (1 + k) times "
        "that",
        memory="(2 + k) S + 2 P",
    ),
    "diloco": ModeInfo(
        implementation="dtsweep.sync.diloco:DiLoCo",
        semantics=lambda _: "local",
        kind="outer optimizer",
        reads={"sync_period": 50, "outer_learning_rate": 0.7, "outer_momentum": 0.9},
        changes_one_worker=lambda fields: (
            fields["outer_learning_rate"] != 1 or fields["outer_momentum"] != 0
        ),
        agree="parameters",
        can_exchange_alone=True,
        carries=EXCHANGES,
        sends="2 (n−1)/n S every `sync_period` steps",
        memory="(5 + k) S + 2 P",
    ),
    "gossip": ModeInfo(
        implementation="dtsweep.sync.gossip:Gossip",
        semantics=lambda _: "local",
        kind="gossip averaging",
        reads={"topology": "ring", "sync_period": 1},
        can_exchange_alone=True,
        sends="2 S every `sync_period` steps; on 2 workers and with `topology=exponential` S",
        memory="(4 + k) S; on 2 workers and with `topology=exponential` (3 + k) S or "
        "(2 + k) S + 2 P",
    ),
    "federated": ModeInfo(
        implementation="dtsweep.sync.federated:Federated",
        semantics=lambda _: "local",
        kind="federated averaging",
        reads={"participation": 0.5, "sync_period": 8},
        participants=_drawn_workers,
        renews_optimizer=lambda _: True,
        agree="parameters",
        can_exchange_alone=True,
        sends="(c + n − 2)/n S every `sync_period` steps, of c drawn workers",
        memory="(3 + k − 1/c) S or (2 + k) S + 2 P",
    ),
    "parameter_server": ModeInfo(
        implementation="dtsweep.servers.parameter_server:ParameterServer",
        semantics=_server_semantics,
        kind="parameter server",
        reads={
            "staleness": None,
            "shards": 1,
            "push_period": 1,
            "pull_period": 1,
            "drop_slowest": 0,
            "server_device": "cpu",
        },
        # With backup workers, too: one whose gradient was dropped goes on by itself.
        is_asynchronous=lambda fields: _server_semantics(fields) != "exact",
        steps_per_update=_steps_per_server_update,
        changes_one_worker=lambda fields: fields["push_period"] > 1 or fields["pull_period"] > 1,
        needs_ray=True,
        servers=lambda fields: int(fields["shards"]),
        carries=EXCHANGES,
        can_restart=False,
        sends="S every `push_period` steps",
        memory="2 S + P, with `push_period` above 1 3 S + P; and (2 + k) S on the servers",
    ),
    "hogwild": ModeInfo(
        implementation="dtsweep.sync.hogwild:Hogwild",
        semantics=lambda _: "stale",
        kind="lock-free",
        reads={},
        is_asynchronous=lambda _: True,
        shares_memory=True,
        sends="0",
        memory="(1 + k) S + 2 P, and S that all workers share",
    ),
}
"""Every mode by the name that an axis uses."""

AS_WRITTEN = "as_written"
"""Mode of a training loop of the user, which exchanges what it likes."""

OWN = "own"
"""Mode of a workload that makes its model parallel by itself, in `prepare`."""


def has_own_mode(workload: Any) -> bool:
    """True if a workload prepares its model itself, so that `sync="own"` can train it.

    >>> has_own_mode(object())
    False
    """
    return callable(getattr(workload, "prepare", None))


def has_train_step(workload: Any) -> bool:
    """True if a workload takes its steps itself: the loss and its passes are its own affair."""
    return has_own_mode(workload) and callable(getattr(workload, "train_step", None))


def declaration_of(workload: Any) -> OwnMode | None:
    """Declaration of a workload with `prepare`; None without `prepare`.

    Raises:
        SweepError: it declares nothing.
    """
    if not has_own_mode(workload):
        return None
    name = type(workload).__name__
    own_mode = _declared_own(workload)
    if callable(own_mode) and not isinstance(own_mode, type):
        raise SweepError(f"{name}.own_mode is a method; put @property above it", word=name)
    if not isinstance(own_mode, OwnMode):
        near = nearest("own_mode", [known for known in dir(workload) if known != "own_mode"])
        raise SweepError(
            f"{name}.own_mode is {quoted(own_mode)}; with prepare declare what it trains: "
            'own_mode = dtsweep.OwnMode(semantics="exact")'
            f"{f' (did you call it {near!r}?)' if near else ''}",
            word=name,
        )
    if own_mode.agree == "gradients" and has_train_step(workload):
        raise SweepError(
            f"{name}.own_mode has agree='gradients', which train_step does not show; use "
            "agree='parameters'",
            word=name,
        )
    return own_mode


def _declared_own(workload: Any) -> Any:
    """The attribute `own_mode`; None without one.

    Raises:
        SweepError: it is a property that fails.
    """
    if not hasattr(type(workload), "own_mode"):
        return getattr(workload, "own_mode", None)
    try:
        return workload.own_mode
    except SweepError:
        raise
    except Exception as error:  # a property of the user may raise anything
        name = type(workload).__name__
        raise SweepError(
            f"{name}.own_mode fails: {type(error).__name__}: {without_credentials(str(error))}",
            word=name,
        ) from error


def _own_semantics(fields: Fields) -> str:
    own_mode = declaration_of(fields["workload"])
    if own_mode is None:
        return "unknown"
    return own_mode.semantics


def _own_grid(fields: Fields) -> Grid:
    own_mode = declaration_of(fields["workload"])
    if own_mode is None:
        return Grid(data=fields["workers"])
    size = own_mode.model_parallel
    # Where it does not divide the workers, the point is impossible.
    return Grid(data=max(1, fields["workers"] // size), model=size)


def _named_grid(fields: Fields) -> Grid:
    """The grid that the arguments of a script promise; else each worker has a whole model."""
    named = getattr(fields["workload"], "named_grid", None)
    grid = named and named(fields)
    if grid is None:
        return Grid(data=fields["workers"])
    return Grid(data=max(1, fields["workers"] // grid.model), model=grid.model)


_OF_THE_USER: Mapping[str, ModeInfo] = {
    AS_WRITTEN: ModeInfo(
        implementation="",
        # What it is, is measured.
        semantics=lambda _: "exact",
        reads={},
        grid=_named_grid,
    ),
    OWN: ModeInfo(
        implementation="dtsweep.sync.own:Own",
        semantics=_own_semantics,
        reads={},
        grid=_own_grid,
    ),
}
"""Modes that are not in `MODES`: the user's code says how workers exchange."""

OF_THE_USER = tuple(_OF_THE_USER)
"""Their names."""

CLOSED_LOOP = "closed_loop"
"""Serving in which each replica serves one batch after the other, as fast as it goes."""

OPEN_LOOP = "open_loop"
"""Serving of requests that arrive at a rate of their own, by Ray Serve."""

SERVING: Mapping[str, ModeInfo] = {
    CLOSED_LOOP: ModeInfo(
        implementation="dtsweep.sync.serving:ClosedLoop",
        semantics=lambda _: "inference",
        kind="closed loop",
        reads={},
        is_asynchronous=lambda _: True,
        sends="0",
        memory="S, and what a batch needs",
    ),
    OPEN_LOOP: ModeInfo(
        implementation="",
        semantics=lambda _: "inference",
        kind="open loop",
        reads={"rate": None, "max_batch": 1, "max_wait_s": 0.01},
        is_asynchronous=lambda _: True,
        needs_ray=True,
        sends="0",
        memory="S, and what a batch needs",
    ),
}
"""Modes of `Sweep(kind="inference")`, whose workers are replicas of one model."""

_NOT_IN_MODES: Mapping[str, ModeInfo] = {**_OF_THE_USER, **SERVING}


def mode_of(name: str) -> ModeInfo:
    """Declaration of one of `MODES` or `SERVING`, or of `AS_WRITTEN` or `OWN`.

    Raises:
        KeyError: it is none of them.

    >>> mode_of("ddp").agree, mode_of("as_written").agree
    ('gradients', 'nothing')
    """
    return _NOT_IN_MODES.get(name) or MODES[name]


def mode_in_results(name: str) -> ModeInfo:
    """Declaration of a mode that results name; of an imported table's, `UNDECLARED`.

    >>> mode_in_results("unknown") is UNDECLARED
    True
    """
    return _NOT_IN_MODES.get(name) or MODES.get(name, UNDECLARED)


def update_kind(semantics: str, sync: object) -> str:
    """Kind of an update within its semantics: the one definition of it.

    Points are compared within one kind. Exact updates are one kind, whatever the mode, and so are
    lossy ones. Empty also where the mode, as of an imported table, is unknown.

    >>> update_kind("local", "local_sgd"), update_kind("exact", "parameter_server")
    ('periodic averaging', '')
    """
    if semantics not in ("stale", "local", "inference") or not isinstance(sync, str):
        return ""
    return mode_in_results(sync).kind


UNDECLARED = ModeInfo(implementation="", semantics=lambda _: "unknown", reads={})
"""Declaration of a mode that dtsweep does not have: nothing is known of it."""


def mode_for(name: str, workload: Any) -> ModeInfo:
    """Declaration of a mode for a workload, which declares `OWN` itself.

    Raises:
        SweepError: the workload declares nothing.
    """
    info = mode_of(name)
    if name != OWN or (own_mode := declaration_of(workload)) is None:
        return info
    reads = {field: None for field in own_mode.reads if field in MODE_FIELDS}
    return replace(info, agree=own_mode.agree, reads=reads)


def divided(info: ModeInfo, fields: Fields) -> ModeInfo:
    """Declaration of a mode for a point whose workers share a model; else the mode's own.

    >>> fields = {"workers": 8, "tensor_parallel": 2, "pipeline_parallel": 2}
    >>> divided(MODES["ddp"], fields).grid(fields)
    Grid(data=2, model=4)
    """
    tensor, pipeline = fields["tensor_parallel"], fields["pipeline_parallel"]
    if tensor * pipeline == 1 or "tensor_parallel" not in info.reads:
        return info
    # Where it does not divide the workers, the point is impossible.
    grid = Grid(data=max(1, fields["workers"] // (tensor * pipeline)), model=tensor * pipeline)
    kept = {name: info.reads[name] for name in ("shard_precision",) if name in info.reads}
    return replace(
        info,
        implementation="dtsweep.sync.divided:Divided",
        grid=lambda _: grid,
        reads={**kept, **_DIVISION, "pipeline_schedule": "1f1b" if pipeline > 1 else None},
        agree="parameters",
        shards=True,
        # Workers of a model exchange in forward and backward, too.
        can_leave_out=(),
        scales_loss=False,
        can_exchange_alone=False,
        carries=(),
        sends="see docs/model-parallel.md",
        memory="see docs/model-parallel.md",
    )


MODE_FIELDS = tuple(
    dict.fromkeys(
        name for modes in (MODES, SERVING) for mode in modes.values() for name in mode.reads
    )
)
"""The fields of a point that only some modes read."""


def modes_reading(field: str) -> list[str]:
    """Name the modes that read a field of `MODE_FIELDS`.

    >>> modes_reading("sync_period")
    ['local_sgd', 'diloco', 'gossip', 'federated']
    """
    return [name for name, mode in {**MODES, **SERVING}.items() if field in mode.reads]

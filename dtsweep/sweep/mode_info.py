"""Declaration of a sync mode, readable without torch, and what a workload declares of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dtsweep.errors import SweepError, quoted

SEMANTICS = ("exact", "lossy", "stale", "local", "not_exchanged", "unknown", "inference")
"""Semantics of an update, from the strongest to the weakest.

Workers of a user's loop may train models of their own, `not_exchanged`, or what they exchange can't
be seen, `unknown`. `inference` has no updates.
"""

UNASKED = ("exact", "inference")
"""Semantics that are candidates for each goal; of the others a goal says which it allows."""

EXCHANGE_PARTS = ("gradients", "parameters")
"""Parts of an exchange that a step may leave out, by what the messages carry."""

_AGREEMENTS = ("gradients", "parameters", "nothing")
"""Agreements of ranks that have copies of a parameter.

`gradients`: they give their optimizers equal gradients, and so have equal parameters. `parameters`:
they have equal parameters at the end of a period.
"""

Fields = Mapping[str, Any]
"""Fields of a point by name, and `workload`."""


@dataclass(frozen=True)
class Grid:
    """Division of a point's workers into models."""

    data: int
    """Data-parallel groups: each trains on samples of its own."""

    model: int = 1
    """Workers of a group, which share one model: tensor or pipeline parallel.

    They are consecutive ranks and get the same samples.
    """


def _all_data_parallel(fields: Fields) -> Grid:
    """Each worker has a whole model."""
    return Grid(data=fields["workers"])


@dataclass(frozen=True, kw_only=True)
class ModeInfo:
    """Declaration of a mode; all fields but the first three have defaults."""

    implementation: str
    """`module:class` of the mode."""

    semantics: Callable[[Fields], str]
    """From the fields of a point to one of `SEMANTICS`."""

    reads: Mapping[str, Any]
    """The fields of a point that only some modes read, with this mode's own defaults."""

    kind: str = ""
    """Kind of its stale or local updates, as a noun: each kind has frontiers of its own.

    Modes without one share the frontiers of their semantics.
    """

    is_asynchronous: Callable[[Fields], bool] = lambda _: False
    """From the fields of a point: True if a step does not wait for one of every other worker."""

    steps_per_update: Callable[[Fields], int] | None = None
    """From the fields of a point to the workers' steps whose gradients make one update.

    None: one step of each data-parallel group, of one group where steps are asynchronous.
    """

    grid: Callable[[Fields], Grid] = _all_data_parallel
    """From the fields of a point to the division of its workers."""

    first_steps: Callable[[Fields], int] = lambda _: 0
    """From the fields of a point to the steps at the start of a training that are unlike the rest.

    They come before the first period, and no window has them.
    """

    changes_one_worker: Callable[[Fields], bool] = lambda _: False
    """From the fields of a point: True if one worker, too, trains differently from plain PyTorch.

    An example is an exchange that ends with an update by the mode's own rule. What
    `renews_optimizer` changes needs no declaration here.
    """

    participants: Callable[[Fields], int] | None = None
    """From the fields of a point to the number of data-parallel groups that train in a step.

    They are drawn for each sync period; the others have no samples and no loss in it. None where
    all groups train.
    """

    renews_optimizer: Callable[[Fields], bool] = lambda _: False
    """From the fields of a point: True if the optimizer has no state after a sync period."""

    needs_ray: bool = False
    """True if it works in a Ray session alone."""

    servers: Callable[[Fields], int] = lambda _: 0
    """From the fields of a point to the server processes that its ranks need in addition."""

    agree: str = "nothing"
    """One of `_AGREEMENTS`: a trial whose ranks don't is `wrong_gradient` or `wrong_parameters`."""

    shards: bool = False
    """True if a rank keeps a part of each parameter and gradient alone, as a `DTensor`."""

    shards_optimizer: bool = False
    """True if a rank keeps only its part of the optimizer's state; it may fit where `ddp` won't."""

    exchanges_each_pass: bool = False
    """True if each pass of a step exchanges, not the last alone."""

    can_leave_out: tuple[str, ...] = ()
    """Parts of the exchange, of `EXCHANGE_PARTS`, that a step can leave out.

    Together they are the whole exchange: steps without them measure it although it is overlapped.
    In a mode that has none, steps mark the time spent on the exchange as `sync`.
    """

    can_exchange_alone: bool = False
    """True if `exchange_alone` works, which times the exchange by itself."""

    carries: tuple[str, ...] = ()
    """Ways to combine payloads of a compression in this mode, of `EXCHANGES`.

    Empty where nothing can be compressed.
    """

    scales_loss: bool = False
    """True if all workers make each update alike, so that fp16 can leave one out on all of them."""

    exchanges_pieces: bool = False
    """True if what can be compressed are pieces of parameters, not whole ones."""

    shares_memory: bool = False
    """True if all workers train the same parameters in the memory of one host.

    Nothing is sent then, and nothing marked as `sync`: an update is the exchange.
    """

    can_restart: bool = True
    """True if steps can follow the window's last: another window."""

    sends: str = "unknown"
    """Bytes that a worker sends per step: a formula in the symbols of docs/sync-modes.md."""

    memory: str = "unknown"
    """Bytes that a worker holds at most, without activations: a formula like `sends`."""


@dataclass(frozen=True, kw_only=True)
class OwnMode:
    """Declaration of a workload with `prepare`: the attribute `own_mode`, read by `sync="own"`.

    Raises:
        SweepError: a value is not one of those allowed.
    """

    semantics: str
    """`exact`, `lossy`, `stale` or `local`: the frontier on which its points stand."""

    model_parallel: int = 1
    """Consecutive workers that share one model and its samples: tensor or pipeline parallel."""

    agree: str = "parameters"
    """One of `_AGREEMENTS`: what is compared between workers with copies of a parameter."""

    reads: tuple[str, ...] = ()
    """Fields of a point that `prepare` or `train_step` read, such as `optimizer`.

    `workers`, `micro_batch`, `accumulation` and `learning_rate` need no declaration.
    """

    def __post_init__(self) -> None:
        """Refuse values that can't be used."""
        allowed = SEMANTICS[:4]
        if self.semantics not in allowed:
            raise SweepError(
                f"OwnMode(semantics={quoted(self.semantics)}) is unknown; use one of "
                f"{', '.join(allowed)}",
                word="semantics",
            )
        if self.agree not in _AGREEMENTS:
            raise SweepError(
                f"OwnMode(agree={quoted(self.agree)}) is unknown; use one of "
                f"{', '.join(_AGREEMENTS)}",
                word="agree",
            )
        if not isinstance(self.reads, tuple):
            raise SweepError(
                f'OwnMode(reads={quoted(self.reads)}) is no tuple; write reads=("optimizer",)',
                word="reads",
            )
        if not isinstance(self.model_parallel, int) or self.model_parallel < 1:
            raise SweepError(
                f"OwnMode(model_parallel={quoted(self.model_parallel)}) must be a whole number of "
                "at least 1",
                word="model_parallel",
            )

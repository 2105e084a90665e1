"""Promises of every mode: each yields a sentence for every case that breaks it.

What a mode promises follows from its declaration: a new one is held to it by that alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.point import Point
from dtsweep.sync.passes import batches_of_steps
from tests.contract.regression import (
    STEPS,
    Regression,
    alone,
    distance,
    job_of,
    model_of,
    plain,
    point_of,
    same,
    weights,
)
from tests.contract.training import RUNS, Alone, OfRank, Outcome, cases_of

WORLDS = (1, 2, 4)
"""Numbers of workers."""

FARTHEST: Mapping[str, float] = {"exact": 0.0, "lossy": 0.1, "stale": 1.0, "local": 0.5}
"""Largest distance from the weights of plain training by semantics, as a share of its way."""

COUNTERS = frozenset({"bytes_sent", "messages_sent", "staleness", "dropped"})
"""Counters that the common loop knows."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A mode, and what ranks have trained with it."""

    mode: str
    by_workers: Callable[[int], Sequence[OfRank]]
    """Outcomes on each rank of a world of so many workers."""

    worlds: Sequence[int] = WORLDS
    """Numbers of workers, of promises that hold with any."""

    @property
    def several(self) -> list[int]:
        """Worlds with more than one worker."""
        return [workers for workers in self.worlds if workers > 1]

    @property
    def info(self) -> ModeInfo:
        """Declaration of the mode."""
        return self.point(2).mode

    @property
    def semantics(self) -> str:
        """Semantics of its points."""
        return self.point(2).semantics

    @property
    def changes_one_worker(self) -> bool:
        """True if one worker, too, trains differently from plain PyTorch."""
        point = self.point(1)
        return point.mode.changes_one_worker(vars(point))

    @property
    def cases(self) -> list[str]:
        """Cases with the exchange."""
        return [case for case in cases_of(self.mode) if case != "no_exchange"]

    def point(self, workers: int, case: str = "plain") -> Point:
        """The point of a case."""
        return point_of(self.mode, workers=workers, case=case)

    def outcomes(self, workers: int, case: str) -> list[Outcome]:
        """Outcomes of a case by rank."""
        return [of_rank[self.mode, case] for of_rank in self.by_workers(workers)]


Promise = Callable[[Trained], Iterator[str]]


def trains_like_plain_pytorch_with_one_worker(trained: Trained) -> Iterator[str]:
    """No update is late or another worker's then; but what is sent may still be rounded.

    By `changes_one_worker` an update is another one, also with one worker.
    """
    farthest = 0.0
    if trained.semantics == "lossy" or trained.changes_one_worker:
        farthest = FARTHEST[trained.semantics]
    if 1 in trained.worlds:
        yield from _far(trained, 1, farthest)


def trains_as_near_to_the_whole_batch_as_its_semantics_say(trained: Trained) -> Iterator[str]:
    """Reference is one worker with the samples of all."""
    for workers in trained.several:
        yield from _far(trained, workers, FARTHEST[trained.semantics])


def _far(trained: Trained, workers: int, farthest: float) -> Iterator[str]:
    for case in trained.cases:
        expected = plain(trained.point(workers, case), sum(RUNS[case]))
        for rank, outcome in enumerate(trained.outcomes(workers, case)):
            apart = distance(outcome.weights, expected)
            if apart > farthest:
                where = f"{case}, {workers} workers: rank {rank}"
                yield f"{where} is {apart:.2g} of the way from plain PyTorch, not {farthest:g}"


def workers_agree_as_it_declares(trained: Trained) -> Iterator[str]:
    """Modes that exchange in each step always agree, others at the end of a period."""
    exchanges_each_step = trained.semantics in ("exact", "lossy")
    if trained.info.agree == "nothing" and not exchanges_each_step:
        return
    for workers in trained.several:
        for case in trained.cases:
            if case == "between" and not exchanges_each_step and trained.point(2).period > 1:
                continue
            first, *others = trained.outcomes(workers, case)
            if not all(same(first.weights, other.weights) for other in others):
                yield f"{case}, {workers} workers: ranks have other weights than rank 0 at the end"


def workers_of_a_local_mode_part_between_exchanges(trained: Trained) -> Iterator[str]:
    """A group that has trained since the last exchange has weights of its own.

    Groups that were not drawn still have those that were agreed on.
    """
    if trained.semantics != "local":
        return
    for workers in trained.several:
        point = trained.point(workers, "between")
        since = sum(RUNS["between"]) - point.first_steps
        if since < 1 or since % point.period == 0:
            # It ends with an exchange.
            continue
        drawn = job_of(point, 0).participants_of(since // point.period)
        groups = trained.outcomes(workers, "between")[:: point.grid.model]
        for (one, first), (other, second) in itertools.combinations(enumerate(groups), 2):
            if {one, other}.intersection(drawn) and same(first.weights, second.weights):
                yield f"{workers} workers: groups {one} and {other} have the same weights"


def every_worker_trains_alone_without_the_exchange(trained: Trained) -> Iterator[str]:
    """Of a mode that can leave the exchange out and shards nothing."""
    if not trained.info.can_leave_out or trained.info.shards_optimizer:
        return
    for workers in trained.worlds:
        for rank, outcome in enumerate(trained.outcomes(workers, "no_exchange")):
            if not same(outcome.weights, alone(trained.point(workers), rank)):
                yield f"{workers} workers: without the exchange rank {rank} does not train alone"


def every_worker_updates_its_share_without_the_exchange(trained: Trained) -> Iterator[str]:
    """Of a mode that can leave the exchange out and shards the optimizer alone."""
    info = trained.info
    if not info.can_leave_out or not info.shards_optimizer or info.shards:
        return
    start = weights(model_of(0))
    for workers in trained.worlds:
        moved = [of.weights != start for of in trained.outcomes(workers, "no_exchange")]
        if np.sum(moved, axis=0).tolist() != [1] * len(start):
            yield f"{workers} workers: a parameter is updated by none of them, or by several"


def its_exchange_is_left_out_or_marked(trained: Trained) -> Iterator[str]:
    """The cost of the exchange is known by steps without it, or by marks `sync`."""
    period = trained.point(2).period
    if trained.info.can_leave_out:
        # Turns of steps with and without it are laid out for an exchange in every step.
        if period > 1:
            yield "it can leave out an exchange that not every step has (sync_period)"
        return
    first = trained.point(2).first_steps
    is_sent = not trained.info.shares_memory
    # Steps before the first period exchange in any case.
    expected = [
        is_sent and (step < first or (step - first + 1) % period == 0) for step in range(STEPS)
    ]
    for rank, outcome in enumerate(trained.outcomes(2, "plain")):
        seconds = outcome.times.get("sync_s", np.zeros(STEPS))
        if (seconds > 0).tolist() != expected:
            yield f"rank {rank} marks `sync` in other steps than those that exchange, or not at all"


def an_exchange_alone_is_one_of_a_step_or_a_period(trained: Trained) -> Iterator[str]:
    """As many collectives, and the number of steps that share it."""
    period = trained.point(2).period
    # Exchanges that one training has more than the other.
    more = STEPS // period - sum(RUNS["between"]) // period
    for case in ("plain", "between") if trained.info.can_exchange_alone else ():
        plain_runs, between = (trained.outcomes(2, name) for name in ("plain", "between"))
        for one, other, after in zip(plain_runs, between, trained.outcomes(2, case), strict=True):
            each = (sum(one.exchanges) - sum(other.exchanges)) / more
            found = alone_of(after)
            if list(found.shared_by) != [period] * 2:
                yield f"{case}: exchange_alone returns {found.shared_by[0]}, not {period} (steps)"
            if not 0 < found.exchanges == 2 * each:
                yield f"{case}: exchange_alone begins {found.exchanges / 2:g}, a period {each:g}"


def an_exchange_alone_leaves_an_exact_model_as_it_was(trained: Trained) -> Iterator[str]:
    """Later steps train on."""
    if not trained.info.can_exchange_alone or trained.semantics != "exact":
        return
    for rank, outcome in enumerate(trained.outcomes(2, "plain")):
        if not same(alone_of(outcome).weights, outcome.weights):
            yield f"exchange_alone changes the weights of rank {rank}"


def alone_of(outcome: Outcome) -> Alone:
    """Exchanges by themselves of a mode that has them."""
    assert outcome.alone is not None
    return outcome.alone


def accumulation_adds_exchanges_only_where_each_pass_has_them(trained: Trained) -> Iterator[str]:
    """By `exchanges_each_pass`."""
    passes = 1
    if trained.info.exchanges_each_pass:
        passes = trained.point(2, "accumulation").accumulation
    plain_runs, several = (trained.outcomes(2, case) for case in ("plain", "accumulation"))
    for rank, (one, other) in enumerate(zip(plain_runs, several, strict=True)):
        # What a mode finds out in its first step it may tell the others then.
        counts = sum(one.exchanges[1:]), sum(other.exchanges[1:])
        is_some = counts[0] > 0 or trained.info.shares_memory
        if not is_some or passes * counts[0] != counts[1]:
            yield f"rank {rank} begins {counts[1]} with accumulation, {counts[0]} without"


def without_the_exchange_there_is_none_and_then_it_is_as_before(trained: Trained) -> Iterator[str]:
    """Parameters in shards are gathered once more, and then stay whole."""
    if not trained.info.can_leave_out:
        return
    silent, plain_runs = (trained.outcomes(2, case) for case in ("no_exchange", "plain"))
    for rank, (without, usual) in enumerate(zip(silent, plain_runs, strict=True)):
        first, *others = without.exchanges
        if any(others) or (first and not trained.info.shards):
            yield f"rank {rank} begins {without.exchanges} collectives in steps without exchange"
        if without.exchanges_back[-1] != usual.exchanges[-1]:
            yield f"after steps without exchange rank {rank} does not exchange as before"


def ranks_begin_as_many_collectives(trained: Trained) -> Iterator[str]:
    """Else the next trial of the session would hang."""
    for workers in trained.several:
        for case in cases_of(trained.mode):
            positions = {outcome.position for outcome in trained.outcomes(workers, case)}
            if len(positions) > 1:
                yield f"{case}, {workers} workers: ranks have begun {sorted(positions)} collectives"


def groups_train_as_it_declares(trained: Trained) -> Iterator[str]:
    """As many groups as there are `participants` have a loss in a step, the same in a period."""
    for workers in trained.worlds:
        point = trained.point(workers)
        if not point.draws_participants:
            continue
        for step in range(STEPS):
            losses = [outcome.losses[step] for outcome in trained.outcomes(workers, "plain")]
            groups = [rank for rank, loss in enumerate(losses) if loss is not None]
            expected = job_of(point, 0).participants_of(step // point.period)
            if sorted({rank // point.grid.model for rank in groups}) != list(expected):
                yield f"{workers} workers: ranks {groups} train in step {step}, not {expected}"


def a_step_returns_its_part_of_the_mean_loss(trained: Trained) -> Iterator[str]:
    """On a CPU as a number, of the passes of the step."""
    for workers in trained.worlds:
        point = trained.point(workers, "accumulation")
        for rank, outcome in enumerate(trained.outcomes(workers, "accumulation")):
            may_have_none = point.grid.model > 1 or point.draws_participants
            if may_have_none and outcome.losses[0] is None:
                continue
            if job_of(point, rank).data_rank not in job_of(point, rank).participants_of(0):
                # Another promise: it trains although it was not drawn.
                continue
            kinds = {type(loss) for loss in outcome.losses}
            if kinds - ({type(None)} if may_have_none else set()) != {float}:
                yield f"{workers} workers: a loss of rank {rank} is not a float"
                continue
            if point.is_asynchronous and workers > 1:
                # Another worker may have updated the parameters before this one's first pass.
                continue
            expected = _first_loss(point, rank)
            if not np.isclose(float(outcome.losses[0] or 0), expected, rtol=1e-5):
                loss = outcome.losses[0]
                yield f"{workers} workers: first loss of rank {rank} is {loss}, not {expected:.6g}"


def _first_loss(point: Point, rank: int) -> float:
    """Loss of a rank's first step, of a model that is not trained."""
    job, model = job_of(point, rank), model_of(0)
    slot = job.participants_of(0).index(job.data_rank)
    batches = next(batches_of_steps(job, lambda: slot))
    losses = [float(Regression().loss(model, batch).detach()) for batch in batches]
    return sum(losses) / point.accumulation


def the_phases_that_it_marks_make_up_its_steps(trained: Trained) -> Iterator[str]:
    """Data, forward and backward are among them."""
    for workers in trained.worlds:
        for rank, outcome in enumerate(trained.outcomes(workers, "accumulation")):
            times = outcome.times
            phases = {name for name in times if name not in ("start_s", "step_s")}
            if lacking := {"data_s", "forward_s", "backward_s"} - phases:
                yield f"{workers} workers: rank {rank} does not mark {', '.join(sorted(lacking))}"
            total = np.sum([times[name] for name in phases], axis=0)
            if not np.allclose(total, times["step_s"], rtol=0, atol=1e-9):
                yield f"{workers} workers: the phases of rank {rank} do not make up its steps"


def it_counts_nothing_but_what_the_loop_knows(trained: Trained) -> Iterator[str]:
    """Other counters would be lost."""
    for rank, outcome in enumerate(trained.outcomes(2, "plain")):
        if unknown := set(outcome.counters) - COUNTERS:
            yield f"counters() of rank {rank} has {', '.join(sorted(unknown))}"


def a_run_of_steps_ends_all_its_updates(trained: Trained) -> Iterator[str]:
    """Twice as many steps make twice as many updates: `drain` ends what is under way."""
    if not trained.info.can_restart:
        return
    for workers in trained.worlds:
        plain_runs, restarted = (trained.outcomes(workers, case) for case in ("plain", "restarted"))
        for rank, (one, two) in enumerate(zip(plain_runs, restarted, strict=True)):
            counts = [*one.updates, two.updates[1]]
            # Where workers are drawn, a rank may train in one of the runs alone.
            if not trained.point(workers).draws_participants:
                counts.append(2 * two.updates[0])
            if len({*counts}) > 1:
                yield f"{workers} workers: runs of rank {rank} make {counts} updates: see drain"


def its_gradients_can_be_seen_before_each_update(trained: Trained) -> Iterator[str]:
    """Otherwise no check of gradients sees them, and a wrong one would pass."""
    for rank, outcome in enumerate(trained.outcomes(2, "plain")):
        # Updates of anything but optimizers of torch are not counted: there is one in a step.
        updates = min(STEPS, outcome.updates[-1] or STEPS)
        if trained.point(2).draws_participants:
            updates = sum(loss is not None for loss in outcome.losses)
        if outcome.looks < updates:
            yield f"rank {rank} calls before_update {outcome.looks} times in {updates} updates"


PROMISES: Collection[Promise] = (
    trains_like_plain_pytorch_with_one_worker,
    trains_as_near_to_the_whole_batch_as_its_semantics_say,
    workers_agree_as_it_declares,
    workers_of_a_local_mode_part_between_exchanges,
    every_worker_trains_alone_without_the_exchange,
    every_worker_updates_its_share_without_the_exchange,
    its_exchange_is_left_out_or_marked,
    an_exchange_alone_is_one_of_a_step_or_a_period,
    an_exchange_alone_leaves_an_exact_model_as_it_was,
    accumulation_adds_exchanges_only_where_each_pass_has_them,
    without_the_exchange_there_is_none_and_then_it_is_as_before,
    ranks_begin_as_many_collectives,
    groups_train_as_it_declares,
    a_step_returns_its_part_of_the_mean_loss,
    the_phases_that_it_marks_make_up_its_steps,
    it_counts_nothing_but_what_the_loop_knows,
    a_run_of_steps_ends_all_its_updates,
    its_gradients_can_be_seen_before_each_update,
)
"""All promises of a mode; those of what it does not declare hold by themselves."""

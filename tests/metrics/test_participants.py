"""Rows of a mode that draws workers: those that wait in a round are no fault, nor do they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtsweep.metrics.rows import rank_rows, step_columns
from tests.outcomes import SKIPPED, Sent, facts, marked, outcome, row_of

ROUNDS, PERIOD = 20, 2
FEDERATED: dict[str, Any] = {"sync": "federated", "participation": 0.5, "sync_period": PERIOD}
DRAWN_IN_ROUND = [[0, 1], [1, 2]] * (ROUNDS // 2)
"""Of four workers; the last one is never drawn."""


def sent_by(rank: int, *, work_s: float = 1.0, loss: float | None = None) -> Sent:
    """What a rank sends: drawn ones work in each step, the others wait for a round's exchange.

    A round is two steps of a second and an exchange of a second.
    """
    trains = np.array(
        [True] * SKIPPED + [rank in drawn for drawn in DRAWN_IN_ROUND for _ in (0, 1)]
    )
    steps = len(trains)
    work = np.where(trains, work_s, 0.0)
    ends_round = np.arange(steps) % PERIOD == PERIOD - 1
    sync = np.where(ends_round, 3.0 - PERIOD * work, 0.0)
    losses = np.where(trains, 10.0 + rank if loss is None else loss, np.nan)
    phases = {"data_s": work * 0, "forward_s": work / 2, "backward_s": work / 2, "sync_s": sync}
    return outcome(
        list((work + sync)[SKIPPED:]),
        columns={**phases, "step_s": work + sync, "loss": losses, "trains": trains},
        trained_steps=int(trains[SKIPPED:].sum()),
        flops_per_sample=1e9,
        telemetry={"process_cpus": trains[SKIPPED:].mean()},
        where=facts(machine={"cpus": 4}),
    )


RANKS = [sent_by(rank) for rank in range(4)]


def test_workers_that_wait_in_a_round_are_neither_slow_nor_counted() -> None:
    row = row_of(RANKS, **FEDERATED)
    assert row["global_batch"] == 2 * 4
    assert row["step_mean_s"] == pytest.approx(1.5)
    assert row["samples_per_s"] == pytest.approx(8 / 1.5)
    # A second of exchange in a round of three.
    shares = [row[name] for name in ("exchange_share", "wait_share", "comm_share", "data_share")]
    assert shares == pytest.approx([1 / 3, 0, 1 / 3, 0])
    assert (row["rank_skew"], row["straggler"]) == (pytest.approx(0), None)
    phases = [row[name] for name in ("pass_s", "forward_s", "backward_s", "sync_s")]
    assert phases == pytest.approx([1.0, 0.5, 0.5, 0.5])
    assert (row["step_p50_s"], row["step_max_s"]) == (1.5, 2.0)
    assert (row["implausible"], row["flags"]) == (None, [])
    # In the first round those of ranks 0 and 1, in the last of 1 and 2.
    assert (row["loss_first"], row["loss_last"]) == (10.5, 11.5)


def test_a_drawn_worker_whose_loss_is_not_a_number_or_that_is_slow_is_seen() -> None:
    # Rank 2 trains in the last round, not in the first.
    row = row_of([*RANKS[:2], sent_by(2, loss=np.nan), RANKS[3]], **FEDERATED)
    assert row["loss_first"] == 10.5
    assert np.isnan(row["loss_last"])
    row = row_of([RANKS[0], sent_by(1, work_s=1.4), *RANKS[2:]], **FEDERATED)
    assert row["straggler"] == "rank 1 on one"
    assert row["wait_share"] == pytest.approx(0.4 / 3)


def test_losses_of_workers_that_were_not_drawn_are_null() -> None:
    known, results = marked(RANKS, **FEDERATED)
    columns = step_columns(results)
    assert columns is not None
    is_null = np.ma.getmaskarray(columns["loss"])
    assert is_null[columns["rank"] == 1].sum() == 0
    assert is_null[columns["rank"] == 3].sum() == ROUNDS * PERIOD
    assert "trains" not in columns
    rows = rank_rows(known, results)
    assert [row["trained_steps"] for row in rows] == [20, 40, 20, 0]
    assert [row["work_s"] for row in rows] == [1, 1, 1, None]

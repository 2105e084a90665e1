"""Promises on outcomes that are written down, where a mode would be long to break so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.contract.promises import (
    Trained,
    a_step_returns_its_part_of_the_mean_loss,
    workers_of_a_local_mode_part_between_exchanges,
)
from tests.contract.regression import job_of
from tests.contract.training import OfRank, Outcome


def outcome(weight: float, loss: float | None = 0.5) -> Outcome:
    return Outcome(
        weights=np.array([weight]),
        losses=[loss],
        times={},
        counters={},
        exchanges=[],
        exchanges_back=[],
        updates=[],
        looks=0,
        alone=None,
        position=0,
    )


def said(mode: str, weights: Sequence[float], **fields: Any) -> list[str]:
    """Sentences on a world of four workers with these weights between exchanges."""

    def by_workers(workers: int) -> list[OfRank]:
        # A world of two keeps the promise.
        apart = weights if workers == 4 else range(2)
        return [{(mode, "between"): outcome(weight)} for weight in apart]

    trained = Trained(mode=mode, fields=fields, by_workers=by_workers)
    return list(workers_of_a_local_mode_part_between_exchanges(trained))


def test_any_two_workers_that_have_trained_have_other_weights() -> None:
    assert said("local_sgd", [1, 2, 3, 4]) == []
    (line,) = said("local_sgd", [1, 2, 3, 3])
    assert line.startswith("4 workers: groups 2 and 3 have the same weights")


def test_a_worker_that_was_drawn_has_other_weights_than_those_that_were_not() -> None:
    point = Trained(mode="federated", fields={}, by_workers=lambda _: []).point(4)
    drawn = job_of(point, 0).participants_of(1)
    assert len(drawn) == 2
    apart = [10.0 + rank if rank in drawn else 0.0 for rank in range(4)]
    assert said("federated", apart) == []
    assert len(said("federated", [0.0] * 4)) == 5
    one_of_them = [0.0 if rank == drawn[0] else value for rank, value in enumerate(apart)]
    assert len(said("federated", one_of_them)) == 2


@pytest.mark.parametrize(
    "fields", [{"sync_period": 1}, {"sync_period": 2}, {"synchronous_steps": 4}]
)
def test_nothing_is_promised_right_after_an_exchange(fields: dict[str, Any]) -> None:
    assert said("local_sgd", [1, 1, 1, 1], **fields) == []


def test_a_loss_of_a_worker_that_was_not_drawn_is_no_failure_of_the_check() -> None:
    trained = Trained(
        mode="federated",
        fields={},
        by_workers=lambda workers: [
            {("federated", "accumulation"): outcome(0.0, loss=-1.0)} for _ in range(workers)
        ],
    )
    lines = list(a_step_returns_its_part_of_the_mean_loss(trained))
    assert len(lines) == 1 + 1 + 2

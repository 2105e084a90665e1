"""Tests of priors of the exchange by timed all-reduces."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.model.formula import PRIORS
from dtsweep.model.links import AllReduce, with_links
from dtsweep.model.setups import setups_of
from dtsweep.model.step_time import fit_step_time
from tests.model.test_step_time import grid, measure, seconds

WITHIN = AllReduce(workers=4, nodes=1, latency_s=0.003, transfer_s=0.03)
BETWEEN = AllReduce(workers=8, nodes=4, latency_s=0.004, transfer_s=0.7)


def test_times_of_links_are_the_means_of_their_parameters() -> None:
    priors = {prior.name: prior for prior in with_links(PRIORS, [WITHIN, BETWEEN], log_pass=-2.0)}
    expected = {
        "local_latency": 0.001,
        "local_bandwidth": 0.02,
        "node_latency": 0.002,
        "node_bandwidth": 0.4,
    }
    for name, time_s in expected.items():
        assert priors[name].mean == pytest.approx(np.log(time_s) + 2.0)
    others = [prior for prior in PRIORS if prior.name not in expected]
    assert [priors[prior.name] for prior in others] == others


def test_of_several_links_the_median_counts() -> None:
    links = [
        AllReduce(workers=2, nodes=1, latency_s=latency, transfer_s=None)
        for latency in (0.001, 0.002, 0.1)
    ]
    priors = {prior.name: prior for prior in with_links(PRIORS, links, log_pass=0.0)}
    assert priors["local_latency"].mean == pytest.approx(np.log(0.002))
    assert priors["local_bandwidth"] in PRIORS


@pytest.mark.parametrize("exchange_s", [0.03, 0.3])
def test_a_link_tells_of_an_exchange_that_was_not_measured(exchange_s: float) -> None:
    alone = setups_of(workers=[1, 1, 1], nodes=[1, 1, 1], micro_batch=[4, 16, 64])
    times, passes = seconds(alone)
    others = setups_of(workers=[2, 4, 2, 4], nodes=[2, 4, 2, 4], micro_batch=[4, 4, 64, 64])
    truth, _ = seconds(others, exchange_s=exchange_s)
    # A link has no compute next to it, so its time is not exactly the training's.
    link = AllReduce(workers=2, nodes=2, latency_s=1e-6, transfer_s=1.3 * exchange_s)
    plain, informed = (
        fit_step_time(alone, measure(alone, times, pass_s=passes), links=links).predict(others)
        for links in ((), (link,))
    )
    errors = [np.abs(one.log_step_s - np.log(truth)).mean() for one in (plain, informed)]
    assert errors[1] < 0.5 * errors[0]
    # Compute may hide some of the exchange, and a training has another one than a test.
    assert (np.abs(informed.log_step_s - np.log(truth)) < 1.64 * informed.error).all()


def test_measurements_outweigh_a_link_that_is_wrong() -> None:
    setups = grid()
    times, passes = seconds(setups)
    wrong = AllReduce(workers=2, nodes=2, latency_s=1e-6, transfer_s=3.0)
    model = fit_step_time(setups, measure(setups, times, pass_s=passes), links=[wrong])
    assert model.predict(setups).log_step_s == pytest.approx(np.log(times), abs=0.05)

"""Tests of priors of the exchange by timed all-reduces."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.model.formula import PRIORS, Prior, exchange_times, terms_of
from dtsweep.model.links import AllReduce, with_links
from dtsweep.model.setups import setups_of
from dtsweep.model.step_time import fit_step_time
from tests.model.test_step_time import grid, measure, seconds


def exchange_s(priors: tuple[Prior, ...], *, workers: int, nodes: int) -> float:
    """Time of an exchange by the means of priors, if a pass takes a second."""
    setups = setups_of(workers=[workers], nodes=[nodes], micro_batch=[1])
    values = {prior.name: np.exp(prior.mean) for prior in priors}
    return float(exchange_times(values, terms_of(setups, typical_batch=1.0)).item())


@pytest.mark.parametrize("log_pass", [-5.0, 0.0])
@pytest.mark.parametrize(("workers", "nodes"), [(2, 1), (8, 1), (2, 2), (16, 2), (16, 4)])
def test_the_exchange_of_a_timed_group_takes_the_time_of_its_link(
    workers: int, nodes: int, log_pass: float
) -> None:
    links = [AllReduce(workers=workers, nodes=nodes, latency_s=0.004, transfer_s=0.3)]
    per_node = workers // nodes
    if nodes > 1 and per_node > 1:
        links.append(AllReduce(workers=per_node, nodes=1, latency_s=0.001, transfer_s=0.02))
    priors = with_links(PRIORS, links, log_pass=log_pass)
    time_s = exchange_s(priors, workers=workers, nodes=nodes) * np.exp(log_pass)
    assert time_s == pytest.approx(0.304, rel=1e-6)


def test_other_priors_stay() -> None:
    link = AllReduce(workers=4, nodes=1, latency_s=0.003, transfer_s=0.03)
    replaced = {"local_latency", "local_bandwidth", "worker_latency"}
    others = [prior for prior in PRIORS if prior.name not in replaced]
    kept = with_links(PRIORS, [link], log_pass=-2.0)
    assert [prior for prior in kept if prior.name not in replaced] == others
    assert {prior.name for prior in set(kept) - set(PRIORS)} == replaced


def test_what_a_link_does_not_tell_stays() -> None:
    link = AllReduce(workers=2, nodes=2, latency_s=None, transfer_s=None)
    assert with_links(PRIORS, [link], log_pass=0.0) == PRIORS


def test_a_link_between_nodes_that_is_faster_than_its_parts_keeps_a_share() -> None:
    within = AllReduce(workers=8, nodes=1, latency_s=0.01, transfer_s=1.0)
    between = AllReduce(workers=16, nodes=2, latency_s=0.001, transfer_s=0.1)
    priors = {p.name: p.mean for p in with_links(PRIORS, [within, between], log_pass=0.0)}
    assert priors["node_latency"] == pytest.approx(np.log(0.0001))
    assert np.isfinite(priors["node_bandwidth"])


def test_of_several_links_the_median_counts() -> None:
    links = [
        AllReduce(workers=2, nodes=1, latency_s=latency, transfer_s=None)
        for latency in (0.001, 0.002, 0.1)
    ]
    priors = with_links(PRIORS, links, log_pass=0.0)
    means = {prior.name: prior.mean for prior in priors}
    assert means["local_latency"] == pytest.approx(np.log(0.001))
    assert means["worker_latency"] == pytest.approx(np.log(0.001))


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
    alone = setups_of(workers=[1, 1], nodes=[1, 1], micro_batch=[4, 64])
    of_alone, _ = seconds(alone)
    few = fit_step_time(alone, measure(alone, of_alone), links=[wrong])
    two = setups_of(workers=[2], nodes=[2], micro_batch=[4])
    assert few.predict(two).log_step_s.item() > np.log(1.5)

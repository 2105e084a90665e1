"""The simulated queue against exact results, and predictions of open loops from closed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from rich.console import Console

from dtsweep.analysis.queueing import Service, queueing, simulate
from dtsweep.report.content import content_of
from dtsweep.report.queues import Queues
from dtsweep.show.view import page_view
from tests.frames import trials


def constant(seconds: float) -> Service:
    return lambda size, random: seconds


def poisson(rate: float, requests: int, seed: int = 1) -> NDArray[np.float64]:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))


def test_a_batch_begins_when_it_is_full_or_its_first_request_has_waited() -> None:
    arrivals = np.array([0.0, 0.3, 2.0, 2.1, 2.2, 2.3, 7.0])
    found = simulate(arrivals, constant(1.0), max_batch=2, max_wait_s=0.5)
    # Batches are closed at 0.3, 2.1 and 2.3, full, and at 7.5. The third begins at 3.1.
    assert found == pytest.approx([1.3, 1.0, 1.1, 1.0, 1.9, 1.8, 1.5])
    # Closed at 0.2, 1.1 and 1.35: a batch that has waited takes no more, though the first ends 1.2.
    found = simulate(np.array([0.0, 0.1, 0.9, 1.15]), constant(1.0), max_batch=4, max_wait_s=0.2)
    assert found == pytest.approx([1.2, 1.1, 1.3, 2.05])
    assert simulate(np.array([0.0, 0.1]), constant(1.0), replicas=2).tolist() == [1.0, 1.0]


def test_waits_of_m_d_1_are_those_of_pollaczek_and_khinchine() -> None:
    waits = simulate(poisson(0.7, 60_000), constant(1.0)) - 1
    assert waits.mean() == pytest.approx(0.7 / (2 * 0.3), rel=0.03)


def test_percentiles_of_m_m_1_are_those_of_an_exponential_distribution() -> None:
    found = simulate(poisson(0.5, 60_000), lambda size, random: random.exponential(1.0))
    exact = [-np.log(1 - share) / (1.0 - 0.5) for share in (0.5, 0.95, 0.99)]
    assert np.percentile(found, [50, 95, 99]) == pytest.approx(exact, rel=0.05)


def test_one_replica_without_batches_serves_in_order_and_is_never_idle_while_requests_wait() -> (
    None
):
    drawn: list[float] = []

    def service(size: int, random: np.random.Generator) -> float:
        drawn.append(random.gamma(2.0))
        return drawn[-1]

    arrivals = poisson(0.45, 3_000)
    found = simulate(arrivals, service)
    # Lindley's recursion.
    ends = [0.0]
    for arrival, seconds in zip(arrivals, drawn, strict=True):
        ends.append(max(arrival, ends[-1]) + seconds)
    assert found == pytest.approx(np.array(ends[1:]) - arrivals)


def test_every_request_is_served_once_in_batches_no_larger_than_allowed() -> None:
    sizes: list[int] = []

    def service(size: int, random: np.random.Generator) -> float:
        sizes.append(size)
        return 1.0 + 0.1 * size

    found = simulate(poisson(6.0, 5_000), service, replicas=3, max_batch=8, max_wait_s=2.0)
    assert sum(sizes) == len(found) == 5_000
    assert max(sizes) <= 8
    assert found.min() >= 1.1 and np.percentile(found, 99) < 10


def test_latencies_grow_without_limit_above_capacity() -> None:
    found = simulate(poisson(2.2, 4_000), constant(2.0), max_batch=4, max_wait_s=9.0)
    assert found[-500:].mean() > 2 * found[1_000:1_500].mean() > 20


def closed_loop(micro_batch: int, mean_s: float, **others: Any) -> dict[str, Any]:
    percentiles = {f"step_{name}_s": mean_s for name in ("p50", "p95", "p99")}
    row = {"sync": "closed_loop", "micro_batch": micro_batch, "step_mean_s": mean_s}
    return {**row, **percentiles, **others}


def open_loop(rate: float, max_batch: int = 1, **others: Any) -> dict[str, Any]:
    loads = {"rate": rate, "max_batch": max_batch, "max_wait_s": 0.0}
    return {"sync": "open_loop", "micro_batch": 1, "step_p50_s": 1.0, **loads, **others}


def predictions(*rows: dict[str, Any]) -> pd.DataFrame:
    return queueing(trials(*rows, semantics="inference"))


def test_a_prediction_has_its_error_over_what_was_measured() -> None:
    row = predictions(closed_loop(1, 1.0), open_loop(0.4, step_p50_s=1.25)).iloc[0]
    assert row["utilization"] == pytest.approx(0.4, rel=0.02)
    # 60 % of the requests of M/D/1 find nobody there, so that the median is the service time.
    assert (row["predicted_p50_s"], row["error_p50"]) == pytest.approx((1.0, -0.2))


def test_service_times_have_the_percentiles_and_the_mean_of_the_closed_loop() -> None:
    spread = {"step_p50_s": 0.8, "step_p95_s": 1.6, "step_p99_s": 3.0}
    # So few requests never meet; batches of 2 lie between the measured sizes.
    row = predictions(closed_loop(1, 1.0, **spread), open_loop(0.001)).iloc[0]
    found = row[["predicted_p50_s", "predicted_p95_s", "predicted_p99_s"]].tolist()
    assert found == pytest.approx([0.8, 1.6, 3.0], rel=0.05)
    row = predictions(
        closed_loop(1, 1.0), closed_loop(3, 2.0), open_loop(0.6, 2, max_wait_s=99)
    ).iloc[0]
    assert row["utilization"] == pytest.approx(0.6 * 1.5 / 2, rel=0.02)


def test_what_has_no_prediction_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    frame = trials(
        closed_loop(1, 1.0, samples_per_s=1.0),
        closed_loop(4, 2.0),
        open_loop(0.1, 4),
        open_loop(2.1, 4),
        open_loop(0.1, 8),
        open_loop(0.1, precision="bf16"),
        open_loop(0.1, workers=2),
        semantics="inference",
    )
    rows = queueing(frame)
    reasons = rows.set_index(["workers", "precision", "max_batch", "rate"])["unpredicted"]
    assert reasons[(1, "fp32", 4, 2.1)].startswith("unstable: ")
    assert "batches of 1 to 4, and those of 1 to 8 occur" in reasons[(1, "fp32", 8, 0.1)]
    assert reasons[(1, "bf16", 1, 0.1)] == reasons[(2, "fp32", 1, 0.1)]
    assert rows["predicted_p99_s"].notna().tolist() == reasons.isna().tolist()
    section = Queues(rows)
    section.print(console=Console(width=200))
    said = capsys.readouterr().out
    assert "nan" not in said
    assert "2 not predicted: no closed_loop point has these settings." in " ".join(said.split())
    view = page_view(content_of(frame, sections=[section]), place="r")
    assert view["plots"][-1]["table"]["p99 error %"] == [""] * 5
    assert view["printed"] == []

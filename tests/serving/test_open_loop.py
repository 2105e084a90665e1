"""Requests of an open loop on a real Ray Serve: accurate, and all of them counted."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.serving.requests import Requests, WindowEnd, arrival_times
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sweep.task import Task, task_of
from tests.pages import ROOT

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Timed:
    """A batch takes as long as it says, whatever its size."""

    seconds: float

    def build(self) -> nn.Module:
        return nn.Linear(1, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 1, device=device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch).sum()
        return answer

    def serve(self, model: Any, batch: Tensor) -> Tensor:
        time.sleep(self.seconds)
        answer: Tensor = model(batch)
        return answer


def task(service_s: float, *, measure: Measure, **point: Any) -> Task:
    workload = Timed(service_s)
    served = {"max_batch": 1, "max_wait_s": 0.0, **point}
    sweep = Sweep(
        workload=workload, axes={"rate": [point["rate"]]}, kind="inference", measure=measure
    )
    return task_of(sweep, Point(workload=workload, sync="open_loop", micro_batch=1, **served))


def lasting(seconds: float) -> Measure:
    return Measure(max_seconds=seconds, half_width=None, min_seconds=seconds)


class Rank:
    """An actor that measures as rank 0 of a session does."""

    def pid(self) -> int:
        return os.getpid()

    def measure(self, one: Task) -> Any:
        import ray

        from dtsweep.serving.open_loop import measure_open_loop
        from dtsweep.worker.rank import become_rank

        context = become_rank(
            0,
            torch.device("cpu"),
            workload=Timed(0.0),
            own_variables=[],
            node_id=ray.get_runtime_context().get_node_id(),
        )
        return measure_open_loop(context, one, lambda _: None)


@pytest.fixture(scope="module")
def on_own_ray() -> Iterator[None]:
    import ray

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own spelling
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    yield
    ray.shutdown()


@contextmanager
def served(one: Task) -> Iterator[Any]:
    """The deployment's handle, with replicas as the task has workers."""
    import ray
    from ray import cloudpickle

    from dtsweep.serving.apps import started_app
    from dtsweep.serving.replica import Replica, Setup

    node_id = ray.get_runtime_context().get_node_id()
    setup = Setup(
        task=one,
        workload=cloudpickle.dumps(Timed(0.0)),
        search_path=[],
        places=[(node_id, None)] * one.point.workers,
        threads=1,
        secrets={},
    )
    nodes = {node_id: one.point.workers}
    with started_app(Replica, setup, attempt_id=one.attempt_id, nodes=nodes) as handle:
        yield handle


def client_of(one: Task, handle: Any) -> tuple[Any, Requests]:
    from dtsweep.serving.client import Client
    from dtsweep.serving.open_loop import schedule, sender

    requests, end = schedule(one)
    return Client(sender(handle), requests, end), requests


def nothing() -> None:
    """At a window's start and end."""


async def by_a_plain_client(handle: Any, arrivals: Times) -> Times:
    """Latencies by a client of a few lines, which knows nothing of dtsweep."""
    began = time.perf_counter()

    async def ask(arrival_s: float) -> float:
        await asyncio.sleep(max(0.0, began + arrival_s - time.perf_counter()))
        await handle.answer.remote(0)
        return time.perf_counter() - began - arrival_s

    return np.array(await asyncio.gather(*map(ask, arrivals)))


def in_a_simulated_queue(arrivals: Times, *, service_s: float) -> Times:
    """Latencies of one server that takes one request after the other."""
    ends, free_s = [], 0.0
    for arrival_s in arrivals:
        free_s = max(free_s, arrival_s) + service_s
        ends.append(free_s)
    return np.array(ends) - arrivals


def counts(requests: Requests) -> tuple[int, int, int]:
    """Requests of the window that were answered, lost, and late."""
    is_answered = np.isfinite(requests.latency_s[requests.window])
    lost = requests.is_lost[requests.window]
    return int(is_answered.sum()), int(lost.sum()), int((~is_answered & ~lost).sum())


@pytest.mark.ray
@pytest.mark.slow
def test_latencies_are_those_of_a_simulated_queue(on_own_ray: None) -> None:
    # So long a service that the time of Serve, some 50 ms on a busy machine, decides nothing.
    one = task(1.5, rate=0.4, measure=lasting(110.0))
    with served(one) as handle:
        client, requests = client_of(one, handle)
        asyncio.run(client.run(on_window=nothing, on_end=nothing))
    simulated_s = in_a_simulated_queue(requests.arrival_s, service_s=1.5)[requests.window]
    measured_s = requests.latency_s[requests.window]
    own_s = (requests.latency_s - requests.waited_s - requests.served_s)[requests.window]
    served_s = requests.served_s[requests.window]
    if own_s.mean() > 0.03 or abs(served_s.mean() / 1.5 - 1) > 0.01:
        pytest.skip("this machine is too busy: messages or a sleep take longer than they should")
    for p in (0.5, 0.95, 0.99):
        ratio = np.quantile(measured_s, p) / np.quantile(simulated_s, p)
        print(f"p{100 * p:g}: {np.quantile(measured_s, p):.4f} s, {ratio:.4f} of the simulated")
        assert ratio == pytest.approx(1, abs=0.05)


@pytest.mark.ray
@pytest.mark.slow
def test_latencies_are_those_of_a_plain_client(on_own_ray: None) -> None:
    one = task(0.4, rate=3.2, max_batch=6, max_wait_s=0.2, measure=lasting(40.0))
    with served(one) as handle:
        client, requests = client_of(one, handle)
        arrivals = requests.arrival_s[requests.arrival_s < requests.window_at + 40]

        async def by_both() -> Times:
            # Each arrival is two requests, one of each client, which fall into one batch.
            run = client.run(on_window=nothing, on_end=nothing)
            _, latencies = await asyncio.gather(run, by_a_plain_client(handle, arrivals))
            return latencies

        plain_s = asyncio.run(by_both())
    window = slice(requests.first, len(arrivals))
    ratio = np.median(requests.latency_s[window]) / np.median(plain_s[window])
    print(f"median {ratio:.4f} of a plain client's")
    assert ratio == pytest.approx(1, abs=0.03)


def kill_a_replica() -> None:
    from ray._private.state import actors

    alive = actors(actor_state_name="ALIVE").values()
    replicas = [one for one in alive if one["ActorClassName"].startswith("ServeReplica")]
    os.kill(replicas[0]["Pid"], signal.SIGKILL)


@pytest.mark.ray
@pytest.mark.slow
def test_requests_of_a_killed_replica_are_lost_and_all_others_answered(on_own_ray: None) -> None:
    from ray import serve

    one = task(0.5, rate=2.5, workers=2, measure=lasting(20.0))
    with served(one) as handle:
        client, requests = client_of(one, handle)

        def kill_when_both_serve() -> None:
            while np.isfinite(requests.sent_s).sum() - np.isfinite(requests.answered_s).sum() < 3:
                time.sleep(0.001)
            kill_a_replica()

        asyncio.run(client.run(on_window=kill_when_both_serve, on_end=nothing))
        replicas = next(iter(serve.status().applications.values())).deployments["replica"]
    answered, lost, late = counts(requests)
    assert answered + lost + late == requests.scheduled - requests.first
    assert lost + int(requests.is_lost[: requests.first].sum()) >= 1
    assert answered > 0.5 * (requests.scheduled - requests.first)
    # Serve has replaced it.
    assert replicas.replica_states == {"RUNNING": 2}


@pytest.mark.ray
@pytest.mark.slow
def test_too_high_a_rate_ends_in_bounded_time_with_late_requests(on_own_ray: None) -> None:
    one = task(0.2, rate=25.0, measure=Measure(max_seconds=6))
    with served(one) as handle:
        client, requests = client_of(one, handle)
        began = time.perf_counter()
        asyncio.run(client.run(on_window=nothing, on_end=nothing))
        took_s = time.perf_counter() - began
    answered, lost, late = counts(requests)
    # Warm-up, window, and a wait of 2 s.
    assert took_s < 1.2 + 6 + 2 + 2
    assert lost == 0
    assert 0 < answered < late
    assert answered + late == requests.scheduled - requests.first


@pytest.mark.ray
@pytest.mark.slow
def test_an_application_whose_client_was_killed_is_deleted_at_the_next_trial(
    on_own_ray: None,
) -> None:
    import ray
    from ray import serve

    long, short = (task(0.05, rate=5.0, measure=lasting(seconds)) for seconds in (600.0, 2.0))
    killed, next_one = (ray.remote(num_cpus=1)(Rank).remote() for _ in range(2))
    pid = ray.get(killed.pid.remote())
    lost = killed.measure.remote(long)
    until = time.monotonic() + 120
    while not [*serve.status().applications] and time.monotonic() < until:
        time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(lost)
    assert len(serve.status().applications) == 1
    measured = ray.get(next_one.measure.remote(short))
    assert measured.requests_lost == measured.requests_late == 0
    assert not serve.status().applications


def test_a_longer_schedule_begins_with_the_shorter_one_and_has_the_rate() -> None:
    short, long = (arrival_times(50.0, until_s=until_s, seed=3) for until_s in (10.0, 400.0))
    assert (long[: len(short)] == short).all()
    # 20,000 gaps are known to 0.7 %.
    assert len(long) / 400 == pytest.approx(50, rel=0.02)
    assert np.diff(long).std() == pytest.approx(1 / 50, rel=0.03)


def test_a_window_ends_when_mean_and_p99_are_known_and_not_while_a_request_is_open() -> None:
    requests = Requests(np.arange(2_000) / 100, window_at=0.0)
    requests.answered_s = requests.arrival_s + 0.5
    measure = Measure(half_width=0.02, max_steps=10_000)
    assert WindowEnd(measure, rate=100.0).reason(requests, now_s=20.0) == "precise"
    requests.answered_s[10] = np.nan
    assert WindowEnd(measure, rate=100.0).reason(requests, now_s=20.0) is None
    assert WindowEnd(measure, rate=100.0).reason(requests, now_s=60.0) == "max_seconds"
    # 99 requests have no 99th percentile.
    requests.arrival_s, requests.answered_s = np.arange(2_000) * 1.0, np.arange(2_000) + 0.5
    assert WindowEnd(measure, rate=1.0).reason(requests, now_s=98.5) is None
    assert WindowEnd(measure, rate=1.0).reason(requests, now_s=99.5) == "max_seconds"

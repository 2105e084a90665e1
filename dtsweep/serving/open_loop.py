"""One attempt of an open loop on one rank: rank 0 is the client, all hold what replicas use.

The others wait at the store: waiting in a collective would keep their GPUs busy.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ray import cloudpickle

from dtsweep.errors import error_line
from dtsweep.measure.store_group import StoreGroup
from dtsweep.metrics.rank_result import Measured, Steps
from dtsweep.serving.apps import started_app
from dtsweep.serving.client import Client, Send
from dtsweep.serving.replica import Place, Replica, Setup
from dtsweep.serving.requests import (
    LONGEST_S,
    ReplicaAnswer,
    Requests,
    WindowEnd,
    arrival_times,
    longest_window_s,
)
from dtsweep.sweep.settings import ENERGY_FROM_S
from dtsweep.sweep.task import Task
from dtsweep.worker.in_step import store_of_others
from dtsweep.worker.loop import without_collector
from dtsweep.worker.mode_trial import seed_of
from dtsweep.worker.rank import RankContext

_WARMUP_S, _WARMUP_REQUESTS, _WARMUP_SHARE = 2.0, 20, 0.2
"""Warm-up, in which queues fill: so long and so many, but no more than a share of `max_seconds`."""


def measure_open_loop(
    context: RankContext, task: Task, on_warm: Callable[[float], None]
) -> Measured:
    """Serve the point by Ray Serve, and measure its requests.

    Args:
        context: this rank.
        task: the attempt, at a point of an open loop.
        on_warm: called before the first request is sent.

    Returns:
        On rank 0 the requests as `steps`; on the others none of them, with device and host.

    Raises:
        RuntimeError: a replica did not come up, or no request was answered.
    """
    longest_s = task.measure.max_warmup_seconds + 3 * max(task.measure.max_seconds, LONGEST_S)
    group = StoreGroup(
        store_of_others(task, "open_loop"),
        rank=context.rank,
        workers=task.point.workers,
        timeout_s=longest_s,
    )
    try:
        places = group.gathered([context.facts.node_id, context.facts.device_uuid])
        if context.rank == 0:
            return _led(context, task, places, group, on_warm)
        return _followed(context, group, on_warm)
    except Exception as error:
        group.give_up(f"rank {context.rank}: {error_line(error)}")
        raise


def _followed(
    context: RankContext, group: StoreGroup, on_warm: Callable[[float], None]
) -> Measured:
    """Hold this rank's resources while a replica uses them."""
    group.barrier()
    on_warm(0.0)
    with context.telemetry.sampled():
        group.barrier()
        context.telemetry.start()
        group.barrier()
        telemetry = context.telemetry.stop()
    window_s, memory_bytes = group.gathered(None)[0]
    return Measured(
        steps=_steps(Requests(np.empty(0), window_at=0.0)),
        window_s=window_s,
        window_steps=0,
        skipped_steps=0,
        stop_reason="ended",
        memory_peak_bytes=memory_bytes[context.rank],
        **_seen(telemetry),
    )


def _led(
    context: RankContext,
    task: Task,
    places: Sequence[Place],
    group: StoreGroup,
    on_warm: Callable[[float], None],
) -> Measured:
    """Start the application, and send its requests."""
    began = time.perf_counter()
    nodes = Counter(node_id for node_id, _ in places)
    if len({*nodes.values()}) > 1:
        # Serve limits the replicas of each node to one number.
        raise ValueError(
            f"an open loop needs as many workers on each node, and has {sorted(nodes.values())}; "
            "use another number of workers, or another placement"
        )
    telemetry: dict[str, Any] = {}

    def begin_window() -> None:
        group.barrier()
        context.telemetry.start()

    def end_window() -> None:
        telemetry.update(context.telemetry.stop())
        group.barrier()

    setup = Setup(
        task=task,
        workload=cloudpickle.dumps(context.workload),
        search_path=sys.path,
        places=places,
        threads=torch.get_num_threads(),
        secrets=context.secrets,
    )
    requests, end = schedule(task)
    with started_app(Replica, setup, attempt_id=task.attempt_id, nodes=nodes) as handle:
        client = Client(sender(handle), requests, end)
        facts = handle.facts.remote().result()
        group.barrier()
        build_s = time.perf_counter() - began
        # Deadlines then allow for ten mean gaps between requests.
        on_warm(1 / (task.point.rate or 1.0))
        with context.telemetry.sampled(), without_collector(keep=task.measure.gc):
            asyncio.run(client.run(on_window=begin_window, on_end=end_window))
    memory_bytes = [requests.memory_bytes.get(rank) for rank in range(len(places))]
    group.gathered([requests.window_s, memory_bytes])
    telemetry["telemetry_flags"] += _flags(requests)
    if requests.error is not None:
        print(f"dtsweep: the first request that was lost: {error_line(requests.error)}")  # noqa: T201  # the rank's log
    return Measured(
        **_fields(requests),
        **facts,
        build_s=build_s,
        warmup_s=requests.window_at,
        memory_peak_bytes=memory_bytes[0],
        **_seen(telemetry),
    )


def _flags(requests: Requests) -> list[str]:
    """Flags of the client, and of requests of the window that were not answered."""
    _, lost, late = requests.counts
    found = {
        "client_late": requests.is_client_late,
        "requests_lost": lost > 0,
        "requests_late": late > 0,
    }
    return [flag for flag, is_so in found.items() if is_so]


def _seen(telemetry: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Measured` about a device, one of whose other processes is the replica."""
    flags = telemetry.pop("telemetry_flags")
    if telemetry.get("other_processes"):
        telemetry["other_processes"] -= 1
        if not telemetry["other_processes"] and "shared_gpu" in flags:
            flags.remove("shared_gpu")
    return {"flags": flags, "telemetry": telemetry}


def schedule(task: Task) -> tuple[Requests, WindowEnd]:
    """Requests of warm-up and window, however it ends, and what ends it."""
    measure, rate = task.measure, task.point.rate
    if measure.energy:
        measure = replace(measure, min_seconds=max(measure.min_seconds, ENERGY_FROM_S))
    assert rate is not None, "open loops have one"
    window_at = min(max(_WARMUP_S, _WARMUP_REQUESTS / rate), _WARMUP_SHARE * measure.max_seconds)
    # The last look may come late.
    longest_s = longest_window_s(measure, rate=rate) + 1.0
    arrival_s = arrival_times(rate, until_s=window_at + longest_s, seed=seed_of(task))
    return Requests(arrival_s, window_at=window_at), WindowEnd(measure, rate=rate)


def sender(handle: Any) -> Send:
    """Send a request to the deployment: in a call, or in a stream, which costs 2 ms more."""
    makes_tokens = handle.makes_tokens.remote().result()
    streams = handle.options(method_name="stream", stream=True)

    async def send(number: int) -> AsyncIterator[ReplicaAnswer]:
        if makes_tokens:
            async for answer in streams.remote(number):
                yield answer
        else:
            yield await handle.answer.remote(number)

    return send


def _fields(requests: Requests) -> dict[str, Any]:
    """Fields of `Measured` that requests show.

    Raises:
        RuntimeError: none of the window was answered.
    """
    latency_s = requests.latency_s[requests.window]
    answered, lost, late = requests.counts
    if not len(latency_s):
        raise RuntimeError(
            "no request came in the window; take a higher rate, or raise max_seconds"
        )
    if not answered:
        reason = f"none of {len(latency_s)} requests was answered; take a lower rate"
        raise requests.error or RuntimeError(reason)
    is_answered = np.isfinite(latency_s)
    waited_s = requests.waited_s[requests.window][is_answered]
    first_token_s, per_token_s = requests.token_times()
    return {
        "steps": _steps(requests),
        "window_s": requests.window_s,
        "window_steps": answered,
        "skipped_steps": requests.first,
        "stop_reason": requests.stop_reason,
        "requests_lost": lost,
        "requests_late": late,
        "queue_share": float(waited_s.sum() / latency_s[is_answered].sum()),
        "first_token_s": first_token_s,
        "per_token_s": per_token_s,
    }


def _steps(requests: Requests) -> Steps:
    """Requests as steps: (requests,) columns, times nan for those that were not answered."""
    number = np.arange(requests.scheduled)
    latency_s, waited_s, forward_s, served_s = (
        # Some of the others have begun to be answered.
        np.where(np.isfinite(requests.answered_s), times, np.nan)[number]
        for times in (
            requests.latency_s,
            requests.waited_s,
            requests.forward_s,
            requests.served_s,
        )
    )
    return {
        "step": number,
        "part": np.where(number < requests.first, "warmup", "window"),
        "block": np.full(len(number), -1),
        "start_s": requests.arrival_s[number] - requests.window_at,
        "step_s": latency_s,
        "queue_s": waited_s,
        "forward_s": forward_s,
        "decode_s": served_s - forward_s,
        # The ways there and back, and what the client was late by.
        "respond_s": latency_s - waited_s - served_s,
    }

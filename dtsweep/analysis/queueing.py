"""Latencies of open loops, predicted from closed loops by a simulated queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dtsweep.analysis.launches import setting_columns
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.variance import Numbers
from dtsweep.sweep.modes import CLOSED_LOOP, OPEN_LOOP

if TYPE_CHECKING:
    import pandas as pd

Service: TypeAlias = Callable[[int, np.random.Generator], float]
"""Seconds that a replica takes for a batch of some requests."""

_KNOWN = ["max_batch", "max_wait_s", "rate"]
LOAD = ("sync", "micro_batch", *_KNOWN)
"""Settings in which an open loop differs from the closed loops that predict it."""

_MEASURED = ["step_p50_s", "step_p95_s", "step_p99_s"]
_PREDICTED = ["predicted_p50_s", "predicted_p95_s", "predicted_p99_s"]
_ERRORS = ["error_p50", "error_p95", "error_p99"]

_REQUESTS, _FIRST_LEFT_OUT = 20_000, 2_000
"""Simulated requests of a point, and those that find the queue emptier than later ones."""

_SHARES = (0.0, 0.5, 0.95, 0.99, 1.0)
"""Shares of steps by which service times are described; they are linear between these."""

_WEIGHTS = np.array([0.25, 0.475, 0.245, 0.025, 0.005])
"""Weights of the times at `_SHARES` in the mean."""

_NO_CLOSED = "no closed_loop point has these settings"
_OTHER_SIZES = "closed_loop has batches of {0:.0f} to {1:.0f}, and those of 1 to {2} occur"
_UNSTABLE = "unstable: requests arrive faster than the replicas serve their batches"


@dataclass
class _Replica:
    """Queue of one replica."""

    batch: list[int] = field(default_factory=list)
    """Requests of the batch that is being formed."""
    closes_s: float = 0.0
    """Time at which this batch is closed, if it is not full before."""
    free_s: float = 0.0
    """End of service of all closed batches."""
    ends_s: deque[float] = field(default_factory=deque)
    """Ends of requests in closed batches, which may have passed."""

    def count(self, now_s: float) -> int:
        """Requests that wait or are in service."""
        while self.ends_s and self.ends_s[0] <= now_s:
            self.ends_s.popleft()
        return len(self.batch) + len(self.ends_s)


def simulate(
    arrivals_s: Numbers,
    service: Service,
    *,
    replicas: int = 1,
    max_batch: int = 1,
    max_wait_s: float = 0.0,
    seed: int = 0,
) -> Numbers:
    """Simulate a queue with batches, as Ray Serve's `@serve.batch` on replicas forms them.

    A request goes to the replica with fewer requests, of two drawn ones. A batch is closed when it
    has `max_batch` requests, or `max_wait_s` after its first one arrived, even if the replica is
    still busy. A replica serves its batches one after the other. With `max_batch=1`, one replica
    and a constant service time this is M/D/1.

    Args:
        arrivals_s: (requests,), ascending.
        service: seconds of a batch by its size; it may draw them.
        replicas: servers.
        max_batch: most requests of a batch.
        max_wait_s: longest time that the first request of a batch waits for others.
        seed: of the draws.

    Returns:
        (requests,), seconds from each arrival to the end of its batch.
    """
    random = np.random.default_rng(seed)
    ends_s = np.empty(len(arrivals_s))
    servers = [_Replica() for _ in range(replicas)]

    def close(replica: _Replica, at_s: float) -> None:
        size = len(replica.batch)
        began_s = max(at_s, replica.free_s)
        replica.free_s = began_s + service(size, random)
        replica.ends_s.extend([replica.free_s] * size)
        ends_s[replica.batch] = replica.free_s
        replica.batch = []

    first = random.integers(replicas, size=len(ends_s))
    others = random.integers(1, max(replicas, 2), size=len(ends_s))
    second = (first + others) % replicas
    arrivals = zip(arrivals_s.tolist(), first, second, strict=True)
    for request, (now_s, *drawn) in enumerate(arrivals):
        choices = [servers[number] for number in drawn]
        for replica in choices:
            if replica.batch and replica.closes_s <= now_s:
                close(replica, replica.closes_s)
        chosen = min(choices, key=lambda replica: replica.count(now_s))
        if not chosen.batch:
            chosen.closes_s = now_s + max_wait_s
        chosen.batch.append(request)
        if len(chosen.batch) == max_batch:
            close(chosen, now_s)
    for replica in servers:
        if replica.batch:
            close(replica, replica.closes_s)
    return ends_s - arrivals_s


def queueing(frame: Frame) -> pd.DataFrame:
    """Predict the latencies of open loops from closed loops of equal settings.

    The service time of a batch is linear in its size between the measured sizes, and distributed as
    the steps of the closed loop. Arrivals are a Poisson process.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.

    Returns:
        Points with sync `open_loop` and known batches as `over_launches` has them, with
        `utilization`: service of all batches over the replicas' time, 1 or more if the queue grows
        without limit;
        `predicted_p50_s`, `predicted_p95_s` and `predicted_p99_s`, latencies of requests;
        `error_p50`, `error_p95` and `error_p99`, these over the measured ones, less 1;
        `unpredicted`, why there is no prediction, else null.
    """
    import pandas as pd

    points = study_of(frame).points
    same = [name for name in setting_columns(points) if name not in LOAD]
    predictions: dict[Any, dict[str, Any]] = {}
    for _, group in points.groupby([*same, "env_id", "hosts"], dropna=False):
        closed = group[group["sync"] == CLOSED_LOOP]
        opened = group[group["sync"] == OPEN_LOOP].dropna(subset=_KNOWN)
        for index, row in opened.sort_values(_KNOWN).iterrows():
            predictions[index] = _prediction(row, closed)
    predicted = pd.DataFrame(
        predictions.values(),
        index=list(predictions),
        columns=["utilization", *_PREDICTED, "unpredicted"],
    )
    numbers = ["utilization", *_PREDICTED]
    predicted[numbers] = predicted[numbers].astype("float64")
    rows = points.loc[predicted.index].join(predicted)
    for error, ours, theirs in zip(_ERRORS, _PREDICTED, _MEASURED, strict=True):
        rows[error] = rows[ours] / rows[theirs] - 1
    return rows.reset_index(drop=True)


def _prediction(row: pd.Series[Any], closed: pd.DataFrame) -> dict[str, Any]:
    """Columns of `queueing` for one open loop."""
    max_batch = int(row["max_batch"])
    replicas = int(row["workers"])
    closed = closed.dropna(subset=["step_mean_s", "micro_batch"])
    closed = closed.drop_duplicates("micro_batch").sort_values("micro_batch")
    if closed.empty:
        return {"unpredicted": _NO_CLOSED}
    sizes = closed["micro_batch"].to_numpy("float64")
    if sizes[0] > 1 or sizes[-1] < max_batch:
        return {"unpredicted": _OTHER_SIZES.format(sizes[0], sizes[-1], max_batch)}
    batches = np.arange(max_batch + 1)
    times = np.array([np.interp(batches, sizes, times) for times in _service_times(closed)])
    services = []

    def service(size: int, random: np.random.Generator) -> float:
        seconds = np.interp(random.random(), _SHARES, times[:, size])
        services.append(float(seconds))
        return services[-1]

    gaps = np.random.default_rng(0).standard_exponential(_REQUESTS)
    arrivals = np.cumsum(gaps) / float(row["rate"])
    latencies = simulate(
        arrivals,
        service,
        replicas=replicas,
        max_batch=max_batch,
        max_wait_s=float(row["max_wait_s"]),
    )
    utilization = sum(services) / replicas / arrivals[-1]
    prediction: dict[str, Any] = {"utilization": utilization}
    if utilization >= 1:
        return prediction | {"unpredicted": _UNSTABLE}
    percentiles = np.percentile(latencies[_FIRST_LEFT_OUT:], [50, 95, 99])
    return prediction | dict(zip(_PREDICTED, percentiles, strict=True))


def _service_times(closed: pd.DataFrame) -> Numbers:
    """Service times of closed loops: their percentiles, with the measured mean.

    The shortest time follows from the mean, and the longest is the 99th percentile. An unknown
    percentile is the one before, and the median the mean.

    Returns:
        (shares, points), s: at `_SHARES`.
    """
    columns = closed[["step_mean_s", *_MEASURED]].astype("float64")
    mean, p50, p95, p99 = columns.ffill(axis="columns").to_numpy().T
    above = np.array([p50, p95, p99, p99])
    least = (mean - _WEIGHTS[1:] @ above) / _WEIGHTS[0]
    times = np.vstack([np.clip(least, 0, p50), above])
    scaled: Numbers = times * mean / (_WEIGHTS @ times)
    return scaled

"""Compare a smaller world in a larger one's session with its own launch, and the time it saves.

A pair is two launches that live at the same time: one of two workers, of which one is idle while
the points of one worker run, and one of one worker. They take turns, trial by trial in the order
ABBA, so that a drift of the machine falls out; what a launch itself adds does not, which is what
pairs are for. A pair gives the mean logarithm of the ratios of samples per second; the interval of
the ratio is Student's t over pairs.

Both launches run beside the other's idle processes, so what these cost shows nowhere in the ratio:
the processor time that an idle one takes while another is measured stands beside it.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import ray

from benchmarks.log_entry import heading, quartiles, table
from dtsweep import Measure, Resources, Sweep, workloads
from dtsweep.cluster.shipping import pickled_workload
from dtsweep.driver.slots import start_slot
from dtsweep.measure.statistics import students_t
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.session.session_settings import Settings
from dtsweep.session.trainer import train_settings
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of

MICRO_BATCHES = [2, 4, 8]
SWEEP = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64),
    axes={"workers": [2, 1], "micro_batch": MICRO_BATCHES},
    measure=Measure(repeats=1, half_width=None, min_seconds=1.5, canary=False),
    resources=Resources(gpus_per_worker=0),
)


class Launch:
    """A session in a slot of its own, and what it measured."""

    def __init__(self, workers: int, *, storage: str) -> None:
        """Start it: the largest point of its world is its first trial, and is not counted."""
        settings = Settings(
            code=pickled_workload(SWEEP),
            cpus_per_worker=1,
            gpus_per_worker=0,
            environment={},
            node_timeout_s=300.0,
            storage=storage,
            is_private=True,
            nests=True,
        )
        self.slot = start_slot(workers, settings)
        began = time.monotonic()
        first = self._attempt(_point(workers, max(MICRO_BATCHES)))
        self.start_s = time.monotonic() - began - (first.trial_s or 0.0)
        self.processes = [psutil.Process(facts.pid) for facts in first.facts.values()]

    def samples_per_s(self, micro_batch: int) -> float:
        """Measure the point of one worker."""
        point = _point(1, micro_batch)
        result = self._attempt(point)
        results = with_warmup_marked(point, result.results)
        row = trial_row(SWEEP, point, task_of(SWEEP, point), result.facts, results, harness="ray")
        return float(row["samples_per_s"])

    def start_again_s(self, repeat: int) -> float:
        """Seconds until the ranks of another session are up."""
        result = self._attempt(_point(len(self.processes), max(MICRO_BATCHES)), repeat=repeat)
        assert result.startup_s is not None, "another repeat has a session of its own"
        return result.startup_s

    def cpu_s(self) -> list[float]:
        """Processor time of its processes so far, in seconds.

        The first of them is the one of smaller worlds.
        """
        return [sum(process.cpu_times()[:2]) for process in self.processes]

    def close(self) -> None:
        """End it in order."""
        ray.get(self.slot.actor.end_session.remote())
        ray.kill(self.slot.actor)

    def _attempt(self, point: Point, *, repeat: int = 1) -> AttemptResult:
        task = task_of(SWEEP, point, repeat=repeat)
        ray.get(self.slot.actor.run.remote(task))
        result: AttemptResult = ray.get(self.slot.actor.collect.remote(task.attempt_id))
        if result.status != "ok":
            raise SystemExit(f"{result.status}: {result.reason}")
        return result


def _point(workers: int, micro_batch: int) -> Point:
    found = (candidate.point for candidate in candidates(SWEEP))
    return next(
        point for point in found if (point.workers, point.micro_batch) == (workers, micro_batch)
    )


def pair(storage: str, *, own_first: bool) -> dict[str, Any]:
    """Run two launches side by side.

    Returns:
        `logarithms` of nested over own by point; `start_s` of each launch; `idle` seconds of
        processor time that the idle process took in each second in which another was measured.
    """
    order = [1, 2] if own_first else [2, 1]
    launches = {workers: Launch(workers, storage=storage) for workers in order}
    # Before the clock: here the nested world is made.
    launches[2].samples_per_s(min(MICRO_BATCHES))
    before, began = launches[2].cpu_s(), time.monotonic()
    logarithms = []
    for micro_batch in MICRO_BATCHES:
        rates: dict[int, list[float]] = {1: [], 2: []}
        for workers in [*order, *reversed(order)]:
            rates[workers].append(launches[workers].samples_per_s(micro_batch))
        logarithms.append(float(np.mean(np.log(rates[2])) - np.mean(np.log(rates[1]))))
    idle = (launches[2].cpu_s()[1] - before[1]) / (time.monotonic() - began)
    for launch in launches.values():
        launch.close()
    return {
        "logarithms": logarithms,
        "start_s": [launches[1].start_s, launches[2].start_s],
        "idle": idle,
    }


@contextmanager
def private_ray() -> Iterator[str]:
    """A Ray with room for both launches; gives a folder for what Train leaves."""
    os.environ.update({"RAY_worker_niceness": "0", **train_settings(300.0, is_private=True)})
    with tempfile.TemporaryDirectory(
        prefix="dtsweep-", dir="/tmp", ignore_cleanup_errors=True
    ) as temporary:
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=temporary,
        )
        try:
            yield f"{temporary}/train"
        finally:
            ray.shutdown()


def main() -> None:
    """Run the pairs and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=14)
    pairs = parser.parse_args().pairs
    found = []
    with private_ray() as storage:
        for index in range(pairs):
            found.append(pair(storage, own_first=bool(index % 2)))
            print(f"pair {index + 1}: {np.exp(found[-1]['logarithms']).round(3)}", flush=True)
    by_point = np.array([one["logarithms"] for one in found])
    logarithms = by_point.mean(axis=1)
    reach = float(students_t(pairs - 1)) * float(np.std(logarithms, ddof=1)) / math.sqrt(pairs)
    low, middle, high = np.exp(logarithms.mean() + np.array([-reach, 0.0, reach]))
    starts = np.array([one["start_s"] for one in found])
    print(heading("Is a smaller world inside a larger one's session the same measurement?"))
    print()
    rows = [
        ["samples per second, nested over own launch", f"{middle:.4f} ({low:.4f}–{high:.4f})"],
        *(
            [f"micro_batch={size}", f"{np.exp(mean):.4f}"]
            for size, mean in zip(MICRO_BATCHES, by_point.mean(axis=0), strict=True)
        ),
        [
            "an idle process's processor time, ms each second",
            quartiles([1e3 * one["idle"] for one in found], form=".1f"),
        ],
        ["start of a launch of one worker, s", quartiles(starts[:, 0], form=".1f")],
        ["start of a launch of two workers, s", quartiles(starts[:, 1], form=".1f")],
    ]
    print(
        table([f"{pairs} pairs of launches", "mean (95 % interval), or median (quartiles)"], rows)
    )


if __name__ == "__main__":
    main()

"""Cost of a trial beyond the training itself: in a session, by torchrun, in its own TorchTrainer.

The training itself is the measured window (`window_s`: from the ranks' common start to the last
one's end). All else counts as overhead, for all three alike: starting, building the model, warm-up,
checks and counts, steps without the exchange, gathering, cleaning up, storing. Settings are those
of a user's sweep, but for the length of the window; they are printed next to the figures. A trial's
time is

- session, fresh: from its start to the start of the next trial (`started_at`), the first of a
  session left out;
- torchrun: from starting the command to its end.

What the session itself costs to start is given beside it. The torchrun calls run half before, half
after the others, so that a drift of the machine shows in their spread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from benchmarks.log_entry import ROOT, heading, quartiles, run, settings, table, torchrun
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

POINT = ROOT / "benchmarks" / "tiny.py"
MARKS = (20, 100, 500, 1000, 2000, 5000)
"""Trials at which time and memory are looked at; the last trial is one too."""

AROUND = 20
"""Trials up to a mark that its time is taken from."""

LOOK_S = 0.5
"""From one look at the processes to the next."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one process used when it was looked at."""

    title: str
    resident_bytes: int
    threads: int
    descriptors: int


Look = tuple[datetime, Mapping[int, Usage]]
"""When, and by process: this one and all its descendants, Ray's own among them."""


def main() -> None:
    """Run all three and print an entry for docs/log/."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="dtsweep-overhead-") as folder:
        by_torchrun = _by_torchrun(
            options.torchrun - options.torchrun // 2, workers=options.workers
        )
        with watched() as looks:
            began = time.perf_counter()
            session = _run(f"{folder}/session", options.trials, workers=options.workers)
            session_s = time.perf_counter() - began
        # The last trial has none after it to end at.
        fresh = _run(f"{folder}/fresh", options.fresh + 1, workers=options.workers, fresh=True)
        by_torchrun += _by_torchrun(options.torchrun // 2, workers=options.workers)
        ranks = Results(f"{folder}/session").table("ranks")["pid"].to_pylist()
        # A canary comes first, and waits for the start.
        startup_s = float(
            Results(f"{folder}/session").table("trials").to_pandas()["startup_s"].max()
        )
    rest_s = (session_s - float(session["window_s"].sum())) / len(session)
    print(
        heading("What does a trial cost beyond the training itself?"),
        settings(read_sweep(POINT)[0].measure),
        _comparison(session, by_torchrun, overheads(fresh)),
        f"{options.workers} workers; median (quartiles). The session started once in "
        f"{startup_s:.1f} s. With that, Ray's start and end and all else, a trial of these "
        f"{len(session)} took {rest_s * 1e3:.1f} ms beyond its "
        f"window of {session['window_s'].median() * 1e3:.1f} ms.",
        _flatness(session, looks, set(ranks)),
        sep="\n\n",
    )


def overheads(frame: pd.DataFrame) -> NDArray[np.float64]:
    """What each trial but the last took until the next one's start, less its window.

    Args:
        frame: one row per trial, the oldest first.

    Returns:
        (trials - 1,) seconds.
    """
    walls = np.diff(frame["started_at"].to_numpy(dtype="datetime64[us]")) / np.timedelta64(1, "s")
    rest: NDArray[np.float64] = walls - frame["window_s"].to_numpy(dtype=np.float64)[:-1]
    return rest


@contextmanager
def watched() -> Iterator[list[Look]]:
    """Look at this process and its descendants from time to time, while the body runs."""
    looks: list[Look] = []
    ended = threading.Event()

    def look() -> None:
        this = psutil.Process()
        while not ended.wait(LOOK_S):
            looks.append((datetime.now(UTC), dict(_usages([this, *this.children(recursive=True)]))))

    thread = threading.Thread(target=look, name="looks")
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def _usages(processes: Sequence[psutil.Process]) -> Iterator[tuple[int, Usage]]:
    for process in processes:
        try:
            with process.oneshot():
                title = " ".join(process.cmdline()[:1])
                memory, threads = process.memory_info().rss, process.num_threads()
            descriptors = process.num_fds()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        yield (
            process.pid,
            Usage(title=title, resident_bytes=memory, threads=threads, descriptors=descriptors),
        )


def _run(results: str, trials: int, *, workers: int, fresh: bool = False) -> pd.DataFrame:
    """Run so many trials that differ in the learning rate alone, in one world."""
    sweep, _ = read_sweep(POINT)
    rates: list[float | int | str | None] = [1e-3 + index * 1e-6 for index in range(trials)]
    axes = {**sweep.axes, "workers": [workers], "learning_rate": rates}
    rows = run(replace(sweep, axes=axes, measure=replace(sweep.measure, fresh=fresh)), results)
    # Canaries are measured longer: they are part of what a session costs, and not of what a trial
    # does.
    return rows[rows["role"] == "trial"].reset_index(drop=True)


def _by_torchrun(calls: int, *, workers: int) -> list[float]:
    """What each call of torchrun took, less the window that it measured; in seconds."""
    rests = []
    for _ in range(calls):
        began = time.perf_counter()
        row = json.loads(
            torchrun("benchmarks.by_torchrun", str(POINT), f"workers={workers}", workers=workers)
        )
        rests.append(time.perf_counter() - began - row["window_s"])
    return rests


def _comparison(
    session: pd.DataFrame, by_torchrun: Sequence[float], fresh: NDArray[np.float64]
) -> str:
    """The three side by side; a ratio's quartiles are those of all pairs of trials."""
    ours = overheads(session)[1:]
    measured = {"session": ours, "torchrun": np.array(by_torchrun), "fresh TorchTrainer": fresh}
    rows = [
        [
            name,
            str(len(values)),
            quartiles(values * 1e3, form=".1f"),
            quartiles(np.divide.outer(values, ours), form=".3g") if values is not ours else "1",
        ]
        for name, values in measured.items()
    ]
    inside = session["overhead_s"].to_numpy(dtype=np.float64)[1:-1] * 1e3
    rows.insert(
        1, ["… of it outside the ranks", str(len(inside)), quartiles(inside, form=".1f"), ""]
    )
    return table(["a trial by", "trials", "ms beyond the window", "times the session's"], rows)


def _flatness(session: pd.DataFrame, looks: Sequence[Look], ranks: set[int]) -> str:
    rests = overheads(session) * 1e3
    count = len(session)
    rows = []
    for mark in sorted({mark for mark in MARKS if mark < count} | {count}):
        began = session["started_at"].iloc[mark - 1]
        # Where the last trial began, ranks may be gone at the nearest look.
        _, usages = min(
            (look for look in looks if ranks <= look[1].keys()),
            key=lambda look: abs(look[0] - began),
        )
        rows.append(
            [
                str(mark),
                quartiles(rests[max(1, mark - AROUND) : mark], form=".1f"),
                *_memory(usages, ranks),
            ]
        )
    headers = [
        "trial",
        f"ms beyond the window, last {AROUND}",
        "driver, MiB",
        "session, MiB",
        "a rank, MiB",
    ]
    return table([*headers, "a rank's threads", "a rank's descriptors", "all processes, MiB"], rows)


def _memory(usages: Mapping[int, Usage], ranks: set[int]) -> list[str]:
    """Resident memory of each kind of process, with a rank's threads and descriptors.

    Of several processes the largest number counts.
    """
    own = [usages[pid] for pid in ranks]
    session = [usage for usage in usages.values() if usage.title.startswith("ray::Slot")]
    groups = [[usages[psutil.Process().pid]], session, own]
    memory = [f"{max(usage.resident_bytes for usage in group) / 2**20:.0f}" for group in groups]
    most = [max(usage.threads for usage in own), max(usage.descriptors for usage in own)]
    return [
        *memory,
        *map(str, most),
        f"{sum(usage.resident_bytes for usage in usages.values()) / 2**20:.0f}",
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--trials", type=int, default=2000, help="trials of the session (default 2000)"
    )
    parser.add_argument("--torchrun", type=int, default=10, help="calls of torchrun (default 10)")
    parser.add_argument(
        "--fresh", type=int, default=3, help="trials with a TorchTrainer of their own (default 3)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="workers of the one world (default 2)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Seconds of a run outside the measurement, by phase, process and import; a launch against Ray's.

The run is one of the command line, in a process of its own, of a sweep file: phases are told by its
lines and by the rows' times, processes are looked at while it runs. A launch of a session is
compared with a bare `TorchTrainer` of as many workers in one private Ray, in turns: from asking for
it until all ranks are in their loop.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from benchmarks.log_entry import ROOT, heading, quartiles, table
from benchmarks.nested import Launch, private_ray
from dtsweep.results.store import Results

LOOK_S = 0.2
"""From one look at the processes to the next."""

IMPORTS = (
    "dtsweep",
    "dtsweep.cli",
    "ray",
    "ray.tune",
    "ray.train.torch",
    "torch",
    "dtsweep.session.attempt",
)


@dataclass(kw_only=True)
class Watched:
    """A command that ran: when it said what, and the processor time of all its processes."""

    began: float
    seconds: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)
    """Seconds after the start, and what was said on stderr."""

    looks: list[tuple[float, dict[int, tuple[str, float]]]] = field(default_factory=list)
    """Seconds after the start; by process its title and processor time in seconds."""

    def said(self, text: str) -> float:
        """When it first said this, in seconds after the start."""
        return next(at for at, line in self.lines if text in line)


def watch(command: Sequence[str], *, code: Path) -> Watched:
    """Run a command with the code of a checkout to its end, and look at its processes meanwhile.

    Raises:
        SystemExit: it failed.
    """
    watched = Watched(began=time.time())
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        cwd=code,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        looker = threading.Thread(target=_look, args=(process, watched))
        looker.start()
        assert process.stderr is not None
        for line in process.stderr:
            watched.lines.append((time.time() - watched.began, line.rstrip()))
    watched.seconds = time.time() - watched.began
    looker.join()
    if process.returncode:
        raise SystemExit("\n".join(line for _, line in watched.lines))
    return watched


def _look(process: subprocess.Popen[str], watched: Watched) -> None:
    this = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            family = [this, *this.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        watched.looks.append((time.time() - watched.began, dict(_titles(family))))
        time.sleep(LOOK_S)


def _titles(processes: Sequence[psutil.Process]) -> Iterator[tuple[int, tuple[str, float]]]:
    for process in processes:
        try:
            words, cpu = process.cmdline(), process.cpu_times()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        yield process.pid, (_title(words), cpu.user + cpu.system)


def _title(words: Sequence[str]) -> str:
    text = " ".join(words)
    if found := re.search(r"ray::(\w+)", text):
        return f"ray::{found[1]}"
    programs = (
        "gcs_server",
        "raylet/raylet",
        "runtime_env/agent",
        "dashboard/agent",
        "log_monitor",
        "autoscaler",
    )
    named = next((name for name in programs if name in text), None)
    if named is None and "default_worker" in text:
        return "a worker that has no title yet"
    return named or ("the command" if "-m dtsweep" in text else " ".join(text.split()[:3])[:60])


def phases(watched: Watched, rows: pd.DataFrame) -> dict[str, float]:
    """Seconds of each phase of a run, from its start to its end."""
    started = np.array([at.timestamp() for at in rows["started_at"]]) - watched.began
    walls = rows[["startup_s", "trial_s", "overhead_s"]].sum(axis=1).to_numpy()
    planned, ray_up = watched.said("trials to run"), watched.said("using ")
    launches = rows["startup_s"].fillna(0.0)
    return {
        "imports and plan": planned,
        "Ray's start": ray_up - planned,
        "Tune's start, until the first trial is handed out": started[0] - ray_up,
        f"launches of sessions ({int((launches > 0).sum())})": float(launches.sum()),
        "trials": float(rows["trial_s"].sum()),
        "between trials, in the driver": float(
            started[-1] + walls[-1] - started[0] - launches.sum() - rows["trial_s"].sum()
        ),
        "the end: sessions, Ray, report": watched.seconds - float(started[-1] + walls[-1]),
    }


def measured_s(rows: pd.DataFrame, ranks: pd.DataFrame, steps: pd.DataFrame) -> dict[str, float]:
    """Seconds of a run in which something was measured."""
    after = steps[steps["part"].isin(["exchange", "no_exchange"]) & (steps["rank"] == 0)]
    # As they were timed: `window_s` of a trial is without the warm-up that was found in it.
    windows = (
        ranks[ranks["rank"] == 0].set_index("attempt_id")["window_s"].reindex(rows["attempt_id"])
    )
    is_canary = (rows["role"] == "canary").to_numpy()
    return {
        "windows of trials": float(windows[~is_canary].sum()),
        "windows of canaries": float(windows[is_canary].sum()),
        "steps after windows that tell the exchange": float(after["step_s"].sum()),
    }


def by_process(watched: Watched, until: float) -> list[list[str]]:
    """Processor time of each kind of process until a moment, the most first."""
    seen: dict[int, tuple[str, float, float]] = {}
    for at, look in watched.looks:
        if at <= until:
            for pid, (title, cpu) in look.items():
                seen[pid] = (title, cpu, seen[pid][2] if pid in seen else at)
    frame = pd.DataFrame(list(seen.values()), columns=["title", "cpu_s", "from_s"])
    kinds = frame.groupby("title").agg(
        count=("cpu_s", "size"), cpu_s=("cpu_s", "sum"), from_s=("from_s", "min")
    )
    kinds = kinds.sort_values("cpu_s", ascending=False)
    return [
        [str(title), str(row["count"].astype(int)), f"{row['from_s']:.1f}", f"{row['cpu_s']:.1f}"]
        for title, row in kinds.iterrows()
    ]


def import_s(module: str) -> float:
    """What an import takes in a process of its own, beyond Python's start; the least of three."""
    code = f"import time; b = time.perf_counter(); import {module}; print(time.perf_counter() - b)"
    run = [sys.executable, "-c", code]
    return min(
        float(subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )


def the_run(sweep: str, code: Path) -> str:
    """Run a sweep file by the command line; give the tables."""
    with tempfile.TemporaryDirectory(prefix="dtsweep-starts-") as folder:
        results = f"{folder}/results"
        watched = watch(
            [
                sys.executable,
                "-m",
                "dtsweep",
                "run",
                sweep,
                "--results",
                results,
                "--address",
                "local",
            ],
            code=code,
        )
        # With canaries: they are part of the run's time.
        stored = Results(results)
        rows = stored.table("trials").to_pandas()
        rows = rows[rows["started_at"].notna() & rows["trial_s"].notna()].sort_values("started_at")
        measured = measured_s(
            rows, stored.table("ranks").to_pandas(), stored.table("steps").to_pandas()
        )
    spent = phases(watched, rows)
    first_s = list(spent.values())
    until = sum(first_s[:3]) + float(rows["startup_s"].iloc[0])
    everything = watched.seconds
    parts = [
        [name, f"{seconds:.1f}", f"{seconds / everything:.0%}"] for name, seconds in spent.items()
    ]
    parts += [
        [f"… in {name}", f"{seconds:.1f}", f"{seconds / everything:.0%}"]
        for name, seconds in measured.items()
    ]
    outside = everything - sum(measured.values())
    windows = measured["windows of trials"] + measured["windows of canaries"]
    # From the first session's start on, until the last trial has ended.
    later = everything - until - first_s[-1]
    parts += [
        ["all", f"{everything:.1f}", ""],
        ["outside windows and steps after them", f"{outside:.1f}", f"{outside / everything:.0%}"],
        ["after the first session's start, until the last trial's end", f"{later:.1f}", ""],
        ["… in windows", f"{windows:.1f}", f"{windows / later:.0%}"],
    ]
    return "\n\n".join(
        [
            table([f"{sweep}: {len(rows)} trials and canaries", "s", "share"], parts),
            table(
                [
                    f"process, until the first trial at {until:.1f} s",
                    "how many",
                    "from s",
                    "processor time, s",
                ],
                by_process(watched, until),
            ),
        ]
    )


def launches(count: int, *, workers: int) -> list[list[str]]:
    """Start sessions and bare TorchTrainers in turns, in one private Ray.

    The first of each is not counted.
    """
    bare, ours = [], []
    with private_ray() as storage:
        launch = Launch(workers, storage=storage)
        for repeat in range(2, count + 3):
            bare.append(_bare_start_s(workers, storage))
            ours.append(launch.start_again_s(repeat))
        launch.close()
    ratio = np.divide.outer(ours[1:], bare[1:])
    return [
        ["a session of dtsweep", quartiles(ours[1:], form=".1f"), quartiles(ratio, form=".2f")],
        ["a bare TorchTrainer", quartiles(bare[1:], form=".1f"), "1"],
    ]


def _bare_start_s(workers: int, storage: str) -> float:
    """Seconds from `fit` until all ranks have passed a barrier."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def loop() -> float:
        from torch import distributed

        distributed.barrier()
        return time.time()

    began = time.time()
    config = RunConfig(name=f"bare-{time.monotonic_ns()}", storage_path=storage)
    return (
        float(
            TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=config)
            .fit()
            .return_value
        )
        - began
    )


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sweep", default="sweeps/batchsize.py", help="a sweep file, from the repository"
    )
    parser.add_argument("--launches", type=int, default=5, help="launches of each kind (default 5)")
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout, which runs the sweep first"
    )
    options = parser.parse_args()
    print(heading("Where do the seconds of a run go that are no measurement?"))
    for name, code in {"before": options.before, "now": ROOT}.items():
        if code is not None:
            print("", f"**{name}**", the_run(options.sweep, code.resolve()), "", sep="\n\n")
    if options.launches:
        print(
            table(
                ["a launch of 2 workers, until all are in their loop", "s", "ratio"],
                launches(options.launches, workers=2),
            )
        )
        print()
    print(table(["import", "s"], [[module, f"{import_s(module):.2f}"] for module in IMPORTS]))


if __name__ == "__main__":
    main()

"""Rows lost, stored twice or measured again by kills in a run, and what dead runs leave behind.

The command runs the sweep of `mortal.py` again and again until all trials are done. Meanwhile
SIGKILL strikes one of its processes, at moments drawn from a seed: the driver, while Ray starts and
in the middle of the sweep, a rank, a slot, Ray Train's controller, Ray Tune's process. Ray is
private, or with `--cluster` a head that outlives the driver.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

from benchmarks.log_entry import ROOT, heading, table
from dtsweep.cluster.run_folders import RAY_PARENT, RAY_PREFIX, TRAIN_PREFIX, processes_of
from dtsweep.results.store import Results

MARK = "DTSWEEP_BENCHMARK_MARK"
"""Variable of all processes of this benchmark; its value is the folder."""

TITLES = {
    "rank": "ray::RayTrainWorker",
    "slot": "ray::Slot",
    "controller": "ray::TrainController",
    "Tune's process": "ray::ResourceTrainable",
}
"""Victims other than the driver, and how the titles of their processes begin."""

LEFT_AFTER_S = 2.0
"""Time from a kill of the driver until its leftovers are counted."""


@dataclass(kw_only=True)
class Kills:
    """Kills that are to come, and what each has struck."""

    at_start: int
    """Kills of the driver while Ray starts."""

    in_sweep: list[str]
    """Victims in the middle of the sweep, in order."""

    made: list[str] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)
    """After each kill of the driver: processes that still ran, and folders."""

    folders: set[Path] = field(default_factory=set)
    """All folders that were seen then."""


def main() -> None:
    """Run the sweep under kills and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=2, help="kills of each kind")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    in_sweep = [*["driver"] * options.each * 2, *[*TITLES] * options.each]
    rng.shuffle(in_sweep)
    kills = Kills(at_start=options.each, in_sweep=in_sweep)
    with tempfile.TemporaryDirectory(prefix="dtsweep-kills-") as name:
        folder = Path(name)
        (folder / "temporary").mkdir()
        os.environ[MARK] = name
        with _ray(is_cluster=options.cluster) as address:
            command = [sys.executable, "-m", "dtsweep", "run", str(ROOT / "benchmarks/mortal.py")]
            command += ["--address", address, "--results", str(folder / "r"), "--set"]
            command += ["micro_batch=" + ",".join(map(str, range(1, options.trials + 1)))]
            starts = 1
            while _run(command, folder, kills, rng) == -signal.SIGKILL:
                starts += 1
            held = _held(address) if options.cluster else "Ray has ended"
            left = f"{len(_folders(folder))} folders; {held}"
        running = [pid for path in kills.folders for pid in processes_of(path)]
        if not options.cluster:
            running += [process.pid for process in _processes(folder)]
        left = f"{len(set(running))} processes, {left}"
        rows = Results(folder / "r").attempts()
    print(heading("what is lost, stored twice or left behind where processes are killed?"))
    print()
    _print_rows(rows, kills, trials=options.trials, starts=starts, left=left)


@contextmanager
def _ray(*, is_cluster: bool) -> Iterator[str]:
    """The address for the command: of a cluster of its own, or `local`."""
    if not is_cluster:
        yield "local"
        return
    os.environ.update({"RAY_worker_niceness": "0"})
    head = {"num_cpus": os.cpu_count(), "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def _run(command: list[str], folder: Path, kills: Kills, rng: random.Random) -> int:
    """Run the command to its end, and kill what is to be killed; return its exit code."""
    environment = {**os.environ, "TMPDIR": str(folder / "temporary"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr
    )
    strikes_start = kills.at_start > 0
    began = time.monotonic()
    start_delay_s = rng.uniform(1, 12)
    next_rows = _rows(folder) + rng.randint(1, 3)
    while process.poll() is None:
        time.sleep(0.05)
        if strikes_start:
            if time.monotonic() - began >= start_delay_s:
                kills.at_start -= 1
                _kill_driver(process, "driver, while Ray starts", folder, kills)
        elif kills.in_sweep and _rows(folder) >= next_rows:
            victim = kills.in_sweep[0]
            time.sleep(rng.uniform(0, 0.7))
            if victim == "driver":
                kills.in_sweep.pop(0)
                _kill_driver(process, "driver, in the sweep", folder, kills)
            elif _kill_one(victim, folder):
                kills.in_sweep.pop(0)
                kills.made.append(victim)
                next_rows = _rows(folder) + rng.randint(1, 3)
    return process.returncode


def _kill_driver(process: subprocess.Popen[bytes], victim: str, folder: Path, kills: Kills) -> None:
    process.kill()
    process.wait()
    time.sleep(LEFT_AFTER_S)
    kills.made.append(victim)
    folders = _folders(folder)
    kills.folders.update(folders)
    running = {process.pid for process in _processes(folder)}
    running.update(pid for path in folders for pid in processes_of(path))
    kills.left.append((len(running), len(folders)))


def _kill_one(victim: str, folder: Path) -> bool:
    """Kill a process of the run; False if there is none now."""
    for process in _processes(folder):
        with suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(TITLES[victim]):
                process.kill()
                return True
    return False


def _processes(folder: Path) -> list[psutil.Process]:
    """Processes of this benchmark, but this one."""
    marked = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and process.environ().get(MARK) == str(folder):
                marked.append(process)
    return [process for process in marked if process.pid != os.getpid()]


def _folders(folder: Path) -> list[Path]:
    """Temporary folders of the runs: all of private Rays, for none other runs meanwhile."""
    trains = [*(folder / "temporary").glob(f"{TRAIN_PREFIX}*")]
    return [*trains, *Path(RAY_PARENT).glob(f"{RAY_PREFIX}*")]


def _rows(folder: Path) -> int:
    trials = folder / "r" / "trials"
    return len([*trials.glob("*.parquet")]) if trials.exists() else 0


def _held(address: str) -> str:
    """Say what of a cluster is still held once all runs are over."""
    ray.init(address=address, log_to_driver=False)
    until = time.monotonic() + 60
    held = True
    while held and time.monotonic() < until:
        groups = [g for g in placement_group_table().values() if g["state"] != "REMOVED"]
        free = ray.available_resources().get("CPU", 0)
        held = bool(groups) or free < ray.cluster_resources()["CPU"]
        time.sleep(1)
    ray.shutdown()
    return f"{len(groups)} placement groups, {free:g} CPUs free"


def _print_rows(
    rows: list[dict[str, object]], kills: Kills, *, trials: int, starts: int, left: str
) -> None:
    ok = Counter(row["trial_id"] for row in rows if row["status"] == "ok")
    others = Counter(
        f"{row['status']}: {str(row['reason']).splitlines()[0][:80]}"
        for row in rows
        if row["status"] != "ok"
    )
    attempts = Counter(row["attempt_id"] for row in rows)
    counts = [
        ["starts of the command", str(starts)],
        ["trials", str(trials)],
        ["rows", str(len(rows))],
        ["lost (trials without an `ok` row)", str(trials - len(ok))],
        ["twice (attempts with two rows)", str(sum(n - 1 for n in attempts.values()))],
        ["`ok` trials measured again", str(sum(n - 1 for n in ok.values()))],
        ["processes and folders left 2 s after a killed driver", str(kills.left)],
        ["left in the end", left],
    ]
    print(table(["what", "number"], counts))
    print()
    struck = [[victim, str(count)] for victim, count in Counter(kills.made).items()]
    print(table(["killed", "times"], struck))
    print()
    print(table(["other rows", "number"], [[name, str(n)] for name, n in others.items()]))


if __name__ == "__main__":
    main()

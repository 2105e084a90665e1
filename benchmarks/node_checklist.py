"""A checklist of a node of several GPUs, with Ray: what it must show, line by line.

`make gpu-checklist-node` goes on where `make gpu-checklist` ends, and writes `node-checklist.json`.
Limits come from nodes with NVSwitch; GPUs that are joined by PCIe may rightly differ. The checklist
has not run on GPUs yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checklist import (
    Bench,
    Found,
    Line,
    NotRunError,
    equal,
    first_line,
    having,
    lacking,
    last_line,
    python,
    true,
    within,
)
from benchmarks.gpu_checklist import LARGE, POINTS, run_checklist
from dtsweep.sweep.modes import MODES

Row = Mapping[str, Any]

VARIANT = """
from dataclasses import replace

from benchmarks.gpu_points import sweep as points
from dtsweep import Measure, Resources

sweep = replace(points, {change})
"""

FAULTS = """
    measure=Measure(repeats=1, half_width=None, max_seconds=5, max_warmup_seconds=40, canary=False),
    skip=lambda point: None if point.workload.kind == "plain" or point.micro_batch == 2 else "one",
"""
"""One point has the fault; several have none, since the order of points is drawn."""

ON_CPU = "resources=Resources(gpus_per_worker=0)"

LARGEST_BYTES = 2**26
"""Size of an all-reduce from which its bandwidth counts."""

FREE_WITHIN_S = 10
"""Time in which GPUs must be free after processes that were killed."""


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    trials: Sequence[Row]
    ranks: Sequence[Row]
    folder: Path
    exit_code: int
    last_words: str

    def with_value(self, column: str, value: Any) -> list[Row]:
        """Trials that have this value in a column."""
        return [row for row in self.trials if row[column] == value]

    def statuses(self) -> list[str]:
        """All different statuses, for example `ok` alone."""
        return sorted({row["status"] for row in self.trials})

    def sessions(self) -> int:
        """Number of sessions in which trials have run."""
        return len({row["session"] for row in self.trials})

    def flags(self) -> list[str]:
        """All different flags."""
        return sorted({flag for row in self.trials for flag in row["flags"] or ()})


def ran(bench: Bench, *settings: str, change: str = "", options: Sequence[str] = ()) -> Ran:
    """Run a sweep of `benchmarks/gpu_points.py` on Ray.

    Args:
        bench: where.
        settings: for `--set`.
        change: what a variant of the sweep replaces in it.
        options: of the command.
    """
    from dtsweep.results.store import Results

    folder = bench.folder / f"run-{len([*bench.folder.glob('run-*')])}"
    folder.mkdir()
    sweep = POINTS
    if change:
        sweep = str(folder / "points.py")
        Path(sweep).write_text(VARIANT.format(change=change), "utf-8")
    results = folder / "results"
    chosen = [word for setting in settings for word in ("--set", setting)]
    arguments = [*chosen, *options, "--address", bench.address, "--results", str(results)]
    done = bench.call(*python("dtsweep", sweep, *arguments))
    if not results.exists():
        raise RuntimeError(last_line(done.stderr))
    store = Results(results)
    trials = [row for row in store.attempts() if row["role"] == "trial"]
    ranks = store.table("ranks").to_pylist()
    return Ran(trials, ranks, results, done.returncode, last_line(done.stderr))


def doctor(bench: Bench) -> Found:
    """Have the doctor look at the node."""
    done = bench.call(*python("dtsweep", "doctor", "--json", "--address", bench.address))
    if not done.stdout.startswith("{"):
        raise RuntimeError(last_line(done.stderr))
    return read_diagnosis(json.loads(done.stdout), gpus=bench.gpus())


def read_diagnosis(diagnosis: Mapping[str, Any], *, gpus: int) -> Found:
    """Sum up the doctor's JSON.

    Args:
        diagnosis: with `nodes`, `hosts`, `links` and `problems`.
        gpus: that torch sees.
    """
    seen = sum(len(host.get("gpus") or ()) for host in diagnosis["hosts"])
    shares = [
        node["rates"]["bf16"].get("share")
        for node in diagnosis["nodes"]
        if "bf16" in node.get("rates", {})
    ]
    links = [link for link in diagnosis["links"] if link.get("is_within")]
    links = [link for link in links if link["all_reduces"][0].get("backend") == "nccl"]
    bandwidths = [
        row["busbw_bytes_per_s"]
        for link in links
        for row in link["all_reduces"]
        if row["size_bytes"] >= LARGEST_BYTES
    ]
    return {
        "gpus_missing": gpus - seen,
        "bf16_share": min((share for share in shares if share is not None), default=None),
        "latency_s": min((link["latency_s"] for link in links), default=None),
        "busbw_bytes_per_s": max(bandwidths, default=None),
        "problems": list(diagnosis["problems"]),
    }


def worlds(bench: Bench) -> list[int]:
    """Sizes of worlds: powers of two up to the number of GPUs.

    >>> worlds(Bench(Path(), found={"13": {"gpus": 8}}))
    [1, 2, 4, 8]
    """
    return [2**power for power in range(bench.gpus().bit_length())]


def scaling(bench: Bench) -> Found:
    """Measure all sizes of worlds in one session."""
    sizes = worlds(bench)
    listed = ",".join(map(str, sizes))
    return read_scaling(ran(bench, f"workers={listed}", *LARGE))


def read_scaling(run: Ran) -> Found:
    """Sum up a run of several sizes of worlds."""
    rates = {row["workers"]: row["samples_per_s"] for row in run.trials if row["status"] == "ok"}
    efficiency = None
    if 1 in rates and len(rates) > 1:
        most = max(rates)
        efficiency = rates[most] / most / rates[1]
    shared = []
    for trial in run.trials:
        ranks = [row for row in run.ranks if row["attempt_id"] == trial["attempt_id"]]
        if len({row["device_uuid"] for row in ranks}) < len(ranks):
            shared.append(trial["workers"])
    return {
        "statuses": run.statuses(),
        "sessions": run.sessions(),
        "worlds_with_a_shared_gpu": shared,
        "flags": run.flags(),
        "efficiency": efficiency,
        "samples_per_s": rates,
        "startup_s": {row["workers"]: row["startup_s"] for row in run.trials},
    }


def all_modes(bench: Bench) -> Found:
    """Measure every mode on all GPUs."""
    modes = ",".join(MODES)
    return read_modes(ran(bench, f"workers={worlds(bench)[-1]}", f"sync={modes}", *LARGE))


def read_modes(run: Ran) -> Found:
    """Sum up a run of several modes."""
    failed = {row["sync"]: row["reason"] for row in run.trials if row["status"] != "ok"}
    return {
        "modes": len({row["sync"] for row in run.trials}),
        "failed": failed,
        "gradients_disagree": [
            row["sync"] for row in run.trials if row["gradients_agree"] is False
        ],
        "exchange_isolated_s": {row["sync"]: row["exchange_isolated_s"] for row in run.trials},
    }


def memory_after_meshes(bench: Bench) -> Found:
    """Raise `ddp`'s batch until memory runs out, alone and among modes with groups of their own."""
    largest = worlds(bench)[-1]
    batches = "micro_batch=" + ",".join(str(2**power) for power in range(8, 15))
    settings = [f"workers={largest}", *LARGE[:3], batches]
    alone = ran(bench, *settings)
    among = ran(bench, *settings, "sync=hsdp,hierarchical,ddp")
    return {
        "alone": fitting(alone),
        "among": fitting(among),
        "fits": len(fitting(alone)),
        "same": fitting(alone) == fitting(among),
    }


def fitting(run: Ran) -> list[int]:
    """Sizes of batches with which `ddp` was measured."""
    return sorted(
        row["micro_batch"] for row in run.with_value("sync", "ddp") if row["status"] == "ok"
    )


FAULTY_RANKS = {"asserts": 2, "dies": 3, "stops": 5}
"""The rank that has a fault; in a small world the last one."""


def faults(bench: Bench) -> Found:
    """Have a rank assert, die and stop, among points without a fault."""
    gpu_processes()
    most = worlds(bench)[-1]
    found: dict[str, Any] = {}
    for kind, usual_rank in FAULTY_RANKS.items():
        rank = min(usual_rank, most - 1)
        axes = [f"workload.kind={kind},plain", "micro_batch=1,2,3,4,5,6"]
        run = ran(bench, f"workers={most}", f"workload.on_rank={rank}", *axes, change=FAULTS)
        found |= read_fault(run, kind, rank=rank)
    time.sleep(FREE_WITHIN_S)
    return {**found, "processes_left": len(gpu_processes())}


def read_fault(run: Ran, kind: str, *, rank: int) -> Found:
    """Sum up a run in which a rank of one point has a fault."""
    faulty = [row for row in run.with_value("workload_kind", kind) if row["status"] != "skipped"]
    first, last = faulty[0], faulty[-1]
    after = [
        row["status"]
        for row in run.with_value("workload_kind", "plain")
        if row["row_number"] > first["row_number"]
    ]
    return {
        kind: f"{last['status']}: {last['reason']}",
        f"names_{kind}": f"rank {rank} " in f"{last['reason']} ".replace(":", " "),
        f"after_{kind}": sorted(set(after)) or None,
    }


def gpu_processes() -> list[str]:
    """Ids of all processes with a context on a GPU."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NotRunError("nvidia-smi is not installed") from None
    return done.stdout.split()


def nccl_variables(bench: Bench) -> Found:
    """Measure with NCCL's variables as axes."""
    most = f"workers={worlds(bench)[-1]}"
    peers = ran(bench, most, *LARGE, "env.NCCL_P2P_DISABLE=0,1")
    algorithms = ran(bench, most, *LARGE, "env.NCCL_ALGO=Ring,allreduce:tree")
    return {
        **read_peers(peers),
        "algorithms": algorithms.statuses(),
        "algorithm_sessions": algorithms.sessions(),
    }


def read_peers(run: Ran) -> Found:
    """Compare exchanges with and without direct access of GPUs to each other."""
    times = {
        json.loads(row["environment"])["NCCL_P2P_DISABLE"]: row["exchange_isolated_s"]
        for row in run.trials
    }
    slower = None
    if times.get("0") and times.get("1"):
        slower = times["1"] / times["0"]
    return {"without_p2p_over_with": slower, "sessions": run.sessions()}


@contextmanager
def processes_watched() -> Iterator[set[str]]:
    """Collect the ids of processes that have a context on a GPU, every second."""
    seen = set(gpu_processes())
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1):
            seen.update(gpu_processes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


def cpu_world(bench: Bench) -> Found:
    """Measure workers without GPUs, which must open none."""
    with processes_watched() as seen:
        run = ran(bench, "workers=2", "sync=local_sgd,ddp", change=ON_CPU)
    return {"statuses": run.statuses(), "processes_on_gpus": len(seen)}


SLOW_RANK = 4


def slow_rank(bench: Bench) -> Found:
    """Have one rank compute more than the others."""
    most = worlds(bench)[-1]
    rank = min(SLOW_RANK, most - 1)
    run = ran(bench, f"workers={most}", "workload.kind=slow", f"workload.on_rank={rank}")
    straggler = run.trials[-1]["straggler"]
    return {
        "statuses": run.statuses(),
        "straggler": straggler,
        "is_named": str(straggler).startswith(f"rank {rank} "),
    }


ALL_OK = equal("statuses", ["ok"])

LINES = (
    first_line("torch, driver and NVML see several GPUs", gpus=2),
    Line(
        name="13b",
        title="the doctor",
        find=doctor,
        expected=(
            equal("gpus_missing", 0),
            within("bf16_share", 0.6, 0.85),
            within("latency_s", 10e-6, 30e-6),
            within("busbw_bytes_per_s", 150e9),
            equal("problems", []),
        ),
        needs_gpus=2,
    ),
    Line(
        name="14",
        title="worlds of all sizes in one session, a GPU for each rank",
        find=scaling,
        expected=(
            ALL_OK,
            equal("sessions", 1),
            equal("worlds_with_a_shared_gpu", []),
            lacking("flags", "shared_gpu"),
            within("efficiency", 0.8, 1.02),
        ),
        shows=("samples_per_s", "startup_s"),
        needs_gpus=2,
    ),
    Line(
        name="15",
        title="all modes on all GPUs",
        find=all_modes,
        expected=(
            equal("modes", len(MODES)),
            equal("failed", {}),
            equal("gradients_disagree", []),
        ),
        shows=("exchange_isolated_s",),
        needs_gpus=2,
    ),
    Line(
        name="17",
        title="ddp fits as large batches in a session with hsdp and hierarchical as alone",
        find=memory_after_meshes,
        # Of seven batches at least one fits, and one does not.
        expected=(true("same"), within("fits", 1, 6)),
        shows=("alone", "among"),
        needs_gpus=2,
    ),
    Line(
        name="18",
        title="a rank that asserts, dies or stops is named, and the next trial is well",
        find=faults,
        expected=(
            having("asserts", "user_error"),
            having("dies", "rank_died"),
            having("stops", "hang"),
            *(true(f"names_{kind}") for kind in FAULTY_RANKS),
            *(equal(f"after_{kind}", ["ok"]) for kind in FAULTY_RANKS),
            equal("processes_left", 0),
        ),
        needs_gpus=2,
    ),
    Line(
        name="19",
        title="NCCL's variables as axes have an effect",
        find=nccl_variables,
        expected=(
            within("without_p2p_over_with", 1.1),
            equal("sessions", 2),
            equal("algorithms", ["ok"]),
            equal("algorithm_sessions", 2),
        ),
        needs_gpus=2,
    ),
    Line(
        name="19b",
        title="workers without GPUs open none",
        find=cpu_world,
        expected=(ALL_OK, equal("processes_on_gpus", 0)),
        needs_gpus=2,
    ),
    Line(
        name="20",
        title="a slow rank is the straggler",
        find=slow_rank,
        expected=(ALL_OK, true("is_named")),
        shows=("straggler",),
        needs_gpus=2,
    ),
)


if __name__ == "__main__":
    about = (__doc__ or "").split("\n")[0]
    sys.exit(run_checklist(LINES, name="node_checklist", about=about, address=True))

"""Which sync mode is fastest behind a slow network? Sweeps over modes at several bandwidths.

A Ray cluster of `WORKERS` nodes and a head runs in a network namespace of its own, whose loopback
`tc` limits (`tbf`) to one rate after another. Each node is a raylet with an object store of its
own, so that what workers exchange goes over the loopback, and so does what they push to servers.
At each rate `dtsweep.run` measures the modes with a worker on each node. Before a rate, a plain
socket shows what the limit lets through.

The loopback carries what all workers and servers send together.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

import dtsweep
from benchmarks.curves import curves
from benchmarks.log_entry import heading, settings, table
from benchmarks.slow_network import limit_loopback, passing_mbits, words_before
from dtsweep import Measure, Resources, Sweep, workloads

WORKERS = 4

MODES: Mapping[str, Mapping[str, Any]] = {
    "ddp": {},
    "local_sgd": {"sync_period": 8},
    "diloco": {"sync_period": 8},
    "gossip": {"topology": "exponential", "sync_period": 1},
    "parameter_server": {"staleness": None, "shards": WORKERS},
}
"""Fields of the points."""

MEASURE = Measure(
    repeats=1, half_width=None, warmup_steps=2, min_steps=8, max_seconds=60, exchange="off"
)

KEPT = ["status", "samples_per_s", "samples_per_s_low", "samples_per_s_high", "bytes_sent_per_step"]
"""Columns of a trial."""


def sweep_of(mode: str) -> Sweep:
    """Sweep of one point: a mode behind the network as it is now."""
    fields = {"workers": WORKERS, "micro_batch": 8, "placement": "strict_spread", "sync": mode}
    return Sweep(
        workload=workloads.Gpt(layers=2, width=256, sequence=64, data="pydoc"),
        axes={name: [value] for name, value in {**fields, **MODES[mode]}.items()},
        resources=Resources(cpus_per_worker=1),
        measure=MEASURE,
    )


def measure_modes(rates: Sequence[int], modes: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Measure modes at one rate after another, on a cluster in this network namespace.

    Args:
        rates: Mbit/s.
        modes: of `MODES`.
        folder: for the results of each rate.

    Returns:
        A row for each rate and mode; `status` says whether it was measured.
    """
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    rows = []
    try:
        for _ in range(WORKERS):
            cluster.add_node(num_cpus=1)
        for mbits in rates:
            limit_loopback(mbits)
            passing = passing_mbits(mbits)
            for mode in modes:
                results = folder / f"{mbits}-{mode}"
                trials = dtsweep.run(sweep_of(mode), results=results, address=cluster.address)
                row = {name: trials[name].iloc[0] for name in KEPT}
                rows.append({"mbits": mbits, "passing_mbits": passing, "mode": mode, **row})
                print(f"{mbits} Mbit/s {mode}: {row}", file=sys.stderr)
    finally:
        cluster.shutdown()
    return rows


def print_entry(rows: Sequence[Mapping[str, Any]], modes: Sequence[str]) -> None:
    """Print an entry for docs/log/."""
    print(heading("Which sync mode is fastest behind a slow network?"), end="\n\n")
    passing = {row["mbits"]: row["passing_mbits"] for row in rows}
    limits = (f"{passed:.0f} of {mbits}" for mbits, passed in passing.items())
    print("A plain socket got, in Mbit/s:", "; ".join(limits), end="\n\n")
    cells = {(row["mode"], row["mbits"]): row for row in rows}
    lines = []
    for mode in modes:
        sent = next(row["bytes_sent_per_step"] for row in rows if row["mode"] == mode)
        speeds = [_with_interval(cells[mode, mbits]) for mbits in passing]
        lines.append([f"`{mode}`", f"{sent / 1e6:.3g}", *speeds])
    headers = [f"samples/s at {mbits} Mbit/s" for mbits in passing]
    print(table(["mode", "MB sent per step and worker", *headers], lines), end="\n\n")
    print(settings(MEASURE))


def _with_interval(row: Mapping[str, Any]) -> str:
    """Throughput of a cell with its interval; the status where it was not measured."""
    if row["status"] != "ok":
        return str(row["status"])
    low, high = row["samples_per_s_low"], row["samples_per_s_high"]
    return f"{row['samples_per_s']:.1f} ({low:.1f}–{high:.1f})"


def picture(rows: Sequence[Mapping[str, Any]], modes: Sequence[str]) -> str:
    """Throughput over bandwidth by mode, as SVG."""
    lines = {
        mode: [
            (row["mbits"], row["samples_per_s"])
            for row in rows
            if row["mode"] == mode and row["status"] == "ok"
        ]
        for mode in modes
    }
    panel = f"{WORKERS} workers, 1.7M parameters"
    return curves({panel: lines}, x="bandwidth, Mbit/s", y="samples/s")


def main() -> None:
    """Measure in a network namespace, and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_modes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[10_000, 1000, 100], help="Mbit/s, fastest first"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where rows.json and slow_modes.svg go"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.out and len(set(options.rates)) == 1:
        parser.error("a picture over the bandwidth needs two --rates; leave --out away, or add one")
    if not options.inside:
        command = [*words_before(), sys.executable, "-m", "benchmarks.slow_modes", "--inside"]
        raise SystemExit(subprocess.run([*command, *sys.argv[1:]], check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_modes(options.rates, options.modes, Path(folder))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "rows.json").write_text(json.dumps(rows), "utf-8")
        (options.out / "slow_modes.svg").write_text(picture(rows, options.modes), "utf-8")
    print_entry(rows, options.modes)


if __name__ == "__main__":
    main()

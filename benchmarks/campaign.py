"""A campaign on an autoscaling cluster, under a budget, into a bucket, with faults and without.

The cluster is Ray's fake node provider: its nodes are processes of this machine, of three types,
one of which is a spot type. The bucket is one of moto's server behind a proxy. In `faulty` the
proxy answers 503, cuts connections and goes away, spot nodes are taken away while they train, and
`--max-cost` ends the campaign half-way; the same command with more budget ends it. `plain` is the
campaign without faults, with one session at a time and with three. `killed` kills the driver
(SIGKILL) during a trial. The script fails if a trial is missing or there twice, if a cost or
node-seconds differ from what is computed by hand, or if a worker node stays.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

from benchmarks.campaign_sweep import MARKS
from benchmarks.log_entry import ROOT, heading, table
from dtsweep.results.run_record import RunRecord
from dtsweep.results.store import Results
from tests.conftest import without_ray
from tests.growing import growing_head
from tests.proxy import Proxy
from tests.stores import Store, running_store

TRIALS = 8

USD_PER_HOUR = {"small": 1.0, "large": 2.5, "spot@spot": 0.4}
"""Prices by node type, as columns name it. They are made up."""

PRICES = """
[small]
usd_per_hour = 1.0
cpus = 1

[large]
usd_per_hour = 2.5
cpus = 2

[spot]
spot_usd_per_hour = 0.4
cpus = 1
"""

SPOT = {"ray.io/market-type": "spot"}

TYPES: dict[str, dict[str, Any]] = {
    "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
    "small": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 1},
    "large": {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 1},
    "spot": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 2, "labels": SPOT},
}

MOST_NODES = 4

IDLE_TIMEOUT_S = 15.0
"""Of `growing_head`."""

NOTICE_S = 3.0
"""Time from the notice of a spot node until it is gone."""

OUTAGE_S = 12.0

TRAINS_S = 1.0
"""A mark that is no older is of a node that trains now."""

NODE_S_TOLERANCE = 0.02
"""Of the node-seconds of the records, next to the lifetimes of the nodes."""

LIMIT = 0.75
"""Of the cost of the campaign without faults: most of it goes for starts of the first sessions."""

LIMIT_ALONE_USD = 0.09
"""Limit of `faulty` where `plain` does not run: about as much on two cores."""

RUN_S = 1200.0
"""Time limit of a run."""

AT_ZERO_S = 300.0
"""Time limit for the worker nodes to go."""

NUMBER = 1e-9
"""Relative difference of two costs that are the same but for rounding."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """Lifetime of a worker node, in seconds since the epoch."""

    node_id: str
    is_spot: bool
    began: float
    ended: float | None

    def seconds(self, began: float, ended: float) -> float:
        """Part of it between two times."""
        last = ended if self.ended is None else min(self.ended, ended)
        return max(0.0, last - max(self.began, began))


@dataclass(kw_only=True)
class Place:
    """Cluster, bucket and folder of the campaigns."""

    gcs: Any
    """Client of the cluster's head."""

    address: str
    store: Store
    folder: Path
    log: Any
    """File that takes what the command says."""

    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Commands that were started."""

    def lives(self) -> list[Life]:
        """Lifetimes of all worker nodes so far."""
        return [
            Life(
                node_id=node_id.hex(),
                is_spot=info.labels.get("ray.io/market-type") == "spot",
                began=info.start_time_ms / 1e3,
                ended=info.end_time_ms / 1e3 or None,
            )
            for node_id, info in self.gcs.get_all_node_info(timeout=10).items()
            if info.resources_total.get("CPU")
        ]

    def until_zero_s(self) -> float:
        """Wait until no worker node is up; return how long that took."""
        began = time.monotonic()
        while any(life.ended is None for life in self.lives()):
            if time.monotonic() - began > AT_ZERO_S:
                raise SystemExit(f"worker nodes are still up after {AT_ZERO_S:g} s")
            time.sleep(0.2)
        return time.monotonic() - began

    def training(self) -> dict[str, int]:
        """Nodes on which a rank trains now, with the processes of their raylets."""
        nodes = {}
        for mark in (self.folder / "marks").iterdir():
            with suppress(FileNotFoundError, ValueError):
                if time.time() - mark.stat().st_mtime < TRAINS_S:
                    nodes[mark.name] = int(mark.read_text())
        return nodes

    def start(
        self, results: str, *options: str, concurrent: int, port: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the command; `port` is that of a proxy in front of the bucket."""
        more = {
            **self.store.environment(port),
            **{MARKS: str(self.folder / "marks"), "RAY_AUTH_MODE": "disabled"},
            **{"DTSWEEP_BENCHMARK_CONCURRENT": str(concurrent), "PYTHONPATH": str(ROOT)},
        }
        command = [
            sys.executable,
            "-m",
            "dtsweep",
            "run",
            str(ROOT / "benchmarks/campaign_sweep.py"),
        ]
        command += ["--address", self.address, "--results", results]
        command += ["--prices", str(self.folder / "prices.toml"), *options]
        self.log.write(f"$ {' '.join(command)}\n".encode())
        self.log.flush()
        run = subprocess.Popen(
            command,
            cwd=self.folder,
            env=without_ray(**more),
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self.runs.append(run)
        return run

    def end_runs(self) -> None:
        """Kill commands that still run: something has failed."""
        for run in self.runs:
            run.kill()
            run.wait()


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign that has ended."""

    name: str
    rows: list[dict[str, Any]]
    records: list[RunRecord]
    lives: list[Life]
    zero_s: float
    """Time from the end of its last run until no worker node was up."""

    @property
    def node_s(self) -> float:
        """Node-seconds of all runs, by their records."""
        return sum(sum((record.node_s or {}).values()) for record in self.records)

    @property
    def lifetimes_s(self) -> float:
        """Node-seconds of the worker nodes inside the runs, by the cluster's head."""
        return sum(
            life.seconds(record.started_at, record.ended_at or record.updated_at)
            for record in self.records
            for life in self.lives
        )

    @property
    def wall_s(self) -> float:
        """Time of all runs."""
        return sum((run.ended_at or run.updated_at) - run.started_at for run in self.records)

    @property
    def cost_usd(self) -> float:
        """Cost of all runs, by their records."""
        costs = [record.cost_usd for record in self.records]
        check(None not in costs, f"{self.name}: a record has no cost")
        return sum(cost for cost in costs if cost is not None)


@dataclass(kw_only=True)
class Faults:
    """Faults that strike a campaign on a thread of their own."""

    place: Place
    proxy: Proxy
    taken: int = 0
    """Spot nodes that were taken away."""

    outages: int = 0
    ends: threading.Event = field(default_factory=threading.Event)

    def strike(self, nodes: int) -> None:
        """Take spot nodes away while they train; take the bucket away once a node trains."""
        struck: set[str] = set()
        while not self.ends.wait(0.2):
            training = self.place.training()
            if training and self.outages == 0:
                self.proxy.fail("closed")
                self.ends.wait(OUTAGE_S)
                self.proxy.fail("random")
                self.outages += 1
                continue
            lives = {life.node_id: life for life in self.place.lives() if life.ended is None}
            spots = [
                node
                for node in training
                if node not in struck and node in lives and lives[node].is_spot
            ]
            if spots and self.taken < nodes:
                self._take(spots[0], training[spots[0]])
                struck.add(spots[0])

    def _take(self, node: str, raylet: int) -> None:
        """Give notice, and end the node a moment later, as the owner of a spot node does."""
        until_ms = int((time.time() + NOTICE_S) * 1000)
        reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        self.place.gcs.drain_node(node, reason, "spot", until_ms)
        time.sleep(NOTICE_S)
        with suppress(ProcessLookupError):
            os.kill(raylet, signal.SIGKILL)
        self.taken += 1


def main() -> None:
    """Run the campaigns and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="plain,faulty,killed", help="what runs, with commas")
    parser.add_argument("--log", type=Path, help="file that takes what the commands say")
    options = parser.parse_args()
    parts = options.parts.split(",")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with tempfile.TemporaryDirectory(prefix="dtsweep-campaign-") as name:
        folder = Path(name)
        (folder / "marks").mkdir()
        (folder / "prices.toml").write_text(PRICES)
        with (
            (options.log or folder / "commands.log").open("wb") as log,
            running_store("s3", folder) as store,
            growing_head(folder / "cluster.yaml", v2=True, most=MOST_NODES, types=TYPES) as address,
        ):
            os.environ.update(store.environment())
            gcs = ray._raylet.GcsClient(address=address)
            place = Place(gcs=gcs, address=address, store=store, folder=folder, log=log)
            try:
                lines = _shown(place, parts)
            finally:
                place.end_runs()
    print(heading("does a campaign on an autoscaling cluster end with every trial and every cent?"))
    print()
    print("\n".join(lines))


def _shown(place: Place, parts: Sequence[str]) -> list[str]:
    """Run the parts; return the lines of the entry."""
    lines: list[str] = []
    campaigns = []
    limit = LIMIT_ALONE_USD
    if "plain" in parts:
        campaigns = [plain(place, concurrent=count) for count in (1, 3)]
        limit = LIMIT * campaigns[1].cost_usd
    if "faulty" in parts:
        campaign, more = faulty(place, limit)
        campaigns.append(campaign)
        lines += more
    for campaign in campaigns:
        check_trials(campaign)
        check_costs(campaign)
        check_node_seconds(campaign)
    if campaigns:
        lines = [*side_by_side(campaigns), "", *lines]
    if "killed" in parts:
        lines += ["", killed(place)]
    return lines


def plain(place: Place, *, concurrent: int) -> Campaign:
    """Run the campaign without faults."""
    results = f"s3://bucket/plain-{concurrent}"
    run = place.start(results, concurrent=concurrent)
    check(run.wait(RUN_S) == 0, f"the plain campaign ended with exit code {run.returncode}")
    return ended(place, f"concurrent={concurrent}", results)


def faulty(place: Place, limit: float) -> tuple[Campaign, list[str]]:
    """Run the campaign with faults until its budget is spent, and then with more."""
    results = "s3://bucket/faulty"
    codes, spent, done = [], [], []
    with Proxy("127.0.0.1", place.store.port) as proxy:
        proxy.fail("random")
        faults = Faults(place=place, proxy=proxy)
        thread = threading.Thread(target=faults.strike, args=(2,), daemon=True)
        thread.start()
        for usd in (limit, 100 * limit):
            options = ("--max-cost", f"{usd:.4f}")
            run = place.start(results, *options, concurrent=3, port=proxy.port)
            codes.append(run.wait(RUN_S))
            records = [run.record for run in Results(results).run_records()]
            spent.append(sum(record.cost_usd or 0.0 for record in records))
            counts = Counter(row["status"] for row in Results(results).attempts())
            print(f"exit code {codes[-1]}, spent {spent[-1]:.4f}, {dict(counts)}", file=sys.stderr)
            done.append(counts["ok"])
            place.until_zero_s()
        faults.ends.set()
        thread.join()
    check(codes == [3, 0], f"the exit codes of the faulty campaign are {codes}, not [3, 0]")
    check(0 < done[0] < TRIALS, f"{done[0]} trials were done when the money was spent")
    check(faults.taken > 0, "no spot node was taken away while it trained")
    check(faults.outages == 1, "the bucket was never away")
    campaign = ended(place, "concurrent=3, faults, two runs", results)
    statuses = Counter(row["status"] for row in campaign.rows)
    struck = ", ".join(f"{count} {name}" for name, count in proxy.struck.items())
    rows = [
        ["exit codes", ", ".join(map(str, codes))],
        ["trials done at the end of each run", ", ".join(map(str, done))],
        ["limit and cost of the first run, USD", f"{limit:.4f} and {spent[0]:.4f}"],
        ["spot nodes taken away while they trained", str(faults.taken)],
        ["requests and answers struck by the proxy", struck],
        ["time for which the bucket was away, s", f"{OUTAGE_S:g}"],
        ["attempts by status", ", ".join(f"{n} {name}" for name, n in statuses.items())],
    ]
    return campaign, [table(["faults", "number"], rows)]


def killed(place: Place) -> str:
    """Kill the driver during a trial; say when the worker nodes are gone."""
    run = place.start("s3://bucket/killed", concurrent=3)
    wait_for(lambda: bool(place.training()), run)
    nodes = sum(life.ended is None for life in place.lives())
    run.kill()
    run.wait()
    zero_s = place.until_zero_s()
    return (
        f"The driver was killed (SIGKILL) during a trial, with {nodes} worker nodes up: no worker "
        f"node was up after {zero_s:.0f} s, with an idle timeout of {IDLE_TIMEOUT_S:g} s."
    )


def wait_for(condition: Callable[[], bool], run: subprocess.Popen[bytes]) -> None:
    """Wait until something holds while a command runs."""
    until = time.monotonic() + 300
    while not condition():
        check(run.poll() is None, f"the command ended with exit code {run.returncode}")
        check(time.monotonic() < until, "no trial began in 300 s")
        time.sleep(0.1)


def ended(place: Place, name: str, results: str) -> Campaign:
    """Wait until no worker node is up, and read what a campaign has stored."""
    zero_s = place.until_zero_s()
    store = Results(results)
    records = [run.record for run in store.run_records()]
    print(f"{name}: {[asdict(record) for record in records]}", file=sys.stderr)
    return Campaign(
        name=name, rows=store.attempts(), records=records, lives=place.lives(), zero_s=zero_s
    )


def check_trials(campaign: Campaign) -> None:
    """Fail unless every trial has exactly one attempt that is `ok`."""
    ok = Counter(row["trial_id"] for row in campaign.rows if row["status"] == "ok")
    attempts = Counter(row["attempt_id"] for row in campaign.rows)
    check(len(ok) == TRIALS, f"{campaign.name}: {len(ok)} trials are ok, not {TRIALS}")
    check(set(ok.values()) == {1}, f"{campaign.name}: a trial is ok twice")
    check(set(attempts.values()) == {1}, f"{campaign.name}: an attempt is stored twice")


def check_costs(campaign: Campaign) -> None:
    """Fail unless costs are those that prices and times give, and the rows' are in the records'."""
    total = 0.0
    for row in campaign.rows:
        if row["node_types"] is None:
            check(row["status"] != "ok", f"{campaign.name}: an ok row has no node types")
            check(row["cost_usd"] is None, f"{campaign.name}: a row without nodes has a cost")
            continue
        nodes = [entry.rsplit(":", 1) for entry in row["node_types"].split("+")]
        per_hour = sum(USD_PER_HOUR[node_type] * float(count) for node_type, count in nodes)
        times = {name: row[name] or 0.0 for name in ("startup_s", "nodes_wait_s", "trial_s")}
        held_s = times["startup_s"] - times["nodes_wait_s"] + times["trial_s"]
        by_hand = per_hour / 3600 * held_s
        difference = abs(row["cost_usd"] - by_hand)
        check(difference <= NUMBER * by_hand, f"{campaign.name}: {row['cost_usd']} != {by_hand}")
        total += by_hand
    check(
        total <= campaign.cost_usd,
        f"{campaign.name}: rows cost {total:.4f}, more than the records' {campaign.cost_usd:.4f}",
    )


def check_node_seconds(campaign: Campaign) -> None:
    """Fail unless node-seconds are the nodes' lifetimes inside the runs."""
    counted, lived = campaign.node_s, campaign.lifetimes_s
    check(
        abs(counted - lived) <= NODE_S_TOLERANCE * lived,
        f"{campaign.name}: {counted:.1f} node-seconds are counted, the nodes lived {lived:.1f}",
    )


def check(holds: bool, what: str) -> None:
    """End the benchmark with what does not hold."""
    if not holds:
        raise SystemExit(what)


def side_by_side(campaigns: Sequence[Campaign]) -> list[str]:
    """Table of campaigns, with a column for each."""
    figures: dict[str, Callable[[Campaign], str]] = {
        "wall time of the runs, s": lambda one: f"{one.wall_s:.0f}",
        "node-seconds": lambda one: f"{one.node_s:.1f}",
        "lifetimes of the nodes in the runs, s": lambda one: f"{one.lifetimes_s:.1f}",
        "cost of the rows, USD": lambda one: f"{cost_of_rows(one):.4f}",
        "cost of the runs, USD": lambda one: f"{one.cost_usd:.4f}",
        "trials `ok`": lambda one: str(sum(row["status"] == "ok" for row in one.rows)),
        "time until no worker node was up, s": lambda one: f"{one.zero_s:.0f}",
    }
    headers = ["campaign", *(campaign.name for campaign in campaigns)]
    return [
        table(headers, [[name, *map(show, campaigns)] for name, show in figures.items()]),
    ]


def cost_of_rows(campaign: Campaign) -> float:
    """Sum of the column `cost_usd`."""
    return sum(row["cost_usd"] or 0.0 for row in campaign.rows)


if __name__ == "__main__":
    main()

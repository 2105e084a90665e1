"""Autoscalers: detection, what one can add, and nodes that come for a world and go after it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import psutil
import pytest
from ray.core.generated.autoscaler_pb2 import AutoscalingState, GangResourceRequest

import dtsweep
from dtsweep.driver.autoscaler import (
    Autoscaler,
    HeadFacts,
    NodeType,
    autoscaler_of,
    configured,
    facts_here,
    is_scaling,
)
from dtsweep.results.store import Results
from dtsweep.session.request import is_refused
from dtsweep.text import usd
from tests.conftest import Command, without_ray

KILLS = Path(__file__).parents[1] / "struck" / "kills.py"
SHARED = KILLS.with_name("shared.py")

HEAD_ID = "f" * 51 + "00000"
"""The node id that Ray's fake provider expects of a head."""

TYPES = {
    "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
    "small": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 3},
    "large": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 1},
}


def test_a_path_is_one_of_the_user_and_a_configuration_that_is_missing_is_of_unknown_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    missing = look_beside_monitor("--autoscaling-config=~/ray_bootstrap_config.yaml")
    assert autoscaler_of(missing, reports=True) == Autoscaler()
    (tmp_path / "ray_bootstrap_config.yaml").write_text(
        json.dumps({"max_workers": 4, "available_node_types": TYPES})
    )
    found = autoscaler_of(
        look_beside_monitor("--autoscaling-config=~/ray_bootstrap_config.yaml"), reports=True
    )
    assert found is not None
    assert found.types == [
        NodeType(name="small", resources={"CPU": 1}, max_nodes=3),
        NodeType(name="large", resources={"CPU": 2}, max_nodes=1),
    ]
    # A head without an autoscaler has a monitor too, which only watches; and so has another Ray of
    # the machine.
    assert autoscaler_of(look_beside_monitor("--monitor-ip=127.0.0.1"), reports=True) is None
    assert look_beside_monitor(
        "--autoscaling-config=~/ray_bootstrap_config.yaml", port="6380"
    ) == HeadFacts(has_monitor=False)


def look_beside_monitor(option: str, *, port: str = "6379") -> HeadFacts:
    """The facts of this machine while a process runs under the name of a head's monitor."""
    script = "/ray/autoscaler/v2/monitor.py"
    asleep = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    command = [*asleep, script, "--logs-dir=/tmp", "--gcs-address=10.0.0.1:6379", option]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        return facts_here(port)
    finally:
        process.kill()
        process.communicate()


def test_on_kuberay_an_autoscaler_is_known_by_its_report_or_by_how_the_head_was_started() -> None:
    outside = HeadFacts(has_monitor=False)
    starting = HeadFacts(
        has_monitor=False, pod_command="ulimit -n 65536; ray start --head --no-monitor --num-cpus=0"
    )
    assert (
        autoscaler_of(outside, reports=True)
        == autoscaler_of(starting, reports=False)
        == Autoscaler()
    )
    assert autoscaler_of(outside, reports=False) is None


def test_a_monitor_that_only_watches_reports_types_of_its_own() -> None:
    def stored(kind: str) -> str:
        return json.dumps(
            {"autoscaler_report": {"active_nodes": {}, "node_type_mapping": {"10.0.0.1": kind}}}
        )

    assert is_scaling(stored("headgroup"))
    assert not is_scaling(stored(f"node_{HEAD_ID}"))
    assert not any(map(is_scaling, (None, "{}", '{"autoscaler_report": null}')))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[",
            "a: 1",
            "{available_node_types: {w: {max_workers: 2}}}",
            "{available_node_types: {w: 8}}",
        ),
        "{max_workers: null, available_node_types: {w: {resources: {CPU: 8}}}}",
        "{available_node_types: {w: {resources: {CPU: many}}}}",
        "{available_node_types: {w: {resources: [CPU]}}}",
    ],
)
def test_a_configuration_that_does_not_say_what_nodes_have_leaves_types_unknown(text: str) -> None:
    assert configured(text).types is None


def test_numbers_of_a_configuration_may_be_quoted() -> None:
    found = configured(
        "{max_workers: '3', available_node_types: {w: {resources: {CPU: '8'}, max_workers: '2'}}}"
    )
    assert found == Autoscaler(
        types=[NodeType(name="w", resources={"CPU": 8.0}, max_nodes=2)],
        max_nodes=3,
        # Ray's own, where the configuration has none.
        idle_timeout_s=300.0,
    )


def test_the_placement_group_that_is_refused_is_told_from_others() -> None:
    state = AutoscalingState(
        infeasible_gang_resource_requests=[GangResourceRequest(details="aa01:PACK|PENDING")]
    )
    assert is_refused(state, group="aa01")
    assert not is_refused(state, group="aa")


@pytest.mark.ray
def test_nodes_of_unknown_types_are_waited_for_until_the_timeout(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    asked = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, gpus_per_worker=0")
    (tmp_path / "asked.py").write_text(asked.replace("[1, 2, 3, 5]", "[3]"))
    (tmp_path / "unasked.py").write_text(SWEEP)
    configuration = tmp_path / "cluster.yaml"
    with growing_head(configuration, v2=False, most=0) as address:
        # As where only another machine, or nobody but Ray, can read it.
        configuration.unlink()
        arguments = ["--address", address, "--results", tmp_path / "r", "--node-timeout", 5]
        unasked = dtsweep_command(
            "run", "unasked.py", *arguments, folder=tmp_path, RAY_AUTH_MODE="disabled"
        )
        assert (unasked.returncode, "Resources(gpus_per_worker=1)" in unasked.stderr) == (
            2,
            True,
        ), unasked.stderr
        assert "Traceback" not in unasked.stderr
        done = dtsweep_command(
            "run", "asked.py", *arguments, folder=tmp_path, RAY_AUTH_MODE="disabled"
        )
    assert done.returncode == 4, done.stderr
    frame = dtsweep.load(tmp_path / "r").query("status != 'skipped'")
    assert frame["status"].tolist() == ["no_nodes", "no_nodes"]
    assert set(frame["reason"]) == {"nodes for 3 workers did not come in 5 s; see --node-timeout"}


EMPTY_LISTS = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *(
        "head_start_ray_commands",
        "worker_start_ray_commands",
        "cluster_synced_files",
        "rsync_exclude",
        "rsync_filter",
    ),
)
"""Of a configuration, what Ray's second autoscaler wants to find there."""

SWEEP = '''
"""Which nodes does it take?"""
from dataclasses import dataclass
from dtsweep import Measure, Resources, Sweep

@dataclass(frozen=True)
class Small:
    def build(self):
        from torch import nn
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        import torch
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

SHAPES = [(1, "strict_spread", 1), (2, "strict_pack", 1), (5, "strict_spread", 1)]
SHAPES += [(3, "strict_spread", 1), (3, "strict_spread", 2)]

sweep = Sweep(
    workload=Small(),
    axes={
        "workers": [1, 2, 3, 5],
        "placement": ["strict_spread", "strict_pack"],
        "micro_batch": [1, 2],
    },
    skip=lambda p: None if (p.workers, p.placement, p.micro_batch) in SHAPES else "not asked",
    measure=Measure(
        repeats=1, half_width=None, canary=False, nested=False, min_seconds=5, max_seconds=6
    ),
    resources=Resources(cpus_per_worker=1),
)
'''

LIVES = """
import json, sys, time
from ray._raylet import GcsClient

client, until = GcsClient(address=sys.argv[1]), time.monotonic() + 60
while True:
    infos = client.get_all_node_info(timeout=10).values()
    infos = [info for info in infos if info.resources_total.get("CPU")]
    if time.monotonic() > until or all(info.end_time_ms for info in infos):
        break
    time.sleep(0.2)
lives = [
    (info.start_time_ms / 1e3, info.end_time_ms / 1e3, info.resources_total["CPU"])
    for info in infos
]
print(json.dumps(sorted(lives)))
"""
"""Waits until all nodes with CPUs are gone; prints the start, end and CPUs of each."""

REQUESTS = """
import asyncio, sys
import ray
from ray.util.placement_group import placement_group, placement_group_table
from dtsweep.session import node_watch, request
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.session import SessionError
from dtsweep.session.session_settings import Code, Settings
from dtsweep.sweep.point import World

CPU = {"CPU": 1}

class Slot:
    def __init__(self, seconds=60.0):
        request.REFUSED_S = 3.0
        settings = Settings(
            code=Code(pickled=b"", folder=None),
            node_timeout_s=seconds,
            storage="",
            is_private=False,
            cpus_per_worker=1,
            gpus_per_worker=0,
            environment={},
            is_autoscaled=True,
        )
        self.watch = NodeWatch(settings)
        self.lines = []
        self.requests = request.NodeRequests(settings, self.watch, say=self.lines.append)

    async def come(self, workers, placement="pack"):
        world = World(workers=workers, placement=placement, environment=())
        try:
            return sorted((await self.requests.come(world, None)).without)
        except SessionError as error:
            return f"{error.status}: {error}"

    async def launched(self):
        await self.requests.launched()

    async def ask_ahead(self, workers, placement="pack"):
        await self.requests.ask_ahead(World(workers=workers, placement=placement, environment=()))

    async def strike(self, nodes):
        for node in nodes:
            self.watch.died(f"one on {node}", node)
            self.watch.died(f"another on {node}", node)

    async def stays(self):
        node_watch.NODE_ANSWERS_S = 2.0
        return await self.watch.stay(["a node"], until=0)

    async def notes(self):
        return self.watch.take_notes()

    async def said(self):
        return self.lines

    async def hold(self, bundles):
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        return await asyncio.to_thread(group.wait, 30)

def asked():
    return sum(entry["state"] != "REMOVED" for entry in placement_group_table().values())

def call(slot, method, *arguments):
    return ray.get(getattr(slot, method).remote(*arguments))

def nodes():
    alive = [node for node in ray.nodes() if node["Alive"]]
    return sorted(node["NodeID"] for node in alive if "CPU" in node["Resources"])

def slot_of(*arguments, name="slot"):
    return ray.remote(num_cpus=0)(Slot).options(name=name).remote(*arguments)

ray.init(address=sys.argv[1], log_to_driver=False)
"""
"""What a slot asks for, without sessions; the scripts that follow go on from here."""

GIVEN_UP = (
    REQUESTS
    + """
slot = slot_of(1.0, name="brief")
call(slot, "ask_ahead", 8)
print(call(slot, "come", 9), asked())
slot = slot_of(8.0)
print(call(slot, "come", 9), asked())
print(*call(slot, "said"))
call(slot, "ask_ahead", 9)
call(slot, "launched")
print(asked())
ray.kill(slot)
request.withdraw_all("slot")
print(asked())
"""
)

SILENT = (
    REQUESTS
    + """
import os, signal, threading
slot = slot_of(25.0)
head = int(sys.argv[2])
coming = slot.come.remote(9)
while not asked():
    pass
os.kill(head, signal.SIGSTOP)
threading.Timer(13, os.kill, (head, signal.SIGCONT)).start()
print(call(slot, "stays"))
print(ray.get(coming))
"""
)

NOT_NOW = (
    "no_nodes: nodes for 9 workers did not come in {} s: the autoscaler can't add them now; see "
    "--node-timeout"
)

STRUCK = (
    REQUESTS
    + """
slot = slot_of()
print(call(slot, "come", 3, "strict_spread"))
call(slot, "launched")
before = nodes()
call(slot, "ask_ahead", 3, "strict_spread")
print(len(before), "there,", asked(), "kept alive")
call(slot, "strike", before)
call(slot, "ask_ahead", 1)
print(asked() - 1, "asked for ahead")
print(call(slot, "come", 1) == before, len(nodes()), "there")
call(slot, "strike", nodes())
print(call(slot, "come", 1), asked(), "kept alive")
for note in call(slot, "notes"):
    print(note.split(" ", 2)[2])
holder = slot_of(name="holder")
print(call(holder, "hold", [CPU] * 4))
ray.kill(holder)
print(call(slot, "come", 4, "strict_spread"))
"""
)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a head whose second autoscaler adds fake nodes."""
    with growing_head(tmp_path_factory.mktemp("growing") / "cluster.yaml", v2=True) as address:
        yield address


def told_by(script: str, *arguments: object) -> str:
    """What a script prints that asks a Ray, in a process of its own: it must not stay connected."""
    # Without what an autoscaler says to every driver.
    environment = without_ray(RAY_AUTH_MODE="disabled", RAY_SCHEDULER_EVENTS="0")
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.ray
def test_nodes_come_for_the_largest_world_ahead_for_the_next_and_go(
    growing: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    began = time.time()
    arguments = [tmp_path / "sweep.py", "--address", growing, "--results", tmp_path / "r"]
    done = dtsweep_command("run", *arguments, folder=tmp_path, RAY_AUTH_MODE="disabled")
    ended = time.time()
    assert done.returncode == 4, done.stderr
    assert "an autoscaler that can have up to 4 nodes of small or large" in done.stderr
    lives = json.loads(told_by(LIVES, growing))
    rows = dtsweep.load(tmp_path / "r").query("status != 'skipped'").sort_values("started_at")
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(began, ended, lives, rows[SHOWN].to_string(), sep="\n")
    assert [(r.workers, r.placement) for r in rows.query("status == 'ok'").itertuples()] == [
        *[(3, "strict_spread")] * 2,
        (2, "strict_pack"),
        (1, "strict_spread"),
    ]
    refused = rows.query("workers == 5")
    assert refused["status"].tolist() == ["infeasible"]
    assert "at most 5 nodes with room for" in refused["reason"].iloc[0]
    # Nodes came once and went: 0, 3 small ones, a large one, 0.
    assert [cpus for _, _, cpus in lives] == [1, 1, 1, 2]
    assert all(gone > 0 for _, gone, _ in lives)
    # The large one came while the last trial before it was measured, so that its own session had no
    # wait.
    last = rows.query("workers == 3").iloc[-1]
    first = rows.query("workers == 2").iloc[0]
    assert last["started_at"].timestamp() < lives[3][0] < first["started_at"].timestamp()
    measured = rows.query("status == 'ok'")
    assert measured["nodes_wait_s"].isna().tolist() == [False, True, False, False]
    assert first["nodes_wait_s"] < 3


PRICES = """
# Made-up prices; enter your own. A small node costs a cent a second.
[small]
usd_per_hour = 36

[head]
usd_per_hour = 3.6
"""

LIMIT = 0.55
"""USD of a campaign that needs more: each of its 24 trials takes 2.5 s of a small node."""


@pytest.mark.ray
def test_a_campaign_ends_at_its_budget_goes_on_with_more_and_its_account_adds_up(
    growing: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes = '"workers": [1], "placement": ["strict_spread"], "micro_batch": [*range(1, 25)]'
    text = SWEEP.partition('        "workers"')[0] + f"        {axes},\n    }},\n"
    text += SWEEP.partition('"not asked",\n')[2]
    # However fast a step is, a trial takes its time, and all of them cost more than the limit.
    seconds = "min_seconds=2.4, max_seconds=2.5, max_steps=10**7"
    text = text.replace("min_seconds=5, max_seconds=6", seconds)
    (tmp_path / "sweep.py").write_text(text)
    (tmp_path / "prices.toml").write_text(PRICES)
    results = tmp_path / "r"
    arguments = ["sweep.py", "--address", growing, "--prices", "prices.toml"]

    def run(limit: float) -> tuple[int, str, float]:
        done = dtsweep_command(
            "run",
            *(*arguments, "--results", results, "--max-cost", limit),
            folder=tmp_path,
            RAY_AUTH_MODE="disabled",
        )
        return done.returncode, done.stderr, time.time()

    code, said, _ = run(LIMIT)
    first = pd.read_parquet(results / "trials")
    assert code == 3, said
    left = 24 - (first["status"] == "ok").sum()
    assert re.search(
        rf"^dtsweep: spent \$0\.\d+ of \$0\.55.*; {left} trials left .*--max-cost 1\.\d goes on$",
        said,
        re.MULTILINE,
    ), said
    assert set(first["status"]) <= {"ok", "budget"}
    record = Results(results).run_records()[0].record
    assert record.ended_as == "budget"
    assert record.max_cost_usd == LIMIT
    # What ran at the limit was cut: no trial is long, but the sessions end in some seconds.
    assert record.cost_usd == pytest.approx(LIMIT, abs=0.25)
    code, said, ended = run(100)
    assert code == 0, said
    assert f"spent by earlier runs: {usd(record.cost_usd)} of $100.00" in said
    assert "1 node still up: about $0.15 more until the autoscaler takes them away" in said
    rows = pd.read_parquet(results / "trials")
    measured = rows[rows["status"] == "ok"]
    assert sorted(measured["micro_batch"]) == [*range(1, 25)]
    assert set(measured["node_types"]) == {"small:1"}
    held_s = measured["trial_s"]
    held_s += measured["startup_s"].fillna(0) - measured["nodes_wait_s"].fillna(0)
    assert (measured["cost_usd"] - held_s * 0.01).abs().max() < 1e-9
    assert_account_adds_up(results, rows, lives=json.loads(told_by(LIVES, growing)), ended=ended)


def assert_account_adds_up(
    results: Path, rows: pd.DataFrame, *, lives: list[tuple[float, float, float]], ended: float
) -> None:
    """Compare the records of two runs with the rows, and with what the head says of its nodes."""
    records = [run.record for run in Results(results).run_records()]
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(records, lives, rows[[*SHOWN, "cost_usd"]].to_string(), sep="\n")
    held_usd = 0.0
    for record in records:
        assert record.node_use is not None
        use = record.node_use["small"]
        head = record.node_use["head"]
        assert record.ended_at is not None
        # By the head: from the begin of the account, which is that of the head's own node, on.
        began = record.ended_at - head.total_s
        up_s = sum(max(0.0, min(end, ended) - max(began, start)) for start, end, _ in lives)
        if record is records[0]:
            up_s = sum(
                max(0.0, min(end, record.ended_at) - max(began, start)) for start, end, _ in lives
            )
        assert use.total_s == pytest.approx(up_s, abs=8)
        assert (head.measuring_s, head.starting_s, head.lost_s) == (0, 0, 0)
        assert record.cost_usd == pytest.approx(use.total_s * 0.01 + head.total_s * 0.001)
        held_usd += 0.01 * (use.measuring_s + use.starting_s + use.lost_s)
    # Attempts whose nodes were not known yet when they were cut count as idle.
    assert rows["cost_usd"].sum() == pytest.approx(held_usd, rel=0.02)


SHOWN = [
    "workers",
    "placement",
    "status",
    "started_at",
    "startup_s",
    "nodes_wait_s",
    "trial_s",
    "overhead_s",
]


@pytest.mark.ray
def test_what_does_not_come_is_given_up_in_a_line_and_asked_for_no_more(growing: str) -> None:
    assert told_by(GIVEN_UP, growing).splitlines() == [
        "no_nodes: nodes for 9 workers did not come in 1 s; see --node-timeout 0",
        f"{NOT_NOW.format(8)} 0",
        "waiting for nodes for 9 workers: the autoscaler can't add them now; see `ray status`",
        "1",
        "0",
    ]


@pytest.mark.ray
def test_a_head_that_is_silent_for_some_seconds_fails_no_session(growing: str) -> None:
    (head,) = (
        process.pid
        # Asked at once: others end meanwhile.
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "gcs_server"
        and f"--gcs_server_port={growing.rpartition(':')[2]}" in (process.info["cmdline"] or ())
    )
    began = time.monotonic()
    said = told_by(SILENT, growing, head)
    assert said.splitlines() == [
        "True",
        NOT_NOW.format(25),
    ]
    assert time.monotonic() - began > 13


@pytest.mark.ray
def test_struck_nodes_are_replaced_and_what_a_killed_session_holds_is_given_back(
    growing: str,
) -> None:
    assert told_by(STRUCK, growing).splitlines() == [
        "[]",
        # The same world again lacks none of them; without them it does.
        "3 there, 1 kept alive",
        "1 asked for ahead",
        "True 4 there",
        # Now there can be no more, and they are better than nothing.
        "[] 1 kept alive",
        *["is left out: processes of 2 trials or starts died there"] * 4,
        *["is used again: none came in its place"] * 4,
        "True",
        "[]",
    ]


@pytest.mark.ray
def test_a_kill_costs_one_attempt_where_the_world_takes_all_that_the_autoscaler_can_add(
    tmp_path: Path, dtsweep_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    # Its ranks are not to be killed on their import.
    (tmp_path / "import").touch()
    killed = ["RayTrainWorker", "TrainController"]
    whole = TYPES | {
        "small": {"resources": {"CPU": os.cpu_count()}, "node_config": {}, "max_workers": 1}
    }
    with growing_head(tmp_path / "cluster.yaml", v2=True, most=1, types=whole) as address:
        arguments = [
            "run",
            KILLS,
            "--address",
            address,
            "--results",
            tmp_path / "r",
            "--node-timeout",
            40,
        ]
        axes = ["--set", f"workload.by={','.join(killed)},nothing"]
        done = dtsweep_command(*arguments, *axes, folder=tmp_path, RAY_AUTH_MODE="disabled")
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(rows[["workload_by", "attempt", *SHOWN[2:]]].to_string())
    ended = rows.groupby("workload_by")["status"].agg(list).to_dict()
    assert ended == {
        "nothing": ["ok"],
        "RayTrainWorker": ["rank_died", "ok"],
        # It is none of the trial's own processes.
        "TrainController": ["collateral", "ok"],
    }
    # The node stays, and what the killed ones held of it is free at once.
    assert rows["nodes_wait_s"].iloc[1:].max() < 15


@pytest.mark.ray
def test_two_sweeps_share_an_autoscaler_and_one_that_loses_a_node_waits_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    small = {**TYPES["small"], "max_workers": 3}
    types = {"ray.head.default": TYPES["ray.head.default"], "small": small}
    command = [sys.executable, "-m", "dtsweep", "run", SHARED, "--node-timeout", "200"]

    def started(name: str, setting: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, "--address", address, "--results", tmp_path / name, "--set", setting],
            cwd=tmp_path,
            env=without_ray(RAY_AUTH_MODE="disabled"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    os.mkfifo(tmp_path / "raylet")
    pipe = os.open(tmp_path / "raylet", os.O_RDWR)
    with growing_head(tmp_path / "cluster.yaml", v2=True, most=3, types=types) as address:
        losing = started("losing", "workload.loses_node=true")
        assert select.select([pipe], [], [], 120)[0]
        raylet = int(os.read(pipe, 4096))
        other = started("other", "workload.loses_node=false")
        assert other.stderr is not None
        said = next((line for line in other.stderr if "waiting for nodes" in line), "no such line")
        os.kill(raylet, signal.SIGKILL)
        talk = [process.communicate(timeout=300)[1] for process in (losing, other)]
    os.close(pipe)
    assert "for 2 workers: the autoscaler can't add them now; see `ray status`" in said, talk
    attempts = {
        name: pd.read_parquet(tmp_path / name / "trials").sort_values("started_at")
        for name in ("losing", "other")
    }
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(*(rows[SHOWN].to_string() for rows in attempts.values()), sep="\n")
    assert (losing.returncode, other.returncode) == (0, 0), talk
    assert attempts["other"]["status"].tolist() == ["ok"] * 3
    assert attempts["losing"]["status"].tolist() == ["node_lost", "ok", "ok", "ok"]
    assert attempts["other"]["nodes_wait_s"].iloc[0] > 20


TOGETHER = (
    SWEEP.replace('"workers": [1, 2, 3, 5]', '"workers": [1, 6]')
    .replace('["strict_spread", "strict_pack"]', '["pack"]')
    .replace("canary=False, ", "")
    .replace("repeats=1", "repeats=2")
    .replace("(p.workers, p.placement, p.micro_batch) in SHAPES", "p.workers")
    .replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=3")
)
"""A world of all nodes that can be added, and small ones that run at the same time."""


@pytest.mark.ray
def test_sessions_that_run_at_the_same_time_have_nodes_of_their_own(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "sweep.py").write_text(TOGETHER)
    small = {**TYPES["small"], "resources": {"CPU": 2}}
    types = {"ray.head.default": TYPES["ray.head.default"], "small": small}
    # The first autoscaler adds no node as long as it counts a part of one as free.
    with growing_head(tmp_path / "cluster.yaml", v2=False, most=3, types=types) as address:
        arguments = [tmp_path / "sweep.py", "--address", address, "--results", tmp_path / "r"]
        done = dtsweep_command("run", *arguments, folder=tmp_path, RAY_AUTH_MODE="disabled")
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(rows[[*SHOWN, "concurrent_trials", "interference"]].to_string())
    assert rows["status"].unique().tolist() == ["ok"]
    assert rows.query("role == 'trial'")["trial_id"].nunique() == 8
    # The world of all nodes came first, alone; then the small ones, each on a node of its own.
    large, small_ones = rows.query("workers == 6"), rows.query("workers == 1")
    assert large["concurrent_trials"].max() == 0
    assert small_ones.query("role == 'trial'")["concurrent_trials"].max() == 1
    ranks = pd.read_parquet(tmp_path / "r" / "ranks").merge(rows[["attempt_id", "session"]])
    hosts = ranks.groupby("session")["node_id"].agg(frozenset)
    used = [hosts[session] for session in small_ones["session"].unique()]
    assert [len(nodes) for nodes in used] == [1, 1]
    assert used[0] != used[1]
    assert small_ones["interference"].notna().any()


@contextmanager
def growing_head(
    configuration: Path, *, v2: bool, most: int = 4, types: object = TYPES
) -> Iterator[str]:
    """Start a head without CPUs whose autoscaler adds such nodes; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fake = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    kind = {"type": "external", "module": fake} if v2 else {"type": "fake_multinode"}
    configuration.write_text(
        json.dumps(
            {
                **{
                    "cluster_name": "growing",
                    "max_workers": most,
                    "idle_timeout_minutes": 0.25,
                    "upscaling_speed": 100,
                },
                "provider": {
                    **kind,
                    **{"gcs_address": f"127.0.0.1:{port}", "head_node_id": HEAD_ID},
                    **{"launch_multiple": True, "disable_node_updaters": True},
                },
                **{"head_node_type": "ray.head.default", "available_node_types": types},
                **{key: {} for key in ("auth", "docker", "file_mounts")},
                **{key: [] for key in EMPTY_LISTS},
            }
        )
    )
    own = {
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    common = {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_AUTH_MODE": "disabled",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    options = [
        "--num-cpus=0",
        f"--port={port}",
        f"--autoscaling-config={configuration}",
        "--include-dashboard=false",
    ]
    head = subprocess.Popen(
        [
            Path(sys.executable).with_name("ray"),
            "start",
            "--head",
            "--block",
            "--node-ip-address=127.0.0.1",
            *options,
        ],
        env=without_ray(**common, **(own if v2 else {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert head.stdout is not None
        assert any("runtime started" in line for line in head.stdout)
        yield f"127.0.0.1:{port}"
    finally:
        started = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        head.send_signal(signal.SIGTERM)
        for process in psutil.wait_procs(started, timeout=5)[1]:
            process.kill()
        head.communicate(timeout=30)

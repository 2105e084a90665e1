"""Autoscalers: detection, what one can add, and nodes that come for a world and go after it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
from ray.core.generated.autoscaler_pb2 import AutoscalingState, GangResourceRequest

import dtsweep
from dtsweep.cluster.autoscaler import (
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
from tests.conftest import Command
from tests.growing import HEAD_ID, LIVES, SHOWN, SWEEP, TYPES, growing_head, told_by


def test_a_path_is_one_of_the_user_and_a_configuration_that_is_missing_is_of_unknown_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    option, file = "--autoscaling-config=~/ray_bootstrap.yaml", tmp_path / "ray_bootstrap.yaml"
    assert autoscaler_of(look_beside_monitor(option), reports=True) == Autoscaler()
    file.write_text(json.dumps({"max_workers": 4, "available_node_types": TYPES}))
    found = autoscaler_of(look_beside_monitor(option), reports=True)
    assert found is not None
    assert found.types == [
        NodeType(name="small", resources={"CPU": 1}, max_nodes=3),
        NodeType(name="large", resources={"CPU": 2}, max_nodes=1),
    ]
    # A head without an autoscaler has a monitor too, which only watches; and so has another Ray of
    # the machine.
    assert autoscaler_of(look_beside_monitor("--monitor-ip=127.0.0.1"), reports=True) is None
    assert look_beside_monitor(option, port="6380") == HeadFacts(has_monitor=False)


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


def test_numbers_of_a_configuration_may_be_quoted_and_ray_has_an_idle_timeout() -> None:
    node = "{resources: {CPU: '8'}, max_workers: '2'}"
    found = configured(f"{{max_workers: '3', available_node_types: {{w: {node}}}}}")
    types = [NodeType(name="w", resources={"CPU": 8.0}, max_nodes=2)]
    assert found == Autoscaler(types=types, max_nodes=3, idle_timeout_s=300.0)


def test_the_placement_group_that_is_refused_is_told_from_others() -> None:
    request = GangResourceRequest(details="aa01:PACK|PENDING")
    state = AutoscalingState(infeasible_gang_resource_requests=[request])
    assert is_refused(state, group="aa01")
    assert not is_refused(state, group="aa")


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
        "[",
        "a: 1",
        "{available_node_types: {w: 8}}",
        "{available_node_types: {w: {resources: {CPU: many}}}}",
        "{available_node_types: {w: {resources: [CPU]}}}",
    ],
)
def test_a_configuration_that_does_not_say_what_nodes_have_leaves_types_unknown(text: str) -> None:
    assert configured(text).types is None


REQUESTS = """
import asyncio, sys
import ray
from ray.util.placement_group import placement_group, placement_group_table
from dtsweep.session import node_watch, request
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.start_errors import SessionError
from dtsweep.session.session_settings import Code, Settings
from dtsweep.sweep.point import World

CPU = {"CPU": 1}

class Slot:
    def __init__(self, seconds=60.0):
        request._REFUSED_S = 3.0
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

    async def strike(self, nodes):
        for node in nodes:
            self.watch.failures.died(f"one on {node}", node)
            self.watch.failures.died(f"another on {node}", node)

    async def stays(self):
        node_watch.NODE_ANSWERS_S = 2.0
        return await self.watch.stay(["a node"], until=0)

    async def notes(self):
        return self.watch.notes.take()

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
print(call(slot, "come", 9), asked())
slot = slot_of(8.0)
print(call(slot, "come", 9), asked())
print(*call(slot, "said"))
coming = slot.come.remote(9)
while not asked():
    pass
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
before = nodes()
print(len(before), "there,", asked(), "kept alive")
call(slot, "strike", before)
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


@pytest.mark.ray
def test_nodes_come_for_the_largest_world_and_go(
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
    # The large one came for its own session, which waited for it.
    first = rows.query("workers == 2").iloc[0]
    assert lives[3][0] > first["started_at"].timestamp()
    measured = rows.query("status == 'ok'")
    assert measured["nodes_wait_s"].isna().tolist() == [False, True, False, False]


PRICES = """
# Made-up prices; enter your own. A small node costs a cent a second.
[small]
usd_per_hour = 36

[head]
usd_per_hour = 3.6
"""

LIMIT = 0.4
"""USD of a campaign that needs more: each of its 16 trials takes 2.5 s of a small node."""


@pytest.mark.ray
def test_a_campaign_ends_at_its_budget_goes_on_with_more_and_its_account_adds_up(
    growing: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes = '"workers": [1], "placement": ["strict_spread"], "micro_batch": [*range(1, 17)]'
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
        options = (*arguments, "--results", results, "--max-cost", limit)
        done = dtsweep_command("run", *options, folder=tmp_path, RAY_AUTH_MODE="disabled")
        return done.returncode, done.stderr, time.time()

    code, said, _ = run(LIMIT)
    first = pd.read_parquet(results / "trials")
    assert code == 3, said
    left = 16 - (first["status"] == "ok").sum()
    assert re.search(
        rf"^dtsweep: spent \$0\.\d+ of \$0\.40.*; {left} trials left .*--max-cost \d\.\d+ goes on$",
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
    assert sorted(measured["micro_batch"]) == [*range(1, 17)]
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
    for record in records:
        assert record.node_s is not None
        small_s, head_s = record.node_s["small"], record.node_s["head"]
        assert record.ended_at is not None
        # By the head: from the begin of the account, which is that of the head's own node, on.
        began, until = record.ended_at - head_s, ended
        if record is records[0]:
            until = record.ended_at
        up_s = sum(max(0.0, min(end, until) - max(began, start)) for start, end, _ in lives)
        assert small_s == pytest.approx(up_s, abs=8)
        assert record.cost_usd == pytest.approx(small_s * 0.01 + head_s * 0.001)
    assert rows["cost_usd"].sum() < sum(record.cost_usd or 0.0 for record in records)


@pytest.mark.ray
def test_what_does_not_come_is_given_up_in_a_line_and_asked_for_no_more(growing: str) -> None:
    assert told_by(GIVEN_UP, growing).splitlines() == [
        "no_nodes: nodes for 9 workers did not come in 1 s; see --node-timeout 0",
        f"{NOT_NOW.format(8)} 0",
        "waiting for nodes for 9 workers: the autoscaler can't add them now; see `ray status`",
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
        "3 there, 1 kept alive",
        "True 4 there",
        # Now there can be no more, and they are better than nothing.
        "[] 1 kept alive",
        *["is left out: processes of 2 trials or starts died there"] * 4,
        *["is used again: none came in its place"] * 4,
        "True",
        "[]",
    ]

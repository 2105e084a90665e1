"""Several hosts on this machine: network namespaces on a bridge, with files of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tests.conftest import without_ray
from tests.pages import ROOT

pytestmark = pytest.mark.ray

SCRIPT = """
import os
import sys
from dataclasses import dataclass

import torch

import dtsweep
from dtsweep import Measure, Resources, Sweep
from afar import net

ADDRESS, RESULTS, HIDDEN = sys.argv[1:]

@dataclass(frozen=True)
class Small:
    hidden: str = HIDDEN

    def build(self):
        assert not os.listdir(self.hidden), "this host sees the driver's files"
        assert (os.environ["NCCL_ALGO"], os.environ["GLOO_SOCKET_IFNAME"]) == ("Ring", "eth0")
        return net()

    def batch(self, samples, device):
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={"workers": [2], "placement": ["strict_spread"], "env.NCCL_ALGO": ["Ring"]},
    measure=Measure(repeats=1, half_width=None, canary=False, min_seconds=0, min_steps=5),
    resources=Resources(cpus_per_worker=1, environment={"GLOO_SOCKET_IFNAME": "eth0"}),
)
dtsweep.run(sweep, RESULTS, address=ADDRESS)
"""


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True)


@contextmanager
def namespaces(name: str, count: int) -> Iterator[list[str]]:
    """Hosts 10.77.0.1, 10.77.0.2, … whose only way to each other is a bridge."""
    with ExitStack() as stack:
        bridge, hosts = f"{name}b", [f"{name}h{number}" for number in range(count)]
        for host in (bridge, *hosts):
            ip(f"netns add {host}")
            stack.callback(ip, f"netns del {host}")
            ip(f"-n {host} link set lo up")
        ip(f"-n {bridge} link add br0 type bridge")
        ip(f"-n {bridge} link set br0 up")
        for number, host in enumerate(hosts, 1):
            ip(f"-n {host} link add eth0 type veth peer name v{number} netns {bridge}")
            ip(f"-n {host} addr add 10.77.0.{number}/24 dev eth0")
            ip(f"-n {host} link set eth0 up")
            ip(f"-n {host} route add default dev eth0")
            ip(f"-n {bridge} link set v{number} master br0 up")
        yield hosts


def ray_start(host: str, options: str, *, hidden: Path | None = None) -> subprocess.Popen[str]:
    """Start Ray on a host, from whose processes a folder is hidden."""
    hide = "true" if hidden is None else f"mount -t tmpfs none {hidden}"
    start = f"{Path(sys.executable).with_name('ray')} start --block --disable-usage-stats {options}"
    environment = without_ray(RAY_AUTH_MODE="disabled", RAY_worker_niceness="0")
    environment.pop("PYTHONPATH", None)
    return subprocess.Popen(
        ["ip", "netns", "exec", host, "sh", "-c", f"{hide} && exec {start}"],
        cwd="/",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert any("runtime started" in line for line in process.stdout)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that only the driver sees."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def hosts(hidden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Three hosts: a head without CPUs, and two of one CPU that don't see the folder."""
    name = f"dts{os.getpid()}"
    processes: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(namespaces(name, 3))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        try:
            # In one folder nodes that start at once give their sockets the same names; paths of
            # sockets must be short.
            folders = [tmp_path_factory.mktemp("h") / "t" for _ in hosts]
            at = "--head --num-cpus=0 --port=6379 --node-ip-address=10.77.0.1"
            at += f" --include-dashboard=false --temp-dir={folders[0]}"
            processes.append(ray_start(hosts[0], at))
            wait_until_up(processes[0])
            for number, (host, folder) in enumerate(zip(hosts[1:], folders[1:], strict=True), 2):
                at = f"--address=10.77.0.1:6379 --num-cpus=1 --node-ip-address=10.77.0.{number}"
                at += f" --temp-dir={folder}"
                processes.append(ray_start(host, at, hidden=hidden))
            for process in processes[1:]:
                wait_until_up(process)
            yield hosts
        finally:
            heads = [psutil.Process(process.pid) for process in processes]
            started = [child for head in heads for child in head.children(recursive=True)]
            for process in reversed(processes):
                process.terminate()
            for left in psutil.wait_procs(started, timeout=3)[1]:
                left.kill()
            for process in processes:
                process.communicate(timeout=30)


def run_on(host: str, hidden: Path, results: Path) -> subprocess.CompletedProcess[str]:
    """Run `script.py` of the hidden folder as the driver, on a host that sees the folder."""
    net = "from torch import nn\n\ndef net():\n    return nn.Linear(2, 1)\n"
    (hidden / "afar.py").write_text(net)
    command = (sys.executable, hidden / "script.py", "10.77.0.1:6379", results, hidden)
    return subprocess.run(
        ["ip", "netns", "exec", host, *command],
        cwd=results.parent,
        env=without_ray(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_two_hosts_exchange_with_modules_that_only_the_driver_has(
    hosts: list[str], hidden: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r"
    (hidden / "script.py").write_text(SCRIPT)
    done = run_on(hosts[0], hidden, results)
    assert done.returncode == 0, done.stderr
    assert "using Ray at 10.77.0.1:6379: 3 nodes, 2 CPUs" in done.stderr
    trial = pd.read_parquet(results / "trials").iloc[0]
    assert (trial["status"], trial["placement"], trial["hosts"]) == ("ok", "strict_spread", 2)
    assert json.loads(trial["environment"])["NCCL_ALGO"] == "Ring"
    ranks = pd.read_parquet(results / "ranks")
    assert ranks["node_id"].nunique() == 2
    assert ranks["device"].notna().all()


TRAIN = """
import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from afar import net

parser = argparse.ArgumentParser()
parser.add_argument("--hidden")
assert not os.listdir(parser.parse_args().hidden), "this host sees the driver's files"
assert os.environ["LOCAL_RANK"] == "0" and os.environ["GROUP_RANK"] == os.environ["RANK"]
assert os.environ["GROUP_WORLD_SIZE"] == "2"
distributed.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.ones(8, 2)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_training_script_and_its_module_travel_to_hosts_without_them(
    hosts: list[str], hidden: Path, tmp_path: Path
) -> None:
    (hidden / "train.py").write_text(TRAIN)
    text = SCRIPT[: SCRIPT.index("@dataclass")].replace("from afar import net\n", "")
    script = "workloads.Script(HIDDEN + '/train.py', arguments=('--hidden', HIDDEN))"
    text += SCRIPT[SCRIPT.index("sweep = Sweep(") :].replace("Small()", script)
    text = text.replace("Resources, Sweep\n", "Resources, Sweep, workloads\n")
    (hidden / "script.py").write_text(text)
    done = run_on(hosts[0], hidden, tmp_path / "r")
    assert done.returncode == 0, done.stderr
    trial = pd.read_parquet(tmp_path / "r" / "trials").iloc[0]
    assert (trial["status"], trial["semantics"], trial["hosts"]) == ("ok", "exact", 2), done.stderr

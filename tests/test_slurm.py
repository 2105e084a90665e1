"""The job file of Slurm under a real one: nodes with networks and processes of their own."""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from tests.cluster.test_hosts import ip, namespaces
from tests.conftest import without_ray
from tests.pages import ROOT

pytestmark = pytest.mark.ray

CONF = """
ClusterName=test
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/ctl.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
ReturnToService=2
KillWait=5
FirstJobId={first}
NodeName=node[1-2] NodeAddr=10.77.0.[1-2] CPUs=1 RealMemory=1000
PartitionName=batch Nodes=ALL Default=YES State=UP
"""
SWITCHES = """
SwitchName=leaf1 Nodes=node1
SwitchName=leaf2 Nodes=node2
SwitchName=spine Switches=leaf[1-2]
"""
HOSTS = "127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n10.77.0.254 ctl\n"

TRIALS = 16
TRIAL_S = 12
SIGNAL_S = 10
MARGIN_S = SIGNAL_S + 65
"""Slurm sends its signal up to a minute early."""

SWEEP = f'''
"""Does a sweep outlive its nodes and its time limit?"""
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, heads=1, width=8, sequence=8),
    axes={{
        "workers": [2],
        "micro_batch": [*range(1, {TRIALS + 1})],
        "placement": ["strict_spread"],
    }},
    measure=Measure(
        repeats=1, half_width=None, canary=False, min_seconds={TRIAL_S}, max_steps=10**6
    ),
    resources=Resources(cpus_per_worker=1),
)
'''


def lines_of(log: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Give the lines of a log, as they come, until a process ends."""
    log.touch()
    # For `tail` a process lives until it is waited for.
    threading.Thread(target=process.wait, daemon=True).start()
    command = ["tail", "--lines=+1", "--follow", f"--pid={process.pid}", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        yield from tail.stdout


@dataclass(frozen=True)
class Slurm:
    """A controller and two nodes of one CPU, node1 and node2."""

    folder: Path
    network: str
    """Of the controller."""

    jobs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *words: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.network}", *words]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"SLURM_CONF": f"{self.folder}/slurm.conf", "HOME": str(self.folder), "PATH": path}
        return without_ray(**own, PYTHONPATH=str(ROOT), MARGIN_S=str(MARGIN_S))

    def update(self, *words: str) -> None:
        command = self.command("scontrol", "update", *words)
        subprocess.run(command, env=self.environment, check=True)

    def submit(self, log: Path, *words: str) -> tuple[subprocess.Popen[bytes], str]:
        """Queue a job; give its number, and a process that ends with it, with its exit code."""
        command = self.command(
            "stdbuf", "-oL", "sbatch", "--wait", "--parsable", f"--output={log}", *words
        )
        job = subprocess.Popen(
            command, cwd=log.parent, env=self.environment, stdout=subprocess.PIPE
        )
        self.jobs.append(job)
        assert job.stdout is not None
        return job, job.stdout.readline().decode().strip()

    def start(self, network: str, name: str, *daemon: str) -> subprocess.Popen[bytes]:
        """Start a daemon on a host of its own; process 1 there is a shell, which ends with it."""
        host = f'hostname {name}; mount --bind {self.folder}/hosts /etc/hosts; "$@" & wait'
        own = ("--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--mount")
        command = ["nsenter", f"--net=/run/netns/{network}", "unshare", *own, "sh", "-c", host]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, "sh", *daemon], env=self.environment, stderr=log)


def munged(folder: Path) -> Sequence[str]:
    (folder / "key").write_bytes(os.urandom(64))
    (folder / "key").chmod(0o600)
    paths = {"key-file": "key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "s"}
    options = [f"--{option}={folder}/{name}" for option, name in paths.items()]
    return ["munged", "--foreground", "--force", *options]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Slurm on three hosts of this machine."""
    missing = [name for name in ("munged", "slurmctld", "slurmd") if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {missing[0]} here: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "node1", "node2"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, first=os.getpid()))
    (folder / "topology.conf").write_text(SWITCHES)
    (folder / "hosts").write_text(HOSTS)
    name = f"dts{os.getpid()}"
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(namespaces(name, 2))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
        ip(f"-n {name}b addr add 10.77.0.254/24 dev br0")
        slurm = Slurm(folder, network=f"{name}b")
        daemons = [("munge", f"{name}b", munged(folder), "Created socket")]
        daemons.append(("ctl", f"{name}b", ["slurmctld", "-D"], "Running as primary"))
        for number, host in enumerate(hosts, 1):
            slurmd = ["slurmd", "-D", "-N", f"node{number}"]
            daemons.append((f"node{number}", host, slurmd, "slurmd started"))
        for name, network, command, started in daemons:
            process = slurm.start(network, name, *command)
            stack.callback(process.wait)
            # All that runs on its host ends with process 1 there.
            stack.callback(process.kill)
            lines = [*until(started, lines_of(folder / f"{name}.log", process))]
            if started not in "".join(lines[-1:]):
                pytest.skip(f"{command[0]} does not start here: {''.join(lines[-1:]).strip()}")
        yield slurm
        for job in slurm.jobs:
            job.kill()


def until(text: str, lines: Iterator[str]) -> Iterator[str]:
    """Give lines up to the first one with a text."""
    for line in lines:
        yield line
        if text in line:
            return


def test_a_chain_of_jobs_outlives_a_lost_node_and_a_time_limit_with_every_row_once(
    slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    log = tmp_path / "log"
    file = str(ROOT / "clusters/slurm.sbatch")
    begun = time.monotonic()
    job, number = slurm.submit(log, "--time=60", f"--signal=B:USR1@{SIGNAL_S}", file, "sweep.py")
    lines = lines_of(log, job)
    first = "".join(until("[1/", lines))
    assert f"using Ray at 10.77.0.1:{20000 + int(number) % 10000}: 2 nodes, 2 CPUs" in first, first
    start_s = time.monotonic() - begun
    # Slurm requeues the job itself. The next link has room for some trials, not for all.
    slurm.update("nodename=node2", "state=down", "reason=test")
    slurm.update("nodename=node2", "state=resume")
    limit_s = 1.25 * start_s + MARGIN_S + 3 * TRIAL_S
    slurm.update(f"jobid={number}", f"timelimit={math.ceil(limit_s / 60)}")
    second = "".join(until("left of those planned", lines))
    assert re.search(r"dtsweep: --max-hours 0\.\d+ is", second), second
    slurm.update(f"jobid={number}", "timelimit=60")
    third = "".join(lines)
    assert job.wait() == 0, first + second + third

    trials = pd.read_parquet(tmp_path / "results/sweep/trials")
    measured = trials[trials["status"] == "ok"]
    assert sorted(measured["micro_batch"]) == [*range(1, TRIALS + 1)]
    assert {*measured["partition"]} == {"batch"}
    # By the topology of these nodes; the switches of a link are not the machine of its rows.
    assert {*measured["switches"]} == {2}
    assert measured["env_id"].nunique() == 1
    ranks = pd.read_parquet(tmp_path / "results/sweep/ranks")
    assert {*ranks["switch"]} == {"spine.leaf1", "spine.leaf2"}
    token = slurm.folder / ".ray/auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in first + second + third


def test_a_mistake_of_the_user_is_one_line_and_no_link_follows(
    slurm: Slurm, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    job, _ = slurm.submit(log, str(ROOT / "clusters/slurm.sbatch"), "swep.py")
    assert job.wait() == 2
    (line,) = log.read_text().splitlines()
    assert "swep.py" in line

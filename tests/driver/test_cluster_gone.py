"""Clusters that stop, or lose their head, while a run uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import dtsweep
from dtsweep.cluster.heartbeat import HEAD_SILENT_S
from tests.conftest import without_ray
from tests.processes import begun, read_until
from tests.three_nodes import SWEEP, folder

pytestmark = pytest.mark.ray
__all__ = ["folder"]  # a fixture


GONE = (
    "dtsweep: Ray at {} has stopped, or can't be reached any more; what was done is stored; "
    "the same command goes on"
)


def test_a_cluster_that_stops_ends_the_run_in_a_line_with_what_was_done_stored(
    folder: Path, tmp_path: Path
) -> None:
    from ray.cluster_utils import Cluster

    results, temporary = tmp_path / "r", tmp_path / "temporary"
    temporary.mkdir()
    (folder / "sweep.py").write_text(SWEEP.replace("min_steps=5", "min_steps=40, max_seconds=30"))
    sizes = "micro_batch=" + ",".join(map(str, range(1, 9)))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    address, session = cluster.address, cluster.head_node.get_session_dir_path()
    process = begun(
        *("run", "sweep.py", "--address", address, "--results", results),
        *("--set", "workers=1", "--set", sizes, "--set", "workload.slow=true"),
        folder=folder,
        TMPDIR=str(temporary),
    )
    try:
        talk = read_until("ms/step", process)
        cluster.shutdown()
        shown, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
        cluster.shutdown()
        # Ray leaves the reader of its logs behind where the head is killed first.
        for left in psutil.process_iter(["cmdline"]):
            if any(session in word for word in left.info["cmdline"] or ()):
                left.kill()
    last = rest.splitlines()[-1]
    assert (process.returncode, last) == (4, GONE.format(address)), talk + rest
    assert "Traceback" not in rest
    assert [path.name for path in temporary.iterdir()] == []
    # What Ray is asked at that moment may never come back: then nothing is reported, and all is
    # stored alike.
    assert "Frontier" in shown or not shown
    assert "ok" in dtsweep.load(results)["status"].tolist()


SILENT = """
from dtsweep.cli import main
from dtsweep.cluster import heartbeat

heartbeat.HEAD_SILENT_S = SECONDS
main()
"""


# Stopped, its port still takes connections, and nothing that Ray is asked comes back. Killed, it is
# silent from the first: once is enough to see that Ray waits longer.
@pytest.mark.parametrize(
    ("number", "silent_s"), [(signal.SIGKILL, 12.0), (signal.SIGSTOP, HEAD_SILENT_S)]
)
def test_a_head_that_dies_as_a_run_begins_ends_it_in_a_line_before_ray_does(
    folder: Path, number: int, silent_s: float
) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    address = cluster.address
    head = cluster.head_node.all_processes["gcs_server"][0].process.pid
    command = [sys.executable, "-c", SILENT.replace("SECONDS", str(silent_s))]
    process = subprocess.Popen(
        [*command, "run", "sweep.py", "--address", address, "--set", "workers=1"],
        cwd=folder,
        env=without_ray(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "using Ray" in read_until("using Ray", process)
        # Alone: the nodes stay, as where the head is another machine.
        os.kill(head, number)
        _, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
        if number == signal.SIGSTOP:
            os.kill(head, signal.SIGCONT)
        cluster.shutdown()
    assert (process.returncode, GONE.format(address) in rest) == (4, True), rest
    assert "Traceback" not in rest

"""What the sweep beside it is struck by.

Ranks that import this are killed on the first one's node.
"""

import os
import signal
import time
from pathlib import Path

import psutil
import ray
from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

NOTICE_S = 2.0


def is_first(strike: str) -> bool:
    """True if this strike has not been made yet; it has now."""
    mark = Path(os.environ["DTSWEEP_TEST_MARK"], strike)
    if mark.exists():
        return False
    mark.touch()
    return True


def take_node_back() -> None:
    """Give notice as the owner of a spot machine does, and train on until the node is gone."""
    give_notice("notice", NOTICE_S)
    time.sleep(60)


def give_notice(mark: str, notice_s: float) -> None:
    """Have the owner of this node say when it takes it back.

    The mark tells the test which one it is.
    """
    context = ray.get_runtime_context()
    until_ms = int((time.time() + notice_s) * 1000)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    GcsClient(context.gcs_address).drain_node(context.get_node_id(), reason, "spot", until_ms)
    Path(os.environ["DTSWEEP_TEST_MARK"], mark).write_text(context.get_node_id())


def send(number: int, process: str) -> None:
    """Send a signal to this cluster's one process with such a title."""
    mark = os.environ["DTSWEEP_TEST_MARK"]
    # Of a process that has ended and of one that is not ours to read, these are None.
    (found,) = [
        other
        for other in psutil.process_iter(["cmdline", "environ"])
        if f"ray::{process}" in " ".join(other.info["cmdline"] or ())
        and (other.info["environ"] or {}).get("DTSWEEP_TEST_MARK") == mark
    ]
    found.send_signal(number)


if "RANK" in os.environ:
    sick, here = (
        Path(os.environ["DTSWEEP_TEST_MARK"], "import"),
        ray.get_runtime_context().get_node_id(),
    )
    if is_first("import"):
        sick.write_text(here)
    if sick.read_text() == here:
        os.kill(os.getpid(), signal.SIGKILL)

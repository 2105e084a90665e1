"""The command, on two nodes of one machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtsweep.doctor.link_tests import SIZES
from dtsweep.provenance.versions import all_versions
from tests.conftest import Command
from tests.pages import ROOT
from tests.schemas import check_output


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def beside_the_machines_own(problems: list[str]) -> list[str]:
    """Leave out what a busy machine has: one of two equal nodes may be slow, or full."""
    own = ("reaches", "of memory are free", "make room", "shared memory", "other processes")
    return [problem for problem in problems if not any(words in problem for words in own)]


@pytest.mark.ray
def test_the_command_looks_at_every_node_and_between_them(
    two_nodes: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    done = dtsweep_command(
        *("doctor", ROOT / "sweeps/own_model.py", "--address", two_nodes),
        *("--results", "kept", "--json"),
        folder=tmp_path,
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    assert ": 2 nodes, 3 CPUs" in done.stderr
    found = json.loads(done.stdout)
    check_output("doctor", found)
    first, *_ = found["untried"]
    assert first == {"feature": "sync=ddp", "wanted": "cluster", "tried": "one GPU"}
    assert beside_the_machines_own(found["problems"]) == []
    assert len(found["nodes"]) == len(found["hosts"]) == 2
    for node in found["nodes"]:
        assert node["versions"] == all_versions()
        assert all(speed["measured_flops_per_s"] > 1e8 for speed in node["rates"].values())
    for host in found["hosts"]:
        # One machine has one clock: what is seen of a difference is the error of asking.
        assert abs(host["clock_offset_s"]) <= host["clock_error_s"] + 1e-3
    # Two nodes of one machine have its name, and are told apart all the same.
    assert (
        len({host["node"] for host in found["hosts"]} | {node["node"] for node in found["nodes"]})
        == 2
    )
    assert [host["has_driver"] for host in found["hosts"]].count(True) == 1
    inside, between = found["links"]
    assert (inside["is_within"], between["is_within"]) == (True, False)
    assert len(set(between["node_ids"])) == 2
    for link in (inside, between):
        assert [row["size_bytes"] for row in link["all_reduces"]] == [*SIZES]
        assert link["backend"] == "gloo"
        assert link["all_reduces"][-1]["busbw_bytes_per_s"] > 1e6
    page = (ROOT / "docs/doctor.md").read_text()
    for row in (found, found["nodes"][0], found["hosts"][0], inside, inside["all_reduces"][0]):
        assert [key for key in row if f"`{key}`" not in page] == []
    assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == []


@pytest.mark.ray
def test_what_is_wrong_is_a_line_each_and_no_traceback(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "file").touch()
    options = ("--address", "local", "--results", "file/below", "--json")
    done = dtsweep_command("doctor", *options, folder=tmp_path, GLOO_SOCKET_IFNAME="ib7")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "Unhandled" not in done.stderr
    found = json.loads(done.stdout)
    place, pair = beside_the_machines_own(found["problems"])
    assert "results: can't write results in file/below: " in place
    assert re.search(r"can't all-reduce: .*ib7.*\(GLOO_SOCKET_IFNAME\)$", pair)
    assert len(found["nodes"]) == 1
    assert found["links"] == []

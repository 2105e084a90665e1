from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtsweep.provenance.versions import versions
from tests.conftest import Command


@pytest.mark.ray
def test_the_command_looks_at_every_node_of_the_cluster(tmp_path: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("doctor", "--address", "local", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "using a private Ray on this machine: 1 node" in done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    (node,) = found["nodes"]
    assert node["versions"] == versions()
    assert all(speed["measured_flops_per_s"] > 1e8 for speed in node["rates"].values())

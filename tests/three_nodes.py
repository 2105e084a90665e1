"""A cluster of three small nodes on this machine, and a sweep that needs its module there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SWEEP = '''
"""Does it run where neither the sweep file nor its module is?"""
from dataclasses import dataclass

from dtsweep import Measure, Resources, Sweep
from beside import net

@dataclass(frozen=True)
class Small:
    slow: bool = False
    algorithm: str = ""

    def build(self):
        import os
        assert os.environ.get("NCCL_ALGO", "") == self.algorithm
        return net()

    def batch(self, samples, device):
        import time
        import torch
        if self.slow:
            time.sleep(0.05)
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={"workers": [1, 2, 5], "placement": ["strict_spread", "strict_pack"]},
    measure=Measure(repeats=1, half_width=None, canary=False, min_seconds=0, min_steps=5),
    resources=Resources(cpus_per_worker=1),
)
'''


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without CPUs and three nodes of one CPU."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own spelling
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep file with a module beside it."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "beside.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Linear(2, 1)\n"
    )
    return tmp_path

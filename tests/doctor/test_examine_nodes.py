"""All GPUs of a node are examined and exchange, each in a process; no GPU is needed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
import torch

from dtsweep.doctor.examine import Row, compare_with_peak, examine
from dtsweep.doctor.examine_nodes import examine_nodes, node_row
from dtsweep.doctor.link_tests import measure_links
from dtsweep.doctor.problems import find_problems
from dtsweep.hardware.gpu_place import GpuPlace
from dtsweep.provenance.versions import all_versions
from dtsweep.session.node_choice import Node
from tests.doctor.nodes import HERE, cpu_row, examined_gpu, gpu_row


def with_rate(gpu: int | str, tflops: float) -> Row:
    rates = {"bf16": compare_with_peak(tflops * 1e12, 989e12)}
    return gpu_row(rates=rates, gpus=[examined_gpu(gpu=gpu, rates=rates)])


def test_a_node_has_the_median_of_its_gpus_and_all_of_them_in_order() -> None:
    row = node_row([with_rate("10", 700), with_rate("2", 740), with_rate("0", 742)])
    assert row["rates"]["bf16"]["measured_flops_per_s"] == 740e12
    assert [gpu["gpu"] for gpu in row["gpus"]] == ["0", "2", "10"]
    assert row["unexamined"] == []


def test_one_gpu_that_torch_cannot_use_or_without_nvml_stands_for_its_node() -> None:
    row = node_row([with_rate(0, 740), gpu_row(misses_gpu=True, nvml=False)])
    assert (row["misses_gpu"], row["nvml"]) == (True, False)
    assert node_row([cpu_row()])["nvml"] is None


def test_gpus_that_did_not_answer_are_counted_and_a_silent_node_has_an_error() -> None:
    row = node_row([with_rate(0, 740)], reasons=["no answer", "no answer"])
    assert row["unexamined"] == ["2 of 3 GPUs were not examined: no answer"]
    assert node_row([], reasons=["no answer"]) == {"error": "no answer"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.slow
def test_a_node_that_was_promised_a_gpu_but_has_none_says_so() -> None:
    row = examine(with_gpu=True)
    assert (row["misses_gpu"], row["is_gpu"], row["nvml"], row["gpus"]) == (True, False, None, [])
    assert row["rates"].keys() == {"fp32", "bf16", "fp16"}
    assert row["versions"] == all_versions()


class StandIn:
    """Examiner on a machine without a GPU: Ray's third GPU is slow."""

    def examine(self, with_gpu: bool) -> Row:
        assert with_gpu
        (gpu,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return with_rate(gpu, 500 if gpu == "2" else 740)


class OnSlices:
    """Rank on a slice of the one GPU that there is."""

    def gpu(self) -> GpuPlace:
        return GpuPlace(node="gpu-1", pci_bus_id="0000:1b:00.0")


@pytest.fixture(scope="module")
def four_gpus() -> Iterator[list[Node]]:
    """A node of which Ray believes that it has four GPUs."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "num_gpus": 4, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False)
    yield [Node(node_id=node["NodeID"], resources=node["Resources"]) for node in ray.nodes()]
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.ray
def test_each_gpu_of_a_node_is_examined_once_and_the_slow_one_is_named(
    four_gpus: list[Node],
) -> None:
    (row,) = examine_nodes(four_gpus, examiner=StandIn)
    assert [gpu["gpu"] for gpu in row["gpus"]] == ["0", "1", "2", "3"]
    (problem,) = find_problems([row], driver_versions=HERE)
    assert problem.startswith("gpu-1: GPU 2: bf16 reaches 68% of the median of this node's GPUs")


@pytest.mark.ray
def test_ranks_on_one_gpu_are_a_problem_before_they_exchange(four_gpus: list[Node]) -> None:
    told: list[str] = []
    rows, (problem,) = measure_links(four_gpus, tell=told.append, link_rank=OnSlices)
    assert rows == []
    assert "can't all-reduce: ranks 0 and 1 on gpu-1 have the same GPU (0000:1b:00.0)" in problem
    assert told[0].startswith("timing all-reduces of 4 ranks within node ")

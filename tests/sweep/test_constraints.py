"""Points that can't be measured: each entry of `CONSTRAINTS`, where it applies and where not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.constraints import CONSTRAINTS, Harness, impossible
from dtsweep.sweep.mode_info import OwnMode
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import AXES, DEFAULTS
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.workloads import Gpt
from dtsweep.workloads.own import Script

HARNESSES = ("ray", "torchrun", "in_process")


@dataclass(frozen=True)
class Own:
    """A workload with an optimizer of its own."""

    def optimizer(self, parameters: Any, learning_rate: float) -> Any: ...


@dataclass(frozen=True)
class Forked:
    """A workload whose passes take one branch or another."""

    ddp_options: ClassVar = {"find_unused_parameters": True}


TOO_OLD = "precision tf32 needs GPUs of compute capability 8.0 or higher, here: {}; use fp32"


def other_than_default(field: str) -> Any:
    default = DEFAULTS[field]
    if AXES[field].choices:
        return next(choice for choice in AXES[field].choices if choice != default)
    if isinstance(default, bool):
        return not default
    return 0.5 if AXES[field].below == 1 else AXES[field].most or 4


def test_a_field_that_the_mode_does_not_read() -> None:
    for mode, info in MODES.items():
        for field in MODE_FIELDS:
            point = Point(sync=mode, workers=4, **{field: other_than_default(field)})
            if field in info.reads:
                assert point.unread_field is None
            else:
                assert impossible(point) == f"{mode} has no {field}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_mode_carries_a_compression_or_has_its_reason_not_to(mode: str, name: str) -> None:
    info, carries = COMPRESSIONS[name], MODES[mode].carries
    reason = None
    if not carries:
        reason = f"{mode} has no place for compression: what it exchanges is not in dtsweep's hands"
    elif info.exchange not in carries:
        reason = f"{mode} adds up what travels on its way, which payloads of {name} can't be"
    elif info.needs_matrices and MODES[mode].exchanges_pieces:
        reason = f"{name} needs whole matrices, {mode} exchanges pieces of them"
    assert impossible(Point(sync=mode, compression=name)) == reason


def test_momentum_of_an_optimizer_without_state() -> None:
    averaged = Point(sync="local_sgd", local_momentum="average")
    assert impossible(averaged) == (
        "optimizer=sgd has no state, so local_momentum=average is keep; use local_momentum=keep"
    )
    assert impossible(replace(averaged, optimizer="momentum")) is None
    assert impossible(replace(averaged, workload=Own())) is None


NODE_MODES = [name for name, mode in MODES.items() if mode.reads.get("node_size", 0) is None]


@pytest.mark.parametrize("mode", NODE_MODES)
def test_nodes_that_are_not_all_full(mode: str) -> None:
    for size in (None, 1, 2, 3, 4, 8):
        reason = f"node_size={size} does not divide workers=4; use a divisor"
        found = impossible(Point(sync=mode, workers=4, node_size=size))
        assert found == (reason if size in (3, 8) else None)


def test_passes_that_leave_parameters_out_where_these_are_in_shards() -> None:
    reason = (
        "{} needs passes that use every parameter; "
        "Forked has find_unused_parameters in its ddp_options; use sync=ddp"
    )
    for mode, info in MODES.items():
        found = impossible(Point(sync=mode, workload=Forked()))
        assert found == (reason.format(mode) if info.shards else None)
    assert impossible(Point(sync="fsdp", workload=Own())) is None


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (Point(sync="parameter_server"), "parameter_server needs Ray"),
        (Point(workers=3), "in this process there is one worker, not 3"),
        (Point(environment={"A": "1"}), "an env. axis needs worker processes of their own"),
        (Point(sync="local_sgd"), None),
    ],
)
def test_a_point_of_worker_processes_on_ray_in_this_process(
    point: Point, reason: str | None
) -> None:
    assert impossible(point, Harness(name="in_process")) == reason
    by_torchrun = impossible(point, Harness(name="torchrun"))
    assert (by_torchrun is not None) == (point.sync == "parameter_server")
    assert impossible(point) is None


@pytest.mark.parametrize(
    ("harness", "reason"),
    [
        ({"has_gpus": False}, "precision tf32 needs a GPU; use fp32"),
        ({"has_gpus": None}, None),
        ({"has_gpus": True}, None),
        ({"compute_capability": (7, 0)}, TOO_OLD.format("7.0")),
        ({"compute_capability": (7, 5)}, TOO_OLD.format("7.5")),
        ({"compute_capability": (8, 0)}, None),
        ({"compute_capability": (12, 0)}, None),
    ],
)
def test_a_precision_that_there_is_no_gpu_for(harness: dict[str, Any], reason: str | None) -> None:
    on = Harness(**{"has_gpus": True} | harness)
    found = {name: impossible(Point(precision=name), on) for name in PRECISIONS}
    assert found == {"fp32": None, "bf16": None, "fp16": None, "tf32": reason}


@dataclass(frozen=True)
class Prepared:
    """A workload of which two workers share a model."""

    own_mode = OwnMode(semantics="exact", model_parallel=2)

    def prepare(self, model: Any, job: Any) -> Any:
        raise AssertionError


@dataclass(frozen=True)
class Stepping(Prepared):
    """One with a step of its own, and no loss."""

    own_mode = OwnMode(semantics="exact")

    def train_step(self, model: Any, optimizer: Any, batches: Any, mark: Any) -> Any:
        raise AssertionError


@dataclass(frozen=True)
class Weighing:
    """A workload that weighs its batches."""

    def weight(self, batch: Any) -> Any:
        raise AssertionError


ZERO_BUBBLE: dict[str, Any] = {"pipeline_parallel": 2, "pipeline_schedule": "zero_bubble"}
BF16_SHARDS: dict[str, Any] = {
    "precision": "bf16",
    "shard_precision": "bf16",
    "tensor_parallel": 2,
}
INTERLEAVED: dict[str, Any] = {"pipeline_parallel": 2, "pipeline_schedule": "interleaved"}
EXPERTS = Script("/train.py", names={"expert_parallel": "ep"}, args={"ep": 2})
PINNING = Script("/train.py", loader={"pin_memory": True})

ALONE: tuple[tuple[Point, Harness], ...] = (
    (Point(sync="own"), Harness()),
    (Point(sync="as_written", workers=3, workload=EXPERTS), Harness()),
    (Point(sync="own", workers=3, workload=Prepared()), Harness()),
    (Point(workload=Stepping()), Harness()),
    (Point(sync="own", precision="bf16", workload=Stepping()), Harness()),
    (Point(sync="ddp", sync_period=8), Harness()),
    (Point(workers=2, sequence_parallel=True), Harness()),
    (Point(pipeline_schedule="gpipe"), Harness()),
    (Point(workers=2, tensor_parallel=2, workload=Own()), Harness()),
    (Point(workers=3, tensor_parallel=3, workload=Gpt()), Harness()),
    (Point(workers=2, pipeline_parallel=2), Harness()),
    (Point(workers=2, accumulation=3, **INTERLEAVED), Harness()),
    (Point(workers=2, accumulation=2, workload=Weighing(), **INTERLEAVED), Harness()),
    (Point(slow_rank=2), Harness()),
    (Point(workers=2, accumulation=2, pipeline_parallel=2, slow_rank=2), Harness()),
    (Point(workers=2, sync="fsdp", **BF16_SHARDS, workload=Gpt()), Harness()),
    (Point(workers=2, sync="own", slow_rank=2, workload=Stepping()), Harness()),
    (Point(prefetch=4), Harness()),
    (Point(sync="as_written", loader_workers=1), Harness()),
    (Point(sync="federated", loader_workers=1), Harness()),
    (Point(copy_ahead=True), Harness(has_gpus=False)),
    (Point(sync="fsdp", compression="topk"), Harness()),
    (Point(sync="tree", compression="int8"), Harness()),
    (Point(sync="hierarchical", compression="powersgd"), Harness()),
    (Point(sync="local_sgd", local_momentum="reset"), Harness()),
    (Point(sync="gossip", workers=2, topology="exponential"), Harness()),
    (Point(overlap=False, bucket_bytes=1), Harness()),
    (Point(sync="hsdp", node_size=2), Harness()),
    (Point(sync="fsdp", shard_precision="bf16"), Harness()),
    (Point(sync="fsdp", offload=True), Harness(has_gpus=False)),
    (Point(sync="as_written", workload=PINNING), Harness(has_gpus=False)),
    (Point(sync="parameter_server", staleness=0, push_period=2), Harness()),
    (Point(sync="parameter_server", workers=2, drop_slowest=1), Harness()),
    (Point(sync="parameter_server", workers=2, staleness=0, drop_slowest=2), Harness()),
    (Point(sync="parameter_server", server_device="gpu"), Harness(has_gpus=False)),
    (Point(sync="hsdp", workload=Forked()), Harness()),
    (Point(optimizer="adam", workload=Own()), Harness()),
    (Point(precision="tf32"), Harness(has_gpus=False)),
    (Point(precision="tf32"), Harness(compute_capability=(7, 5))),
    (Point(sync="local_sgd", precision="fp16"), Harness()),
    (Point(fused=True, workload=Own()), Harness()),
    (Point(fused=True, sync="hsdp"), Harness()),
    (Point(sync="own", workers=2, compile=True, workload=Prepared()), Harness()),
    (Point(sync="zero1", compile=True, bucket_bytes=2**20 - 1), Harness()),
    (Point(workers=2, accumulation=2, compile=True, **ZERO_BUBBLE), Harness()),
    (Point(sync="ring", compile=True, bucket_bytes=1), Harness(has_compiler=False)),
    (Point(sync="parameter_server"), Harness(name="torchrun")),
    (Point(sync="hogwild"), Harness(has_gpus=True)),
    (Point(sync="hogwild", workers=2), Harness()),
    (Point(workers=2), Harness(name="in_process")),
    (Point(environment={"A": "1"}), Harness(name="in_process")),
)
"""For each constraint a point to which it applies, and no other."""


def test_every_constraint_is_met_by_a_point_that_is_possible_but_for_it() -> None:
    applying = [[entry for entry in CONSTRAINTS if entry.applies(*asked)] for asked in ALONE]
    assert applying == [[entry] for entry in CONSTRAINTS]
    assert all("{" not in str(impossible(*asked)) for asked in ALONE)


@pytest.mark.parametrize(
    ("point", "harness"),
    [
        (Point(sync="fsdp", shard_precision="bf16", precision="bf16"), Harness()),
        (Point(sync="fsdp", offload=True), Harness()),
        (Point(sync="fsdp", offload=True), Harness(has_gpus=True)),
        (Point(sync="gossip", workers=3, topology="exponential"), Harness()),
        (Point(bucket_bytes=2**20), Harness()),
        (Point(overlap=False), Harness()),
        (Point(sync="federated", pin_memory=True), Harness()),
        (Point(loader_workers=1, prefetch=4), Harness(has_gpus=False)),
        (Point(optimizer="adam", workload=object()), Harness()),
    ],
)
def test_a_point_next_to_a_constraint_is_possible(point: Point, harness: Harness) -> None:
    assert impossible(point, harness) is None


def test_a_plain_point_can_be_measured_everywhere() -> None:
    assert {impossible(Point(), Harness(name=name, has_gpus=False)) for name in HARNESSES} == {None}

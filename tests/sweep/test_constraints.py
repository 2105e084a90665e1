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


@pytest.mark.parametrize("mode", [name for name in NODE_MODES if name != "fsdp"])
def test_nodes_that_are_not_all_full(mode: str) -> None:
    for size in (None, 1, 2, 3, 4, 8):
        reason = f"node_size={size} does not divide workers=4; use a divisor"
        found = impossible(Point(sync=mode, workers=4, node_size=size))
        assert found == (reason if size in (3, 8) else None)


@pytest.mark.parametrize(
    ("workers", "size", "is_refused"),
    [(2, None, True), (3, None, True), (4, None, False), (4, 1, True), (4, 2, False), (4, 4, True)],
)
def test_blocks_that_stay_inside_nodes_need_several_nodes_of_several_workers(
    workers: int, size: int | None, *, is_refused: bool
) -> None:
    reason = (
        "reshard=node needs several nodes of several workers; use workers and node_size for that, "
        "at least 4 workers"
    )
    point = Point(sync="fsdp", reshard="node", workers=workers, node_size=size)
    assert impossible(point) == (reason if is_refused else None)


@pytest.mark.parametrize(
    ("sync", "fields", "reason"),
    [
        ("fsdp", {"reshard": "node"}, None),
        ("hsdp", {"reshard": "never"}, None),
        ("fsdp", {"reshard": "never"}, "fsdp that never reshards is fsdp_grad; use sync=fsdp_grad"),
        (
            "hsdp",
            {"reshard": "node"},
            "hsdp has its shards inside nodes already; leave reshard=node out, or use sync=fsdp",
        ),
        (
            "fsdp",
            {"node_size": 2},
            "fsdp reads node_size with reshard=node alone; set that, or leave node_size out",
        ),
    ],
)
def test_a_measurement_has_one_name(sync: str, fields: dict[str, Any], reason: str | None) -> None:
    assert impossible(Point(sync=sync, workers=4, **fields)) == reason


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
    assert found == {"fp32": None, "bf16": None, "tf32": reason}


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


BACKUP: dict[str, Any] = {"workers": 2, "staleness": 0, "drop_slowest": 1}

ALONE: tuple[tuple[Point, Harness], ...] = (
    (Point(sync="own"), Harness()),
    (Point(sync="own", workers=3, workload=Prepared()), Harness()),
    (Point(workload=Stepping()), Harness()),
    (Point(sync="own", precision="bf16", workload=Stepping()), Harness()),
    (Point(sync="ddp", sync_period=8), Harness()),
    (Point(slow_rank=2), Harness()),
    (Point(workers=2, sync="own", slow_rank=2, workload=Stepping()), Harness()),
    (Point(balance="static"), Harness()),
    (Point(sync="fsdp", compression="topk"), Harness()),
    (Point(sync="tree", compression="int8", compression_coding="zstd"), Harness()),
    (Point(sync="hierarchical", compression="powersgd"), Harness()),
    (Point(sync="local_sgd", local_momentum="reset"), Harness()),
    (Point(sync="gossip", workers=2, topology="exponential"), Harness()),
    (Point(overlap=False, bucket_bytes=1), Harness()),
    (Point(sync="hsdp", node_size=2), Harness()),
    (Point(sync="fsdp", reshard="never"), Harness()),
    (Point(sync="hsdp", workers=4, reshard="node"), Harness()),
    (Point(sync="fsdp", workers=4, node_size=2), Harness()),
    (Point(sync="fsdp", workers=2, reshard="node"), Harness()),
    (Point(sync="fsdp", shard_precision="bf16"), Harness()),
    (Point(sync="fsdp", offload=True), Harness(has_gpus=False)),
    (Point(sync="parameter_server", staleness=0, push_period=2), Harness()),
    (Point(sync="parameter_server", workers=2, drop_slowest=1), Harness()),
    (Point(sync="parameter_server", workers=2, staleness=0, drop_slowest=2), Harness()),
    (Point(sync="parameter_server", replicas=2, **BACKUP), Harness()),
    (Point(sync="parameter_server", server_device="gpu"), Harness(has_gpus=False)),
    (Point(sync="hsdp", workload=Forked()), Harness()),
    (Point(optimizer="adam", workload=Own()), Harness()),
    (Point(precision="tf32"), Harness(has_gpus=False)),
    (Point(precision="tf32"), Harness(compute_capability=(7, 5))),
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
        (Point(optimizer="adam", workload=object()), Harness()),
    ],
)
def test_a_point_next_to_a_constraint_is_possible(point: Point, harness: Harness) -> None:
    assert impossible(point, harness) is None


def test_a_plain_point_can_be_measured_everywhere() -> None:
    assert {impossible(Point(), Harness(name=name, has_gpus=False)) for name in HARNESSES} == {None}

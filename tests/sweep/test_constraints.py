"""Points that can't be measured: each entry of `CONSTRAINTS`, where it applies and where not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dtsweep.sweep.compressions import (
    COMPRESSIONS,
)
from dtsweep.sweep.constraints import CONSTRAINTS, Harness, impossible
from dtsweep.sweep.mode_info import OwnMode
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import AXES, DEFAULTS, Point
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


def other_than_default(field: str) -> Any:
    if AXES[field].choices:
        return next(choice for choice in AXES[field].choices if choice != DEFAULTS[field])
    if isinstance(DEFAULTS[field], bool):
        return not DEFAULTS[field]
    if AXES[field].below == 1:
        return 0.5
    return AXES[field].most or 4


def test_a_field_that_the_mode_does_not_read() -> None:
    unread = {
        (mode, field): Point(sync=mode, workers=4, **{field: other_than_default(field)})
        for mode, info in MODES.items()
        for field in MODE_FIELDS
        if field not in info.reads
    }
    assert {key: impossible(point) for key, point in unread.items()} == {
        (mode, field): f"{mode} has no {field}" for mode, field in unread
    }
    read = [
        Point(sync=mode, workers=4, **{field: other_than_default(field)})
        for mode, info in MODES.items()
        for field in info.reads
    ]
    assert [point.unread_field for point in read] == [None] * len(read)


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
    assert (
        impossible(averaged)
        == "optimizer=sgd has no state, so local_momentum=average is keep; use local_momentum=keep"
    )
    assert impossible(replace(averaged, optimizer="momentum")) is None
    assert impossible(replace(averaged, workload=Own())) is None


@pytest.mark.parametrize(
    "mode",
    [
        name
        for name, mode in MODES.items()
        if mode.reads.get("node_size", 0) is None and name != "fsdp"
    ],
)
def test_nodes_that_are_not_all_full(mode: str) -> None:
    found = {
        size: impossible(Point(sync=mode, workers=4, node_size=size))
        for size in (None, 1, 2, 3, 4, 8)
    }
    assert {size: reason for size, reason in found.items() if reason} == {
        3: "node_size=3 does not divide workers=4; use a divisor",
        8: "node_size=8 does not divide workers=4; use a divisor",
    }


def test_blocks_that_stay_inside_nodes_need_several_nodes_of_several_workers() -> None:
    reason = (
        "reshard=node needs several nodes of several workers; use workers and node_size for that, "
        "at least 4 workers"
    )
    found = {
        (workers, size): impossible(
            Point(sync="fsdp", reshard="node", workers=workers, node_size=size)
        )
        for workers, size in ((2, None), (3, None), (4, None), (4, 1), (4, 2), (4, 4))
    }
    assert {key for key, found_reason in found.items() if found_reason == reason} == {
        *((2, None), (3, None)),
        *((4, 1), (4, 4)),
    }
    assert found[4, None] is found[4, 2] is None


def test_a_measurement_has_one_name() -> None:
    found = {
        (mode, reshard): impossible(Point(sync=mode, workers=4, reshard=reshard))
        for mode in ("fsdp", "hsdp")
        for reshard in ("node", "never")
    }
    assert found == {
        ("fsdp", "node"): None,
        ("fsdp", "never"): "fsdp that never reshards is fsdp_grad; use sync=fsdp_grad",
        ("hsdp", "node"): "hsdp has its shards inside nodes already; leave reshard=node out, or "
        "use sync=fsdp",
        ("hsdp", "never"): None,
    }
    assert impossible(Point(sync="fsdp", workers=4, node_size=2)) == (
        "fsdp reads node_size with reshard=node alone; set that, or leave node_size out"
    )


def test_passes_that_leave_parameters_out_where_these_are_in_shards() -> None:
    found = {mode: impossible(Point(sync=mode, workload=Forked())) for mode in MODES}
    assert {mode for mode, reason in found.items() if reason} == {
        mode for mode, info in MODES.items() if info.shards
    }
    assert found["fsdp"] == (
        "fsdp needs passes that use every parameter; "
        "Forked has find_unused_parameters in its ddp_options; use sync=ddp"
    )
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
    ("has_gpus", "reason"),
    [(False, "precision tf32 needs a GPU; use fp32"), (None, None), (True, None)],
)
def test_a_precision_of_gpus_where_there_are_none(
    has_gpus: bool | None, reason: str | None
) -> None:
    found = {
        name: impossible(Point(precision=name), Harness(has_gpus=has_gpus)) for name in PRECISIONS
    }
    assert found == {"fp32": None, "bf16": None, "tf32": reason}


@pytest.mark.parametrize(
    ("capability", "is_refused"),
    [((7, 0), True), ((7, 5), True), ((8, 0), False), ((12, 0), False), (None, False)],
)
def test_a_precision_that_older_gpus_do_not_have(
    capability: tuple[int, int] | None, is_refused: bool
) -> None:
    harness = Harness(has_gpus=True, compute_capability=capability)
    refused = {name: impossible(Point(precision=name), harness) for name in PRECISIONS}
    assert {name for name, reason in refused.items() if reason} == (
        {"tf32"} if is_refused else set()
    )
    assert capability != (7, 5) or refused["tf32"] == (
        "precision tf32 needs GPUs of compute capability 8.0 or higher, here: 7.5; use fp32"
    )


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
    (
        Point(sync="parameter_server", workers=2, staleness=0, drop_slowest=1, replicas=2),
        Harness(),
    ),
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


def test_a_plain_point_can_be_measured_everywhere() -> None:
    assert {impossible(Point(), Harness(name=name, has_gpus=False)) for name in HARNESSES} == {None}

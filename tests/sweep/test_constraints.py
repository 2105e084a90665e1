"""Points that can't be measured: each entry of `CONSTRAINTS`, where it applies and where not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dtsweep.sweep.constraints import CONSTRAINTS, Harness, impossible
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS

HARNESSES = ("ray", "torchrun", "in_process")


@dataclass(frozen=True)
class Own:
    """A workload with an optimizer of its own."""

    def optimizer(self, parameters: Any, learning_rate: float) -> Any: ...


def harnesses_that_refuse(point: Point) -> set[str]:
    return {name for name in HARNESSES if impossible(point, Harness(name=name))}


def test_a_field_that_the_mode_does_not_read() -> None:
    reasons = {
        mode: [impossible(Point(sync=mode, **{field: 4})) for field in MODE_FIELDS]  # type: ignore[arg-type]
        for mode in MODES
    }
    assert reasons == {
        mode: [None if field in info.reads else f"{mode} has no {field}" for field in MODE_FIELDS]
        for mode, info in MODES.items()
    }


def test_another_optimizer_for_a_workload_that_has_its_own() -> None:
    reason = "Own has an optimizer of its own, the point's is not read"
    assert impossible(Point(optimizer="adam", workload=Own())) == reason
    assert impossible(Point(workload=Own())) is None
    assert impossible(Point(optimizer="adam", workload=object())) is None


@pytest.mark.parametrize(("has_gpus", "reason"), [(False, "precision tf32 needs a GPU"), (None, None), (True, None)])
def test_a_precision_of_gpus_where_there_are_none(has_gpus: bool | None, reason: str | None) -> None:
    found = {name: impossible(Point(precision=name), Harness(has_gpus=has_gpus)) for name in PRECISIONS}
    assert found == {"fp32": None, "bf16": None, "tf32": reason}


def test_a_mode_of_ray_under_another_harness() -> None:
    assert harnesses_that_refuse(Point(sync="parameter_server")) == {"torchrun", "in_process"}
    assert impossible(Point(sync="parameter_server"), Harness(name="torchrun")) == "parameter_server needs Ray"
    assert harnesses_that_refuse(Point(sync="local_sgd")) == set()


def test_several_workers_in_one_process() -> None:
    assert harnesses_that_refuse(Point(workers=3)) == {"in_process"}
    assert impossible(Point(workers=3), Harness(name="in_process")) == "in this process there is one worker, not 3"


def test_variables_of_worker_processes_where_there_are_none() -> None:
    point = Point(environment={"A": "1"})
    assert harnesses_that_refuse(point) == {"in_process"}
    assert impossible(point, Harness(name="in_process")) == "an env. axis needs worker processes of their own"


def test_the_first_constraint_that_applies_is_the_reason() -> None:
    point, harness = Point(sync="parameter_server", sync_period=8, workers=2), Harness(name="in_process")
    assert [entry.reason for entry in CONSTRAINTS if entry.applies(point, harness)] == [
        "{point.sync} has no {point.unread_field}",
        "{point.sync} needs Ray",
        "in this process there is one worker, not {point.workers}",
    ]
    assert impossible(point, harness) == "parameter_server has no sync_period"


def test_a_plain_point_can_be_measured_everywhere() -> None:
    assert {impossible(Point(), Harness(name=name, has_gpus=False)) for name in HARNESSES} == {None}

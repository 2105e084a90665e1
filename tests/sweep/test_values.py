"""Values in the types that they are declared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dtsweep import Sweep
from dtsweep.errors import SweepError
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.values import stored_fields, workload_fields


@dataclass(frozen=True)
class Net:
    width: int = 8
    dropout: float | None = None
    name: str = "net"
    sizes: list[int] | None = None


@dataclass(frozen=True)
class Partly:
    """Reads one of two fields."""

    kind: str = "a"
    of_a: int = 1
    of_b: int = 2

    def build(self) -> Any: ...

    def batch(self, samples: range, device: Any) -> Any: ...

    def loss(self, model: Any, batch: Any) -> Any: ...

    @property
    def unread_fields(self) -> tuple[str, ...]:
        return ("of_b",) if self.kind == "a" else ("of_a",)


def test_workloads_that_differ_in_what_is_not_read_are_one_point() -> None:
    axes = {"workload.kind": ["a", "b"], "workload.of_b": [2, 3], "workload.of_a": [1, 5]}
    found = [
        candidate.point.workload for candidate in candidates(Sweep(workload=Partly(), axes=axes))
    ]
    assert [(w.kind, w.of_a if w.kind == "a" else w.of_b) for w in found] == [
        ("a", 1),
        ("a", 5),
        ("b", 2),
        ("b", 3),
    ]
    assert stored_fields(found[0]) == {
        "workload_kind": "a",
        "workload_of_a": 1,
        "workload_of_b": None,
    }


def test_a_workload_field_keeps_to_its_annotation() -> None:
    given: dict[str, Any] = {"width": 4.0, "dropout": 1, "sizes": [1]}
    assert workload_fields(Net(**given)) == {
        "width": 4,
        "dropout": 1.0,
        "name": "net",
        "sizes": [1],
    }
    wide: Any = "wide"
    with pytest.raises(SweepError, match=r"workload\.width='wide' must be a whole number"):
        workload_fields(Net(width=wide))

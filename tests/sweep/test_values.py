"""Values in the types that they are declared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dtsweep.errors import SweepError
from dtsweep.sweep.values import workload_fields


@dataclass(frozen=True)
class Net:
    width: int = 8
    dropout: float | None = None
    name: str = "net"
    sizes: list[int] | None = None


def test_a_workload_field_keeps_to_its_annotation() -> None:
    given: dict[str, Any] = {"width": 4.0, "dropout": 1, "sizes": [1]}
    assert workload_fields(Net(**given)) == {"width": 4, "dropout": 1.0, "name": "net", "sizes": [1]}
    wide: Any = "wide"
    with pytest.raises(SweepError, match=r"workload\.width='wide' must be a whole number"):
        workload_fields(Net(width=wide))

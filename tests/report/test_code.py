"""The code of a recommendation names the same point."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dtsweep import Point, Resources, Sweep, workloads
from dtsweep.metrics.rows import point_row
from dtsweep.report.code import point_code, settings_of
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSION_FIELDS, COMPRESSIONS, reads_of
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import AXES, DEFAULTS, Axis, identity
from tests.analysis.test_recommend import launches
from tests.report.test_recommendation import said

POINTS = [
    Point(workers=2, micro_batch=4),
    Point(workers=2, micro_batch=4, accumulation=2, sync="zero1", optimizer="adamw"),
    Point(workers=2, micro_batch=4, bucket_bytes=2**20, clip_norm=0.1),
    Point(sync="local_sgd", sync_period=4),
    Point(compression="topk", compression_ratio=0.1),
]


def row_of(point: Point, **columns: Any) -> pd.Series[Any]:
    return pd.Series({**point.columns(), **columns}, dtype=object)


def row_of_sweep(axes: dict[str, Any], **variables: str) -> pd.Series[Any]:
    """The row of the only point of a sweep, as it is stored."""
    sweep = Sweep(
        workload=workloads.Gpt(layers=2, sequence=64),
        axes={name: [value] for name, value in axes.items()},
        resources=Resources(environment=variables),
    )
    (candidate,) = candidates(sweep)
    return pd.Series(point_row(sweep, candidate.point), dtype=object)


def other_value(axis: str) -> Any:
    """A value of an axis that is not its default."""
    default, choices = DEFAULTS[axis], AXES[axis].choices
    if choices:
        return next(choice for choice in reversed(choices) if choice != default)
    if isinstance(default, bool):
        return not default
    return 0.5 if 1 in (AXES[axis].most, AXES[axis].below) else 3


def point_with(axis: str) -> Point:
    """A point that sets an axis, of a mode and a compression that read it."""
    fields: dict[str, Any] = {"workers": 2}
    if axis in MODE_FIELDS:
        fields["sync"] = next(mode for mode in MODES if axis in MODES[mode].reads)
    if axis in COMPRESSION_FIELDS:
        fields["compression"] = next(name for name in COMPRESSIONS if axis in reads_of(name))
    return Point(**fields | {axis: other_value(axis)})


@pytest.mark.parametrize("point", POINTS)
def test_the_code_of_a_point_makes_the_same_point_in_a_narrow_terminal(point: Point) -> None:
    note = {"NOTE": "a long text that a terminal of eighty columns would break somewhere in it"}
    point = replace(point, environment=note)
    known: dict[str, Any] = {
        name: value for name, value in point.columns().items() if value is not None
    }
    text = said(launches("a", 100, **known | {"environment": json.dumps(note)}), width=80)
    made = eval(text.split("To use it: ")[1], {"Point": Point})
    assert identity(made) == identity(point)


def test_an_axis_that_nobody_has_written_code_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row_of(Point(workers=2), label_smoothing=norm) for norm in (1.5, None)]
    monkeypatch.setitem(AXES, "label_smoothing", Axis(meaning="Share of other labels."))
    monkeypatch.setitem(DEFAULTS, "label_smoothing", None)
    assert [point_code(row) for row in rows] == [
        "Point(workers=2, label_smoothing=1.5)",
        "Point(workers=2)",
    ]


def test_the_code_has_the_value_of_every_axis() -> None:
    for axis in AXES:
        row = row_of(point_with(axis))
        assert f"{axis}={settings_of(row)[axis]!r}" in point_code(row)


def test_variables_and_fields_of_the_workload_are_in_the_code_and_secrets_are_named() -> None:
    token = "hf_abcdefgh"
    axes = {"workers": 2, "env.NCCL_ALGO": "Ring", "workload.width": 64}
    row = row_of_sweep(axes, HF_TOKEN=token, OMP_DYNAMIC="true")
    variables = {"NCCL_ALGO": "Ring", "OMP_DYNAMIC": "true"}
    assert settings_of(row) == {"workers": 2, "environment": variables}
    code = point_code(row)
    assert eval(code, {"Point": Point}) == Point(workers=2, environment=variables)
    secret = "# variable HF_TOKEN is secret and stored as a hash: set it yourself"
    assert secret in code.splitlines()
    assert token not in code
    assert "hidden:" not in code
    words = code.replace("\n# ", " ")
    assert "of the workload Gpt, workload.layers=2, workload.width=64, " in words

"""From axes to points: products, draws, functions, the global batch, --set, reasons to skip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from ray import tune

from dtsweep.errors import SweepError
from dtsweep.sweep.axes import by_world, candidates, narrow, parse_setting
from dtsweep.sweep.mode_info import OwnMode
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Measure, Resources, Sweep


@dataclass(frozen=True)
class Net:
    width: int = 8
    heads: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")

    def build(self) -> Any: ...
    def batch(self, samples: range, device: Any) -> Any: ...
    def loss(self, model: Any, batch: Any) -> Any: ...


@dataclass(frozen=True)
class Shared(Net):
    """One of which two workers share a model."""

    own_mode = OwnMode(semantics="exact", model_parallel=2)

    def prepare(self, model: Any, job: Any) -> Any: ...


def sweep(axes: dict[str, Any], **settings: Any) -> Sweep:
    return Sweep(**{"workload": Net(), "axes": axes, **settings})


def points(axes: dict[str, Any], **settings: Any) -> list[Point]:
    found = candidates(sweep(axes, **settings))
    return [candidate.point for candidate in found if candidate.reason is None]


def reasons(axes: dict[str, Any], **settings: Any) -> list[str]:
    found = candidates(sweep(axes, **settings))
    return [candidate.reason for candidate in found if candidate.reason]


counts = st.integers(1, 12)


@hypothesis_settings(deadline=None)
@given(
    workers=st.lists(counts, min_size=1, max_size=3),
    micro_batch=counts,
    asked=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    by=st.sampled_from(["list", "function", "drawn", "micro_batch follows"]),
)
def test_an_effective_global_batch_is_the_one_asked_for_or_the_point_is_skipped_with_both_numbers(
    workers: list[int], micro_batch: int, asked: list[int], by: str
) -> None:
    batch: Any = {"micro_batch": [micro_batch], "global_batch": asked}
    forms: dict[str, dict[str, Any]] = {
        "list": batch,
        "function": batch | {"global_batch": lambda p: asked[p.workers % len(asked)]},
        "drawn": batch | {"global_batch": tune.choice(asked)},
        "micro_batch follows": batch
        | {"micro_batch": lambda p: max(1, p.global_batch // p.workers)},
    }
    samples = 4 if by == "drawn" else None
    found = candidates(sweep({"workers": workers, **forms[by]}, samples=samples))
    assert {candidate.point.workers for candidate in found} == set(workers)
    for candidate in found:
        if candidate.reason is None:
            assert type(candidate.point) is Point
            assert candidate.point.global_batch in asked
        else:
            wanted = candidate.overrides["global_batch"]
            assert wanted in asked
            assert wanted % (candidate.point.workers * candidate.point.micro_batch)
            assert str(wanted) in candidate.reason
    if by == "list":
        divisible = {(w, a) for w in workers for a in asked if a % (w * micro_batch) == 0}
        measured = {(c.point.workers, c.point.global_batch) for c in found if c.reason is None}
        assert measured == divisible


def test_the_last_axis_runs_fastest_and_the_same_point_counts_once() -> None:
    found = points({"workers": [1, 2], "micro_batch": [4, 8, 4.0], "learning_rate": [1, 1.0]})
    assert [(p.workers, p.micro_batch) for p in found] == [(1, 4), (1, 8), (2, 4), (2, 8)]
    found = points({"sync": ["local_sgd"], "sync_period": [None, 8], "workload.dropout": [0, 0.0]})
    assert [p.sync_period for p in found] == [8]


def test_workload_fields_and_variables_are_axes_and_none_leaves_a_variable_unset() -> None:
    found = points({"workload.width": [16, 32], "env.OMP_X": [None, 1, "a,b"]})
    assert [(p.workload.width, dict(p.environment)) for p in found] == [
        (width, environment)
        for width in (16, 32)
        for environment in ({}, {"OMP_X": "1"}, {"OMP_X": "a,b"})
    ]
    assert len({identity(p) for p in found}) == 6
    assert len(by_world(found)) == 3, "variables make a world, fields of the workload don't"


def test_a_function_sees_the_other_axes_and_the_functions_before_it() -> None:
    axes: dict[str, Any] = {"workers": [1, 2], "workload.width": [8, 16]}
    axes["micro_batch"] = lambda p: p.workload.width // p.workers
    axes["accumulation"] = lambda p: 32 // (p.workers * p.micro_batch)
    found = [(p.workers, p.micro_batch, p.accumulation) for p in points(axes)]
    assert found == [(1, 8, 4), (1, 16, 2), (2, 4, 4), (2, 8, 2)]


def test_a_mode_from_a_function_keeps_the_values_of_its_fields_and_takes_its_own_defaults() -> None:
    axes = {"workers": [1, 2], "sync": lambda p: "local_sgd" if p.workers > 1 else "ddp"}
    assert [(p.sync, p.sync_period) for p in points(axes)] == [("ddp", None), ("local_sgd", 8)]
    two = {"workers": [2], "sync_period": [2, 4], "sync": axes["sync"]}
    assert [p.sync_period for p in points(two)] == [2, 4]
    assert reasons({**axes, "sync_period": [4]}) == ["ddp has no sync_period"]


def test_impossible_points_are_skipped_with_their_reason_and_so_are_those_that_skip_names() -> None:
    class Own(Net):
        def optimizer(self, parameters: Any, learning_rate: float) -> Any: ...

    axes: dict[str, Any] = {"workers": [3], "micro_batch": [4], "global_batch": [100]}
    of_workers = "global_batch 100 is not a multiple of 3 workers × 4 samples"
    assert reasons(axes) == [of_workers]
    axes = {"workers": [4], "micro_batch": [4], "global_batch": [12]}
    of_groups = "global_batch 12 is not a multiple of 8 samples per pass"
    assert reasons(axes, workload=Shared()) == [of_groups]
    axes = {"sync": ["ddp", "parameter_server"], "staleness": [None, 2]}
    assert reasons(axes) == ["ddp has no staleness"]
    # An optimizer that the workload replaces is no axis.
    not_read = "Own has an optimizer of its own, the point's is not read"
    assert reasons({"optimizer": ["sgd", "adam"]}, workload=Own()) == [not_read]
    skip = {"skip": lambda p: "over 16 wide" if p.workload.width > 16 else None}
    assert reasons({"workload.width": [8, 16, 32]}, **skip) == ["over 16 wide"]
    assert [p.workload.width for p in points({"workload.width": [8, 16, 32]}, **skip)] == [8, 16]


def test_settings_of_a_compression_that_a_point_lacks_skip_it_as_those_of_another_mode_do() -> None:
    axes = {"compression": [None, "int8", "topk"], "compression_ratio": [None, 0.01, 0.1]}
    found = candidates(sweep(axes))
    without, of_int8 = (
        f"{name} has no compression_ratio"
        for name in ("a point without compression", "compression int8")
    )
    # Of topk None is 0.01: one point.
    assert [(c.point.compression, c.point.compression_ratio, c.reason) for c in found] == [
        *((None, None, None), (None, 0.01, without), (None, 0.1, without)),
        *(("int8", None, None), ("int8", 0.01, of_int8), ("int8", 0.1, of_int8)),
        *(("topk", 0.01, None), ("topk", 0.1, None)),
    ]


SPACES = {
    "micro_batch": tune.randint(1, 64),
    "accumulation": tune.quniform(1, 8, 1),
    "learning_rate": tune.loguniform(1e-4, 1e-1),
    "optimizer": tune.choice(["sgd", "adam", "adamw"]),
    "workload.dropout": tune.uniform(0, 0.5),
}


def test_search_spaces_draw_the_same_points_each_time_for_each_combination_of_the_lists() -> None:
    axes = {"workers": tune.grid_search([1, 2]), "sync": ["ddp", "local_sgd"], **SPACES}
    found = points(axes, samples=5)
    assert len(found) == 20
    assert found == points(axes, samples=5)
    assert found != points(axes, samples=5, seed=1)
    drawn: dict[Any, list[Any]] = {(p.workers, p.sync): [] for p in found}
    for p in found:
        of_point = (p.micro_batch, p.accumulation, p.learning_rate, p.optimizer, p.workload)
        drawn[p.workers, p.sync].append(of_point)
        assert 1 <= p.micro_batch < 64
        assert 1 <= p.accumulation <= 8
        assert 1e-4 <= p.learning_rate <= 1e-1
    assert drawn[1, "ddp"] == drawn[2, "local_sgd"], "modes are compared on the same draws"


@hypothesis_settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**40),
    samples=st.integers(1, 8),
    axis=st.sampled_from(sorted(SPACES)),
    more=counts,
)
def test_draws_of_an_axis_stay_when_another_axis_is_set_added_or_reordered_or_more_are_drawn(
    seed: int, samples: int, axis: str, more: int
) -> None:
    def draws(axes: dict[str, Any], count: int = samples, **settings: list[Any]) -> list[Any]:
        found = candidates(narrow(sweep(axes, samples=count, seed=seed), settings))
        return [attrgetter(axis)(candidate.point) for candidate in found]

    # The learning rate keeps draws from merging, where it isn't the one that is looked at.
    axes = {"workers": [1, 2], **{name: SPACES[name] for name in {"learning_rate", axis}}}
    one_worker = draws(axes)[:samples]
    assert draws(axes, workers=[1]) == one_worker
    assert draws(axes, workers=[1], precision=["bf16"]) == one_worker
    assert draws(dict(reversed(axes.items())), workers=[1]) == one_worker
    assert draws({**axes, **SPACES}, workers=[1]) == one_worker
    assert draws(axes, count=samples + more, workers=[1])[:samples] == one_worker


def test_set_narrows_replaces_and_adds_axes_and_a_batch_size_replaces_the_other() -> None:
    base = sweep({"workers": [1, 2], "micro_batch": [4], "accumulation": [1, 4]})
    assert narrow(base, {}) is base
    narrowed: dict[str, Any] = {"workers": [2], "precision": ["bf16"]}
    assert narrow(base, narrowed).axes == {**base.axes, **narrowed}
    assert "accumulation" not in narrow(base, {"global_batch": [16]}).axes
    assert "global_batch" not in narrow(sweep({"global_batch": [16]}), {"accumulation": [2]}).axes
    drawn = sweep({"micro_batch": tune.randint(1, 9)}, samples=3)
    assert [c.point.micro_batch for c in candidates(narrow(drawn, {"micro_batch": [5]}))] == [5]


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("workers=1,2", ("workers", [1, 2])),
        ("compression=none,int8", ("compression", [None, "int8"])),
        ("learning_rate=1e-3,.5", ("learning_rate", [0.001, 0.5])),
        ("workload.flag=true,false", ("workload.flag", [True, False])),
        ("env.X=1,none,a=b", ("env.X", ["1", "none", "a=b"])),
        ("args.widths=[64,64],[256]", ("args.widths", ["[64,64]", "[256]"])),
        ("args.betas=(0.9,0.999),(0.9,0.95)", ("args.betas", ["(0.9,0.999)", "(0.9,0.95)"])),
        ("args.nested=[[1,2],[3]],{a:[4,5]}", ("args.nested", ["[[1,2],[3]]", "{a:[4,5]}"])),
        ("args.name='a,b',\"c,d\",it's", ("args.name", ["a,b", "c,d", "it's"])),
        ("args.tags=['a,b],',2],x", ("args.tags", ["['a,b],',2]", "x"])),
    ],
)
def test_a_setting_reads_numbers_truth_and_none_as_what_they_look_like(
    text: str, setting: Any
) -> None:
    assert repr(parse_setting(text)) == repr(setting)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers", "write axis=value or axis=value,value"),
        ("workers= ", "write axis=value or axis=value,value"),
        ("args.x=[1,2", "a bracket that is not closed"),
        ("args.x=1,'a,b", "a quote that is not closed"),
    ],
)
def test_a_setting_that_can_not_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        parse_setting(text, option="--axis")


BATCH = {"global_batch": [8], "accumulation": [1]}
HEADS = {"workload.heads": [3], "workload.width": [8]}
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (sweep, {"axes": {"workers": []}}, "'workers' is empty; give at least one value or leave it"),
    (sweep, {"axes": {5: [1]}}, "axis 5 is not a field of a point or of the workload; allowed: "),
    (sweep, {"axes": [1]}, "axes=[1] must be names and lists, such as {'workers': [1, 2]}"),
    (sweep, {"axes": {}, "skip": "none"}, "skip='none' must be a function of the point"),
    (sweep, {"axes": {}, "measure": Measure}, "must be Measure(…)"),
    (sweep, {"axes": {}, "samples": 4}, "samples is set, but no axis is a search space"),
    (sweep, {"axes": {"workers": tune.randint(1, 9)}}, "say how often, Sweep(samples=N)"),
    (sweep, {"axes": BATCH}, "exclude each other: accumulation follows"),
    (
        points,
        {"axes": {"micro_batch": tune.randint(9, 9)}, "samples": 1},
        "(low >= high); check its",
    ),
    (
        points,
        {"axes": {"micro_batch": tune.choice([[1]])}, "samples": 1},
        "has [1] (list), no JSON",
    ),
    (points, {"axes": {"workload.width": ["8"]}}, "workload.width='8' must be a whole number"),
    (points, {"axes": HEADS}, "width 8 is not a multiple of 3 heads"),
    (Measure, {"max_seconds": float("inf")}, "max_seconds=inf must be a finite number"),
    (Measure, {"half_width": 2}, "and below 1: a share of the mean, such as 0.02"),
    (Measure, {"half_width": 0.004}, "half_width=0.004 must be at least 0.005 and below 1"),
    (Measure, {"half_width": "2 %"}, "half_width='2 %' must be a finite number or None"),
    (Measure, {"energy": True, "max_seconds": 4}, "and max_seconds=4 ends them before; raise it"),
    (
        Measure,
        {"min_seconds": 10, "max_seconds": 1},
        "more than max_seconds=1; lower it, or raise max_seconds",
    ),
    (Resources, {"peak_flops_per_s": 989e12}, "peak_flops_per_s=989000000000000.0 must be FLOP/s"),
    (Resources, {"peak_flops_per_s": {"bf17": 1e12}}, "such as {'bf16': 989e12}"),
    *(
        (
            Resources,
            {"peak_flops_per_s": {"bf16": peak}},
            f"peak_flops_per_s has 'bf16': {peak!r}; it must be",
        )
        for peak in (0, math.nan, math.inf, True, "989e12")
    ),
    (Resources, {"gpus_per_worker": 0.5}, "is a fraction, which NCCL refuses; use a whole number"),
    (Resources, {"gpus_per_worker": 2}, "the rest idle; use gpus_per_worker=1 and more workers"),
    (Resources, {"environment": {"A": 1}}, "environment A=1 must be a string, such as '1'"),
    (Resources, {"environment": "A=1"}, "must be names and values: {'NAME': 'value'}"),
    *(
        (
            Resources,
            {"environment": {name: "1"}},
            f"{name!r}, which can't name a variable; use letters, digits and _",
        )
        for name in ("A B", "", "A\0B", "9A", "Ä", "A\n", 1)
    ),
    (Resources, {"environment": {"HF_TOKEN=a": "b"}}, "environment has 'HF_TOKEN=…', which"),
    (Resources, {"environment": {"A": "x\0y"}}, "environment A has a value that no variable can"),
    *(
        (sweep, {"axes": {f"env.{name}": ["1"]}}, f"{name!r}, which can't name a variable")
        for name in ("LD PRELOAD", "9A")
    ),
    (sweep, {"axes": {"env.A": ["1", "x\0y"]}}, "no variable can hold: it has a NUL character"),
    (points, {"axes": {"env.A": lambda _: "\ud800"}}, "no variable can hold: it can't be encoded"),
]


@pytest.mark.parametrize(("make", "given", "message"), REFUSED)
def test_what_can_not_be_meant_is_refused_with_the_next_step(
    make: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SweepError) as caught:
        make(**given)
    assert message in str(caught.value)


def test_what_can_be_meant_is_taken() -> None:
    assert Measure(half_width=None).half_width is None
    assert Measure(half_width=0.005, canary=False).half_width == 0.005
    # Minima that nobody gave say nothing against a maximum.
    assert Measure(max_steps=7, max_seconds=0.5).min_steps == 20
    assert Measure(min_steps=5, max_steps=5, min_seconds=60).max_seconds == 60
    assert Resources(environment={"_a9": "", "HTTP_proxy": "ü\n"}).environment["_a9"] == ""
    resources = Resources(peak_flops_per_s={"bf16": 989e12, "fp32": 67_000_000_000_000})
    peaks = [resources.peak(precision) for precision in ("bf16", "fp32", "tf32")]
    assert peaks == [989e12, 67e12, None]

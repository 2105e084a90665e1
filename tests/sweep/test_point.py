"""Points: what they refuse, and what names them."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep import Sweep
from dtsweep.errors import SweepError
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.point_axes import FIELD_TYPES
from dtsweep.sweep.values import stored_fields, workload_fields
from tests.outcomes import Tokens


@dataclass(frozen=True)
class Net:
    width: int = 8
    dropout: float | None = None
    name: str = "net"
    sizes: list[int] | None = None


counts = st.integers(1, 64)
settings = st.fixed_dictionaries(
    {},
    optional={
        "workers": counts,
        "micro_batch": counts,
        "accumulation": counts,
        "sync": st.sampled_from(sorted(MODES)),
        "sync_period": st.none() | counts,
        "synchronous_steps": st.integers(0, 9),
        "local_momentum": st.sampled_from(["keep", "average", "reset"]),
        "outer_learning_rate": st.sampled_from([0.7, 1, 0.5]),
        "outer_momentum": st.sampled_from([0, 0.9, 0.5]),
        "staleness": st.none() | st.integers(0, 9),
        "shards": st.none() | counts,
        "overlap": st.booleans(),
        "bucket_bytes": st.none() | counts,
        "node_size": st.none() | counts,
        "compression": st.none() | st.sampled_from(sorted(COMPRESSIONS)),
        "compression_ratio": st.none() | st.sampled_from([0.01, 0.5, 1]),
        "compression_rank": st.none() | counts,
        "optimizer": st.sampled_from(["sgd", "adam"]),
        "learning_rate": st.sampled_from([0, 0.01, 1, 0.5]),
    },
)


@given(settings, st.randoms())
def test_one_point_has_one_identity_by_any_order_of_its_fields_with_defaults_left_out(
    values: dict[str, Any], random: Any
) -> None:
    point = Point(**values)
    everything: list[tuple[str, Any]] = list(point.scalars().items())
    random.shuffle(everything)
    assert identity(Point(**dict(everything))) == identity(point)
    assert identity(Point(**{**values, "workers": float(point.workers)})) == identity(point)


@given(settings, settings)
def test_two_points_share_an_identity_only_when_all_their_fields_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = Point(**one), Point(**other)
    assert (identity(first) == identity(second)) == (first.scalars() == second.scalars())


TOPK = '{"point":{"compression":"topk","compression_ratio":0.01}}'
OF_NET = (
    '{"point":{"environment":{"A":"1"}},'
    '"workload":["Net",{"dropout":null,"name":"net","sizes":null,"width":8}]}'
)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"workers": 2, "micro_batch": 32}, '{"point":{"workers":2}}'),
        ({"sync": "local_sgd"}, '{"point":{"sync":"local_sgd","sync_period":8}}'),
        ({"overlap": False, "bucket_bytes": 8}, '{"point":{"bucket_bytes":8,"overlap":false}}'),
        ({"compression": "int8"}, '{"point":{"compression":"int8"}}'),
        ({"compression": "topk"}, TOPK),
        ({"compression": "topk", "compression_ratio": 0.01}, TOPK),
        ({"environment": {"A": "1"}, "workload": Net()}, OF_NET),
    ],
)
def test_identity_is_the_hash_of_canonical_json_without_defaults_so_names_outlive_new_fields(
    fields: dict[str, Any], text: str
) -> None:
    assert identity(Point(**fields)) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_identity_counts_workload_fields_seed_and_repeat_and_takes_1_of_a_float_as_1_0() -> None:
    point = Point(workload=Net())
    names = {identity(point, seed=seed, repeat=repeat) for seed, repeat in ((0, 0), (1, 0), (0, 1))}
    others = (replace(point, workload=Net(width=9)), replace(point, environment={"A": "1"}))
    names |= {identity(other, seed=0, repeat=0) for other in others}
    assert len(names) == 5
    text = '{"point":{"workers":2},"repeat":1,"seed":0}'
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert identity(Point(workers=2), seed=0, repeat=1) == digest
    assert identity(Point(workload=Net(dropout=1))) == identity(Point(workload=Net(dropout=1.0)))


@pytest.mark.parametrize(
    ("participation", "workers", "drawn"),
    [(0.5, 5, 3), (0.5, 3, 2), (0.01, 4, 1), (1, 7, 7), (0.29, 50, 15)],
)
def test_half_a_worker_is_drawn_as_one(participation: float, workers: int, drawn: int) -> None:
    point = Point(sync="federated", workers=workers, participation=participation)
    assert point.participants == drawn


def test_a_field_is_stored_as_the_value_used_where_the_mode_reads_it_and_null_elsewhere() -> None:
    assert Point(sync="parameter_server").scalars()["shards"] == 1
    assert Point(sync="parameter_server").staleness is None, "no bound is a value of its own"
    assert Point(compression="powersgd").compression_rank == 4
    stored = {mode: Point(sync=mode).columns() for mode in MODES}
    overlapping = {mode for mode, columns in stored.items() if columns["overlap"] is not None}
    assert overlapping == {"ddp", "zero1"}
    assert (stored["ddp"]["overlap"], stored["local_sgd"]["sync_period"]) == (True, 8)
    assert all(columns["workers"] == 1 for columns in stored.values())
    names = ("compression", "compression_ratio", "compression_rank")
    found = Point(compression="randomk", compression_rank=2).columns()
    assert [found[name] for name in names] == ["randomk", 0.01, None]


def test_a_workload_field_keeps_to_its_annotation() -> None:
    values: dict[str, Any] = {"width": 4.0, "dropout": 1, "sizes": [1]}
    kept = {"width": 4, "dropout": 1.0, "name": "net", "sizes": [1]}
    assert workload_fields(Net(**values)) == kept
    wide: Any = "wide"
    with pytest.raises(SweepError, match=r"workload\.width='wide' must be a whole number"):
        workload_fields(Net(width=wide))


@dataclass(frozen=True)
class Partly(Tokens):
    """Reads one of two fields."""

    kind: str = "a"
    of_a: int = 1
    of_b: int = 2

    @property
    def unread_fields(self) -> tuple[str, ...]:
        return ("of_b",) if self.kind == "a" else ("of_a",)


def test_workloads_that_differ_in_what_is_not_read_are_one_point() -> None:
    axes = {"workload.kind": ["a", "b"], "workload.of_b": [2, 3], "workload.of_a": [1, 5]}
    listed = [one.point.workload for one in candidates(Sweep(workload=Partly(), axes=axes))]
    read = [(w.kind, w.of_a if w.kind == "a" else w.of_b) for w in listed]
    assert read == [("a", 1), ("a", 5), ("b", 2), ("b", 3)]
    stored = stored_fields(listed[0])
    assert (stored["workload_of_a"], stored["workload_of_b"]) == (1, None)


@pytest.mark.parametrize(
    ("sync", "fields", "semantics"),
    [
        ("ddp", {}, "lossy"),
        ("local_sgd", {}, "local"),
        ("parameter_server", {}, "stale"),
        ("parameter_server", {"staleness": 0}, "lossy"),
    ],
)
def test_a_compressed_point_is_lossy_unless_its_mode_means_less(
    sync: str, fields: dict[str, Any], semantics: str
) -> None:
    for name in COMPRESSIONS:
        assert Point(sync=sync, compression=name, **fields).semantics == semantics


ALLOWED = ", ".join(COMPRESSIONS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"workers": True}, "workers=True must be a whole number"),
        ({"micro_batch": 2.5}, "micro_batch=2.5 must be a whole number"),
        ({"sync_period": "8"}, "sync_period='8' must be a whole number or None"),
        ({"staleness": -1}, "staleness=-1 must be at least 0, or None"),
        ({"overlap": None}, "overlap=None must be True or False"),
        ({"slow_rank": 1}, "slow_rank=1.0 must be above 1, or None"),
        ({"outer_momentum": 1}, "outer_momentum=1.0 must be below 1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be a finite number"),
        ({"sync": "DDP"}, "sync='DDP' is unknown; did you mean 'ddp'?"),
        ({"sync": 3}, "sync=3 must be a string"),
        ({"compression_ratio": 0}, "compression_ratio=0.0 must be above 0, or None"),
        ({"compression_ratio": 1.01}, "compression_ratio=1.01 must be at most 1, or None"),
        ({"compression": "none"}, f"compression='none' is unknown; allowed: {ALLOWED}, or None"),
    ],
)
def test_a_value_that_no_mode_can_use_is_refused_by_name(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SweepError) as caught:
        Point(**values)
    assert str(caught.value) == message
    assert caught.value.word in FIELD_TYPES


def test_an_error_is_one_line_and_survives_pickling_with_its_word() -> None:
    error = pickle.loads(pickle.dumps(SweepError("one\ntwo\u2028three\r\n", word="sync")))
    assert (str(error), error.word) == ("one two three", "sync")

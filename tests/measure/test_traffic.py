"""Bytes that modes send: as formulas say, and as the kernel counts on a loopback of their own."""

from __future__ import annotations

from fractions import Fraction
from statistics import fmean
from typing import Any

import pytest
import torch
import torch.distributed  # declares the operators

from dtsweep.measure.traffic import OPERATIONS, SHARES, SHARES_OF_BACKEND
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import MODES
from tests.wire import (
    BLOCKS,
    NEAR_KERNEL,
    PERIOD,
    RANK,
    RATIO,
    SIDE,
    STEPS,
    VARIANTS,
    WIDTH,
    WORLDS,
    block_bytes,
    in_a_namespace,
    model_bytes,
    variants_of,
    what_ranks_send,
)

NEAR = 0.01
COUNTED = [(name, workers) for workers in WORLDS for name in variants_of(workers)]
PLAIN = [pair for pair in COUNTED if "compression" not in VARIANTS[pair[0]]]
COMPRESSED = [pair for pair in COUNTED if pair not in PLAIN]

Sent = dict[int, list[dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def sent_by(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """By a number of workers: what each of its ranks sends per step, by variant."""
    return what_ranks_send(tmp_path_factory.mktemp("sent"))


def bytes_of(name: str, ranks: int) -> float:
    """What a worker sends per step by formula, on gloo, whose reduce-scatter is an all-reduce.

    Nodes have 2 workers.
    """
    whole, blocks, nodes = model_bytes(), block_bytes(), ranks // 2
    other, across = (ranks - 1) / ranks, 2 * (nodes - 1) / nodes * whole / 2
    return {
        "ddp": 2 * other * whole,
        "zero1": 2 * other * whole + other * whole,
        "fsdp_grad": other * whole + 2 * other * whole,
        "fsdp": other * (whole + blocks) + 2 * other * whole,
        "hsdp": (whole + blocks) / 2 + whole + across,
        "hierarchical": whole + across + whole / 2,
        "ring": 2 * other * whole,
        "tree": 2 * other * whole,
        "local_sgd": 2 * other * whole / PERIOD,
        "gossip": min(2, ranks - 1) * whole if "topology" not in name else whole,
        "federated": (ranks // 2 + ranks - 2) / ranks * whole / PERIOD,
        "diloco": 2 * other * whole / PERIOD,
    }[name.partition(" ")[0]] * copies_of(name)


def copies_of(name: str) -> int:
    """Tensors as large as the parameters that travel: of an averaged state of Adam two more."""
    return 1 + 2 * (VARIANTS[name].get("local_momentum") == "average")


def payload_of(compression: str) -> float:
    """Bytes of a payload of all gradients; of `powersgd` what it sends in all."""
    values, scales = model_bytes() / 4, model_bytes() / 256
    thin = RANK * (BLOCKS * 2 * WIDTH + 2 * (WIDTH + SIDE))
    return {
        "fp16": 2 * values,
        "bf16": 2 * values,
        "int8": values + scales,
        "int4": values / 2 + scales,
        "sign": values / 8 + scales,
        "topk": 0.01 * values * 8,
        "randomk": RATIO * values * 4,
        "powersgd": 4 * (thin + (BLOCKS + 1) * WIDTH + SIDE),
    }[compression]


def compressed_bytes_of(name: str, ranks: int) -> float:
    """The same where a payload is sent in place of all gradients."""
    mode, compression = name.split()
    payload, other, nodes = payload_of(compression), (ranks - 1) / ranks, ranks // 2
    sent = (
        ranks - 1 if COMPRESSIONS[compression].exchange == "all_gather" else 2 * other
    ) * payload
    return {
        "ddp": sent,
        "ring": sent,
        "tree": sent,
        "zero1": sent + other * model_bytes(),
        "hierarchical": 1.5 * model_bytes() + 2 * (nodes - 1) / nodes * payload / 2,
        "local_sgd": sent / PERIOD,
        "diloco": sent / PERIOD,
    }[mode]


def messages_of(name: str, ranks: int) -> float:
    """Messages of a worker per step, where they don't depend on how DDP fills its buckets."""
    across = int(ranks > 2)
    return {
        "ddp overlap=False": 1,
        "fsdp_grad": 2 * (BLOCKS + 1),
        "fsdp": 3 * BLOCKS + 2,
        "hsdp node_size=2": 3 * BLOCKS + 2 + across * (BLOCKS + 1),
        "hierarchical node_size=2": 2 + across,
        "ring": 2 * (ranks - 1),
        "tree": 2 * (ranks - 1) / ranks,
        f"local_sgd sync_period={PERIOD}": 1 / PERIOD,
        "gossip": min(2, ranks - 1),
        "gossip topology=exponential": 1,
        # Half of the workers send to each other, then each to all.
        f"federated sync_period={PERIOD}": (ranks // 2 + ranks - 2) / 2 / PERIOD,
        f"local_sgd sync_period={PERIOD} after synchronous_steps": 3 / PERIOD,
        f"diloco sync_period={PERIOD}": 1 / PERIOD,
    }[name]


def test_every_mode_without_ray_is_counted_here() -> None:
    assert {name.partition(" ")[0] for name in VARIANTS} == {
        name for name, mode in MODES.items() if not mode.needs_ray and not mode.shares_memory
    }


@pytest.mark.parametrize(("name", "workers"), PLAIN)
@pytest.mark.slow
def test_bytes_sent_are_what_the_formula_says(sent_by: Sent, name: str, workers: int) -> None:
    assert fmean(rank[name]["bytes"] for rank in sent_by[workers]) == pytest.approx(
        bytes_of(name, workers), rel=NEAR
    )


@pytest.mark.parametrize(("name", "workers"), COMPRESSED)
@pytest.mark.slow
def test_bytes_sent_compressed_are_what_the_formula_says(
    sent_by: Sent, name: str, workers: int
) -> None:
    found = fmean(rank[name]["bytes"] for rank in sent_by[workers])
    assert found == pytest.approx(compressed_bytes_of(name, workers), rel=NEAR)


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.slow
def test_compressed_messages_are_as_many_as_the_payload_has_ways(sent_by: Sent, name: str) -> None:
    ways = {"all_to_all": 2, "all_gather": 1, "all_reduce": 2 if name == "powersgd" else 1}
    for rank in sent_by[2]:
        assert rank[f"ddp {name}"]["messages"] == ways[COMPRESSIONS[name].exchange]


@pytest.mark.parametrize(
    ("name", "workers"),
    [pair for pair in PLAIN if pair[0] not in ("ddp", "zero1") and "bucket" not in pair[0]],
)
@pytest.mark.slow
def test_messages_are_the_calls_that_send(sent_by: Sent, name: str, workers: int) -> None:
    assert fmean(rank[name]["messages"] for rank in sent_by[workers]) == pytest.approx(
        messages_of(name, workers)
    )


@pytest.mark.slow
def test_smaller_buckets_are_more_messages_of_as_many_bytes(sent_by: Sent) -> None:
    for rank in sent_by[2]:
        small, one = rank["ddp bucket_bytes=1000000"], rank["ddp overlap=False"]
        assert small["messages"] >= BLOCKS > one["messages"]
        assert small["bytes"] == one["bytes"]


@pytest.mark.skipif(in_a_namespace() is None, reason="needs the right to make a network namespace")
@pytest.mark.parametrize(("name", "workers"), COUNTED)
@pytest.mark.slow
def test_the_kernel_counts_as_many_bytes_on_the_loopback(
    sent_by: Sent, name: str, workers: int
) -> None:
    ranks = sent_by[workers]
    kernel = ranks[0][name]["kernel"] - ranks[0][name]["idle"]
    assert sum(rank[name]["bytes"] for rank in ranks) == pytest.approx(kernel, rel=NEAR_KERNEL)


@pytest.mark.slow
def test_a_compiled_model_stays_compiled_and_is_counted(sent_by: Sent) -> None:
    for rank in sent_by[2]:
        found = rank["ddp compiled"]
        assert found["bytes"] == pytest.approx(bytes_of("ddp", 2))
        assert found["graphs"] > 0
        assert (found["compiled"], found["runs"]) == (0, STEPS * found["runs_after"])
        assert found["runs_after"] > 0


@pytest.mark.slow
def test_exchanges_inside_a_class_of_tensors_count_and_those_among_one_rank_do_not(
    sent_by: Sent,
) -> None:
    for rank in sent_by[2]:
        # 8 rows of 8 numbers go to the other rank.
        assert rank["a DTensor made whole"]["bytes"] * STEPS == 8 * 8 * 4
        assert rank["a DTensor made whole"]["messages"] * STEPS == 1
        for nothing in ("alone", "barrier"):
            assert (rank[nothing]["bytes"], rank[nothing]["messages"]) == (0, 0)


@pytest.mark.slow
def test_what_can_not_be_counted_is_unknown(sent_by: Sent) -> None:
    assert [rank["sparse"] for rank in sent_by[2]] == [
        {"unknown": ["allreduce_ of sparse tensors"]}
    ] * 2


def test_all_ranks_together_send_a_ring_s_share() -> None:
    assert {kind: share(4) for kind, share in SHARES.items()} == {
        "all_reduce": Fraction(3, 2),
        "all_gather": 3,
        **dict.fromkeys(
            ("reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"),
            Fraction(3, 4),
        ),
        "send": 1,
        "nothing": 0,
    }
    assert {kind: share(4) for (_, kind), share in SHARES_OF_BACKEND.items()} == {
        "reduce_scatter": Fraction(3, 2),
        "reduce": 1,
    }


def test_every_operator_of_torch_that_exchanges_is_known() -> None:
    known = {
        schema.name.partition("::")[2]
        for schema in torch._C._jit_get_all_schemas()
        if schema.name[:6] == "c10d::"
    }
    assert known <= set(OPERATIONS)

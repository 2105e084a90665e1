"""The axes `fused` and `attention`: the same numbers by other kernels, and the names of these."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.point import Point
from dtsweep.worker.attention import AttentionRan, attention_kernel
from dtsweep.workloads import Gpt
from tests.ranks import results_of
from tests.sync.test_checkpoints import CPU, gradients
from tests.sync.test_same_mathematics import KINDS, Case, by_mode
from tests.worker.on_ranks import run_trials, window

CASES = [
    (mode, optimizer)
    for mode in KINDS
    for optimizer in ("momentum", "adam", "adamw")
    if impossible(Point(sync=mode, optimizer=optimizer, fused=True)) is None
]
FLASH, MATH = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math",
)


def train_all(rank: int) -> dict[tuple[str, str, bool], Any]:
    return {
        (mode, optimizer, fused): by_mode(
            Case("float64", optimizer, 2, is_clipped=True).point(2, sync=mode, fused=fused), rank
        )
        for mode, optimizer in CASES
        for fused in (False, True)
    }


@functools.cache
def trained() -> list[dict[tuple[str, str, bool], Any]]:
    return results_of(train_all, workers=2)


@pytest.mark.parametrize(("mode", "optimizer"), CASES)
def test_a_fused_optimizer_makes_the_same_updates(mode: str, optimizer: str) -> None:
    for of_rank in trained():
        plain, fused = (of_rank[mode, optimizer, is_fused] for is_fused in (False, True))
        np.testing.assert_allclose(fused, plain, rtol=1e-12, atol=1e-14)


def test_kernels_of_attention_give_the_same_gradients_and_are_named() -> None:
    workload = Gpt(layers=2, width=32, sequence=16)
    found = {}
    for name in ("math", "flash"):
        torch.manual_seed(0)
        model = workload.build()
        watched = AttentionRan(workload.loss)
        with attention_kernel(name):
            watched(model, workload.batch(range(2), CPU))
            found[name] = watched.names, gradients(model, workload)
    assert (found["math"][0], found["flash"][0]) == ({MATH}, {FLASH})
    for one, other in zip(found["math"][1], found["flash"][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_trial_stores_the_kernels_and_the_optimizer_that_ran() -> None:
    usual: dict[str, Any] = {"micro_batch": 2, "optimizer": "adamw"}
    workload = Gpt(layers=1, width=32, sequence=16)
    cases = {
        "chosen": Point(workload=workload, **usual),
        "math": Point(workload=workload, attention="math", fused=True, **usual),
        "refused": Point(workload=workload, attention="cudnn", **usual),
    }
    found = run_trials({name: (window(4), point) for name, point in cases.items()})
    ran = {
        name: (found.row(name)["attention_ran"], found.row(name)["optimizer_class"])
        for name in ("chosen", "math")
    }
    assert ran == {"chosen": (FLASH, "AdamW"), "math": (MATH, "AdamW (fused)")}
    status, reason = found.failure("refused")
    assert status == "user_error"
    assert reason is not None
    assert "attention=cudnn has no kernel for the model's tensors on this device" in reason
    assert "\n" not in reason


def test_a_model_without_attention_has_no_kernel() -> None:
    model = nn.Linear(2, 1)
    watched = AttentionRan(lambda model, batch: model(batch).sum())
    watched(model, torch.ones(1, 2))
    assert not watched.names

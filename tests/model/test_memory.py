"""Arithmetic of a worker's memory, and its fit to made-up peaks."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep.model.memory_terms import Held, Moments, Setting, moments_of


def terms(sync: str, *, state: float = 2.0, **more: Any) -> Moments:
    settings = {"workers": 4, "node_workers": 2, "state_share": state, **more}
    return moments_of(Setting(sync=sync, **settings))


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        # As docs/sync-modes.md has them, for n = 4 and m = 2; the state's k is apart.
        (terms("ddp").update, Held(parameters=3, state=1, largest=2)),
        (terms("ddp", state=0.0).update, Held(parameters=3, state=1)),
        (terms("ddp", is_gpu=True).update, Held(parameters=4, state=1)),
        (terms("ddp", accumulates=True, casts=True).passes, Held(parameters=3.5, state=1)),
        (terms("zero1").update, Held(parameters=3, state=0.25, largest=2)),
        (terms("ring").exchange, Held(parameters=2.25, state=1)),
        (terms("tree").exchange, Held(parameters=3, state=1)),
        (terms("local_sgd").update, Held(parameters=2, state=1, largest=2)),
        (terms("diloco").update, Held(parameters=5, state=1, largest=2)),
        (terms("gossip", topology="ring").exchange, Held(parameters=4, state=1)),
        (terms("gossip", topology="exponential").exchange, Held(parameters=3, state=1)),
        (terms("gossip", topology="ring", workers=2).exchange, Held(parameters=3, state=1)),
        (terms("federated", participants=2).exchange, Held(parameters=2.5, state=1)),
        (terms("hierarchical").exchange, Held(parameters=2, state=1, fixed=24 * 2**20)),
        (terms("parameter_server").update, Held(parameters=2, largest=1)),
        (terms("parameter_server", accrues=True).update, Held(parameters=3, largest=1)),
        (terms("hogwild").update, Held(parameters=1, state=1, largest=2)),
        (terms("fsdp").exchange, Held(parameters=0.5, state=0.25, block=3.5)),
        (terms("fsdp", gathers_halves=True).exchange, Held(parameters=0.5, state=0.25, block=2.5)),
        (terms("fsdp", reshard="node").exchange, Held(parameters=0.75, state=0.25, block=3.25)),
        (terms("fsdp_grad").passes, Held(parameters=1.25, state=0.25, block=2)),
        (terms("hsdp").exchange, Held(parameters=1, state=0.5, block=3)),
        (terms("hsdp", reshard="never").passes, Held(parameters=1.5, state=0.5, block=2)),
        (terms("fsdp", offload=True, is_gpu=True).update, Held()),
    ],
)
def test_each_mode_holds_what_its_formula_says(moment: Held, expected: Held) -> None:
    assert moment == pytest.approx(expected)

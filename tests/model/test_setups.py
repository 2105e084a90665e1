"""Settings by column."""

from __future__ import annotations

from tests.setups import setups_of


def test_chosen_configurations_keep_all_their_settings() -> None:
    setups = setups_of(
        workers=[1, 2, 4],
        nodes=[1, 1, 2],
        micro_batch=[8, 16, 32],
        categories={"sync": ["ddp", "fsdp", "ring"]},
        numbers={"workload.width": [64, 128, 256]},
    )
    last = setups.take(setups.nodes == 2)
    assert len(last) == 1
    assert (last.workers[0], last.micro_batch[0], last.categories["sync"][0]) == (4, 32, "ring")
    assert last.numbers["workload.width"].tolist() == [256]

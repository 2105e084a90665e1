"""Which placement groups count as left behind; no Ray runs here."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.core.generated.gcs_pb2 import PlacementGroupTableData

from dtsweep.session.orphans import orphans

State = PlacementGroupTableData.PlacementGroupState


def group(**different: Any) -> PlacementGroupTableData:
    known = {"placement_group_id": b"g", "creator_job_id": b"\x01\x00", "state": State.CREATED}
    creator = {"creator_actor_id": bytes(ray.ActorID.size()), "creator_actor_dead": True}
    return PlacementGroupTableData(**{**known, **creator, **different})


@pytest.mark.parametrize("state", [State.CREATED, State.PENDING, State.RESCHEDULING])
def test_a_group_whose_maker_has_ended_is_left_behind_even_if_it_still_waits_for_nodes(
    state: int,
) -> None:
    assert orphans([group(state=state)], job_id="0100") == [b"g"]


@pytest.mark.parametrize(
    "different",
    [
        {"creator_actor_dead": False},
        {"creator_job_id": b"\x02\x00"},
        {"is_detached": True},
        {"state": State.REMOVED},
        {"creator_actor_id": ray.ActorID.nil().binary()},
    ],
)
def test_a_group_that_is_in_use_or_anothers_or_gone_or_the_drivers_is_let_alone(
    different: Any,
) -> None:
    assert orphans([group(**different)], job_id="0100") == []

"""Placement groups that killed trainers leave behind.

Ray removes a placement group once the actor that made it and the driver's job have both ended.
Sessions have no cleaner of Ray Train, a process that asks the dashboard: a private Ray has none,
nor has one that was installed without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import ray
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.util.placement_group import PlacementGroup, remove_placement_group


def orphans(groups: Iterable[PlacementGroupTableData], *, job_id: str) -> list[bytes]:
    """Ids of a job's placement groups that were made by an actor which has ended.

    Args:
        groups: all that Ray knows.
        job_id: of the driver, in hexadecimal digits.
    """
    removed = PlacementGroupTableData.PlacementGroupState.REMOVED
    return [
        group.placement_group_id
        for group in groups
        # Of one that the driver made, Ray says so too.
        if group.creator_actor_dead
        and not ray.ActorID(group.creator_actor_id).is_nil()
        and not group.is_detached
        and group.state != removed
        and group.creator_job_id.hex() == job_id
    ]


async def look_for_orphans(*, within_s: float) -> None:
    """Remove orphans once; a head that does not answer in time is asked again at the next look."""
    with suppress(ray.exceptions.RayError, TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(remove_orphans), within_s)


def remove_orphans() -> int:
    """Release processes and resources of this job's killed trainers; return their number."""
    from ray._private.state import state

    # Ray's own function for it leaves out the creator of a group.
    table = state._connect_and_get_accessor().get_placement_group_table()
    groups = map(PlacementGroupTableData.FromString, table)
    group_ids = orphans(groups, job_id=ray.get_runtime_context().get_job_id())
    for group_id in group_ids:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(group_id)))
    return len(group_ids)

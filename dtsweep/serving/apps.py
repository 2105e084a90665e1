"""Applications on Ray Serve: started, deleted, and those that were left behind.

An application's name holds the id of the actor that started it, its client. Once that has ended,
the application is a left-over, of this run or of another one.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import ray

from dtsweep.errors import SweepError

_OURS = re.compile("dtsweep-([0-9a-f]+)-")
"""Beginning of our applications' names, with the id of the client's actor."""

_CONTROLLER = "SERVE_CONTROLLER_ACTOR"
"""Name of the actor that Serve has once on a cluster."""

_MANY = 1_000_000
"""Requests that a replica may hold: each is handed to a replica when it arrives.

With few, Serve's router would keep the others, and ask again after pauses that grow to 0.5 s.
"""


def check_serve() -> None:
    """Refuse an open loop where Ray Serve is not installed.

    Raises:
        SweepError: with what to install.
    """
    try:
        import ray.serve  # noqa: F401  # whether it can be
    except ImportError as error:
        raise SweepError(
            f"an open loop needs Ray Serve ({error}); pip install 'dtsweep[serve]'", word="rate"
        ) from error


@contextmanager
def started_app(
    replica: type, setup: Any, *, attempt_id: str, nodes: Mapping[str, int]
) -> Iterator[Any]:
    """Have an application with a replica for each rank, and give its deployment's handle.

    Serve is started if it does not run. The application is deleted at the end, left-overs before.

    Args:
        replica: class of the deployment.
        setup: its only argument.
        attempt_id: of the trial's attempt.
        nodes: number of ranks by Ray's name of their node, equally many on each.

    Raises:
        RuntimeError: a replica did not come up; the message is its error.
    """
    from ray import serve

    _delete_left_overs()
    serve.start(proxy_location="Disabled")
    deployment = serve.deployment(
        replica,
        name="replica",
        num_replicas=sum(nodes.values()),
        max_ongoing_requests=_MANY,
        max_replicas_per_node=max(nodes.values()),
        max_constructor_retry_count=1,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=1.0,
        # The ranks have them: a replica uses those of its rank.
        ray_actor_options={
            "num_cpus": 0,
            "num_gpus": 0,
            "label_selector": {"ray.io/node-id": f"in({','.join(sorted(nodes))})"},
        },
    )
    # By reference: Serve keeps arguments in the cluster's store, and this one has secrets.
    application = deployment.bind(ray.put(setup))
    name = f"dtsweep-{ray.get_runtime_context().get_actor_id()}-{attempt_id[:12]}"
    try:
        try:
            handle = serve.run(application, name=name, route_prefix=None)
        except RuntimeError as error:
            message: str = serve.status().applications[name].deployments["replica"].message
            print(message, file=sys.stderr)  # noqa: T201  # the log has all of the traceback
            raise RuntimeError(message.strip().rpartition("\n")[2]) from error
        yield handle
    finally:
        _delete(name)


def _delete(name: str) -> None:
    """Delete an application, and wait until its replicas have ended."""
    from ray import serve

    with suppress(ray.exceptions.RayError, TimeoutError):
        serve.delete(name)


def _delete_left_overs() -> str | None:
    """Delete our applications whose client has ended.

    Returns:
        Id of the job that started Serve on this cluster; None where it does not run.
    """
    from ray import serve
    from ray._private.state import actors

    alive = actors(actor_state_name="ALIVE")
    jobs = [actor["JobID"] for actor in alive.values() if actor["Name"] == _CONTROLLER]
    if not jobs:
        return None
    for name in serve.status().applications:
        if (match := _OURS.match(name)) and match[1] not in alive:
            _delete(name)
    return str(jobs[0])


def leave_cluster() -> None:
    """Delete left-overs, and end Serve if this job has started it and it has no application.

    A run calls it when its sessions have ended, on a cluster that goes on.
    """
    from ray import serve

    # Its lines are not for the user.
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    is_own = _delete_left_overs() == ray.get_runtime_context().get_job_id()
    if is_own and not serve.status().applications:
        serve.shutdown()

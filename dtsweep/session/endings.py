"""Causes of a trainer's end, from the error of its `fit()`. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayActorError, RayError

from dtsweep.errors import error_line
from dtsweep.results.statuses import ATTEMPTS

_OTHER_INTERFACE = (
    "Resources(environment={'GLOO_SOCKET_IFNAME': …}), on GPUs NCCL_SOCKET_IFNAME, names the "
    "interface that joins them"
)


_PASSING = (
    "by peer",
    "Broken pipe",
    "EADDRINUSE",
    "Address already in use",
    "address already in use",
)
"""Messages of a failed group whose rank had just ended or whose port was taken meanwhile."""


_NO_USABLE_GPU = ("doesn't have NCCL built in", "no GPUs found")
"""Messages of torch where it is built without CUDA, and where it sees no GPU."""

_OTHER_TORCH = (
    "install a torch for a CUDA version that the nodes' driver supports (dtsweep doctor shows "
    "torch's version, nvidia-smi the driver's), or set Resources(gpus_per_worker=0)"
)


@dataclass(frozen=True, kw_only=True)
class _NotUp:
    """Reason why ranks did not start."""

    reason: str
    status: str = "launch_failed"
    hopeless_for: str | None = "world"
    """Trials that would fail the same way: of the `world`, or of the whole `run`.

    None where another start may succeed.
    """


def causes_of(error: BaseException | None) -> Mapping[int, BaseException]:
    """Causes by rank: an exception, the death of its process, or a node that is taken back.

    Empty where Ray names no rank.
    """
    if error is not None and (notice := _notice(error)) is not None:
        return dict.fromkeys(notice.preempted_ranks, error)
    failures: Mapping[int, BaseException] = getattr(error, "worker_failures", {})
    # Where Train could not ask a rank, it wraps the reason.
    return {
        rank: getattr(failure, "health_check_failure", failure)
        for rank, failure in failures.items()
    }


def is_preempted(error: BaseException | None) -> bool:
    """True if a node was taken back by its owner, with notice or without."""
    causes = causes_of(error).values()
    return _notice(error) is not None or any(
        isinstance(c, RayActorError) and c.preempted for c in causes
    )


def has_lost_process(error: BaseException | None) -> bool:
    """True if ranks were ended from outside, instead of raising something."""
    return is_preempted(error) or any(
        isinstance(cause, RayError) for cause in causes_of(error).values()
    )


def _notice(error: BaseException | None) -> Any:
    """Message of a node's owner who takes it back; older Ray has no such error."""
    return getattr(error, "preemption_info", None)


def why_not_up(
    error: BaseException | None, *, workers: int, node_timeout_s: float
) -> _NotUp | None:
    """Reason why ranks did not start; None if another launch may succeed.

    Args:
        error: of its `fit()`.
        workers: how many there should have been.
        node_timeout_s: how long nodes may take to come.
    """
    cause = getattr(error, "controller_failure", None) or error
    kind = type(cause).__name__
    if kind == "WorkerGroupStartupTimeoutError":
        reason = (
            f"nodes for {workers} workers did not come in {node_timeout_s:g} s; see --node-timeout"
        )
        return _NotUp(status="no_nodes", reason=reason)
    if kind == "InsufficientClusterResourcesError":
        lines = str(cause).splitlines()
        return _NotUp(status="infeasible", reason=" ".join(lines[1:2] or lines))
    if has_lost_process(error):
        return None
    if raised := causes_of(error):
        rank, failure = next(iter(raised.items()))
        return _raised(rank, failure)
    return _no_group(cause)


def _no_group(cause: BaseException | None) -> _NotUp | None:
    """Reason why the process group of the ranks was not made; None if it was, or may be."""
    last_line = next(reversed(str(cause).strip().splitlines()), "")
    if any(words in last_line for words in _NO_USABLE_GPU):
        reason = f"Ray gives each worker a GPU that torch can't use: {last_line}; {_OTHER_TORCH}"
        return _NotUp(reason=reason)
    if "init_process_group" in str(cause) and not any(words in last_line for words in _PASSING):
        reason = f"the workers can't reach each other: {last_line}; {_OTHER_INTERFACE}"
        return _NotUp(reason=reason)
    return None


def not_up_again(status: str, reason: str, *, deaths: int) -> _NotUp:
    """Consequence of a start that was ended from outside.

    Args:
        status: of its end.
        reason: why it ended.
        deaths: starts of its world in a row that were ended by a death, with this one.

    >>> not_up_again("oom_host", "no memory", deaths=1).status
    'collateral'
    """
    if deaths >= ATTEMPTS:
        # Two on a node strike it, so that the last of them had another one, where there is one.
        reason = f"{reason}; {deaths} starts in a row ended so"
        return _NotUp(reason=reason)
    # The trial itself has taken no memory yet.
    return _NotUp(
        status="collateral" if status == "oom_host" else status, reason=reason, hopeless_for=None
    )


def _raised(rank: int, error: BaseException) -> _NotUp:
    """Message of an exception that a rank raised before its first task."""
    reason = f"the workers did not start: rank {rank}: {error_line(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        reason += f"; install {package!r} on all nodes, or put it next to the sweep file"
    # What can't be imported in one world can't be in another.
    hopeless_for = "world"
    if isinstance(error, ImportError):
        hopeless_for = "run"
    return _NotUp(reason=reason, hopeless_for=hopeless_for)

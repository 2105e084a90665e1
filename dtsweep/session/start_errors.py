"""Reasons for which a session does not come up, and the checks of its ranks at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtsweep.hardware.gpu_place import shared_gpu
from dtsweep.metrics.rank_result import RankFacts
from dtsweep.metrics.rows import other_devices
from dtsweep.provenance.versions import differences, versions
from dtsweep.session.diagnosis import Diagnosis


class SessionError(Exception):
    """A session did not come up; `status` says in which way."""

    def __init__(
        self,
        status: str,
        message: str,
        *,
        hopeless_for: str | None = None,
        verdict: Diagnosis | None = None,
    ) -> None:
        """Keep what follows.

        Args:
            status: of the trials that wanted it.
            message: why.
            hopeless_for: whose other trials would end the same way: `world`, `run`.
            verdict: on a start that was ended from outside: another one may come up.
        """
        super().__init__(message)
        self.status = status
        self.hopeless_for = hopeless_for
        self.verdict = verdict


class RefusedError(Exception):
    """Ranks came up where this run must not measure; the message says why and the ways out."""


def check_ranks(facts: Mapping[int, RankFacts], *, known_devices: Any) -> None:
    """Refuse ranks that would not measure what the run asks for.

    Args:
        facts: of all ranks of a session that have come up.
        known_devices: of the results, as in `Settings`.

    Raises:
        SessionError: versions differ from the driver's, or two ranks have one GPU.
        RefusedError: they came up on devices that the results don't know.
    """
    for rank, fact in sorted(facts.items()):
        for name, theirs, ours in differences(fact.machine, versions()):
            difference = f"rank {rank} on {fact.node} has {name} {theirs}, the driver {ours}"
            reason = f"{difference}; install the same on all nodes"
            raise SessionError("version_mismatch", reason, hopeless_for="world")
    if shared := shared_gpu({rank: fact.gpu_place for rank, fact in facts.items()}):
        raise SessionError("infeasible", shared, hopeless_for="world")
    if message := other_devices(facts, known_devices=known_devices):
        raise RefusedError(message)

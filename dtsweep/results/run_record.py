"""Record of a run: how far it is, what runs, which nodes it has used, and what they cost.

A run writes one JSON file into the folder `runs` of its results, again and again while it lives,
and a last time at its end. So another machine can say how a campaign stands.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from dtsweep.errors import one_line, quoted
from dtsweep.escape import changed_texts
from dtsweep.results.certificate import Certificate

FOLDER = "runs"

SUFFIX = ".json"

MOST_POINTS = 1000
"""Largest number of points that a record lists."""


@dataclass(frozen=True, kw_only=True)
class RunningTrial:
    """An attempt that is under way."""

    trial_id: str
    name: str
    """Its point in words."""

    since: float
    """Unix time in seconds at which it was handed out."""

    is_canary: bool = False
    """True if it watches the machine, and is not among the trials that are counted."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """State of a run at one time."""

    run_id: str
    """Name of its file, without the ending."""

    sweep: str
    points: Sequence[str] = ()
    """`point_id` of each point that it is to measure; empty of a search, which chooses, and of
    more than `MOST_POINTS`.
    """

    host: str
    pid: int
    started_at: float
    """Unix time in seconds, as all times here."""

    updated_at: float
    ended_at: float | None = None
    ended_as: str | None = None
    """`done`, `budget`, `interrupted` or `failed`; None while it lives, or if it was killed."""

    reason: str | None = None
    """Error of a run that has failed."""

    total: int = 0
    """Trials that the run plans to measure, those of later rounds as far as they are known."""

    statuses: Mapping[str, int] = field(default_factory=dict)
    """Trials that have ended, by status."""

    running: Sequence[RunningTrial] = ()
    expected_left_s: float | None = None
    """Time that the rest should take; None is unknown."""

    max_hours: float | None = None
    max_cost_usd: float | None = None
    node_s: Mapping[str, float] | None = None
    """Node-seconds by node type; None where nodes are not counted, as in a run without Ray."""

    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    """Price of a node by node type, as far as prices are given."""

    cost_usd: float | None = None
    """Cost so far of all nodes of the run; None without prices."""

    expected_left_usd: float | None = None

    certificate: Certificate | None = None
    """Of a search, by the points that it had measured; None of other runs."""

    def to_json(self) -> bytes:
        """Content of the record's file."""
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def from_json(cls, text: bytes) -> RunRecord:
        """Read the content of a record's file.

        Raises:
            ValueError: it is not a record.
        """
        # In one line, no text forges another one.
        values: Any = changed_texts(json.loads(text), one_line)
        try:
            values["points"] = tuple(map(str, values.get("points", ())))
            values["running"] = tuple(RunningTrial(**trial) for trial in values["running"])
            if values.get("certificate") is not None:
                values["certificate"] = Certificate(**values["certificate"])
            record = cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the record of a run: {error}") from error
        for entry in (record, *record.running, record.certificate):
            if entry is not None:
                _check_kinds(entry)
        return record


def _check_kinds(entry: Any) -> None:
    """Refuse values of other types than the fields have, and numbers that no time and no sum is.

    Raises:
        ValueError: there is one.
    """
    for name, hint in get_type_hints(type(entry)).items():
        value = getattr(entry, name)
        options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kinds = tuple(get_origin(kind) or kind for kind in options)
        if float in kinds:
            kinds += (int,)
        values = [value]
        if isinstance(value, dict):
            values = [one if isinstance(one, int | float) else _MOST for one in value.values()]
        too_large = any(isinstance(one, int | float) and not abs(one) < _MOST for one in values)
        if not isinstance(value, kinds) or too_large:
            raise ValueError(f"not the record of a run: {name} is {quoted(value)}")


_MOST = 1e11
"""Times in seconds, and all other numbers of a record, are smaller; dates end in the year 5138."""


class StoredRun(NamedTuple):
    """A record as it lies in the results."""

    record: RunRecord
    age_s: float
    """Seconds since it was written."""


def new_run_id() -> str:
    """Name a run; names are in the order of their starts, to the second."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(4).hex()}"

"""Settings of configurations by column, measurements of them, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

NORMAL_90 = 1.645
"""Half-width of a normal distribution's 90 % interval, in standard deviations."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

_BY_NAME = ("categories", "numbers")
"""Fields of `Setups` that are mappings."""

_KINDS = ("period", "payload", "is_asynchronous", "servers", "exchanges_each_pass", "slowness")
"""Fields of `Setups` that are not sizes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setups:
    """Settings of n configurations; each array has shape (n,)."""

    workers: Numbers
    """Training processes."""

    participants: Numbers
    """Of these, the workers that train in a step."""

    nodes: Numbers
    """Machines that they run on."""

    micro_batch: Numbers
    """Samples per worker and pass."""

    accumulation: Numbers
    """Passes per step."""

    period: Numbers
    """Steps from one exchange to the next."""

    payload: Numbers
    """Bytes of an exchange as a share of those without compression; 1 where that is unknown."""

    is_asynchronous: Flags
    """True if a step waits for no other worker's."""

    servers: Numbers
    """Server processes that all workers exchange with; 0 where workers exchange with each other."""

    exchanges_each_pass: Flags
    """True if each pass of a step exchanges, as in modes that shard parameters."""

    slowness: Numbers
    """Factor of the slowest worker's pass by `slow_rank`."""

    categories: Mapping[str, NDArray[Any]] = field(default_factory=lambda: NOTHING)
    """Settings without an order, by name: (n,) texts, such as the mode and the compression."""

    numbers: Mapping[str, Numbers] = field(default_factory=lambda: NOTHING)
    """Further settings that are numbers above 0, by name: (n,)."""

    def __len__(self) -> int:
        """Number of configurations."""
        return len(self.workers)

    @property
    def samples_per_step(self) -> Numbers:
        """Samples of a step over all workers that train, as if each had samples of its own."""
        samples: Numbers = self.participants * self.micro_batch * self.accumulation
        return samples

    @property
    def per_node(self) -> Numbers:
        """Workers of the fullest node, if they are spread evenly."""
        workers: Numbers = np.ceil(self.workers / self.nodes)
        return workers

    def are_in(self, others: Setups) -> Flags:
        """Mark the configurations that are among others, by the settings that others have: (n,)."""
        names = (*others.categories, *others.numbers)
        rows = set(others._rows(names))
        return np.array([row in rows for row in self._rows(names)], dtype=np.bool_)

    def are_alike(self, others: Setups) -> Flags:
        """Mark pairs that are equal in all but their sizes, by the others' settings: (n, m)."""
        columns = [(getattr(self, name), getattr(others, name)) for name in _KINDS]
        columns += [
            (self.categories[name].astype(str), others.categories[name].astype(str))
            for name in others.categories
        ]
        columns += [(self.numbers[name], others.numbers[name]) for name in others.numbers]
        is_alike = np.ones((len(self), len(others)), dtype=np.bool_)
        for own, other in columns:
            is_alike &= own[:, None] == other
        return is_alike

    def _rows(self, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Values of each configuration, with those of some categories and numbers."""
        further = {**self.categories, **self.numbers}
        own = [getattr(self, one.name) for one in fields(self) if one.name not in _BY_NAME]
        columns = [*own, *(further[name] for name in names)]
        return [*zip(*(column.tolist() for column in columns), strict=True)]

    def take(self, rows: Any) -> Setups:
        """Choose configurations, by their numbers or by (n,) flags."""
        return _by_column(lambda column: column[rows], self)

    def followed_by(self, others: Setups) -> Setups:
        """Put other configurations behind these, by the settings that these have."""
        return _by_column(lambda *columns: np.concatenate(columns), self, others)


def _by_column(function: Callable[..., Any], first: Setups, *others: Setups) -> Setups:
    """Call a function with each column of some setups."""
    columns: dict[str, Any] = {}
    for one in fields(first):
        values, *more = (getattr(setups, one.name) for setups in (first, *others))
        if one.name in _BY_NAME:
            columns[one.name] = {
                name: function(column, *(by_name[name] for by_name in more))
                for name, column in values.items()
            }
        else:
            columns[one.name] = function(values, *more)
    return Setups(**columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredSetups:
    """Step times of n configurations; one that several launches measured has several rows."""

    step_s: Numbers
    """Mean step time, in seconds: samples of a step over samples per second."""

    error: Numbers
    """Standard error of its logarithm within the window; 0 where that is unknown."""

    pass_s: Numbers
    """Seconds of one pass without the exchange; nan where that is unknown."""

    launch: NDArray[np.int64]
    """Number of the launch: rows of one launch share its deviation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """Predicted step times of n configurations, as normal distributions of their logarithms."""

    log_step_s: Numbers
    """Mean of the logarithm of the step time in seconds."""

    error: Numbers
    """Standard deviation of the logarithm: of the model and the next launch."""

    distance: Numbers
    """Distance to the nearest measured configuration: 0 at it, 1 where it tells little."""

"""Grids of a script of the user: numbers of workers that its arguments promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from dtsweep.errors import SweepError, quoted
from dtsweep.sweep.values import Scalar

_OF_A_MODEL = ("tensor_parallel", "pipeline_parallel", "context_parallel")
"""Meanings whose product is the number of workers that share one model and its samples.

Workers of context parallelism have parts of the same sequences.
"""

_EXPERTS = "expert_parallel"

_DEGREES = (*_OF_A_MODEL, _EXPERTS)
"""Meanings of arguments that are numbers of workers."""

MEANINGS = (*_DEGREES, "pipeline_schedule")
"""Meanings that `Script(names=…)` can give an argument in addition to fields of a point.

The schedule is a text; nothing follows from it.
"""


@dataclass(frozen=True)
class NamedGrid:
    """Numbers of workers that a script promises at a point; a meaning without a name counts as 1.

    >>> NamedGrid({"tensor_parallel": 2, "context_parallel": 2}, words={}).model
    4
    """

    degrees: Mapping[str, int]
    """Workers by meaning, of `_DEGREES`."""

    words: Mapping[str, str]
    """Axis or argument of each meaning, for messages: `args.tp`."""

    @property
    def model(self) -> int:
        """Workers that share one model and its samples."""
        return prod(self.degrees.get(name, 1) for name in _OF_A_MODEL)

    @property
    def context(self) -> int:
        """Workers that have parts of the same sequences."""
        return self.degrees.get("context_parallel", 1)

    def fault(self, workers: int) -> str | None:
        """Reason why so many workers can't have this grid, or None.

        The workers must be a multiple of tensor × pipeline × context. Experts are divided over the
        workers of a pipeline stage. That is the weakest rule of Megatron-LM and torchtitan: with
        experts that tensor parallelism does not divide (`--expert-tensor-parallel-size 1`) they
        take the workers of data, context and tensor parallelism; with others data and context
        alone. So no grid is refused that one of them can train.
        """
        if workers % self.model:
            return (
                f"{self.named()} needs a multiple of {self.model} workers, and there are "
                f"workers={workers}; use workers={self.model} or a multiple, or smaller numbers"
            )
        stage = workers // self.degrees.get("pipeline_parallel", 1)
        if stage % self.degrees.get(_EXPERTS, 1):
            return (
                f"{self.named([_EXPERTS])} does not divide the {stage} workers of a pipeline "
                f"stage (workers={workers}); use a divisor of {stage}"
            )
        return None

    def named(self, meanings: Iterable[str] = _OF_A_MODEL) -> str:
        """Numbers with their names, by default of a model's workers: `args.tp=2 × args.pp=2`."""
        given = [name for name in meanings if name in self.degrees]
        return " × ".join(f"{self.words[name]}={self.degrees[name]}" for name in given)


def named_grid(values: Mapping[str, Scalar], words: Mapping[str, str]) -> NamedGrid | None:
    """Make the grid of a point; None if no number of workers has a name.

    Args:
        values: of the arguments with a meaning, by meaning.
        words: axis or argument of each meaning.

    Raises:
        SweepError: a number of workers is not a whole number of at least 1.
    """
    degrees: dict[str, int] = {}
    for name in _DEGREES:
        if name not in values:
            continue
        value = values[name]
        if type(value) is not int or value < 1:
            raise SweepError(
                f"{words[name]}={quoted(value)} is {name} by names, which must be a whole number "
                "of at least 1; use 1 where nothing is divided",
                word=words[name],
            )
        degrees[name] = value
    return NamedGrid(degrees, words) if degrees else None

"""Training loops of the user, which run as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.sweep.values import Scalar

_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}


@dataclass(frozen=True)
class Script:
    """An unchanged training script, which runs in each worker as `torchrun` would run it.

    Axes `args.NAME` are arguments by name: `--NAME value`, a flag alone for True, nothing for False
    and None. A name with a dot is `NAME=value`, and a number is the position of a value.
    """

    path: str
    """The script."""

    arguments: tuple[str, ...] = ()
    """Arguments that are the same for all points; they come first."""

    args: Mapping[str, Scalar] = field(default_factory=dict)
    """Values of arguments by name, where no axis `args.NAME` has them."""

    samples_per_step: int | None = None
    """Samples of a worker per optimizer step; None counts those of the data loaders."""

    arg_types: Mapping[str, str] = field(default_factory=dict)
    """Type of each argument by name, as the axes of a sweep give it; set by `Sweep`."""

    def __post_init__(self) -> None:
        """Find the script.

        Raises:
            SweepError: there is none.
        """
        object.__setattr__(self, "arguments", tuple(self.arguments))
        # Workers have another working directory.
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        if not Path(self.path).is_file():
            raise SweepError(
                f"there is no script {self.path!r}; give its path from the working directory",
                word="path",
            )

    def argument_types(self) -> dict[str, Any]:
        """Annotation of each argument by name."""
        return {name: _TYPES.get(self.arg_types.get(name, ""), Scalar) | None for name in self.args}

    def with_axes(self, values: Mapping[str, list[Any] | None]) -> Script:
        """The script with arguments of these names; their values come with each point.

        Args:
            values: of each axis by its argument's name; None where they are not a list.
        """
        types = dict(self.arg_types)
        for name, listed in values.items():
            kinds = {type(value).__name__ for value in listed or () if value is not None}
            if kinds == {"int", "float"}:
                kinds = {"float"}
            if listed is not None and len(kinds) == 1:
                types[name] = kinds.pop()
        args = {name: self.args.get(name) for name in (*self.args, *values)}
        return replace(self, args=args, arg_types=types)


class Loop:
    """A function of the user that trains: `workloads.Loop(train)`.

    The function is called with the point, on each worker, in a process group of all workers. It
    trains as long as it is let: the measurement ends it by an exception after an optimizer step.
    """

    def __new__(cls, train: Any) -> Any:
        """Make a workload without fields whose name is the function's.

        Raises:
            SweepError: it is no function.
        """
        if not callable(train):
            raise SweepError("workloads.Loop needs a function train(point)", word="Loop")
        kind: Any = type(train.__name__, (_Loop,), {"train": staticmethod(train)})
        kind.__module__ = train.__module__
        kind.__doc__ = train.__doc__ or f"The training loop {train.__name__}."
        return dataclass(frozen=True)(kind)()


class _Loop:
    """Base of the workloads that `Loop` makes."""

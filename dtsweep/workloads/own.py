"""Training loops of the user, which run as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Self

from dtsweep.errors import SweepError, nearest
from dtsweep.sweep.arguments import bare
from dtsweep.sweep.checks import READABLE_BY_OWN_LOOPS
from dtsweep.sweep.loader_axes import LOADER_TYPES, loader_settings
from dtsweep.sweep.named_grid import MEANINGS, NamedGrid, named_grid
from dtsweep.sweep.values import ARGS, LOADER, Scalar

_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}


class _OwnLoop:
    """Arguments by name, as axes `args.NAME`, of `Script` and of the workloads of `Loop`.

    Axes `loader.NAME` are settings of its data loaders.
    """

    args: Mapping[str, Scalar]
    loader: Mapping[str, Scalar]
    arg_types: Mapping[str, str]
    samples_per_step: int | tuple[str, ...] | None

    def __post_init__(self) -> None:
        """Fit the settings of data loaders to each other.

        Raises:
            SweepError: one is out of range.
        """
        object.__setattr__(self, "loader", loader_settings(self.loader))

    def values(self, point: Any) -> dict[str, Scalar]:
        """Values of the arguments for a point, by the name of the argument."""
        raise NotImplementedError

    def given_samples(self, point: Any) -> int | None:
        """Samples of a worker per optimizer step as `samples_per_step` gives them.

        Raises:
            SweepError: the value of an argument is not a whole number.
        """
        given = self.samples_per_step
        if given is None or isinstance(given, int):
            return given
        values = {bare(name): value for name, value in self.values(point).items()}
        factors = [values.get(bare(name)) for name in given]
        for name, value in zip(given, factors, strict=True):
            if type(value) is not int:
                raise SweepError(
                    f"samples_per_step has {name!r}, whose value {value!r} is not a whole number",
                    word=name,
                )
        return prod(int(value or 0) for value in factors)

    def read_arguments(self) -> dict[str, str]:
        """Arguments whose values dtsweep reads, each with the setting that names it."""
        if not isinstance(self.samples_per_step, tuple):
            return {}
        return dict.fromkeys(self.samples_per_step, "samples_per_step")

    def check_arguments(self) -> None:
        """Check that the values of `read_arguments` are known for each point.

        Raises:
            SweepError: one of them is not.
        """
        for name, setting in self.read_arguments().items():
            if bare(name) not in map(bare, self.argument_names()):
                raise SweepError(
                    f"{setting} has {name!r}, which is not an argument by name; give it in "
                    f"args, or as an axis args.{name}",
                    word=name,
                )

    def check_file(self) -> None:
        """Check that the loop's file is here; not on a worker, whose node may have got a copy.

        Raises:
            SweepError: it is not.
        """

    def argument_names(self) -> set[str]:
        """Names of the arguments whose values are known for each point."""
        return set(self.args)

    def argument_types(self) -> dict[str, Any]:
        """Annotation of each argument by name."""
        return {name: _TYPES.get(self.arg_types.get(name, ""), Scalar) | None for name in self.args}

    def loader_types(self) -> dict[str, Any]:
        """Annotation of each setting of data loaders, by the name of its axis."""
        return {f"{LOADER}{name}": LOADER_TYPES[name] for name in self.loader}

    def reads(self) -> Iterable[str]:
        """Fields of a point that have an effect on the loop."""
        raise NotImplementedError

    def with_axes(self, arguments: Mapping[str, list[Any] | None], names: Iterable[str]) -> Self:
        """The workload for a sweep with these axes; their values come with each point.

        Args:
            arguments: values of each axis `args.NAME` by that name; None where they are not a list.
            names: of all axes.
        """
        types = dict(self.arg_types)
        for name, listed in arguments.items():
            kinds = {type(value).__name__ for value in listed or () if value is not None}
            if kinds == {"int", "float"}:
                kinds = {"float"}
            if listed is not None and len(kinds) == 1:
                types[name] = kinds.pop()
        args = {name: self.args.get(name) for name in (*self.args, *arguments)}
        axes = set(names)
        if {"micro_batch", "global_batch"} <= axes:
            # It follows from these.
            axes.add("accumulation")
        driven = tuple(name for name in self.reads() if name in axes)
        changes: dict[str, Any] = {"args": args, "arg_types": types, "driven": driven}
        settings = [name.removeprefix(LOADER) for name in names if name.startswith(LOADER)]
        changes["loader"] = {name: self.loader.get(name) for name in (*self.loader, *settings)}
        made: Self = replace(self, **changes)  # type: ignore[type-var]  # its subclasses are dataclasses
        made.check_arguments()
        made.check_file()
        return made


@dataclass(frozen=True)
class Script(_OwnLoop):
    """An unchanged training script, which runs in each worker as `torchrun` would run it.

    Axes `args.NAME` are arguments by name: `--NAME value`, a flag alone for True, nothing for False
    and None. A name with a dot, as `model.width`, or with two hyphens, as `--width`, is
    `NAME=value`, and a number is the position of a value.
    """

    path: str
    """The script."""

    arguments: tuple[str, ...] = ()
    """Arguments that are the same for all points; they come first."""

    args: Mapping[str, Scalar] = field(default_factory=dict)
    """Values of arguments by name, where no axis `args.NAME` has them."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Arguments that take an axis of dtsweep: `{"micro_batch": "batch-size"}`.

    The samples that the loop loads are compared with those axes. `tensor_parallel` and others of
    `MEANINGS` say what an argument means: `{"tensor_parallel": "tp"}` for an axis `args.tp`.
    """

    samples_per_step: int | tuple[str, ...] | None = None
    """Samples of a worker per optimizer step, or the arguments whose product they are:
    `("batch-size", "grad-accum")`. None counts those of the data loaders."""

    arg_types: Mapping[str, str] = field(default_factory=dict)
    """Type of each argument by name, as the axes of a sweep give it; set by `Sweep`."""

    driven: tuple[str, ...] = ()
    """Fields of a point that are axes and have an argument; set by `Sweep`."""

    loader: Mapping[str, Scalar] = field(default_factory=dict)
    """Settings of its data loaders that are axes `loader.NAME`; set by `Sweep`."""

    def __post_init__(self) -> None:
        """Find the script.

        Raises:
            SweepError: there is none, or a name is not a field of a point.
        """
        super().__post_init__()
        object.__setattr__(self, "arguments", tuple(self.arguments))
        if isinstance(self.samples_per_step, list):
            # As JSON gives it back.
            object.__setattr__(self, "samples_per_step", tuple(self.samples_per_step))
        is_absolute = Path(self.path).is_absolute()
        # Workers have another working directory.
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        # An absolute path is looked for by `Sweep`: a worker makes copies of this object.
        if not is_absolute:
            self.check_file()
        allowed = (*READABLE_BY_OWN_LOOPS, *MEANINGS)
        for name in self.names:
            if name not in allowed:
                raise SweepError(
                    f"names has {name!r}, which is not one of {', '.join(allowed)}; "
                    "use an axis args.NAME for an argument of the script",
                    word=name,
                )

    def check_file(self) -> None:
        """Check that the script is here.

        Raises:
            SweepError: it is not.
        """
        if self.script_file.is_file():
            return
        others = (file.name for file in self.script_file.parent.glob("*.py"))
        near = nearest(self.script_file.name, others)
        hint = "give its path from the working directory"
        if near:
            hint = f"did you mean {near!r}?"
        raise SweepError(f"there is no script {self.path!r}; {hint}", word="path")

    @property
    def script_file(self) -> Path:
        """The script; other workloads have none."""
        return Path(self.path)

    def reads(self) -> Iterable[str]:
        """Fields of a point that have an argument."""
        return self.names

    def argument_names(self) -> set[str]:
        """Names of the arguments whose values are known for each point."""
        return {*self.args, *(self.names[name] for name in self.driven)}

    def values(self, point: Any) -> dict[str, Scalar]:
        """Values of the arguments for a point, by the name of the argument."""
        named = {self.names[name]: getattr(point, name) for name in self.driven}
        return {**named, **self.args}

    def read_arguments(self) -> dict[str, str]:
        """Arguments whose values dtsweep reads, each with the setting that names it."""
        meanings = {name: "names" for meaning, name in self.names.items() if meaning in MEANINGS}
        return {**super().read_arguments(), **meanings}

    def named_grid(self, fields: Mapping[str, Any]) -> NamedGrid | None:
        """The grid that arguments with a meaning promise for a point's fields; None without any.

        Raises:
            SweepError: one of them is not a whole number of at least 1.
        """
        by_argument = {bare(name): value for name, value in self.args.items()}
        values, words = {}, {}
        for name, argument in self.names.items():
            if name not in MEANINGS:
                continue
            values[name], words[name] = by_argument.get(bare(argument)), f"{ARGS}{argument}"
            if name in self.driven:
                values[name], words[name] = fields[name], name
        return named_grid(values, words)


class Loop:
    """A function of the user that trains: `workloads.Loop(train)`.

    The function is called with the point, on each worker, in a process group of all workers. It
    trains as long as it is let: the measurement ends it by an exception after an optimizer step.
    It may read `point.workers`, `point.micro_batch` and others that are axes, and `point.args`.
    """

    def __new__(
        cls,
        train: Any,
        *,
        args: Mapping[str, Scalar] | None = None,
        samples_per_step: int | tuple[str, ...] | None = None,
    ) -> Any:
        """Make a workload whose name is the function's.

        Args:
            train: the function.
            args: values by name, where no axis `args.NAME` has them: `point.args["NAME"]`.
            samples_per_step: of a worker, or names of `args` whose product they are; None counts
                those of the data loaders.

        Raises:
            SweepError: it is not a function.
        """
        if not callable(train):
            raise SweepError("workloads.Loop needs a function train(point)", word="Loop")
        kind: Any = type(train.__name__, (_Loop,), {"train": staticmethod(train)})
        kind.__module__ = train.__module__
        kind.__doc__ = train.__doc__ or f"The training loop {train.__name__}."
        made = dataclass(frozen=True)(kind)
        return made(args=dict(args or {}), samples_per_step=samples_per_step)


@dataclass(frozen=True)
class _Loop(_OwnLoop):
    """Base of the workloads that `Loop` makes."""

    args: Mapping[str, Scalar] = field(default_factory=dict)
    samples_per_step: int | tuple[str, ...] | None = None
    arg_types: Mapping[str, str] = field(default_factory=dict)
    driven: tuple[str, ...] = ()
    loader: Mapping[str, Scalar] = field(default_factory=dict)

    def reads(self) -> Iterable[str]:
        """Fields of a point that the function may read."""
        return READABLE_BY_OWN_LOOPS

    def values(self, point: Any) -> dict[str, Scalar]:  # noqa: ARG002  # as of a script
        """Values by name."""
        return dict(self.args)

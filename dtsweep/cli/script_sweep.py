"""The sweep that the options of `dtsweep script` stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean, quoted

if TYPE_CHECKING:
    from dtsweep.sweep.settings import Measure, Sweep
    from dtsweep.sweep.values import Scalar
    from dtsweep.workloads import Script


@dataclass(frozen=True, kw_only=True)
class ScriptSweep:
    """A sweep of a script by what a command line says."""

    path: str
    """The script, as it was given."""

    arguments: tuple[str, ...]
    """Arguments that are the same for all points."""

    axes: Mapping[str, list[Scalar]]
    """Values by axis."""

    names: Mapping[str, str]
    """Argument by the field of a point that it takes its value from."""

    measure: Mapping[str, Any]
    """Settings of `Measure` that differ from the default."""

    samples_per_step: int | tuple[str, ...] | None
    """Samples of a worker per step, or the arguments whose product they are; None counts them."""

    question: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `Sweep` for its question that differ from the default."""

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of `Script` that are not at their defaults, without its path."""
        fields = {
            "arguments": self.arguments,
            "names": dict(self.names),
            "samples_per_step": self.samples_per_step,
        }
        return {name: value for name, value in fields.items() if value not in (None, (), {})}


def read_options(
    path: str,
    arguments: tuple[str, ...],
    *,
    axes: Sequence[str],
    names: Sequence[str],
    measure: Sequence[str],
    samples_per_step: str | None,
) -> ScriptSweep:
    """Read the options of the command, each of which may be given several times.

    Raises:
        SweepError: an option has no value, or a name is given twice.
    """
    return ScriptSweep(
        path=path,
        arguments=arguments,
        axes=_by_name("--axis", axes),
        names=_names(names),
        measure=_single("--measure", measure),
        samples_per_step=_samples(samples_per_step),
    )


def _by_name(option: str, texts: Sequence[str]) -> dict[str, list[Scalar]]:
    from dtsweep.sweep.axes import parse_setting

    values: dict[str, list[Scalar]] = {}
    for name, listed in (parse_setting(text, option=option) for text in texts):
        if name in values:
            raise SweepError(
                f"{option} has {name!r} twice; give all its values at once: "
                f"{option} {name}=value,value"
            )
        if "" in listed:
            raise SweepError(f"{option} {name!r} has an empty value; write {name}=value,value")
        values[name] = listed
    return values


def _single(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Values by name, where each name has one."""
    values = _by_name(option, texts)
    for name, listed in values.items():
        if len(listed) > 1:
            raise SweepError(f"{option} {name!r} has {len(listed)} values; give one")
    return {name: value for name, (value,) in values.items()}


def _names(texts: Sequence[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in texts:
        field, _, name = (part.strip() for part in text.partition("="))
        if not field or not name:
            raise SweepError(f"--name {quoted(text)} has no argument; write FIELD=ARGUMENT")
        if field in names:
            raise SweepError(f"--name has {field!r} twice; give one argument")
        names[field] = name
    return names


def _samples(text: str | None) -> int | tuple[str, ...] | None:
    """Read a number of samples, or the names of arguments."""
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        names = tuple(name.strip().removeprefix("args.") for name in text.split(","))
        if all(names):
            return names
    else:
        if number > 0:
            return number
    raise SweepError(
        f"--samples-per-step {quoted(text)} is neither a number from 1 nor names of arguments; "
        "write 32, or batch-size,grad-accum"
    )


def sweep_of(asked: ScriptSweep) -> Sweep:
    """Make the sweep; its default results have the script's name.

    Raises:
        SweepError: there is no such script, axis or setting.
    """
    from dtsweep import workloads
    from dtsweep.sweep.settings import Sweep

    script = workloads.Script(asked.path, **asked.fields)
    _check_effect(asked, script)
    return Sweep(
        workload=script,
        axes=asked.axes,
        measure=_measure(asked.measure),
        file=Path(asked.path),
        **asked.question,
    )


def _check_effect(asked: ScriptSweep, script: Script) -> None:
    """Refuse an axis that no argument of the script takes, with the option that names one.

    Raises:
        SweepError: there is such an axis.
    """
    from dtsweep.sweep.checks import READABLE_BY_OWN_LOOPS, fields_read

    taken = fields_read(script)
    for name in asked.axes:
        if name in READABLE_BY_OWN_LOOPS and name not in taken:
            raise SweepError(
                f"axis {name!r} has no effect on the script; say which argument takes it: "
                f"--name {name}=ARGUMENT"
            )


def _measure(settings: Mapping[str, Any]) -> Measure:
    from dataclasses import fields

    from dtsweep.sweep.settings import Measure

    allowed = [item.name for item in fields(Measure)]
    for name in settings:
        if name not in allowed:
            raise SweepError(f"Measure has no setting {name!r}; {did_you_mean(name, allowed)}")
    return Measure(**settings)

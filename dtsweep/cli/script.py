"""The command `script`: the sweep file of a training script, written and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.measure import carry_out, refuse_contradiction
from dtsweep.cli.options import (
    asked_settings,
    question_options,
    refuse_grid,
    run_options,
    take_prices,
    take_question,
    tell,
)
from dtsweep.errors import SweepError, did_you_mean, quoted

if TYPE_CHECKING:
    from dtsweep.sweep.settings import Sweep
    from dtsweep.sweep.values import Scalar


_FOLDER = "sweeps"
"""Folder of a sweep file that the command does not name."""


class _ScriptCommand(click.Command):
    """A command that ends in `-- arguments of the script`; what is wrong is said in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, arguments = args, []
        if "--" in args:
            own, arguments = args[: args.index("--")], args[args.index("--") + 1 :]
        try:
            rest = super().parse_args(ctx, own)
        except click.NoSuchOption as error:
            raise SweepError(
                f"dtsweep script has no option {error.option_name}{_near(error)}; arguments of the "
                f"script stand after --, or are axes: --axis args.{error.option_name.strip('-')}=…"
            ) from None
        except click.UsageError as error:
            raise SweepError(
                f"{error.format_message().rstrip('.')}; write dtsweep script train.py "
                "--axis workers=1,2 -- arguments of the script"
            ) from None
        ctx.params["arguments"] = tuple(arguments)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def _near(error: click.NoSuchOption) -> str:
    if not error.possibilities:
        return ""
    return f" (did you mean {error.possibilities[0]}?)"


@click.command(cls=_ScriptCommand)
@click.argument("path", metavar="SCRIPT.py")
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="AXIS=V1,V2",
    help="Values of an axis: workers=1,2, args.NAME=8,16 for --NAME, env.NAME=a,b.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="FIELD=NAME",
    help="Argument that takes its value from a field: micro_batch=batch-size.",
)
@click.option(
    "--samples-per-step",
    metavar="N|NAME,NAME",
    help="Samples of a worker per step, or arguments whose product they are; else counted.",
)
@click.option(
    "--measure",
    multiple=True,
    metavar="SETTING=VALUE",
    help="A setting of Measure: repeats=3, half_width=0.01, max_seconds=30.",
)
@click.option(
    "--save",
    "file",
    metavar="SWEEP.py",
    help="Write the sweep file under this name; starts nothing.",
)
@question_options
@run_options
def script(path: str, arguments: tuple[str, ...], file: str | None, **options: Any) -> None:
    """Measure a training script as it is, as `torchrun` would run it.

    Writes the sweep file sweeps/SCRIPT.py and runs it. Arguments after `--` are the same for all
    trials. The same command again goes on with its results.
    """
    from dtsweep.report.code import in_shell
    from dtsweep.sweep.axes import candidates

    names = ("axes", "names", "measure", "samples_per_step")
    given = {name: options.pop(name) for name in names}
    question = take_question(options)
    options["prices"] = take_prices(options)
    settings = _read_options(path, arguments, **given)
    text = _file_text([*settings, *_keywords(asked_settings(None, question))])
    place = Path(file or Path(_FOLDER) / f"{Path(path).stem}.py")
    sweep = _sweep_of(text, place)
    refuse_grid(sweep, question)
    points = candidates(sweep)
    refuse_contradiction(in_process=options["in_process"], address=options["address"])
    if file is None:
        place.parent.mkdir(exist_ok=True)
    if _write(text, place):
        tell(f"wrote {place}")
    if file is not None:
        tell(f"to measure it: dtsweep {in_shell(file)}")
        return
    carry_out(sweep, points, **options)


def _read_options(
    path: str,
    arguments: tuple[str, ...],
    *,
    axes: Sequence[str],
    names: Sequence[str],
    measure: Sequence[str],
    samples_per_step: str | None,
) -> list[str]:
    """Read the options of the command, each of which may be given several times.

    Returns:
        Code of the settings of `Sweep`: the workload, the axes, and what differs in `Measure`.

    Raises:
        SweepError: an option has no value, or a name is given twice or unknown.
    """
    from dtsweep.sweep.settings import Measure

    fields_of_script = {
        "arguments": arguments,
        "names": {
            name: str(value)
            for name, value in _single("--name", names, "--name FIELD=ARGUMENT").items()
        },
        "samples_per_step": _samples(samples_per_step),
    }
    settings = _single("--measure", measure, "--measure SETTING=VALUE")
    allowed = [item.name for item in fields(Measure)]
    for name in settings:
        if name not in allowed:
            raise SweepError(f"Measure has no setting {name!r}; {did_you_mean(name, allowed)}")
    given = {name: value for name, value in fields_of_script.items() if value not in (None, (), {})}
    values = _by_name("--axis", axes)
    code = [
        _call("workload=workloads.Script", [repr(path), *_keywords(given)]),
        _lines("axes={", [f"{name!r}: {listed!r}" for name, listed in values.items()], "}"),
    ]
    if settings:
        code.append(_call("measure=Measure", _keywords(settings)))
    return code


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


def _single(option: str, texts: Sequence[str], form: str) -> dict[str, Scalar]:
    """Values by name, where each name has one."""
    values = _by_name(option, texts)
    for name, listed in values.items():
        if len(listed) > 1:
            raise SweepError(f"{option} {name!r} has {len(listed)} values; give one: {form}")
    return {name: value for name, (value,) in values.items()}


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


def _file_text(settings: Sequence[str]) -> str:
    """Text of the sweep file with these settings."""
    return f'''"""Sweep of a script, written by dtsweep script."""

from dtsweep import Goal, Measure, Search, Sweep, workloads

{_call("sweep = Sweep", settings)}
'''


def _keywords(values: Mapping[str, Any]) -> list[str]:
    """Code of arguments by name; of a dataclass without the fields at their defaults."""
    code = []
    for name, value in values.items():
        if is_dataclass(value):
            given = {
                item.name: getattr(value, item.name)
                for item in fields(value)
                if getattr(value, item.name) != item.default
            }
            code.append(_call(f"{name}={type(value).__name__}", _keywords(given)))
        else:
            code.append(f"{name}={value!r}")
    return code


def _call(head: str, items: Iterable[str]) -> str:
    return _lines(f"{head}(", items, ")")


def _lines(opening: str, items: Iterable[str], closing: str) -> str:
    """Code with a line for each item between brackets."""
    body = "".join(f"{item},\n" for item in items)
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    if not indented:
        return f"{opening}{closing}"
    return f"{opening}\n{indented}{closing}"


def _sweep_of(text: str, path: Path) -> Sweep:
    """Make the sweep of a file's text before the file is written."""
    variables: dict[str, Any] = {}
    exec(compile(text, path, "exec"), variables)  # noqa: S102  # the text is from `_file_text`
    sweep: Sweep = variables["sweep"]
    return replace(sweep, file=path)


def _write(text: str, path: Path) -> bool:
    """Write the sweep file; False if it is there already, with this text.

    Raises:
        SweepError: another file has its name, or it can't be written.
    """
    if path.suffix != ".py":
        raise SweepError(
            f"--save {quoted(str(path))} is not the name of a sweep file, which ends in .py"
        )
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return False
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SweepError(
            f"there is a file {str(path)!r} of another sweep; change it and run dtsweep {path}, or "
            "give another name with --save"
        ) from None
    except OSError as error:
        raise SweepError(f"{str(path)!r} can't be written: {error.strerror}") from None
    return True

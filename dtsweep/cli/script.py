"""The command `script`: the sweep file of a training script, written and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dtsweep.cli.measure import carry_out, refuse_contradiction
from dtsweep.cli.options import (
    question_options,
    refuse_grid,
    run_options,
    settings_of,
    take_prices,
    take_question,
    tell,
)
from dtsweep.cli.script_file import file_text, read_options, sweep_of, write
from dtsweep.errors import SweepError

FOLDER = "sweeps"
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
    asked = replace(read_options(path, arguments, **given), question=settings_of(None, question))
    text = file_text(asked, command=_command(path, arguments, given=given, question=question))
    place = Path(file or Path(FOLDER) / f"{Path(path).stem}.py")
    sweep = sweep_of(text, place)
    refuse_grid(sweep, question)
    points = candidates(sweep)
    refuse_contradiction(in_process=options["in_process"], address=options["address"])
    if file is None:
        place.parent.mkdir(exist_ok=True)
    if write(text, place):
        tell(f"wrote {place}")
    if file is not None:
        tell(f"to measure it: dtsweep {in_shell(file)}")
        return
    carry_out(sweep, points, **options)


def _command(
    path: str,
    arguments: tuple[str, ...],
    *,
    given: Mapping[str, Any],
    question: Mapping[str, Any],
) -> str:
    """The command that says what is measured, without the options that say how it is run."""
    from dtsweep.report.code import in_shell

    words = ["dtsweep", "script", path]
    for option, name in {"--axis": "axes", "--name": "names", "--measure": "measure"}.items():
        words += [word for text in given[name] for word in (option, text)]
    if given["samples_per_step"] is not None:
        words += ["--samples-per-step", given["samples_per_step"]]
    for name, value in question.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    if arguments:
        words += ["--", *arguments]
    return " ".join(map(in_shell, words))

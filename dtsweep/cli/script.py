"""The command `script`: a sweep of a training script, without a sweep file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.measure import carry_out, refuse_contradiction, show_plan
from dtsweep.cli.options import question_options, run_options, take_prices, tell
from dtsweep.cli.question import refuse_grid, settings_of, take_question
from dtsweep.cli.script_file import save
from dtsweep.cli.script_sweep import read_options, sweep_of
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    from dtsweep.sweep.settings import Sweep


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
@click.option("--plan", is_flag=True, help="Say what would run, and why; starts nothing.")
@click.option(
    "--save",
    "file",
    metavar="SWEEP.py",
    help="Write the sweep file that this command stands for; starts nothing.",
)
@question_options
@run_options
def script(
    path: str,
    arguments: tuple[str, ...],
    plan: bool,
    file: str | None,
    **options: Any,
) -> None:
    """Measure a training script as it is, as `torchrun` would run it.

    Arguments after `--` are the same for all trials. The same command again goes on with its
    results.
    """
    names = ("axes", "names", "measure", "samples_per_step")
    given = {name: options.pop(name) for name in names}
    question = take_question(options)
    options["prices"] = take_prices(options)
    asked = replace(read_options(path, arguments, **given), question=settings_of(None, question))

    from dtsweep.sweep.axes import candidates

    sweep = sweep_of(asked)
    refuse_grid(sweep, question)
    points = candidates(sweep)
    if file is not None:
        save(asked, Path(file), command=_command(path, arguments, given=given, question=question))
        tell(_next_step(sweep, file))
    elif plan:
        _refuse_options_of_a_run(options)
        show_plan(sweep, points, **options)
    else:
        refuse_contradiction(in_process=options["in_process"], address=options["address"])
        carry_out(sweep, points, **options)


def _refuse_options_of_a_run(options: dict[str, Any]) -> None:
    """Take the options that a plan has no use for out of these; refuse them if they were given."""
    del options["node_timeout_s"]
    for name in ("in_process", "profile", "max_hours", "max_cost_usd"):
        if options.pop(name) not in (None, False):
            option = name.removesuffix("_usd").replace("_", "-")
            raise SweepError(f"--plan is the plan of a run on Ray; leave --{option} out")


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


def _next_step(sweep: Sweep, file: str) -> str:
    """Say how the file is run, and how results of the command are continued."""
    from dtsweep.report.code import in_shell

    run = f"dtsweep {in_shell(file)}"
    words = f"wrote {file}; to measure it: {run}"
    results = f"results/{sweep.name}"
    if Path(results).is_dir() and Path(file).stem != sweep.name:
        words += f", or with --results {in_shell(results)}, which goes on with those results"
    return words

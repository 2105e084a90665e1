"""The group of commands, and what their errors end with."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from dtsweep.cli.claim import claim_command
from dtsweep.cli.compare import compare_command, difference_command
from dtsweep.cli.decide import predict, recommend_command, report
from dtsweep.cli.export import export
from dtsweep.cli.import_table import import_table
from dtsweep.cli.measure import doctor, plan, run_command
from dtsweep.cli.options import tell
from dtsweep.cli.script import script
from dtsweep.cli.status import status
from dtsweep.errors import StorageError, SweepError, nearest
from dtsweep.results.time_limit import is_call_left


class _RunByDefault(click.Group):
    """`dtsweep SWEEP.py` is `dtsweep run SWEEP.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "--version"):
            near = nearest(args[0], self.commands)
            if near and not Path(args[0]).exists():
                raise SweepError(
                    f"{args[0]!r} is neither a command nor a sweep file; did you mean {near!r}?"
                )
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Click's exit code would be 1, which says that trials have failed.
            tell("dtsweep: interrupted")
            sys.exit(128 + signal.SIGINT)


@click.group(cls=_RunByDefault)
@click.version_option(package_name="dtsweep")
def cli() -> None:
    """Measure the latency/throughput frontier of a distributed training job.

    `dtsweep SWEEP.py` runs a sweep; running it again resumes it. `dtsweep script train.py --axis
    workers=1,2` writes the sweep file.
    """


_READING = (
    plan,
    status,
    report,
    recommend_command,
    predict,
    difference_command,
    compare_command,
    export,
)
"""Commands that read results and measure nothing."""

_COMMANDS = (run_command, script, *_READING, claim_command, import_table, doctor)

for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command; what a user did wrong is one line on stderr and exit code 2, storage 5."""
    try:
        _run_command()
    except SystemExit as end:
        if is_call_left():
            _leave_now(end.code)
        raise


def _leave_now(code: str | int | None) -> None:
    """End the process as Python would, but don't wait for a store that does not answer.

    Arrow waits at the end for all calls of S3, and crashes if it can't.
    """
    from dtsweep.results.object_stores import leave_calls

    leave_calls()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run_command() -> None:
    if sys.argv[1:2] and sys.argv[1] in {command.name for command in _READING}:
        # BLAS reads it when NumPy is imported. On busy cores its threads wait for each other:
        # the eigenvalues of 800 points took 6 s, and 0.15 s with one thread.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        cli(prog_name="dtsweep")
    except SweepError as error:
        tell(f"dtsweep: {error}")
        sys.exit(2)
    except StorageError as error:
        tell(f"dtsweep: {error}")
        sys.exit(5)

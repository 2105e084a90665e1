"""The group of commands, and what their errors end with."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dtsweep.cli.cluster import cluster
from dtsweep.cli.compare import compare, difference
from dtsweep.cli.decide import recommend, report
from dtsweep.cli.measure import doctor, plan, run
from dtsweep.cli.options import tell
from dtsweep.cli.script import script
from dtsweep.cli.status import status
from dtsweep.errors import StorageError, SweepError, nearest


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


@click.group(cls=_RunByDefault)
@click.version_option(package_name="dtsweep")
def cli() -> None:
    """Measure the latency/throughput frontier of a distributed training job.

    `dtsweep SWEEP.py` runs a sweep; running it again resumes it. `dtsweep script train.py --axis
    workers=1,2` needs no sweep file.
    """


_COMMANDS = (run, plan, script, status, report, recommend, difference, compare, doctor, cluster)

for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command; what a user did wrong is one line on stderr and exit code 2, storage 5."""
    try:
        cli(prog_name="dtsweep")
    except SweepError as error:
        tell(f"dtsweep: {error}")
        sys.exit(2)
    except StorageError as error:
        tell(f"dtsweep: {error}")
        sys.exit(5)

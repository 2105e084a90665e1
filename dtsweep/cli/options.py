"""Arguments and options that commands share; data go to stdout, messages to stderr."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dtsweep.errors import printable

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


class FiniteRange(click.FloatRange):
    """Range of numbers without nan and infinity: no comparison holds for nan, no wait ends then."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number, and refuse one that is not finite."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


sweep_argument = click.argument("sweep", metavar="SWEEP.py")
set_option = click.option(
    "--set", "settings", multiple=True, metavar="AXIS=V1,V2", help="Narrow or replace an axis."
)
results_option = click.option(
    "--results", metavar="DIR-or-URI", help="Where results lie; results/<file name> by default."
)
rerun_option = click.option(
    "--rerun", type=click.Choice(["failed", "all"]), help="Measure again what is done."
)
address_option = click.option(
    "--address", metavar="local|auto|HOST:PORT", help="Which Ray; by default the one Ray would use."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")

_RUN_OPTIONS = (
    results_option,
    address_option,
    rerun_option,
    click.option(
        "--node-timeout",
        "node_timeout_s",
        type=FiniteRange(min=0, min_open=True),
        default=300.0,
        show_default=True,
        metavar="S",
        help="Seconds to wait for nodes.",
    ),
    click.option(
        "--profile", is_flag=True, help="Store a trace of some steps of each world's first trial."
    ),
    click.option(
        "--in-process",
        is_flag=True,
        help="One worker in this process, without Ray: for a debugger.",
    ),
    json_option,
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a run, in the order in which the help lists them."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


def tell(text: str) -> None:
    """Print a message for the user on stderr, apart from the data."""
    click.echo(printable(text), err=True)


def console() -> Console:
    """Make the writer of tables to stdout."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Print JSON values as data."""
    import json

    click.echo(json.dumps(value, indent=2))


def load_results(results: str) -> pd.DataFrame:
    """Read trials with canaries; what is left out is said."""
    from dtsweep.analysis.load import load

    with telling_warnings():
        return load(results, canaries=True)


@contextmanager
def telling_warnings() -> Iterator[None]:
    """Show the user the warnings from inside."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        yield
    for warning in caught:
        tell(f"dtsweep: {warning.message}")

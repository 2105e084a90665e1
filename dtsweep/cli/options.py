"""Arguments and options that commands share; data go to stdout, messages to stderr."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dtsweep.errors import SweepError, printable
from dtsweep.secret import without_secrets
from dtsweep.sweep.goal import FRONTIER, GOALS

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.plan.prices import Prices
    from dtsweep.results.store import Results
    from dtsweep.sweep.goal import Goal
    from dtsweep.sweep.settings import Sweep


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


class ShareType(click.ParamType[float]):
    """A share of one: 0.03, or 3%."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a share; its bounds are checked by what it is for."""
        text = str(value).strip()
        divisor = 1.0
        if text.endswith("%"):
            divisor = 100.0
        try:
            number = float(text.removesuffix("%")) / divisor
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a share, such as 3% or 0.03", param, ctx)
        return number


_Option = Callable[[Callable[..., None]], Callable[..., None]]

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
try_all_option = click.option(
    "--try-all",
    is_flag=True,
    help="Also measure what is expected to run out of device memory.",
)
address_option = click.option(
    "--address", metavar="local|auto|HOST:PORT", help="Which Ray; by default the one Ray would use."
)
with_imported_option = click.option(
    "--with-imported",
    is_flag=True,
    help="Compare imported rows with the measured ones, as if of the same environment.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")

where_option = click.option(
    "--where",
    default="",
    metavar="CONDITION",
    help="What points have to keep to: 'step_p99_s<=200ms and workers<=8'.",
)

_QUESTION_OPTIONS = (
    click.option(
        "--goal",
        type=click.Choice([FRONTIER, *GOALS]),
        help="Measure until this is decided, in place of the sweep's own question.",
    ),
    where_option,
    click.option(
        "--target",
        type=float,
        metavar="LOSS",
        help="Train each launch to this loss: --goal time-to-loss, or cost-to-loss.",
    ),
    click.option(
        "--indifference",
        type=ShareType(),
        metavar="SHARE",
        help="Points this near count as equal: 3%.",
    ),
    click.option(
        "--confidence",
        type=ShareType(),
        metavar="SHARE",
        help="Probability of a right answer: 95%.",
    ),
    click.option(
        "--max-launches",
        type=click.IntRange(min=2),
        metavar="N",
        help="Launches of a point, at most.",
    ),
    click.option(
        "--search",
        is_flag=True,
        default=None,
        help="Measure the points with the largest expected gain alone, not all of them.",
    ),
)

_PRICE_OPTIONS = (
    click.option(
        "--prices",
        metavar="FILE",
        help="Price of a node by node type, in TOML; see docs/decide.md.",
    ),
    click.option(
        "--price",
        type=FiniteRange(min=0),
        metavar="USD",
        help="Price of every node for an hour, in place of --prices.",
    ),
)

prices_option = click.option(
    "--prices",
    metavar="FILE",
    help="Prices of nodes that hold for all results, in place of those of the runs.",
)

max_hours_option = click.option(
    "--max-hours",
    type=FiniteRange(min=0),
    metavar="H",
    help="End this run after so many hours; exit code 3 if trials are left.",
)
in_process_option = click.option(
    "--in-process", is_flag=True, help="One worker in this process, without Ray: for a debugger."
)

_LIMIT_OPTIONS = (
    max_hours_option,
    click.option(
        "--max-cost",
        "max_cost_usd",
        type=FiniteRange(min=0),
        metavar="USD",
        help="End once all runs of these results cost so much; exit code 3 if trials are left.",
    ),
)

_RUN_OPTIONS = (
    results_option,
    address_option,
    rerun_option,
    try_all_option,
    click.option(
        "--node-timeout",
        "node_timeout_s",
        type=FiniteRange(min=0, min_open=True),
        default=300.0,
        show_default=True,
        metavar="S",
        help="Seconds to wait for nodes.",
    ),
    *_LIMIT_OPTIONS,
    *_PRICE_OPTIONS,
    in_process_option,
    json_option,
)


def _adding(options: Sequence[_Option]) -> _Option:
    """Decorator that adds options to a command, in the order in which the help lists them."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


run_options = _adding(_RUN_OPTIONS)
question_options = _adding(_QUESTION_OPTIONS)


def take_prices(options: dict[str, Any]) -> Prices | None:
    """Take the prices of nodes out of these options; None where none are given.

    Raises:
        SweepError: they can't be read.
    """
    from dtsweep.plan.prices import prices_of

    return prices_of(options.pop("prices"), options.pop("price"))


def tell(text: str) -> None:
    """Print a message for the user on stderr, apart from the data."""
    click.echo(printable(without_secrets(text)), err=True)


def console() -> Console:
    """Make the writer of tables to stdout."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Print JSON values as data."""
    import json

    click.echo(json.dumps(value, indent=2))


def opened(results: str) -> Results:
    """Open results for one command: trials and records of runs are read once."""
    from dtsweep.results.store import Results

    return Results(results).snapshot()


def given_prices(file: str | None) -> Prices | None:
    """Read the file of prices that hold for all results; None without one."""
    if file is None:
        return None
    from dtsweep.plan.prices import prices_of

    return prices_of(file, None)


def load_results(
    store: Results, *, prices: Prices | None = None, with_imported: bool = False
) -> pd.DataFrame:
    """Read trials with canaries; what is left out is said, and node types without a price.

    `prices` hold for all rows. With imported rows, these count as measured where the others were.
    """
    from dtsweep.analysis.load import joined, trials_in

    with telling_warnings():
        frame = trials_in(store, canaries=True)
    if with_imported:
        frame = joined(frame)
    if prices is None:
        return frame
    from dtsweep.report.later_prices import priced, without_price

    for node_type in without_price(frame, prices):
        tell(
            f"dtsweep: node type {node_type!r} has no price, so its cost is unknown; "
            f"{prices.how_to_add(node_type)}"
        )
    return priced(frame, prices)


@contextmanager
def telling_warnings() -> Iterator[None]:
    """Show the user the warnings from inside."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        yield
    for warning in caught:
        tell(f"dtsweep: {warning.message}")


_NAMES = ("goal", "where", "target", "indifference", "confidence", "max_launches", "search")
"""Parameters of `question_options`."""


def take_question(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a question out of these: those that were given."""
    taken = {name: options.pop(name) for name in _NAMES}
    return {name: value for name, value in taken.items() if value not in (None, "")}


def with_question(sweep: Sweep, asked: Mapping[str, Any]) -> Sweep:
    """The sweep with the question that the command line asks.

    Raises:
        SweepError: the sweep is a plain grid, or a condition has no goal.
    """
    from dataclasses import replace

    if not asked:
        return sweep
    refuse_grid(sweep, asked)
    settings = asked_settings(sweep.goal, asked)
    if sweep.search is not None:
        # The search of the sweep has settings of its own.
        settings.pop("search", None)
    return replace(sweep, **settings)


def refuse_grid(sweep: Sweep, asked: Mapping[str, Any]) -> None:
    """Refuse options of a question where the sweep is a plain grid.

    Raises:
        SweepError: it is one, and there are such options.
    """
    if asked and sweep.question is None:
        option = next(iter(asked)).replace("_", "-")
        raise SweepError(
            f"--{option} can't be used with Measure(repeats={sweep.measure.repeats}), which "
            f"measures a plain grid; leave repeats out of the sweep, or --{option}"
        )


def asked_settings(own: Goal | str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `Sweep` for what the command line asks.

    Raises:
        SweepError: there is a condition, and no goal that it could belong to.
    """
    from dataclasses import replace

    from dtsweep.sweep.goal import goal_of
    from dtsweep.sweep.search import Search

    settings = dict(asked)
    if settings.pop("search", None):
        settings["search"] = Search()
    of_goal = {name: settings.pop(name) for name in ("where", "target") if name in settings}
    if of_goal:
        goal = goal_of(settings.get("goal", own))
        if goal is None and "target" in of_goal:
            goal = GOALS["time-to-loss"]
        if goal is None:
            raise SweepError(
                "--where is a condition of a goal, and the frontier has none; add --goal throughput"
            )
        settings["goal"] = replace(goal, **of_goal)
    return settings

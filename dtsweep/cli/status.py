"""The command `status`: how a campaign stands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.options import FiniteRange, console, json_option, print_json, tell
from dtsweep.errors import StorageError, SweepError, printable

if TYPE_CHECKING:
    from dtsweep.results.campaign import Campaign
    from dtsweep.results.store import Results


_LAST_SHOWN = 5
"""Attempts that ended last, which are shown one by one."""

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as of other commands that follow something."""


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--follow", is_flag=True, help="Print a line for each change until the run ends.")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(min=0.2),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks of --follow.",
)
@json_option
def status(results: str, follow: bool, every_s: float, as_json: bool) -> None:
    """Say how far the runs on some results are, what runs now, and what it took.

    It reads the results alone, from any machine, while a run measures or afterwards.
    """
    from dtsweep.results.frames import damage_of, nothing_in
    from dtsweep.results.store import Results

    store = Results(results, keeps_files=follow)
    store.storage.reach()
    campaign = _read(store)
    if campaign.is_empty:
        if (damage := damage_of(store)) is not None:
            raise StorageError(damage)
        raise SweepError(nothing_in(store))
    if not follow:
        _show(campaign, store, as_json=as_json)
        return
    looks = _looks(store, campaign, every_s=every_s)
    try:
        if as_json:
            _follow(looks, lambda seen: _json_line(seen, store))
        else:
            _follow(looks, _text_line)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _read(store: Results) -> Campaign:
    """Read how the campaign stands; say which files are left out, each once."""
    from dtsweep.results.campaign import campaign_in

    known = set(store.quarantined)
    campaign = campaign_in(store, last=_LAST_SHOWN)
    for line in store.left_out(known=known):
        tell(line)
    return campaign


def _looks(store: Results, campaign: Campaign, *, every_s: float) -> Iterator[Campaign]:
    """Yield the campaign again and again, until its run has ended."""
    yield campaign
    is_silent = False
    while campaign.is_under_way:
        time.sleep(every_s)
        try:
            campaign = _read(store)
        except StorageError as error:
            if not error.may_pass:
                raise
            if not is_silent:
                tell(f"dtsweep: {error}; trying again")
            is_silent = True
            continue
        is_silent = False
        yield campaign


def _show(campaign: Campaign, store: Results, *, as_json: bool) -> None:
    from dtsweep.cli.status_view import print_status, status_json

    if as_json:
        print_json(status_json(campaign, where=str(store)))
    else:
        print_status(campaign, console=console(), where=str(store), now=time.time())


def _follow(looks: Iterator[Campaign], line_of: Callable[[Campaign], Any]) -> None:
    """Print a line whenever something began or ended."""
    from dtsweep.cli.status_view import status_line

    said = None
    for campaign in looks:
        running = [trial.trial_id for trial in campaign.running]
        if (news := (status_line(campaign), running)) != said:
            click.echo(line_of(campaign))
            said = news


def _text_line(campaign: Campaign) -> str:
    from dtsweep.cli.status_view import spent_words, status_line

    words = [status_line(campaign), spent_words(campaign)]
    return printable(f"{datetime.now(UTC):%H:%M:%S} {'; '.join(filter(None, words))}")


def _json_line(campaign: Campaign, store: Results) -> str:
    import json

    from dtsweep.cli.status_view import status_json

    return json.dumps(status_json(campaign, where=str(store)))

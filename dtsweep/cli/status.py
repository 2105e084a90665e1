"""The command `status`: how a campaign stands."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from dtsweep.cli.options import console, json_option, print_json, tell
from dtsweep.errors import StorageError, SweepError, printable

if TYPE_CHECKING:
    from dtsweep.results.campaign import Campaign
    from dtsweep.results.store import Results

_EVERY_S = 5.0
"""Seconds between two looks of `--follow`."""

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as of other commands that follow something."""


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--follow", is_flag=True, help="Print a line for each change until the run ends.")
@json_option
def status(results: str, follow: bool, as_json: bool) -> None:
    """Say how far the runs on some results are, what runs now, and what it took.

    It reads the results alone, from any machine, while a run measures or afterwards.
    """
    from dtsweep.cli.status_view import print_status, status_json
    from dtsweep.results.frames import damage_of, nothing_in
    from dtsweep.results.store import Results

    store = Results(results, keeps_files=follow)
    store.storage.reach()
    campaign = _read(store)
    if campaign.is_empty:
        if (damage := damage_of(store)) is not None:
            raise StorageError(damage)
        raise SweepError(nothing_in(store))
    if follow:
        try:
            _follow(store, campaign, as_json=as_json)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
    elif as_json:
        print_json(status_json(campaign, where=str(store)))
    else:
        print_status(campaign, console=console(), where=str(store), now=time.time())


def _read(store: Results) -> Campaign:
    """Read how the campaign stands; say which files are left out, each once."""
    from dtsweep.results.campaign import campaign_in

    known = set(store.quarantined)
    campaign = campaign_in(store)
    for line in store.left_out(known=known):
        tell(line)
    return campaign


def _follow(store: Results, campaign: Campaign, *, as_json: bool) -> None:
    """Print a line whenever something began or ended, until the run has ended."""
    from dtsweep.cli.status_view import spent_words, status_json, status_line

    said = None
    while True:
        line = status_line(campaign)
        if (news := (line, [trial.trial_id for trial in campaign.running])) != said:
            words = "; ".join([line, *spent_words(campaign).values()])
            text = printable(f"{datetime.now(UTC):%H:%M:%S} {words}")
            if as_json:
                text = json.dumps(status_json(campaign, where=str(store)))
            click.echo(text)
            said = news
        if not campaign.is_under_way:
            return
        time.sleep(_EVERY_S)
        try:
            campaign = _read(store)
        except StorageError as error:
            if not error.may_pass:
                raise
            tell(f"dtsweep: {error}; trying again")

"""The command `status`: how a campaign stands."""

from __future__ import annotations

import time

import click

from dtsweep.cli.options import console, json_option, print_json, tell
from dtsweep.errors import StorageError, SweepError


@click.command()
@click.argument("results", metavar="RESULTS")
@json_option
def status(results: str, as_json: bool) -> None:
    """Say how far the runs on some results are, what runs now, and what it took.

    It reads the results alone, from any machine, while a run measures or afterwards.
    """
    from dtsweep.cli.status_view import print_status, status_json
    from dtsweep.results.campaign import campaign_in
    from dtsweep.results.frames import damage_of, nothing_in
    from dtsweep.results.store import Results

    store = Results(results)
    store.storage.reach()
    campaign = campaign_in(store)
    for line in store.left_out():
        tell(line)
    if campaign.is_empty:
        if (damage := damage_of(store)) is not None:
            raise StorageError(damage)
        raise SweepError(nothing_in(store))
    if as_json:
        print_json(status_json(campaign, where=str(store)))
    else:
        print_status(campaign, console=console(), where=str(store), now=time.time())

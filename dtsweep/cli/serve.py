"""The command `serve`: the report as a page in a browser of this machine."""

from __future__ import annotations

import click


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of this machine; a free one by default.",
)
def serve(results: str, port: int) -> None:
    """Serve the report as a page that renews itself, to this machine alone.

    The URL holds a token. Without it there is no answer.
    """
    from dtsweep.errors import SweepError
    from dtsweep.page.serve import PageServer
    from dtsweep.results.store import Results, nothing_in

    store = Results(results, keeps_files=True)
    store.reach()
    if not store.state() and store.holder() is None:
        raise SweepError(nothing_in(store))
    with PageServer(store, port=port) as server:
        click.echo(f"{store} as a page: {server.url}")
        click.echo("Ctrl-C ends it.", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("dtsweep: no longer serving", err=True)

"""The command `predict`: configurations that were not measured."""

from __future__ import annotations

import click

from dtsweep.cli.options import (
    console,
    json_option,
    load_results,
    prices_option,
    print_json,
    with_imported_option,
)
from dtsweep.errors import SweepError

_SHARED = ("workers", "micro_batch", "accumulation", "sync")
"""Settings that have an option each."""


@click.command()
@click.argument("results", metavar="RESULTS")
@click.argument("settings", nargs=-1, metavar="[SETTINGS]…")
@click.option("--workers", metavar="N,N", help="Predict these numbers of workers.")
@click.option("--micro-batch", metavar="N,N", help="Predict these micro-batches.")
@click.option("--accumulation", metavar="N,N", help="Predict these passes per step.")
@click.option("--sync", metavar="MODE,MODE", help="Predict these sync modes.")
@prices_option
@with_imported_option
@json_option
def predict(
    results: str,
    settings: tuple[str, ...],
    *,
    prices: str | None,
    with_imported: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Predict rate, step time, memory, energy and cost of configurations, with 90 % intervals.

    SETTINGS are of one configuration, in quotes: 'workers=8 micro_batch=16 sync=ring'. Several
    values stand for several configurations: 'workers=8,16'. Settings that are not given are those
    of the fastest measured point that has most of the others.
    """
    from dtsweep.analysis import Study
    from dtsweep.report.predictions import predictions_json, predictions_of, print_predictions

    shared = [f"{name}={options[name]}" for name in _SHARED if options[name] is not None]
    if not settings and not shared:
        raise SweepError(
            "predict needs settings: add 'workers=8 micro_batch=16' in quotes, or --workers 8,16"
        )
    frame = load_results(results, prices=prices, with_imported=with_imported)
    predictions = predictions_of(Study(frame), settings, shared=shared)
    if as_json:
        print_json(predictions_json(predictions))
    else:
        print_predictions(predictions, console=console())

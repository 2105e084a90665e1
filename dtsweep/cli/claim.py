"""The command `claim`: a point's numbers for others; `claim check` measures them here."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click

from dtsweep.cli.options import (
    ShareType,
    address_option,
    console,
    in_process_option,
    json_option,
    max_hours_option,
    opened,
    print_json,
    results_option,
    tell,
    telling_warnings,
)
from dtsweep.errors import SweepError
from dtsweep.text import say

_LOOKS = (3, 6, 8)
"""Launches at each look, until the check is decided."""


class _MakeByDefault(click.Group):
    """`dtsweep claim RESULTS` is `dtsweep claim make RESULTS`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


@click.group("claim", cls=_MakeByDefault)
def claim_command() -> None:
    """Write down a point so that others can check it, or check what someone wrote.

    `dtsweep claim RESULTS` writes a point as JSON, without hosts, users, paths and secrets.
    `dtsweep claim check CLAIM.json` measures it here.
    """


@claim_command.command("make")
@click.argument("results", metavar="RESULTS")
@click.option(
    "--point",
    metavar="POINT",
    help="A point_id, its beginning, or settings; by default the recommended one.",
)
@click.option("--to", "file", type=click.File("w"), default="-", metavar="CLAIM.json")
def _make(results: str, point: str | None, file: IO[str]) -> None:
    """Write the claim of a point to stdout or a file, and a line for a README to stderr."""
    from dtsweep.compare.claim import make_claim

    with telling_warnings():
        claim, line = make_claim(opened(results), point)
    file.write(f"{json.dumps(claim, indent=2)}\n")
    tell(line)


@claim_command.command("check")
@click.argument("file", metavar="CLAIM.json")
@click.argument("source", required=False, metavar="[SWEEP.py|SCRIPT.py]")
@click.option(
    "--indifference",
    type=ShareType(),
    default="10%",
    show_default=True,
    metavar="SHARE",
    help="A rate and a latency this near to the claimed ones hold.",
)
@results_option
@address_option
@max_hours_option
@in_process_option
@json_option
def _check(
    file: str, source: str | None, *, indifference: float, as_json: bool, **options: Any
) -> None:
    """Measure a claimed point here; exit code 0: it holds, 1: it does not, 3: can't be told.

    One of dtsweep's own workloads needs the claim alone; others the sweep file, or the script.
    """
    if not 0.06 <= indifference < 1:
        raise SweepError("--indifference must be from 6%, the noise of two runs, to below 100%")
    place = options.pop("results") or f"results/{Path(file).stem}-check"
    judged = _judged(file, source, place, zone=indifference, **options)
    if as_json:
        print_json(judged)
    else:
        say(console(), judged["words"], style="bold")
        if judged["differences"]:
            say(console(), "\n  ".join(["Differs from the claim:", *judged["differences"]]))
    sys.exit({"holds": 0, "does_not_hold": 1}.get(judged["verdict"], 3))


def _judged(
    file: str,
    source: str | None,
    place: str,
    *,
    zone: float,
    max_hours: float | None,
    **options: Any,
) -> dict[str, Any]:
    """Launch the claimed point until the check is decided; return values of `judge`."""
    from dtsweep.compare.claim import make_claim
    from dtsweep.compare.claim_check import UNTOLD, judge, read_claim
    from dtsweep.driver.run import run
    from dtsweep.sweep.axes import candidates
    from dtsweep.sweep.point import identity

    claimed, sweep = read_claim(file, source)
    if options["in_process"] and len(claimed["launches"]) == 1:
        raise SweepError(
            "a claim of one launch needs several to be checked; --in-process launches once"
        )
    points = [candidate.point for candidate in candidates(sweep)]
    if len(points) > 1:
        raise SweepError(f"{source} has {len(points)} points of the claim; narrow its axes")
    judged: dict[str, Any] = {}
    begin = time.monotonic()
    for launches in _LOOKS:
        measure = replace(sweep.measure, repeats=launches)
        if max_hours is not None:
            options["max_hours"] = max(0.0, max_hours - (time.monotonic() - begin) / 3600)
        run(replace(sweep, measure=measure), place, **options)
        try:
            measured, _ = make_claim(opened(place), identity(points[0]))
        except SweepError as error:
            words = f"Can't be told: {str(error).partition(';')[0]}."
            judged = {"verdict": UNTOLD, "words": words, "is_open": False}
            return judged | {"rows": [], "differences": []}
        judged = judge(claimed, measured, zone=zone)
        is_cut = len(measured["launches"]) < launches
        if is_cut or not judged["is_open"] or options["in_process"]:
            break
    return judged

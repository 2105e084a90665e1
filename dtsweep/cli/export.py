"""The command `export`: trials in files of other tools, or in their trackers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.options import tell, telling_warnings
from dtsweep.errors import SweepError, without_credentials
from dtsweep.privacy import Redactor, redactor_for

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.results.store import Results
    from dtsweep.trackers.exported import Export

FORMATS = ("csv", "json", "mlflow", "wandb", "tensorboard")
"""Values of --to."""


class _CredentialsRedactor(Redactor):
    """Replaces credentials alone: keeps names of hosts and users, and home folders."""

    def text(self, text: str) -> str:
        return without_credentials(text)


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--to", type=click.Choice(FORMATS), required=True, help="Format, or tool.")
@click.option(
    "--out",
    metavar="FILE|FOLDER|URI",
    help="Of csv and json a file, else stdout; of mlflow a tracking URI, else MLflow's own; of "
    "wandb and tensorboard a folder.",
)
@click.option(
    "--with-hosts", is_flag=True, help="Keep names of hosts and users, which are left out."
)
def export(results: str, to: str, out: str | None, with_hosts: bool) -> None:
    """Write trials for other tools: parameters, metrics with units, status and steps.

    A tracker gets each trial once, however often this is called.
    """
    from dtsweep.results.store import Results

    store = Results(results)
    match to:
        case "csv":
            _export_csv(store, out, with_hosts=with_hosts)
        case "json":
            from dtsweep.trackers.to_json import trials_json

            frame = load_trials(store)
            _put(out, trials_json(read_export(store, frame, with_hosts=with_hosts)))
        case _:
            _export_to_tracker(store, to, out, with_hosts=with_hosts)


def load_trials(store: Results) -> pd.DataFrame:
    """Read the trials without canaries; what is left out is said."""
    from dtsweep.analysis.load import load

    with telling_warnings():
        return load(store)


def read_export(
    store: Results,
    frame: pd.DataFrame,
    *,
    with_hosts: bool = False,
    steps_of: pd.DataFrame | None = None,
    named_by: Collection[str] | None = None,
) -> Export:
    """Make what other tools take of trials, with their steps.

    Args:
        store: the results.
        frame: trials of it.
        with_hosts: keep names of hosts and users.
        steps_of: trials whose steps are read; all by default.
        named_by: columns that name a trial; those that vary by default.
    """
    from dtsweep.trackers.exported import export_of

    return export_of(
        frame,
        _steps(store, frame if steps_of is None else steps_of),
        sweep=_sweep_name(store),
        redact=_redact(store, with_hosts=with_hosts),
        named_by=named_by,
    )


def _export_csv(store: Results, out: str | None, *, with_hosts: bool) -> None:
    from dtsweep.trackers.to_csv import columns_csv, steps_csv, trials_csv

    frame = load_trials(store)
    redact = _redact(store, with_hosts=with_hosts)
    _put(out, trials_csv(frame, redact))
    if out is not None:
        stem = str(Path(out).with_suffix(""))
        _put(f"{stem}.columns.csv", columns_csv(frame, redact))
        _put(f"{stem}.steps.csv", steps_csv(frame, _steps(store, frame), redact))


def _export_to_tracker(store: Results, to: str, out: str | None, *, with_hosts: bool) -> None:
    from dtsweep.text import count_of
    from dtsweep.trackers.destinations import Destination, send_trials

    destination = Destination(tracker=to, out=out)
    destination.check()
    frame = load_trials(store)
    run = frame[frame["status"] != "skipped"]
    read = read_export(store, run, with_hosts=with_hosts)
    tracker = destination.open(read)
    sent = send_trials(read, tracker)
    said = f"sent {count_of(sent, 'trial')} to {to}: {tracker.place}"
    busy = sum(not tracker.has(trial) for trial in read.trials)
    if there := len(run) - sent - busy:
        said += f"; {there} {'was' if there == 1 else 'were'} there"
    if busy:
        said += (
            f"; {count_of(busy, 'trial')} not sent, since another process sends "
            f"{'it' if busy == 1 else 'them'} now or was cut: export again in 2 minutes"
        )
    if skipped := len(frame) - len(run):
        said += f"; {count_of(skipped, 'skipped trial')} left out"
    tell(said)


def _steps(store: Results, frame: pd.DataFrame) -> pd.DataFrame:
    from dtsweep.results.store import frame_of

    return frame_of(store.table("steps", attempts=frame["attempt_id"].tolist()))


def _redact(store: Results, *, with_hosts: bool) -> Callable[[Any], Any]:
    if with_hosts:
        return _CredentialsRedactor().values
    return redactor_for(store).values


def _sweep_name(store: Results) -> str:
    """Name of the sweep of the last run; of its folder where there is no record of a run."""
    runs = store.run_records()
    if runs and runs[-1].record.sweep:
        return runs[-1].record.sweep
    return Path(str(store).partition("?")[0]).name


def _put(out: str | None, text: str) -> None:
    """Write a file, or to stdout.

    Raises:
        SweepError: the file can't be written.
    """
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        Path(out).write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise SweepError(f"--out {out}: {error.strerror}; give another file") from None

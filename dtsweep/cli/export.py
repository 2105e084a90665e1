"""The command `export`: trials in files of other tools, or in their trackers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.options import opened, tell, telling_warnings
from dtsweep.errors import StorageError, SweepError, error_line
from dtsweep.secret import without_credentials

if TYPE_CHECKING:
    from dtsweep.results.store import Results
    from dtsweep.trackers.exported import Export

_TRACKERS = {
    "mlflow": "dtsweep.trackers.to_mlflow:MlflowRuns",
    "wandb": "dtsweep.trackers.to_wandb:WandbRuns",
    "tensorboard": "dtsweep.trackers.to_tensorboard:TensorboardRuns",
}
"""Names of trackers and of their clients, each with its module and class."""


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option(
    "--to", type=click.Choice(["csv", "json", *_TRACKERS]), required=True, help="Format, or tool."
)
@click.option(
    "--out",
    metavar="FILE|FOLDER|URI",
    help="Of csv and json a file, else stdout; of mlflow a tracking URI, else MLflow's own; of "
    "wandb and tensorboard a folder.",
)
@click.option(
    "--with-hosts",
    is_flag=True,
    help="Keep columns that may name hosts and users, such as reasons and logs.",
)
def export(results: str, to: str, out: str | None, with_hosts: bool) -> None:
    """Write trials for other tools: parameters, metrics with units, status and steps.

    A tracker gets each trial once, however often this is called.
    """
    from dtsweep.analysis.load import trials_in
    from dtsweep.results.frames import frame_of
    from dtsweep.secret import shared_trials
    from dtsweep.trackers.exported import export_of, texts_without_homes
    from dtsweep.trackers.to_files import steps_csv, trials_csv, trials_json

    if out is None and to in ("wandb", "tensorboard"):
        raise SweepError(f"{to} needs a place: add --out FOLDER")
    store = opened(results)
    with telling_warnings():
        frame = trials_in(store)
    if not with_hosts:
        frame = texts_without_homes(shared_trials(frame))
    steps = frame_of(store.table("steps", attempts=frame["attempt_id"].tolist()))
    if to == "csv":
        _put(out, trials_csv(frame))
        if out is not None:
            _put(str(Path(out).with_suffix(".steps.csv")), steps_csv(frame, steps))
        return
    if to in _TRACKERS:
        frame = frame[frame["status"] != "skipped"]
    exported = export_of(frame, steps, sweep=_sweep_name(store))
    if to == "json":
        _put(out, trials_json(exported))
    else:
        tell(_send_trials(exported, to, out))


def _send_trials(export: Export, to: str, out: str | None) -> str:
    """Send the trials that a tracker does not have; return what was done, in words.

    Raises:
        SweepError: its client is not installed.
        StorageError: the tracker fails; trials before that are sent.
    """
    place = without_credentials(f"{to}:{out or ''}")
    sent = 0
    try:
        module, _, name = _TRACKERS[to].partition(":")
        tracker: Any = getattr(import_module(module), name)(export, out)
        for trial in export.trials:
            if trial.key not in tracker.sent:
                tracker.send(trial)
                sent += 1
    except ImportError as error:
        raise SweepError(
            f"{to} needs its client ({error_line(error)}): pip install 'dtsweep[trackers]'"
        ) from error
    except Exception as error:  # clients raise whatever their libraries do
        raise StorageError(f"{place} can't be used: {error_line(error)}") from error
    return f"sent {sent} of {len(export.trials)} trials to {to}: {tracker.place}"


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

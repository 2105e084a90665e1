"""MLflow: an experiment for the sweep, a run for each trial."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, printable, shortened, without_credentials
from dtsweep.trackers.exported import Export, ExportedTrial
from dtsweep.trackers.steps import thinned

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run

ATTEMPT = "dtsweep.attempt_id"
"""Tag by which a run is found again."""

SENDER = "dtsweep.sender"
SENT_AT = "dtsweep.sent_at"
"""Tags with a name of the process that made a run, and with the Unix time in seconds of that."""

SEND_S = 120.0
"""Time limit for sending a run: one that is still incomplete after that was left so."""

MOST_TEXT = 5000
"""Characters of a parameter or a tag: servers take no more."""

PARAMETERS_AT_ONCE = 100
METRICS_AT_ONCE = 900
"""Values that a server takes in one call: of parameters 100, of all 1,000."""

_DATABASE = re.compile(r"(sqlite|postgresql|mysql|mssql)[\w+]*:")

_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Settings of the client, unless the user has others: its own waits last minutes."""


class MlflowRuns:
    """Runs of one experiment."""

    def __init__(self, export: Export, out: str | None) -> None:
        """Find the experiment, or make it, and list its runs.

        Args:
            export: names the experiment.
            out: tracking URI; that of MLflow's own programs by default.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import mlflow

        uri = out or mlflow.get_tracking_uri()
        _check_database(uri)
        self.place = without_credentials(uri)
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        self._experiment = _experiment(self._client, export.sweep)
        self._sender = uuid.uuid4().hex
        self._sent: set[str] = set()
        self._unsure: set[str] = set()
        """Attempts that may have a run; the server is asked before they are sent."""

        self._list_attempts({trial.attempt_id for trial in export.trials})

    def describe(self, export: Export) -> None:
        """Store the units of parameters and metrics, as JSON in a tag of the experiment."""
        units = json.dumps(export.units())
        self._client.set_experiment_tag(self._experiment, "dtsweep.units", units)

    def has(self, trial: ExportedTrial) -> bool:
        """True if the experiment has a run of this attempt."""
        return trial.attempt_id in self._sent

    def send(self, trial: ExportedTrial) -> None:
        """Make the run of a trial, unless another process does that now."""
        if trial.attempt_id in self._unsure and not self._is_to_send(trial.attempt_id):
            return
        # Until it is complete: a request may be done although its reply is lost.
        self._unsure.add(trial.attempt_id)
        sender = {SENDER: self._sender, SENT_AT: str(round(time.time()))}
        run = self._client.create_run(
            self._experiment,
            start_time=round(trial.started_s * 1000),
            tags=_tags(trial) | sender,
            run_name=trial.name,
        )
        run_id = run.info.run_id
        batches: Iterator[Any] = zip_longest(
            _in_batches(_metrics(trial), METRICS_AT_ONCE),
            _in_batches(_params(trial), PARAMETERS_AT_ONCE),
            fillvalue=[],
        )
        for metrics, params in batches:
            self._client.log_batch(run_id, metrics=metrics, params=params)
        # Last: a run that still runs is incomplete.
        self._client.set_terminated(
            run_id, status=_run_status(trial), end_time=round(trial.ended_s * 1000)
        )
        self._sent.add(trial.attempt_id)

    def _list_attempts(self, exported: Collection[str]) -> None:
        """List the attempts that have a run; of exported ones, delete runs left incomplete."""
        for run in self._runs():
            attempt = run.data.tags.get(ATTEMPT)
            if attempt is None:
                continue
            if _is_complete(run):
                self._sent.add(attempt)
            elif attempt in exported and not _may_be_sent_now(run):
                self._client.delete_run(run.info.run_id)
            else:
                self._unsure.add(attempt)

    def _is_to_send(self, attempt: str) -> bool:
        """Look up the runs of an attempt, and delete those that were left incomplete.

        Returns:
            False if one is complete, or if another process may be sending it.
        """
        is_to_send = True
        for run in self._runs(f"tags.`{ATTEMPT}` = {attempt!r}"):
            if run.data.tags.get(ATTEMPT) != attempt:
                continue
            if _is_complete(run):
                self._sent.add(attempt)
                is_to_send = False
            elif run.data.tags.get(SENDER) != self._sender and _may_be_sent_now(run):
                is_to_send = False
            else:
                self._client.delete_run(run.info.run_id)
        return is_to_send

    def _runs(self, condition: str = "") -> list[Run]:
        """Runs of the experiment that meet a condition, in MLflow's own language."""
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], condition, max_results=1000, page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs


def _is_complete(run: Run) -> bool:
    """True if all of a trial was sent to it."""
    status: str = run.info.status
    return status != "RUNNING"


def _may_be_sent_now(run: Run) -> bool:
    """True if an incomplete run is so young that its sender may be alive."""
    try:
        sent_at = float(run.data.tags[SENT_AT])
    except (KeyError, ValueError):
        return False
    return time.time() - sent_at < SEND_S


def _check_database(uri: str) -> None:
    """Refuse a database where only `mlflow-skinny` is installed.

    Raises:
        SweepError: it can't be used.
    """
    if _DATABASE.match(uri) and importlib.util.find_spec("sqlalchemy") is None:
        raise SweepError(
            f"MLflow's database {uri!r} needs the whole package: pip install mlflow; or give the "
            "address of a server: --out http://HOST:PORT"
        )


def _experiment(client: MlflowClient, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name)
    if experiment.lifecycle_stage == "deleted":
        raise SweepError(
            f"MLflow's experiment {name!r} was deleted; restore it, or delete it for good: "
            "mlflow gc"
        )
    return experiment.experiment_id


def _run_status(trial: ExportedTrial) -> str:
    if trial.is_ok:
        return "FINISHED"
    if trial.is_cut:
        return "KILLED"
    return "FAILED"


def _metrics(trial: ExportedTrial) -> list[Metric]:
    from mlflow.entities import Metric

    ended_ms = round(trial.ended_s * 1000)
    metrics = [Metric(name, value, ended_ms, 0) for name, value in trial.metrics.items()]
    for step in thinned(trial.steps):
        at_ms = round((trial.started_s + step.at_s) * 1000)
        metrics += [
            Metric(name, value, at_ms, step.number) for name, value in step.values().items()
        ]
    return metrics


def _params(trial: ExportedTrial) -> list[Param]:
    from mlflow.entities import Param

    return [Param(name, _text(str(value))) for name, value in trial.parameters.items()]


def _tags(trial: ExportedTrial) -> dict[str, str]:
    own: Mapping[str, str | None] = {
        "attempt_id": trial.attempt_id,
        "trial_id": trial.trial_id,
        "status": trial.status,
        "reason": trial.reason,
    }
    tags = {**trial.tags, **own}
    return {f"dtsweep.{name}": _text(value) for name, value in tags.items() if value}


def _text(value: str) -> str:
    """Text that every server takes: databases refuse some control characters."""
    return shortened(printable(value), MOST_TEXT)


def _in_batches(values: list[Any], size: int) -> Iterator[list[Any]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]

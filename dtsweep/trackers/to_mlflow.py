"""MLflow: an experiment for the sweep, a run for each trial."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dtsweep.errors import printable, shortened
from dtsweep.results.statuses import CUT
from dtsweep.secret import without_credentials
from dtsweep.trackers.exported import UNITS, Export, ExportedTrial

if TYPE_CHECKING:
    from mlflow.entities import Metric

ATTEMPT = "dtsweep.attempt_id"
"""Tag by which a run is found again."""

_MOST_TEXT = 5000
"""Characters of a parameter or a tag: servers take no more."""

_PARAMETERS_AT_ONCE = 100
_METRICS_AT_ONCE = 900
"""Values that a server takes in one call: of parameters 100, of all 1,000."""

_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Settings of the client, unless the user has others: its own waits last minutes."""


class MlflowRuns:
    """Runs of one experiment."""

    def __init__(self, export: Export, out: str | None) -> None:
        """Find the experiment or make it, and list its runs; units are JSON in a tag of it.

        A run of an exported attempt that an export has left incomplete is deleted.

        Args:
            export: names the experiment.
            out: tracking URI; that of MLflow's own programs by default.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import mlflow

        if out:
            mlflow.set_tracking_uri(out)
        self.place = without_credentials(mlflow.get_tracking_uri())
        self.sent: set[str] = set()
        self._client = mlflow.MlflowClient()
        self._experiment = mlflow.set_experiment(export.sweep).experiment_id
        self._client.set_experiment_tag(self._experiment, "dtsweep.units", json.dumps(UNITS))
        exported = {trial.attempt_id: trial.key for trial in export.trials}
        for run in mlflow.search_runs([self._experiment], output_format="list"):
            attempt = run.data.tags.get(ATTEMPT)
            if attempt not in exported:
                continue
            if run.info.status == "RUNNING":
                self._client.delete_run(run.info.run_id)
            else:
                self.sent.add(exported[attempt])

    def send(self, trial: ExportedTrial) -> None:
        """Make the run of a trial."""
        from mlflow.entities import Param

        run = self._client.create_run(
            self._experiment,
            start_time=round(trial.started_s * 1000),
            tags={f"dtsweep.{name}": _text(value) for name, value in trial.tags.items()},
            run_name=trial.name,
        )
        run_id = run.info.run_id
        params = [Param(name, _text(str(value))) for name, value in trial.parameters.items()]
        for batch in _in_batches(params, _PARAMETERS_AT_ONCE):
            self._client.log_batch(run_id, params=batch)
        for batch in _in_batches(_metrics(trial), _METRICS_AT_ONCE):
            self._client.log_batch(run_id, metrics=batch)
        # Last: a run that still runs is incomplete.
        status = "FAILED"
        if trial.status == "ok":
            status = "FINISHED"
        elif trial.status in CUT:
            status = "KILLED"
        self._client.set_terminated(run_id, status, round(trial.ended_s * 1000))
        self.sent.add(trial.key)


def _metrics(trial: ExportedTrial) -> list[Metric]:
    from mlflow.entities import Metric

    ended_ms = round(trial.ended_s * 1000)
    metrics = [Metric(name, value, ended_ms, 0) for name, value in trial.metrics.items()]
    for number, at_s, values in trial.history():
        at_ms = round(at_s * 1000)
        metrics += [Metric(name, value, at_ms, number) for name, value in values.items()]
    return metrics


def _text(value: str) -> str:
    """Text that every server takes: databases refuse some control characters."""
    return shortened(printable(value), _MOST_TEXT)


def _in_batches(values: list[Any], size: int) -> Iterator[list[Any]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]

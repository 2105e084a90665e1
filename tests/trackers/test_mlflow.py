"""MLflow's own client reads back what was sent to it, offline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dtsweep import StorageError, SweepError
from dtsweep.trackers.exported import MOST_STEPS
from dtsweep.trackers.to_mlflow import ATTEMPT
from tests.trackers.stored import (
    START,
    STEPS,
    WARMUP,
    export,
    private_texts,
    store_sweep,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STATUSES = {"trial1": "FINISHED", "trial2": "FINISHED", "trial3": "FAILED", "trial4": "KILLED"}
"""Of the trials that were run."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_sweep(tmp_path_factory.mktemp("mlflow") / "r")


@pytest.fixture(scope="module")
def uri(results: Path) -> Iterator[str]:
    """A file store of MLflow with the trials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        where = (results.parent / "mlruns").as_uri()
        export(results, "--to", "mlflow", "--out", where)
        yield where


@pytest.fixture(scope="module")
def client(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs_of(client: MlflowClient) -> dict[str, Run]:
    """Runs of the sweep's experiment by trial."""
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    by_trial = {run.data.tags["dtsweep.trial_id"]: run for run in runs}
    assert len(by_trial) == len(runs)
    return by_trial


def test_a_run_has_parameters_metrics_units_and_times(client: MlflowClient) -> None:
    run = runs_of(client)["trial1"]
    assert run.info.run_name == "micro_batch=4"
    parameters = {"workers": "2", "micro_batch": "4", "overlap": "True", "workload_width": "256"}
    assert run.data.params.items() >= parameters.items()
    assert run.data.metrics["latency_s"] == 0.1 + 0.2
    assert "mfu" not in run.data.metrics
    assert run.data.tags["dtsweep.semantics"] == "exact"
    assert run.info.start_time == round((START.timestamp() + 60) * 1000)
    assert run.info.end_time - run.info.start_time == 10_000
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    assert '"latency_s": "s"' in experiment.tags["dtsweep.units"]


def test_step_times_are_a_history_by_step_number_and_a_long_one_is_thinned(
    client: MlflowClient,
) -> None:
    runs = runs_of(client)

    def history(trial: str, metric: str) -> dict[int, float]:
        entries = client.get_metric_history(runs[trial].info.run_id, f"steps/{metric}")
        return {entry.step: entry.value for entry in entries}

    assert history("trial2", "step_s") == dict.fromkeys(range(WARMUP, 19), 0.011)
    assert sorted(history("trial2", "warmup_step_s")) == list(range(WARMUP))
    steps = sorted(history("trial1", "loss"))
    assert len(steps) == MOST_STEPS
    assert (steps[0], steps[-1]) == (0, STEPS - 2)


def test_each_trial_that_ran_is_a_run_with_its_status(client: MlflowClient) -> None:
    runs = runs_of(client)
    assert {trial: run.info.status for trial, run in runs.items()} == STATUSES
    failed = runs["trial3"].data
    assert failed.tags["dtsweep.status"] == "user_error"
    assert failed.metrics == {"startup_s": 2.0, "trial_s": 8.0}


def test_no_run_names_hosts_users_and_secrets(client: MlflowClient) -> None:
    text = str([run.data for run in runs_of(client).values()])
    assert [name for name in private_texts() if name in text] == []


def test_a_second_export_sends_nothing(
    results: Path, uri: str, client: MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    export(results, "--to", "mlflow", "--out", uri)
    assert capsys.readouterr().err == f"sent 0 of 4 trials to mlflow: {uri}\n"
    assert len(runs_of(client)) == 4


def test_a_run_that_was_left_incomplete_is_sent_again(
    results: Path, uri: str, client: MlflowClient
) -> None:
    run = runs_of(client)["trial2"]
    client.update_run(run.info.run_id, status="RUNNING")
    export(results, "--to", "mlflow", "--out", uri)
    again = runs_of(client)
    assert again["trial2"].info.run_id != run.info.run_id
    assert again["trial2"].data.metrics == run.data.metrics


def test_a_run_of_other_results_is_never_deleted(
    results: Path, uri: str, client: MlflowClient
) -> None:
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    run = client.create_run(experiment.experiment_id, tags={ATTEMPT: "of other results"})
    export(results, "--to", "mlflow", "--out", uri)
    assert client.get_run(run.info.run_id).info.lifecycle_stage == "active"
    client.delete_run(run.info.run_id)


@pytest.mark.parametrize("request_name", ["create_run", "log_batch", "set_terminated"])
@pytest.mark.parametrize("is_done", [True, False], ids=["reply lost", "request lost"])
def test_an_attempt_has_one_run_after_a_request_that_failed(
    results: Path, monkeypatch: pytest.MonkeyPatch, request_name: str, is_done: bool, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    where = (tmp_path / "mlruns").as_uri()
    request = getattr(MlflowClient, request_name)

    def fail(*arguments: Any, **named: Any) -> None:
        if is_done:
            request(*arguments, **named)
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, request_name, fail)
        with pytest.raises(StorageError, match="TimeoutError"):
            export(results, "--to", "mlflow", "--out", where)
    export(results, "--to", "mlflow", "--out", where)
    runs = runs_of(MlflowClient(where))
    assert {trial: run.info.status for trial, run in runs.items()} == STATUSES
    assert runs["trial1"].data.metrics["latency_s"] == 0.1 + 0.2


def test_a_server_that_is_down_is_said_in_one_line(results: Path) -> None:
    with pytest.raises(StorageError, match=r"mlflow:http://127\.0\.0\.1:9 can't be used: "):
        export(results, "--to", "mlflow", "--out", "http://127.0.0.1:9")


def test_a_client_that_is_not_installed_is_said_in_one_line(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(SweepError, match=r"mlflow .*pip install 'dtsweep\[trackers\]'"):
        export(results, "--to", "mlflow")

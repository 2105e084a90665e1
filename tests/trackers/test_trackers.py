"""The trackers' own readers find what was sent to them, offline."""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dtsweep import StorageError, SweepError
from dtsweep.trackers.exported import MOST_STEPS
from dtsweep.trackers.to_mlflow import ATTEMPT
from dtsweep.trackers.to_tensorboard import EVENTS
from tests.trackers.stored import START, STEPS, WARMUP, export, private_texts, store_sweep

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

STATUSES = {"trial1": "FINISHED", "trial2": "FINISHED", "trial3": "FAILED", "trial4": "KILLED"}
"""Of the trials that were run, as MLflow has them."""

BLOCK = 32 * 1024
"""Bytes of a block of a `.wandb` file, whose records are laid out as in a log of LevelDB."""


@dataclass
class Run:
    """What a tracker's reader finds of a run."""

    metrics: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] | None = None
    """None where they are not of the run itself."""
    history: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """Values of a metric by the number of a step."""
    started: float | None = None
    end: Any = None
    own: Any = None
    """The run as the tracker has it."""


def mlflow_runs(uri: str) -> dict[str, MlflowRun]:
    """Runs of the sweep's experiment by trial."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    by_trial = {run.data.tags["dtsweep.trial_id"]: run for run in runs}
    assert len(by_trial) == len(runs)
    return by_trial


def of_mlflow(uri: str) -> dict[str, Run]:
    from mlflow import MlflowClient

    found = {}
    for own in mlflow_runs(uri).values():
        run = Run(own.data.metrics, own.data.params, own=own)
        run.started, run.end = own.info.start_time / 1000, own.info.status
        for name in ("step_s", "warmup_step_s", "loss"):
            entries = MlflowClient(uri).get_metric_history(own.info.run_id, f"steps/{name}")
            run.history[name] = {entry.step: entry.value for entry in entries}
        run.metrics = {k: v for k, v in run.metrics.items() if not k.startswith("steps/")}
        found[str(own.info.run_name)] = run
    return found


def of_tensorboard(place: str) -> dict[str, Run]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for folder in (entry for entry in Path(place).iterdir() if entry.is_dir()):
        own = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        run = Run(started=own.FirstEventTimestamp(), own=own)
        for name in own.Tags()["scalars"]:
            values = {entry.step: entry.value for entry in own.Scalars(name)}
            if name.startswith("steps/"):
                run.history[name.removeprefix("steps/")] = values
            else:
                (run.metrics[name],) = values.values()
        found[folder.name.rpartition("-")[0]] = run
    return found


def records_in(data: bytes) -> Iterator[bytes]:
    """Yield the records of a `.wandb` file."""
    assert data[:4] == b":W&B"
    place, record = 7, b""
    while place < len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def of_wandb(place: str) -> dict[str, Run]:
    from wandb.proto import wandb_internal_pb2

    found = {}
    for file in Path(place).glob("offline-run-*/*.wandb"):
        run = Run(parameters={})
        assert run.parameters is not None
        for entry in map(wandb_internal_pb2.Record.FromString, records_in(file.read_bytes())):
            match entry.WhichOneof("record_type"):
                case "run":
                    run.own = entry.run
                    run.parameters |= _values(entry.run.config.update)
                case "config":
                    run.parameters |= _values(entry.config.update)
                case "summary":
                    run.metrics |= _values(entry.summary.update)
                case "history":
                    row = _values(entry.history.item)
                    for name in (name for name in row if name.startswith("steps/")):
                        run.history[name.removeprefix("steps/")][row["_step"]] = row[name]
                case "exit":
                    run.end = entry.exit.exit_code
        found[run.own.display_name] = run
    return found


def _values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


@dataclass
class Sent:
    """An export of the sweep: its tracker, results and place."""

    to: str
    results: Path
    out: str
    """As `--out` has it."""
    place: str
    """As it is said, and as a reader has it."""
    folder: Path
    """Holds all its files."""

    def export(self) -> None:
        export(self.results, "--to", self.to, "--out", self.out)

    def runs(self) -> dict[str, Run]:
        return READERS[self.to](self.place)


READERS: dict[str, Callable[[str], dict[str, Run]]] = {
    "mlflow": of_mlflow,
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield store_sweep(tmp_path_factory.mktemp("trackers") / "r")


@functools.cache
def sent_to(to: str, results: Path) -> Sent:
    """Export the trials once for all tests."""
    folder = results.parent / to
    out = folder.as_uri() if to == "mlflow" else str(folder)
    place = {"mlflow": out, "tensorboard": f"{folder}/study", "wandb": f"{folder}/wandb"}[to]
    sent = Sent(to, results, out, place, folder)
    sent.export()
    return sent


@pytest.fixture(params=["mlflow", "tensorboard", pytest.param("wandb", marks=pytest.mark.slow)])
def sent(request: pytest.FixtureRequest, results: Path) -> Sent:
    return sent_to(request.param, results)


@pytest.fixture
def to_mlflow(results: Path) -> Sent:
    return sent_to("mlflow", results)


@pytest.fixture
def to_tensorboard(results: Path) -> Sent:
    return sent_to("tensorboard", results)


ENDS = {"mlflow": [*STATUSES.values()], "tensorboard": [None] * 4, "wandb": [0, 0, 1, 1]}


def test_each_trial_that_ran_is_a_run_with_its_settings_metrics_and_end(sent: Sent) -> None:
    runs = sent.runs()
    names = [f"micro_batch={size}" for size in (4, 8, 16, 32)]
    assert {name: run.end for name, run in runs.items()} == dict(
        zip(names, ENDS[sent.to], strict=True)
    )
    first, failed = runs["micro_batch=4"], runs["micro_batch=16"]
    if first.parameters is not None:
        parameters = {name: str(value) for name, value in first.parameters.items()}
        known = {"workers": "2", "micro_batch": "4", "overlap": "True", "workload_width": "256"}
        assert parameters.items() >= known.items()
    # TensorBoard has single precision.
    error = 1e-7 if sent.to == "tensorboard" else 0
    assert first.metrics["latency_s"] == pytest.approx(0.1 + 0.2, rel=error, abs=0)
    assert "mfu" not in first.metrics
    began = None if sent.to == "wandb" else START.timestamp() + 60
    assert first.started == began
    assert (failed.metrics["startup_s"], failed.metrics["trial_s"]) == (2.0, 8.0)
    assert "latency_s" not in failed.metrics


def test_step_times_are_a_history_by_step_number_and_a_long_one_is_thinned(sent: Sent) -> None:
    runs = sent.runs()
    history, long = runs["micro_batch=8"].history, runs["micro_batch=4"].history
    assert history["step_s"] == pytest.approx(dict.fromkeys(range(WARMUP, 19), 0.011))
    assert history["warmup_step_s"] == pytest.approx(dict.fromkeys(range(WARMUP), 0.011))
    steps = sorted(long["loss"])
    assert (len(steps), steps[0], steps[-1]) == (MOST_STEPS, 0, STEPS - 2)


def test_no_run_names_hosts_users_and_secrets(sent: Sent) -> None:
    files = [file for file in sent.folder.rglob("*") if file.is_file()]
    assert len(files) >= 4
    for name in private_texts():
        assert not any(name.encode() in file.read_bytes() for file in files)


def test_a_second_export_sends_nothing(sent: Sent, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(sent.folder.rglob("*"))
    capsys.readouterr()
    sent.export()
    assert capsys.readouterr().err == f"sent 0 of 4 trials to {sent.to}: {sent.place}\n"
    assert sorted(sent.folder.rglob("*")) == before


# Weights & Biases


@pytest.mark.slow
def test_a_run_of_wandb_has_units_its_sweep_as_group_and_no_host(results: Path) -> None:
    runs = sent_to("wandb", results).runs()
    assert {(run.own.project, run.own.run_group) for run in runs.values()} == {("study", "study")}
    assert {run.own.host for run in runs.values()} == {""}
    assert (runs["micro_batch=4"].parameters or {})["dtsweep"]["units"]["latency_s"] == "s"
    failed = runs["micro_batch=16"]
    assert "user_error" in failed.own.tags
    assert failed.metrics["status"] == "user_error"


def test_wandb_asks_for_a_folder(results: Path) -> None:
    with pytest.raises(SweepError, match="wandb needs a place: add --out FOLDER"):
        export(results, "--to", "wandb")


# TensorBoard


def _hparams_tab(logs: Path) -> tuple[Any, Any]:
    """The experiment and the groups of sessions that the tab asks TensorBoard for."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, get_experiment, list_session_groups
    from tensorboard.plugins.hparams.backend_context import Context

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logs)).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(logs))
    context = Context(TBContext(data_provider=provider))
    asked = (RequestContext(), context, "")
    experiment = get_experiment.Handler(*asked, api_pb2.GetExperimentRequest()).run()
    columns = [api_pb2.ColParams(hparam=info.name) for info in experiment.hparam_infos]
    columns += [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos]
    request = api_pb2.ListSessionGroupsRequest(
        col_params=columns,
        allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS],
        aggregation_type=api_pb2.AGGREGATION_AVG,
        slice_size=100,
    )
    groups = list_session_groups.Handler(*asked, request).run().session_groups
    return experiment, groups


def test_the_hparams_tab_finds_rows_and_columns_by_itself(to_tensorboard: Sent) -> None:
    experiment, groups = _hparams_tab(to_tensorboard.folder)
    assert {"micro_batch", "status"} <= {info.name for info in experiment.hparam_infos}
    assert "latency_s" in {info.name.tag for info in experiment.metric_infos}
    rows = {group.hparams["micro_batch"].number_value: group for group in groups}
    assert sorted(rows) == [4, 8, 16, 32]
    metrics = {metric.name.tag: metric.value for metric in rows[4].metric_values}
    assert metrics["latency_s"] == pytest.approx(0.3, rel=1e-7)
    assert rows[4].hparams["sync"].string_value == "ddp"
    assert rows[4].hparams["overlap"].bool_value
    statuses = {size: row.hparams["status"].string_value for size, row in rows.items()}
    assert (statuses[4], statuses[16]) == ("ok", "user_error")


def test_steps_of_tensorboard_have_their_times_and_its_files_no_host(to_tensorboard: Sent) -> None:
    first, *_ = to_tensorboard.runs()["micro_batch=8"].own.Scalars("steps/step_s")
    assert first.wall_time == pytest.approx(START.timestamp() + 120 + 0.03)
    files = [file.name for file in to_tensorboard.folder.rglob("*") if file.is_file()]
    assert files == [EVENTS] * 4


def test_a_folder_that_can_t_be_written_is_said_in_one_line(results: Path) -> None:
    file = next((results / "trials").iterdir())
    with pytest.raises(StorageError, match=r"can't be used: (NotADirectory|FileExists)Error: "):
        export(results, "--to", "tensorboard", "--out", file)


# MLflow


@pytest.fixture
def client(to_mlflow: Sent) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(to_mlflow.place)


def test_a_run_of_mlflow_has_tags_units_and_its_end(to_mlflow: Sent, client: MlflowClient) -> None:
    runs = mlflow_runs(to_mlflow.place)
    assert {trial: run.info.status for trial, run in runs.items()} == STATUSES
    run = runs["trial1"]
    assert run.data.tags["dtsweep.semantics"] == "exact"
    assert run.info.end_time - run.info.start_time == 10_000
    assert runs["trial3"].data.tags["dtsweep.status"] == "user_error"
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    assert '"latency_s": "s"' in experiment.tags["dtsweep.units"]


def test_a_run_that_was_left_incomplete_is_sent_again(
    to_mlflow: Sent, client: MlflowClient
) -> None:
    run = mlflow_runs(to_mlflow.place)["trial2"]
    client.update_run(run.info.run_id, status="RUNNING")
    to_mlflow.export()
    again = mlflow_runs(to_mlflow.place)["trial2"]
    assert again.info.run_id != run.info.run_id
    assert again.data.metrics == run.data.metrics


def test_a_run_of_other_results_is_never_deleted(to_mlflow: Sent, client: MlflowClient) -> None:
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    run = client.create_run(experiment.experiment_id, tags={ATTEMPT: "of other results"})
    to_mlflow.export()
    assert client.get_run(run.info.run_id).info.lifecycle_stage == "active"
    client.delete_run(run.info.run_id)


@pytest.mark.parametrize("request_name", ["create_run", "log_batch", "set_terminated"])
@pytest.mark.parametrize("is_done", [True, False], ids=["reply lost", "request lost"])
def test_an_attempt_has_one_run_after_a_request_that_failed(
    results: Path, monkeypatch: pytest.MonkeyPatch, request_name: str, is_done: bool, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

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
    runs = mlflow_runs(where)
    assert {trial: run.info.status for trial, run in runs.items()} == STATUSES
    assert runs["trial1"].data.metrics["latency_s"] == 0.1 + 0.2


def test_a_server_that_is_down_or_a_client_that_is_missing_is_said_in_one_line(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match=r"mlflow:http://127\.0\.0\.1:9 can't be used: "):
        export(results, "--to", "mlflow", "--out", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(SweepError, match=r"mlflow .*pip install 'dtsweep\[trackers\]'"):
        export(results, "--to", "mlflow")

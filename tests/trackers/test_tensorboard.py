"""TensorBoard's own readers find scalars and the rows of the HParams tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtsweep import StorageError
from dtsweep.trackers.exported import MOST_STEPS
from dtsweep.trackers.to_tensorboard import EVENTS
from tests.trackers.stored import START, WARMUP, export, private_texts, store_sweep


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_sweep(tmp_path_factory.mktemp("tensorboard") / "r")


@pytest.fixture(scope="module")
def folder(results: Path) -> Path:
    export(results, "--to", "tensorboard", "--out", results.parent / "logs")
    return results.parent / "logs" / "study"


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Any]:
    """Readers of the runs, by the settings that name them."""
    return {
        entry.name.rpartition("-")[0]: _reader(entry)
        for entry in folder.iterdir()
        if entry.is_dir()
    }


def _reader(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


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


def test_each_trial_that_ran_is_a_run_whose_metrics_are_scalars(runs: dict[str, Any]) -> None:
    assert sorted(runs) == [f"micro_batch={size}" for size in (16, 32, 4, 8)]
    first = runs["micro_batch=4"]
    (latency,) = first.Scalars("latency_s")
    assert latency.value == pytest.approx(0.3, rel=1e-7)
    assert "mfu" not in first.Tags()["scalars"]
    assert first.FirstEventTimestamp() == START.timestamp() + 60
    assert sorted(runs["micro_batch=16"].Tags()["scalars"]) == ["startup_s", "trial_s"]


def test_step_times_are_scalars_by_step_number(runs: dict[str, Any]) -> None:
    steps = runs["micro_batch=8"].Scalars("steps/step_s")
    assert [entry.step for entry in steps] == list(range(WARMUP, 19))
    assert steps[0].wall_time == pytest.approx(START.timestamp() + 120 + 0.03)
    warmup = runs["micro_batch=8"].Scalars("steps/warmup_step_s")
    assert [entry.step for entry in warmup] == list(range(WARMUP))
    assert len(runs["micro_batch=4"].Scalars("steps/loss")) == MOST_STEPS


def test_the_hparams_tab_finds_rows_and_columns_by_itself(folder: Path) -> None:
    experiment, groups = _hparams_tab(folder.parent)
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


def test_no_run_names_hosts_users_and_secrets(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert [file.name for file in files] == [EVENTS] * 4
    for name in private_texts():
        assert not any(name.encode() in file.read_bytes() for file in files)


def test_a_second_export_writes_no_run(
    results: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    export(results, "--to", "tensorboard", "--out", folder.parent)
    assert capsys.readouterr().err == f"sent 0 of 4 trials to tensorboard: {folder}\n"
    assert sorted(folder.iterdir()) == before


def test_a_folder_that_can_t_be_written_is_said_in_one_line(results: Path) -> None:
    file = next((results / "trials").iterdir())
    with pytest.raises(StorageError, match=r"can't be used: (NotADirectory|FileExists)Error: "):
        export(results, "--to", "tensorboard", "--out", file)

"""Offline runs of Weights & Biases hold what was exported, in the client's own records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dtsweep import SweepError
from dtsweep.trackers.exported import MOST_STEPS
from tests.trackers.stored import WARMUP, export, private_texts, store_sweep


@dataclass
class Run:
    """What the records of one `.wandb` file say."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = -1


pytestmark = pytest.mark.slow

BLOCK = 32 * 1024
"""Bytes of a block of a `.wandb` file, whose records are laid out as in a log of LevelDB."""


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


def read(file: Path) -> Run:
    from wandb.proto import wandb_internal_pb2

    known = Run()
    for entry in map(wandb_internal_pb2.Record.FromString, records_in(file.read_bytes())):
        match entry.WhichOneof("record_type"):
            case "run":
                known.run = entry.run
                known.config |= _values(entry.run.config.update)
            case "config":
                known.config |= _values(entry.config.update)
            case "summary":
                known.summary |= _values(entry.summary.update)
            case "history":
                known.history.append(_values(entry.history.item))
            case "exit":
                known.exit_code = entry.exit.exit_code
    return known


def _values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_sweep(tmp_path_factory.mktemp("wandb") / "r")


@pytest.fixture(scope="module")
def folder(results: Path) -> Path:
    export(results, "--to", "wandb", "--out", results.parent)
    return results.parent / "wandb"


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    """Runs by trial."""
    read_runs = [read(file) for file in folder.glob("offline-run-*/*.wandb")]
    return {run.config["dtsweep"]["trial_id"]: run for run in read_runs}


def test_a_run_has_parameters_metrics_and_units(runs: dict[str, Run]) -> None:
    first = runs["trial1"]
    assert first.run.display_name == "micro_batch=4"
    assert {"workers": 2, "overlap": True, "workload_width": 256}.items() <= first.config.items()
    assert first.config["dtsweep"]["units"]["latency_s"] == "s"
    assert first.summary["latency_s"] == 0.1 + 0.2
    assert "mfu" not in first.summary


def test_step_times_are_a_history_by_step_number(runs: dict[str, Run]) -> None:
    history = runs["trial2"].history
    assert [row["_step"] for row in history] == list(range(19))
    assert {row["steps/warmup_step_s"] for row in history[:WARMUP]} == {0.011}
    assert {row["steps/step_s"] for row in history[WARMUP:]} == {0.011}
    assert len(runs["trial1"].history) == MOST_STEPS


def test_each_trial_that_ran_is_a_run_and_a_failed_one_exits_with_1(runs: dict[str, Run]) -> None:
    exits = {"trial1": 0, "trial2": 0, "trial3": 1, "trial4": 1}
    assert {trial: run.exit_code for trial, run in runs.items()} == exits
    assert {(run.run.project, run.run.run_group) for run in runs.values()} == {("study", "study")}
    failed = runs["trial3"]
    assert "user_error" in failed.run.tags
    assert failed.summary["status"] == "user_error"
    assert "latency_s" not in failed.summary


def test_no_run_names_hosts_users_and_secrets(folder: Path, runs: dict[str, Run]) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) == len(runs)
    assert {run.run.host for run in runs.values()} == {""}
    for name in private_texts():
        assert not any(name.encode() in file.read_bytes() for file in files)


def test_a_second_export_writes_nothing(
    results: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    export(results, "--to", "wandb", "--out", results.parent)
    assert capsys.readouterr().err == f"sent 0 of 4 trials to wandb: {folder}\n"
    assert sorted(folder.iterdir()) == before


def test_a_folder_is_asked_for(results: Path) -> None:
    with pytest.raises(SweepError, match="wandb needs a place: add --out FOLDER"):
        export(results, "--to", "wandb")

"""A run of many trials on Ray into an object store that is faulty, and away for some time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtsweep.analysis.load import load
from dtsweep.results.storage import Storage
from dtsweep.results.store import Results
from tests.conftest import Command, without_ray
from tests.proxy import Proxy
from tests.stores import running_store

pytestmark = pytest.mark.ray

TRIALS = 30

OUTAGE_S = 20.0

WAIT_S = 15.0
"""Longest time between two trials; a wait for the store would take `OUTAGE_S`."""

SWEEP = f'''
"""Does a store that goes away cost a row?"""
from dataclasses import dataclass

from dtsweep import Measure, Resources, Sweep

@dataclass(frozen=True)
class Small:
    def build(self):
        from torch import nn
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        import torch
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={{"workers": [1], "micro_batch": list(range(1, {TRIALS + 1}))}},
    measure=Measure(repeats=1, half_width=None, canary=False, min_seconds=0.7, max_steps=10**6),
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
)
'''


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 240
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.2)


# The claim for each kind of store, without Ray: `tests/results/test_object_stores.py`.
def test_a_run_on_ray_loses_no_row_and_no_time_while_its_store_is_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtsweep_command: Command,
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "temporary").mkdir()
    with running_store("s3", tmp_path) as store, Proxy("127.0.0.1", store.port) as proxy:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        place, faulty = store.place(), store.environment(proxy.port)
        proxy.fail("random")
        arguments = ["run", "sweep.py", "--results", place, "--address", "local"]
        with (tmp_path / "run.log").open("wb") as log:
            run = subprocess.Popen(
                [sys.executable, "-m", "dtsweep", *arguments],
                cwd=tmp_path,
                env=without_ray(**faulty, TMPDIR=str(tmp_path / "temporary")),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for(lambda: len(Storage(place).sizes("trials")) >= 3, run)
            proxy.fail("closed")
            away_from = datetime.now(UTC)
            time.sleep(OUTAGE_S)
            away_until = datetime.now(UTC)
            stored_meanwhile = len(Storage(place).sizes("trials"))
            proxy.fail("random")
            code = run.wait(240)
        finally:
            run.kill()
            run.wait()
        said = (tmp_path / "run.log").read_text()
        assert code == 0, said
        assert proxy.struck["error"] > 0 and proxy.struck["cut"] > 0
        reported = dtsweep_command("report", place, folder=tmp_path, **faulty)
        assert reported.returncode == 0, reported.stderr
        rows = Results(place).attempts()
        frame = load(place)
    assert [row["row_number"] for row in rows] == [*range(1, TRIALS + 1)]
    assert frame["status"].tolist() == ["ok"] * TRIALS
    assert sorted(frame["micro_batch"]) == [*range(1, TRIALS + 1)]
    assert stored_meanwhile < TRIALS, "the run ended before its store came back"
    frame = frame.sort_values("started_at")
    # The first trial has the start of the session in it, most of a minute on a busy machine.
    took_s = frame[["startup_s", "trial_s", "overhead_s"]].sum(axis="columns").shift(1)
    waits_s = (frame["started_at"].diff().dt.total_seconds() - took_s).iloc[1:]
    is_away = frame["started_at"].iloc[1:].between(away_from, away_until)
    print(
        f"{is_away.sum()} trials began during the outage; wait between two trials: median "
        f"{waits_s[is_away].median():.2f} s, longest {waits_s[is_away].max():.2f} s; otherwise "
        f"median {waits_s[~is_away].median():.2f} s, longest {waits_s[~is_away].max():.2f} s; "
        f"start of the session {frame['startup_s'].max():.0f} s"
    )
    assert is_away.sum() >= 3
    assert waits_s.max() < WAIT_S, "measuring waited for the store"
    assert "does not answer; measuring goes on" in " ".join(said.split())
    assert not list((tmp_path / "temporary").rglob("*.tar"))

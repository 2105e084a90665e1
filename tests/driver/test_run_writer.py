"""The record of a run: written while it lives, at its end, and whatever the store does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep import Measure, Resources, Sweep
from dtsweep.driver import run_writer
from dtsweep.driver.progress import Progress
from dtsweep.driver.run_writer import RunWriter
from dtsweep.plan.plan import make_plan
from dtsweep.plan.policy import Round
from dtsweep.results.certificate import Certificate
from dtsweep.results.outbox import Outbox
from dtsweep.results.run_record import FOLDER, RunRecord
from dtsweep.results.storage import Storage, StoredFile
from dtsweep.results.store import Results
from dtsweep.sweep.point import Point
from tests.outcomes import Tokens

SECRET = "0123456789abcdef0123"


class Written:
    """A writer on a folder, with what it says."""

    def __init__(self, folder: Path, *, run_id: str = "a") -> None:
        self.said = StringIO()
        self.progress = Progress(axes=["workers"], console=Console(file=self.said, width=200))
        self.progress.total = 3
        self.results = Results(folder)
        self.outbox = Outbox(self.results, self.progress.say)
        sweep = Sweep(workload=Tokens(), axes={"workers": [1]}, file=folder / "study.py")
        sweep = replace(sweep, resources=Resources(environment={"API_TOKEN": SECRET}))
        known: dict[str, Any] = {"run_id": run_id, "sweep": sweep, "max_hours": 2.0}
        self.writer = RunWriter(self.results, self.outbox, self.progress, **known)

    @property
    def record(self) -> RunRecord | None:
        """The record in the folder."""
        return next((run.record for run in self.results.run_records()), None)

    def wait(self, holds: Callable[[RunRecord], bool]) -> RunRecord:
        until = time.monotonic() + 60
        while (record := self.record) is None or not holds(record):
            assert time.monotonic() < until, record
            time.sleep(0.02)
        return record


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    monkeypatch.setattr(run_writer, "_APART_S", 0.05)
    made = Written(tmp_path)
    yield made
    made.writer.end("done")
    made.outbox.close()


def test_a_record_follows_what_begins_and_ends(written: Written) -> None:
    written.writer.start()
    first = written.wait(lambda record: True)
    assert (first.sweep, first.total, first.max_hours, first.ended_at) == ("study", 3, 2.0, None)
    began = time.time()
    written.progress.began("t", Point(workers=2))
    record = written.wait(lambda record: bool(record.running))
    (trial,) = record.running
    assert (trial.trial_id, trial.name, trial.is_canary) == ("t", "workers=2", False)
    assert abs(trial.since - began) < 5
    row = {"status": "hang", "reason": "no step", "repeat": 1, "semantics": "exact"}
    written.progress.over("t")
    written.progress.ended(Point(workers=2), row)
    written.wait(lambda record: record.statuses == {"hang": 1} and not record.running)


def test_the_last_record_says_how_the_run_ended_without_secrets(
    written: Written, tmp_path: Path
) -> None:
    written.writer.start()
    written.progress.began("t", Point(workers=2))
    written.writer.end("failed", f"401 for {SECRET}")
    record = written.record
    assert record is not None
    assert (record.ended_as, record.running) == ("failed", ())
    assert str(record.reason).startswith("401 for hidden:")
    assert (record.ended_at or 0.0) >= record.started_at
    # Whatever ends the run once more finds it ended.
    written.writer.end("done")
    assert written.record == record
    # Nothing of the environment is there either.
    (file,) = (tmp_path / FOLDER).iterdir()
    assert not any(word in file.read_text() for word in (SECRET, "API_TOKEN"))


def test_the_account_of_nodes_is_a_part_of_the_record(written: Written) -> None:
    seconds = {"gpu": 6.0}
    written.writer.node_account = lambda: {"node_s": seconds, "cost_usd": 0.5, "max_cost_usd": 4.0}
    written.writer.start()
    record = written.wait(lambda record: record.node_s is not None)
    assert (record.node_s, record.cost_usd, record.max_cost_usd) == (seconds, 0.5, 4.0)
    written.writer.end("done")
    assert written.wait(lambda record: record.ended_at is not None).cost_usd == 0.5


@pytest.mark.parametrize("fields", [None, {"no_such_field": 1}])
def test_an_account_that_fails_costs_its_fields_and_one_line(
    written: Written, fields: Mapping[str, Any] | None
) -> None:
    def account() -> Mapping[str, Any]:
        if fields is None:
            raise ZeroDivisionError("no node")
        return fields

    written.writer.node_account = account
    written.writer.start()
    written.progress.began("t", Point(workers=2))
    written.wait(lambda record: bool(record.running))
    written.writer.end("done")
    assert written.wait(lambda record: record.ended_as == "done").cost_usd is None
    assert written.said.getvalue().count("the record of the run lacks nodes and cost") == 1


@contextmanager
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Hold the writes of the record's thread back, as a store does that does not answer."""
    write, is_writing, may_write = Storage.write, threading.Event(), threading.Event()

    def late(storage: Storage, file: StoredFile) -> None:
        if threading.current_thread().name == "dtsweep-record":
            is_writing.set()
            may_write.wait()
        write(storage, file)

    with monkeypatch.context() as context:
        context.setattr(Storage, "write", late)
        yield is_writing, may_write
        may_write.set()


def test_an_old_record_that_comes_late_does_not_replace_the_last_one(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "_JOINED_S", 0.1)
    with held_back(monkeypatch) as (is_writing, may_write):
        written.writer.start()
        is_writing.wait()
        written.writer.end("interrupted")
        ended = written.record
        may_write.set()
        written.writer._thread.join()
    assert ended is not None
    assert (ended.ended_as, written.record) == ("interrupted", ended)


def test_a_folder_that_refuses_the_record_costs_one_line(written: Written, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file where the folder would be")
    written.writer.start()
    written.progress.began("t", Point(workers=2))
    until = time.monotonic() + 60
    while "the record of the run is not stored" not in written.said.getvalue():
        assert time.monotonic() < until
        time.sleep(0.02)
    written.progress.over("t")
    while written.writer._changed.is_set():
        time.sleep(0.02)
    written.writer.end("done")
    # One of the thread, and one of the last record.
    assert written.said.getvalue().count("the record of the run is not stored") == 2


def test_a_run_that_measures_nothing_stores_a_certificate_that_differs(tmp_path: Path) -> None:
    chances: dict[str, Any] = {"could_beat": 0, "chance": 0.0, "expected": 0.0}
    chances |= {"least_chance": 0.01}
    first = Certificate(measured=5, points=6, zone=0.03, gain=0.001, **chances)
    plan = make_plan(Sweep(workload=Tokens(), axes={"workers": [1]}), [], [])
    # After it comes the same one again, and then one of more points.
    for certificate, records in ((first, 1), (first, 1), (replace(first, measured=6), 2)):
        run = Written(tmp_path, run_id=f"run{records}")
        last = Round(repeat=1, points=[], measure=Measure(), certificate=certificate)
        run.progress.end_rounds(replace(plan, last_round=last))
        run.writer.renew_certificate()
        run.outbox.close()
        stored = [one.record for one in run.results.run_records()]
        assert len(stored) == records
        assert (stored[-1].certificate, stored[-1].ended_as) == (certificate, "done")

"""Files on their way to the results: in order, once, also where the place does not answer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dtsweep.errors import StorageError
from dtsweep.results import outbox as outbox_module
from dtsweep.results import spool as spool_module
from dtsweep.results.outbox import Outbox
from dtsweep.results.pack import attempt_files
from dtsweep.results.spool import left_entries
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results
from tests.processes import python_begun, wait_for


def files_of(number: int) -> list[StoredFile]:
    return attempt_files({"attempt_id": f"a{number}", "trial_id": f"t{number}", "status": "ok"})


class Gate(Results):
    """Results in a folder, which stand still while the gate is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_open = threading.Event()
        self.is_open.set()
        self.error: StorageError | None = None
        self.written: list[str] = []

    def write(self, files: object) -> None:
        self.is_open.wait()
        if self.error is not None:
            raise self.error
        listed = list(files)  # type: ignore[call-overload]
        self.written += [file.name.split("-")[1] for file in listed if file.folder == "trials"]
        super().write(listed)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(outbox_module, "_SILENT_S", 0.2)
    monkeypatch.setattr(outbox_module, "_AGAIN_S", (0.05,))


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def results(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "r")


@pytest.fixture
def outbox(results: Gate, lines: list[str], tmp_path: Path) -> Outbox:
    return Outbox(results, lines.append, roots=[tmp_path / "s"])


def ids(results: Results) -> list[str]:
    return [row["attempt_id"] for row in results.attempts()]


def test_where_the_place_answers_a_file_is_stored_when_put_returns(
    outbox: Outbox,
    results: Gate,
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "_PATIENCE_S", 60.0)
    outbox.put(files_of(1))
    assert ids(results) == ["a1"]
    outbox.close()
    assert lines == []
    assert not (tmp_path / "s").exists()


def test_measuring_goes_on_while_the_place_is_silent_and_all_is_stored_in_order_afterwards(
    outbox: Outbox, results: Gate, tmp_path: Path, lines: list[str]
) -> None:
    results.is_open.clear()
    for number in range(1, 6):
        outbox.put(files_of(number))
    assert len(list((tmp_path / "s").rglob("*.tar"))) == 5
    wait_for(lambda: len(lines) == 1)
    results.is_open.set()
    outbox.close()
    assert results.written == ["a1", "a2", "a3", "a4", "a5"]
    assert [line.split("; ")[0] for line in lines] == [
        f"{results} does not answer",
        f"waiting up to 60 s for {results}",
        f"{results} answers again: everything is stored",
    ]
    assert list((tmp_path / "s").rglob("*.tar")) == []


def test_a_passing_error_is_tried_again_and_a_refusal_ends_the_run_with_all_kept(
    outbox: Outbox,
    results: Gate,
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results.error = StorageError("busy", may_pass=True)
    outbox.put(files_of(1))
    results.error = None
    wait_for(lambda: outbox.is_idle)
    monkeypatch.setattr(outbox_module, "_PATIENCE_S", 60.0)
    results.error = StorageError("forbidden")
    for number in (2, 3):
        with pytest.raises(StorageError, match="forbidden; the last attempt is kept in "):
            outbox.put(files_of(number))
    outbox.close()
    results.error = None
    Outbox(results, lines.append, roots=[tmp_path / "s"]).send_left()
    assert ids(results) == ["a1", "a2", "a3"]
    assert lines[-1].startswith("stored 2 attempts that an earlier run had kept in ")
    assert left_entries(results.storage.identity, roots=[tmp_path / "s"]) == []


def test_a_log_that_is_refused_costs_no_row(
    outbox: Outbox, results: Gate, lines: list[str]
) -> None:
    results.error = StorageError("forbidden")
    outbox.put_extra("the log of rank 0", [StoredFile("logs/s", "0.log", b"words")])
    results.error = None
    outbox.put(files_of(1))
    outbox.close()
    assert lines == ["the log of rank 0 is not stored: forbidden"]
    assert ids(results) == ["a1"]


def test_a_full_spool_makes_measuring_wait_and_says_why(
    outbox: Outbox, results: Gate, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "_MOST_BYTES", 1)
    results.is_open.clear()
    outbox.put(files_of(1))
    waiting = threading.Thread(target=outbox.put, args=(files_of(2),))
    waiting.start()
    wait_for(lambda: any("is full: measuring waits" in line for line in lines))
    assert waiting.is_alive()
    results.is_open.set()
    waiting.join(60)
    outbox.close()
    assert ids(results) == ["a1", "a2"]


def test_the_spool_moves_on_to_a_folder_that_can_be_written_to_and_without_one_says_what_is_lost(
    tmp_path: Path, results: Gate, lines: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    roots = [tmp_path / "file" / "s", tmp_path / "s"]
    outbox, nowhere = (Outbox(results, lines.append, roots=some) for some in (roots, roots[:1]))
    nowhere.put(files_of(1))
    results.error = StorageError("forbidden")
    with pytest.raises(StorageError, match=f"kept in {tmp_path / 's'}/"):
        outbox.put(files_of(2))
    outbox.close()
    lost = "forbidden; the last attempt is lost, since no local folder can be written to"
    with pytest.raises(StorageError, match=lost):
        nowhere.put(files_of(3))
    assert ids(results) == ["a1"]


KILLED = """
import os, sys
from pathlib import Path
from tests.results.test_outbox import Gate, files_of
from dtsweep.results import outbox
outbox._PATIENCE_S = 0.1
results = Gate(Path(sys.argv[1]) / "r")
results.is_open.clear()
sender = outbox.Outbox(results, print, roots=[Path(sys.argv[1]) / "s"])
for number in (1, 2, 3):
    sender.put(files_of(number))
os._exit(9)
"""


def test_what_a_killed_run_kept_is_sent_by_the_next_one(tmp_path: Path, lines: list[str]) -> None:
    with python_begun(KILLED, tmp_path) as killed:
        assert killed.wait() == 9
    results = Results(tmp_path / "r")
    assert len(left_entries(results.storage.identity, roots=[tmp_path / "s"])) == 3
    Outbox(results, lines.append, roots=[tmp_path / "s"]).send_left()
    assert ids(results) == ["a1", "a2", "a3"]
    assert not list((tmp_path / "s").rglob("run-*"))


def test_a_foreign_archive_in_the_spool_is_left_out(
    outbox: Outbox, results: Gate, tmp_path: Path, lines: list[str]
) -> None:
    folder = tmp_path / "s" / results.storage.identity / "run-x"
    folder.mkdir(parents=True)
    (folder / "1.tar").write_bytes(b"no archive")
    outbox.send_left()
    assert lines[0].startswith(f"left out: {folder / '1.tar'} is damaged")


def test_a_folder_of_somebody_else_in_the_way_is_not_looked_into(tmp_path: Path) -> None:
    place, foreign = tmp_path / "spool" / "place", tmp_path / "foreign"
    place.mkdir(parents=True)
    foreign.mkdir()
    (foreign / "0-1.tar").touch()
    (place / "run-link").symlink_to(foreign)
    assert left_entries("place", roots=[tmp_path / "spool"]) == []
    (tmp_path / "link").symlink_to(tmp_path / "spool")
    assert left_entries("place", roots=[tmp_path / "link"]) == []


def test_a_log_that_an_earlier_run_kept_blocks_no_run(
    outbox: Outbox, results: Gate, tmp_path: Path, lines: list[str]
) -> None:
    roots = [tmp_path / "s"]
    results.is_open.clear()
    outbox.put_extra("log", [StoredFile("logs", "log", b"line")])
    outbox.close(within_s=0.1)
    assert not [line for line in lines if "attempt" in line]
    refusing = Gate(tmp_path / "r")
    refusing.error = StorageError("refused")
    Outbox(refusing, lines.append, roots=roots).send_left()
    assert lines[-1] == "a log is not stored: refused"
    assert left_entries(refusing.storage.identity, roots=roots) == []
    results.is_open.set()


def test_an_error_of_any_kind_in_the_thread_ends_the_run_with_its_rows_kept(
    outbox: Outbox, results: Gate, tmp_path: Path
) -> None:
    results.error = ValueError("no error of storage")  # type: ignore[assignment]
    with pytest.raises(StorageError, match="no error of storage"):
        outbox.put(files_of(1))
    assert len(left_entries(results.storage.identity, roots=[tmp_path / "s"])) == 0, "it is held"
    outbox._spool.close()


def test_after_a_close_that_was_interrupted_another_run_sends_what_waited(
    outbox: Outbox,
    results: Gate,
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roots = [tmp_path / "s"]
    results.is_open.clear()
    outbox.put(files_of(1))
    outbox.put(files_of(2))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(outbox._changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt):
            outbox.close()
    assert len(left_entries(results.storage.identity, roots=roots)) == 2
    results.is_open.set()
    again = Results(tmp_path / "r")
    Outbox(again, lines.append, roots=roots).send_left()
    outbox._thread.join()
    assert ids(again) == ["a1", "a2"]

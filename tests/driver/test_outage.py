"""Storage that fails while a run measures: said soon, nothing lost, nothing stored twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import dtsweep
from dtsweep import StorageError, Sweep
from dtsweep.results import object_stores, outbox, spool, storage
from dtsweep.results.store import Results
from tests.conftest import Command
from tests.driver.test_in_process_run import QUICK, Line
from tests.linear import sweep_text
from tests.proxy import Proxy

S3_ATTEMPTS = object_stores.S3_ATTEMPTS


@pytest.fixture
def proxied(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a real server that speaks S3, and the place of results behind it."""
    host, port = parse_qs(urlsplit(bucket).query)["endpoint_override"][0].split(":")
    with Proxy(host, int(port)) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        monkeypatch.setattr(object_stores, "S3_ATTEMPTS", 2)
        yield proxy, f"s3://bucket/results?endpoint_override={address}&scheme=http"


class Fails(Line):
    """Makes the storage fail when the second trial trains, and work again after the third."""

    proxy: Proxy
    fault: str
    comes_back: bool
    built = 0

    def build(self) -> Any:
        Fails.built += 1
        if Fails.built == 2:
            Fails.proxy.fail(Fails.fault)
        if Fails.built == 4 and Fails.comes_back:
            Fails.proxy.fail(None)
        return super().build()


SWEEP = Sweep(workload=Fails(), axes={"micro_batch": [1, 2, 4, 8]}, measure=QUICK)


SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in ("busy", "cut")]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["closed", "silent", *SLOW])
def test_an_outage_costs_no_row(
    proxied: tuple[Proxy, str],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    proxy, place = proxied
    monkeypatch.setattr(spool, "_spool_roots", lambda: [tmp_path / "spool"])
    monkeypatch.setattr(outbox, "_SILENT_S", 0.5)
    Fails.proxy, Fails.fault, Fails.comes_back, Fails.built = proxy, fault, True, 0
    frame = dtsweep.run(SWEEP, place, in_process=True)
    assert frame["status"].tolist() == ["ok"] * 4
    rows = Results(place).attempts()
    assert [row["row_number"] for row in rows] == [1, 2, 3, 4]
    (run,) = Results(place).run_records()
    assert (run.record.ended_as, run.record.statuses) == ("done", {"ok": 4})
    assert "does not answer; measuring goes on" in capsys.readouterr().err.replace("\n", " ")
    assert not list((tmp_path / "spool").rglob("*.tar"))


@pytest.mark.slow
def test_a_store_that_stays_away_leaves_all_to_the_next_run(
    proxied: tuple[Proxy, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, place = proxied
    monkeypatch.setattr(spool, "_spool_roots", lambda: [tmp_path / "spool"])
    monkeypatch.setattr("dtsweep.driver.run.CLOSE_S", 1.0)
    Fails.proxy, Fails.fault, Fails.comes_back, Fails.built = proxy, "closed", False, 0
    with pytest.raises(StorageError, match=r"wait in .*: the same command sends them"):
        dtsweep.run(SWEEP, place, in_process=True)
    proxy.fail(None)
    assert dtsweep.run(SWEEP, place, in_process=True)["status"].tolist() == ["ok"] * 4
    assert len(Results(place).attempts()) == 4
    # The end of the first run waited with its rows; the second one had nothing to run.
    (run,) = Results(place).run_records()
    assert (run.record.ended_as, run.record.statuses) == ("done", {"ok": 4})


def test_a_store_that_can_not_be_reached_is_told_before_anything_is_measured(
    proxied: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, place = proxied
    monkeypatch.setattr(storage, "_REACHED_S", 1.0)
    proxy.fail("silent")
    with pytest.raises(StorageError, match="can't be reached: no answer in 1 s"):
        dtsweep.run(SWEEP, place, in_process=True)


@pytest.mark.slow
def test_a_command_ends_while_its_calls_of_the_store_hang(
    proxied: tuple[Proxy, str], tmp_path: Path, forked_command: Command
) -> None:
    proxy, place = proxied
    (tmp_path / "sweep.py").write_text(sweep_text({"micro_batch": [1]}))
    proxy.fail("silent")
    run = forked_command("run", "sweep.py", "--results", place, "--in-process", folder=tmp_path)
    assert run.returncode == 5, run.stderr
    assert "can't be reached: no answer in 15 s" in " ".join(run.stderr.split())
    # Each attempt at a request hangs on a connection of its own, for 10 s.
    assert proxy.connections < S3_ATTEMPTS, "the end of the process waited for its calls"

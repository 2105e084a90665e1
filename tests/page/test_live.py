"""The page during a run: fresh, whole, and never at the cost of a trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from dtsweep.page import live
from dtsweep.results.store import Results
from tests.pages import ROOT
from tests.report.test_notebook import ROWS, stored

WITHIN_S = 240.0

SWEEP = """
import time
from pathlib import Path

from dtsweep import Measure, Sweep, workloads

class Waits(workloads.Gpt):
    def batch(self, samples, device):
        # After the first trial, the run waits for the test.
        while any(Path("r", "trials").rglob("*.parquet")) and not Path("go").exists():
            time.sleep(0.05)
        return super().batch(samples, device)

sweep = Sweep(
    workload=Waits(layers=1, width=16, sequence=8),
    axes={"workers": [1], "micro_batch": [1, 2, 4]},
    measure=Measure(
        repeats=1, half_width=None, min_seconds=1, max_seconds=1, canary=False,
        exchange="off", nested=False,
    ),
)
"""


def until(is_so: Callable[[], bool], *, run: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so; fails after a time, or where the run has ended before."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline
        assert run is None or run.poll() is None, run.communicate()
        time.sleep(0.05)


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in process that keeps `page.html` in its folder, and ends after `go` is there."""
    (folder / "small.py").write_text(SWEEP)
    command = [sys.executable, "-m", "dtsweep", "small.py", "--in-process", "--results", "r"]
    with subprocess.Popen(
        [*command, "--html", "page.html"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def live_process(run: subprocess.Popen[str]) -> psutil.Process | None:
    """The process of the page; None before it has begun."""
    for child in psutil.Process(run.pid).children():
        if "dtsweep.page.live" in child.cmdline():
            return child
    return None


def test_the_page_is_there_during_the_run_and_has_all_points_at_its_end(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with running(tmp_path) as run:
        until(page.exists, run=run)
        early = page.read_text("utf-8")
        assert early.endswith("</html>\n")
        assert '"refresh_s":20.0' in early
        (tmp_path / "go").touch()
        output, _ = run.communicate(timeout=WITHIN_S)
        assert run.returncode == 0, output
    late = page.read_text("utf-8")
    assert "3 trials: 3 ok" in late
    assert '"refresh_s":null' in late
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "page.html", "r", "small.py"]


def test_the_process_of_the_page_has_the_lowest_priority_and_ends_with_a_killed_driver(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as run:
        until(lambda: live_process(run) is not None, run=run)
        process = live_process(run)
        assert process is not None
        until(lambda: process.nice() == 19)
        if hasattr(os, "SCHED_IDLE"):
            until(lambda: os.sched_getscheduler(process.pid) == os.SCHED_IDLE)
        run.send_signal(signal.SIGKILL)
        run.wait(timeout=WITHIN_S)
        process.wait(timeout=WITHIN_S)
        assert not psutil.pid_exists(process.pid)


@contextmanager
def kept_fresh(place: Path, file: Path) -> Iterator[int]:
    """The loop of the process, in a thread; gives the driver's end of its pipe."""
    driver, own = os.pipe()
    thread = threading.Thread(target=live.keep_fresh, args=(Results(place), file, driver))
    thread.start()
    try:
        yield own
    finally:
        os.close(own)
        thread.join(timeout=WITHIN_S)
        os.close(driver)
        assert not thread.is_alive()


def test_the_page_is_written_again_when_there_are_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.1)
    monkeypatch.setattr(live, "COSTS", 0.0)
    place, page = tmp_path / "r", tmp_path / "page.html"
    with kept_fresh(place, page) as driver:
        stored(ROWS[:1], place)
        until(lambda: page.exists() and "1 trial: 1 ok" in page.read_text("utf-8"))
        written = page.stat()
        stored(ROWS, place)
        until(lambda: f"{len(ROWS)} trials" in page.read_text("utf-8"))
        assert page.stat().st_ino != written.st_ino
        os.write(driver, b"end\n")
        until(lambda: '"refresh_s":null' in page.read_text("utf-8"))


def test_a_page_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.1)
    monkeypatch.setattr(live, "COSTS", 0.0)
    place = tmp_path / "r"
    stored(ROWS[:1], place)
    with kept_fresh(place, tmp_path / "gone" / "page.html") as driver:
        stored(ROWS, place)
        os.write(driver, b"end\n")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("dtsweep: no page ")
    assert lines[0].endswith("; the run goes on")


def test_a_folder_that_does_not_exist_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.py").write_text(SWEEP)
    command = [sys.executable, "-m", "dtsweep", "small.py", "--in-process", "--results", "r"]
    done = subprocess.run(
        [*command, "--html", "no/page.html"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "dtsweep: --html no/page.html can't be written: No such file or directory; name a file in "
        "a folder that exists\n"
    )
    assert not (tmp_path / "r").exists()


def page_process() -> psutil.Process | None:
    """The process of a page that this process keeps fresh."""
    for child in psutil.Process().children():
        if "dtsweep.page.live" in child.cmdline():
            return child
    return None


def test_a_process_of_the_page_that_was_killed_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with live.page_kept_fresh(str(tmp_path / "r"), tmp_path / "page.html", said.append):
        until(lambda: page_process() is not None)
        process = page_process()
        assert process is not None
        process.kill()
    assert len(said) == 1
    assert said[0].startswith("the process of the page ended with code -9, so ")


def test_the_last_page_of_a_run_that_an_error_ended_is_made_without_foreign_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pandas.py").write_text("raise SystemExit('a module of the working directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "FAILED_S", WITHIN_S)
    stored(ROWS[:1], tmp_path / "r")
    said: list[str] = []
    with (
        pytest.raises(KeyboardInterrupt),
        live.page_kept_fresh(str(tmp_path / "r"), tmp_path / "page.html", said.append),
    ):
        raise KeyboardInterrupt
    assert said == []
    assert '"refresh_s":null' in (tmp_path / "page.html").read_text("utf-8")

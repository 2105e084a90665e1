"""Page that is kept fresh while a run measures, by a process of the lowest priority.

The driver makes no page itself: a page takes seconds of a CPU. The process lives as long as the
pipe to the driver is open, so it ends with a driver that is killed, too.
"""

from __future__ import annotations

import glob
import os
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dtsweep.driver.python_process import start_python
from dtsweep.errors import SweepError, error_line, printable
from dtsweep.page.page import page_of, write_page
from dtsweep.results.store import Results

EVERY_S = 5.0
"""Least time between two pages."""

REFRESH_S = 20.0
"""Time after which a browser loads the page again."""

COSTS = 20.0
"""Least time between two pages, as a multiple of the CPU time of the last one."""

LAST_PAGE_S = 120.0
"""Time limit for the last page, which is made after the run."""

FAILED_S = 15.0
"""That limit where the run has ended by an error."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

_END = "end\n"
"""Line that asks for the last page."""


@contextmanager
def page_kept_fresh(results: str, file: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Keep a page fresh in a process of its own while this context lasts; one more at its end.

    Args:
        results: the place of the results; nothing needs to be there yet.
        file: of the page.
        tell: takes a line if the last page is not made, or not in time.

    Raises:
        SweepError: the file can't be written. Later failures are a line on stderr.
    """
    _refuse_unwritable(file)
    process = start_python(
        "-m",
        "dtsweep.page.live",
        results,
        str(file),
        stdout=subprocess.DEVNULL,
        variables=_ONE_THREAD,
    )
    try:
        yield
    except BaseException:
        # Without a last page, a browser would load the page again for ever.
        _finish(process, file, tell, limit_s=FAILED_S)
        raise
    else:
        _finish(process, file, tell, limit_s=LAST_PAGE_S)
    finally:
        process.kill()
        process.wait()
        _remove_parts(file)
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()


def _refuse_unwritable(file: Path) -> None:
    """Refuse a file that can't be written, before anything is measured."""
    if file.is_dir():
        raise SweepError(f"--html {file} is a folder; name a file in it")
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}."):
            pass
    except OSError as error:
        raise SweepError(
            f"--html {file} can't be written: {error.strerror}; name a file in a folder that exists"
        ) from None


def _finish(
    process: subprocess.Popen[str], file: Path, tell: Callable[[str], None], *, limit_s: float
) -> None:
    """Wait for the last page, and say so if it was not made."""
    why = ""
    try:
        process.communicate(_END, timeout=limit_s)
    except subprocess.TimeoutExpired:
        why = f"the last page was not made in {limit_s:.0f} s"
    if process.returncode:
        why = f"the process of the page ended with code {process.returncode}"
    if why:
        tell(
            f"{why}, so {file} may lack the last trials; dtsweep report RESULTS --html FILE makes "
            "it"
        )


def _remove_parts(file: Path) -> None:
    """Remove what a process that was killed has left of a page."""
    for part in file.parent.glob(f".{glob.escape(file.name)}.{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            part.unlink()


def main() -> None:
    """Run the process: results and file are its arguments, the driver holds its stdin."""
    results, file = sys.argv[1:]
    lower_priority()
    # The report after the run has them, too.
    warnings.simplefilter("ignore")
    if not keep_fresh(Results(results), Path(file), sys.stdin.fileno()):
        sys.exit(1)


def lower_priority() -> None:
    """Leave the CPUs to the run: this process gets what nobody else wants."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # containers may forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def keep_fresh(results: Results, file: Path, driver: int) -> bool:
    """Write the page when there are new rows, until the driver asks for the last one or ends.

    Args:
        results: the place of the results.
        file: of the page.
        driver: descriptor of the pipe to the driver.

    Returns:
        False if the last page failed.
    """
    page = _LivePage(results, file)
    pause_s = 0.0
    while True:
        # A driver that was killed asks for nothing, and its page should not be loaded for ever.
        is_last = _word_within(pause_s, driver) is not None
        cost_s = page.renew(is_last=is_last)
        if is_last:
            return not page.has_failed
        pause_s = max(EVERY_S, COSTS * cost_s)


def _word_within(seconds: float, driver: int) -> bytes | None:
    """A line from the driver, empty if it has ended; None if the time is over."""
    readable, _, _ = select.select([driver], [], [], seconds)
    if not readable:
        return None
    return os.read(driver, len(_END))


class _LivePage:
    """A page and the state of the results that it shows."""

    def __init__(self, results: Results, file: Path) -> None:
        self._results, self._file = results, file
        self._shown: Any = None
        self._has_complained = False
        self.has_failed = False
        """True if the last attempt to write it failed."""

    def renew(self, *, is_last: bool) -> float:
        """Write the page if there are new rows; a failure is one line on stderr, once.

        Returns:
            CPU time that it took in seconds.
        """
        began = time.process_time()
        self.has_failed = False
        try:
            state = self._results.state()
            if state and (state != self._shown or is_last):
                self._write(is_last=is_last)
                self._shown = state
        except Exception as error:  # noqa: BLE001  # no page, whatever is wrong, costs a trial
            self.has_failed = True
            self._say_once(error)
        return time.process_time() - began

    def _write(self, *, is_last: bool) -> None:
        refresh_s = None
        if not is_last:
            refresh_s = REFRESH_S
        write_page(page_of(self._results, refresh_s=refresh_s), self._file)

    def _say_once(self, error: Exception) -> None:
        if self._has_complained:
            return
        self._has_complained = True
        words = str(error) if isinstance(error, SweepError) else error_line(error)
        print(  # noqa: T201  # the driver shows its stderr
            f"dtsweep: no page {printable(str(self._file))}: {printable(words)}; the run goes on",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()

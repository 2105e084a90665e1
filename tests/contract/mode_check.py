"""Check of one mode: trains it on 1, 2 and 4 gloo processes, and collects what it breaks."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from dtsweep.errors import SweepError
from dtsweep.provenance.installed import entry_of
from dtsweep.sweep.modes import MODES, mode_of
from dtsweep.text import count_of
from tests.contract.promises import PROMISES, WORLDS, Trained
from tests.contract.training import OfRank, train_in_processes

LOADED = """\
import sys
sys.path[:] = {path!r}
from dtsweep.sweep.modes import mode_of
from dtsweep.sweep.compressions import compression_of
{kind}_of({name!r})
"""
"""Program that reads a declaration as a plan does."""


def check_mode(name: str, **fields: Any) -> None:
    """Check that a mode keeps what its declaration promises.

    Args:
        name: value of `sync`: one of dtsweep's own modes, or of an installed package's.
        fields: more fields of the points, such as `staleness=2`.

    Raises:
        ExceptionGroup: an `AssertionError` for each broken promise, in words.
        SweepError: the mode can't be found, or needs Ray.
    """
    if mode_of(name).needs_ray:
        raise SweepError(
            f"mode {name!r} needs Ray, and the contract runs without; measure it in a sweep"
        )
    with tempfile.TemporaryDirectory() as folder:

        @functools.cache
        def by_workers(workers: int) -> Sequence[OfRank]:
            of_world = Path(folder) / str(workers)
            of_world.mkdir()
            return train_in_processes(name, workers, of_world, fields)

        trained = Trained(mode=name, fields=fields, by_workers=by_workers)
        errors = _failures(by_workers)
        if not errors:
            errors = broken(PROMISES, trained)
    if name not in MODES:
        errors += declaration_errors("mode", name)
    raise_broken(f"mode {name!r}", errors)


def raise_broken(what: str, errors: Sequence[AssertionError]) -> None:
    """Raise the errors together, if there are any."""
    if errors:
        raise ExceptionGroup(f"{what} breaks what it promises", errors)


def declaration_errors(kind: str, name: str) -> list[AssertionError]:
    """Read the declaration in a process without torch, as a plan does."""
    code = LOADED.format(path=sys.path, kind=kind, name=name)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 0:
        return []
    place = entry_of(kind, name).place
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return [AssertionError(f"a plan can't read the declaration {place}: {last}")]


def _failures(by_workers: Callable[[int], object]) -> list[AssertionError]:
    """The first world whose training fails, with the last line of its traceback; else empty."""
    for workers in WORLDS:
        try:
            by_workers(workers)
        except (ProcessRaisedException, ProcessExitedException) as error:
            last = str(error).strip().splitlines()[-1]
            return [AssertionError(f"its training by {count_of(workers, 'worker')} fails: {last}")]
    return []


def broken(
    promises: Iterable[Callable[[Any], Iterator[str]]], subject: Any
) -> list[AssertionError]:
    """An error for each promise that the subject breaks, with all its broken cases."""
    errors = []
    for promise in promises:
        if sentences := list(promise(subject)):
            title = promise.__name__.replace("_", " ")
            errors.append(AssertionError(f"{title}: {'; '.join(sentences)}"))
    return errors

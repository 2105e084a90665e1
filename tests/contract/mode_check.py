"""Check of one mode: trains it on 1, 2 and 4 gloo processes, and collects what it breaks."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from dtsweep.errors import SweepError
from dtsweep.sweep.modes import mode_of
from dtsweep.text import count_of
from tests.contract.promises import PROMISES, WORLDS, Trained
from tests.contract.training import OfRank, train_in_processes


def check_mode(name: str, **fields: Any) -> None:
    """Check that a mode keeps what its declaration promises.

    Args:
        name: value of `sync`.
        fields: more fields of the points, such as `staleness=2`.

    Raises:
        ExceptionGroup: an `AssertionError` for each broken promise, in words.
        SweepError: the mode needs Ray.
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
    raise_broken(f"mode {name!r}", errors)


def raise_broken(what: str, errors: Sequence[AssertionError]) -> None:
    """Raise the errors together, if there are any."""
    if errors:
        raise ExceptionGroup(f"{what} breaks what it promises", errors)


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

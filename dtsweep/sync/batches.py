"""Batches of a rank: made in its process, or by processes of their own that load ahead."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from dtsweep.errors import error_line, raised_at
from dtsweep.hardware.memory import oom_status
from dtsweep.hardware.process_state import end_with
from dtsweep.hardware.random_states import set_seed
from dtsweep.secret import print_traceback
from dtsweep.sync.mode import Job
from dtsweep.workloads.datasets import MakeBatch, pinned, to_device

_HOST = torch.device("cpu")


class LoaderError(RuntimeError):
    """Error of a batch in a loader's process; with the message of the error there."""

    is_whole_reason = True


def _samples_of(job: Job, number: int, place: int) -> range:
    """Samples of a pass, counted from a trial's first one, in the data-parallel group at a place.

    Sample numbers are global: pass after pass, and in a pass group after group.
    """
    micro_batch = job.point.micro_batch
    begin = number * job.point.samples_per_pass + place * micro_batch
    return range(begin, begin + micro_batch)


class BatchSource:
    """A rank's batches on its device, by the number of their pass.

    With `loader_workers` processes make them from `start` to `close`, in the order of their
    passes. Before `start` this process makes them.
    """

    def __init__(self, job: Job) -> None:
        """Begin without processes."""
        point = job.point
        self._job = job
        self._loads_on_host = bool(point.loader_workers or point.pin_memory or point.copy_ahead)
        self._loader: Any = None
        self._next_number = 0
        """Of the batch that the processes give next."""
        self._handler: Any = None
        self._stream: torch.cuda.Stream | None = None
        if point.copy_ahead:
            self._stream = torch.cuda.Stream(job.device)
        self._copied: tuple[int, Any] | None = None
        """Batch that is copied ahead, with its number."""

    def start(self, number: int) -> None:
        """Start the processes once, if there are to be some, with the batch of this pass."""
        point = self._job.point
        if point.loader_workers is None or self._loader is not None or not self._job.reads_batches:
            return
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.getsignal(signal.SIGCHLD)
        rank_pid = os.getpid()
        loader = DataLoader(
            _Passes(self._job.make_batch, self._job.seed),
            sampler=_Numbers(self._job, number),
            batch_size=None,
            collate_fn=lambda batch: batch,
            num_workers=point.loader_workers,
            prefetch_factor=point.prefetch,
            pin_memory=point.pin_memory,
            # What the workload keeps is there, and nothing of it has to be pickled.
            multiprocessing_context="fork",
            # They must not outlive their rank.
            worker_init_fn=lambda _: end_with(rank_pid),
            # torch's own one would lose a number, and dropout draw others.
            generator=torch.Generator(),
        )
        self._loader = iter(loader)
        self._next_number = number

    def take(self, number: int, place: int) -> Any:
        """Give the batch of a pass; numbers grow, and some may be left out.

        Raises:
            LoaderError: a loader's process could not make it.
        """
        if self._stream is None:
            return self._on_device(number, place)
        if self._copied is None or self._copied[0] != number:
            self._copy(number, place)
        assert self._copied is not None
        _, batch = self._copied
        torch.cuda.current_stream(self._job.device).wait_stream(self._stream)
        self._copy(number + 1, place)
        return batch

    def close(self) -> None:
        """End the processes."""
        self._copied = None
        if self._loader is None:
            return
        self._loader._shutdown_workers()
        self._loader = None
        if self._handler is not None:
            # torch has put its own there, which tells of a lost process.
            signal.signal(signal.SIGCHLD, self._handler)

    def _copy(self, number: int, place: int) -> None:
        """Begin to copy a batch to the device, while steps that have been launched compute."""
        assert self._stream is not None, "asked before"
        host_batch = self._on_host(number, place)
        # The memory of a batch that was let go is used again once the steps so far have ended.
        self._stream.wait_stream(torch.cuda.current_stream(self._job.device))
        with torch.cuda.stream(self._stream):
            self._copied = number, to_device(host_batch, self._job.device)

    def _on_device(self, number: int, place: int) -> Any:
        if not self._loads_on_host:
            return self._job.make_batch(_samples_of(self._job, number, place), self._job.device)
        return to_device(self._on_host(number, place), self._job.device)

    def _on_host(self, number: int, place: int) -> Any:
        """A batch in main memory, pinned where the point says so."""
        if self._loader is None:
            batch = self._job.make_batch(_samples_of(self._job, number, place), _HOST)
        else:
            batch = self._loaded(number)
        if self._job.point.pin_memory:
            # torch's loader does not know all kinds of batches.
            return pinned(batch)
        return batch

    def _loaded(self, number: int) -> Any:
        """The batch of a pass as a loader's process made it."""
        # A step may leave some of its passes out.
        for _ in range(number - self._next_number):
            next(self._loader)
        batch = next(self._loader)
        self._next_number = number + 1
        if isinstance(batch, _Failure):
            raise MemoryError(batch.reason) if batch.is_oom else LoaderError(batch.reason)
        return batch


@dataclass(frozen=True)
class _Failure:
    """An exception of a loader's process; itself it might not be pickled."""

    reason: str
    is_oom: bool


class _Passes(Dataset[Any]):
    """Batches as the items of a dataset, by their samples."""

    def __init__(self, make: MakeBatch, seed: int) -> None:
        self._make, self._seed = make, seed

    def __getitem__(self, samples: range) -> Any:
        # What it draws depends on the pass, not on the process that makes it.
        set_seed(self._seed + samples.start)
        try:
            return self._make(samples, _HOST)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own code may raise anything
            print_traceback(error)
            place = raised_at(error)
            where = f" ({place})" if place else ""
            return _Failure(f"{error_line(error)}{where}", oom_status(error) == "oom_host")


@dataclass(frozen=True)
class _Numbers:
    """The samples of a rank's passes from one on, without end."""

    job: Job
    first: int

    def __iter__(self) -> Iterator[range]:
        for number in itertools.count(self.first):
            yield _samples_of(self.job, number, self.job.data_rank)

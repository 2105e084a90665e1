"""Outside the window: checks that a batch is the one that was asked for."""

from __future__ import annotations

import bdb
import dataclasses
import hashlib
import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from dtsweep.errors import error_line
from dtsweep.hardware.memory import oom_status
from dtsweep.hardware.random_states import set_seed
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.secret import print_traceback
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import batches_of_steps
from dtsweep.sync.weights import weight_of
from dtsweep.worker.loop import ModeLoop


class BatchError(ValueError):
    """The batch is not the one that was asked for."""


def check_batch(job: Job, *, seed: int) -> list[str]:
    """Make the first batch twice from the same random states, and check it.

    Returns:
        The flag `unrepeatable` where the same sample numbers give other data.

    Raises:
        BatchError: it has another number of samples.
    """
    set_seed(seed)
    first = next(next(batches_of_steps(job)))
    _check_samples(job, first)
    # Not both at once: a workload may fill the same memory again.
    digest = digest_of(first)
    del first
    set_seed(seed)
    if digest_of(next(next(batches_of_steps(job)))) == digest:
        return []
    return ["unrepeatable"]


def _check_samples(job: Job, batch: Any) -> None:
    """Refuse a batch with another number of samples than it was asked for, or without a weight.

    Args:
        job: the trial.
        batch: what the workload's `batch` gave. Where the workload has `samples_in`, that counts
            its samples; else the first dimension of each tensor in it does.

    Raises:
        BatchError: the numbers differ, or the batch has no weight that can be used.
    """
    _check_count(job, batch)
    if weight := weight_of(job.point.workload):
        _check_weight(weight(batch))


def _check_count(job: Job, batch: Any) -> None:
    """Refuse a batch with another number of samples than `micro_batch`.

    Raises:
        BatchError: the numbers differ.
    """
    asked = job.point.micro_batch
    count = getattr(job.point.workload, "samples_in", None)
    if callable(count):
        numbers = [int(count(batch))]
        source = "samples_in(batch) counts"
    else:
        numbers = [tensor.size(0) for tensor in tensors_in(batch) if tensor.dim()]
        source = "batch gave a tensor of"
    if wrong := [number for number in numbers if number != asked]:
        way_out = ", or declare samples_in(batch) where its tensors are shaped otherwise"
        if callable(count):
            way_out = ""
        raise BatchError(
            f"{source} {wrong[0]} samples where micro_batch={asked} asked for {asked}; give "
            f"len(samples) of them{way_out}"
        )


def _check_weight(weight: Any) -> None:
    """Refuse a batch's weight unless it is a number of at least 0.

    Raises:
        BatchError: names what it is.
    """
    found = repr(weight)
    if isinstance(weight, torch.Tensor | np.ndarray):
        found = f"a {type(weight).__name__} of shape {tuple(weight.shape)}"
        if math.prod(weight.shape) == 1:
            weight = weight.item()
            found = repr(weight)
    is_number = isinstance(weight, numbers.Real) and math.isfinite(weight)
    if not is_number or weight < 0:
        raise BatchError(
            f"weight(batch) gave {found}; it must return a number of at least 0, or a scalar tensor"
        )


def check_late_batch(loop: ModeLoop) -> tuple[tuple[str, str] | None, bool]:
    """Look at a batch after the window: data may have run out. Called on all ranks.

    What is wrong with it is not raised: a rank that gave up alone would keep the others waiting.

    Returns:
        `batch_fault` of `Measured`, and whether any rank has one, the same on all ranks.
    """
    fault = None
    try:
        _check_samples(loop.job, next(loop.next_batches()))
    except bdb.BdbQuit:
        raise  # leaving the debugger ends the run
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own code may raise anything
        print_traceback(error)
        fault = oom_status(error) or "user_error", f"{error_line(error)} (after the window)"
    (is_any,) = max_over_ranks(loop.job.device, fault is not None)
    return fault, is_any > 0


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch, in mappings, sequences and dataclasses of any depth."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_in(value)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from tensors_in(getattr(batch, field.name))


def digest_of(batch: Any) -> bytes:
    """A digest of the bytes of a batch's tensors; what is not a tensor does not count.

    A tensor that gives no bytes (a sparse or nested one, on the meta device, of some classes of
    their own) counts with its type and shape alone.
    """
    digest = hashlib.sha256()
    for tensor in tensors_in(batch):
        # A nested one has a name of its own, each time another, for its ragged side.
        sizes = [size for size in tensor.shape if isinstance(size, int)]
        digest.update(f"{tensor.dtype} {sizes}".encode())
        try:
            plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
        except Exception as error:
            # Whatever a class of tensors may raise: what can't be looked at is no fault of the
            # trial.
            if oom_status(error):
                raise
    return digest.digest()

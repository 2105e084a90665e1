"""Outside the window: whether the batch is the batch that was asked for, and whether gradients were exchanged."""

from __future__ import annotations

import bdb
import dataclasses
import hashlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dtsweep.errors import error_line
from dtsweep.hardware.memory import oom_status
from dtsweep.hardware.random_states import set_seed
from dtsweep.measure.exchange import max_over_ranks
from dtsweep.sweep.modes import MODES
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import batches_of_steps
from dtsweep.worker.loop import Loop

AGREE = 1e-5
"""By how much sums and norms of one parameter's gradient may differ between ranks, as a share of the norm (of the
sum's scale: times the root of the number of elements). Ranks of an exchange get the same numbers but for rounding;
without one the gradients of different batches differ by percents, those of large matrices and batches by 0.05 %."""


IN_SHARDS = "each worker has a share of every gradient alone; Measure(check=True) compares them with one worker's"
"""Why ranks are not compared with each other, of a mode that `shards`."""

CHUNK = 2**20
"""Elements of a gradient that are in double precision at a time: a model may leave no room for more."""


class BatchError(ValueError):
    """The batch is not the one that was asked for."""


def check_batch(job: Job, *, seed: int) -> list[str]:
    """Make the first batch twice from the same random states, and look whether it is what was asked for.

    Returns:
        The flag `unrepeatable` where the same sample numbers give other data.

    Raises:
        BatchError: it has another number of samples.
    """
    set_seed(seed)
    first = next(next(batches_of_steps(job)))
    check_samples(job, first)
    # Not both at once: a workload may fill the same memory anew.
    digest = digest_of(first)
    del first
    set_seed(seed)
    return ["unrepeatable"] if digest_of(next(next(batches_of_steps(job)))) != digest else []


def check_samples(job: Job, batch: Any) -> None:
    """Refuse a batch that has another number of samples than it was asked for.

    Args:
        job: the trial.
        batch: what the workload's `batch` gave. Where the workload has `samples_in`, that counts its samples; else the
            first dimension of each tensor in it does.

    Raises:
        BatchError: the numbers differ.
    """
    asked, count = job.point.micro_batch, getattr(job.point.workload, "samples_in", None)
    if callable(count):
        found, what = [int(count(batch))], "samples_in(batch) counts"
    else:
        found, what = [tensor.size(0) for tensor in tensors_in(batch) if tensor.dim()], "batch gave a tensor of"
    if wrong := [number for number in found if number != asked]:
        way_out = "" if callable(count) else ", or declare samples_in(batch) where its tensors are shaped otherwise"
        raise BatchError(
            f"{what} {wrong[0]} samples where micro_batch={asked} asked for {asked}; give len(samples) of them{way_out}"
        )


def check_late_batch(loop: Loop) -> tuple[tuple[str, str] | None, bool]:
    """Look at a batch after the window: data may have run out. Called on all ranks.

    What is wrong with it is not raised: a rank that gave up alone would keep the others waiting.

    Returns:
        `batch_fault` of `Measured`, and whether any rank has one, the same on all ranks.
    """
    fault = None
    try:
        check_samples(loop.job, next(loop.next_batches()))
    except bdb.BdbQuit:
        raise  # whoever leaves the debugger ends the run
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own code may raise anything
        traceback.print_exc()
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
    """A digest of the bytes of a batch's tensors; what is no tensor does not count.

    A tensor that gives no bytes (on the meta device, in a layout of oneDNN, of some classes of their own) counts with
    its type and shape alone.
    """
    digest = hashlib.sha256()
    for tensor in tensors_in(batch):
        try:
            for part in _parts(tensor.detach()):
                digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
                plain = part.resolve_conj().resolve_neg().cpu().contiguous()
                digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
        except Exception as error:
            # Whatever a class of tensors may raise: what can't be looked at is no fault of the trial.
            if oom_status(error):
                raise
            # A nested one has a name of its own, each time another, for its ragged side.
            digest.update(f"{tensor.dtype} {[size for size in tensor.shape if isinstance(size, int)]}".encode())
    return digest.digest()


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a tensor is made of."""
    if tensor.is_nested:
        return [part.detach() for part in tensor.unbind()]
    if tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def check_gradients(loop: Loop, model: nn.Module) -> dict[str, Any]:
    """Do one more step, and compare the gradients that ranks have when they call their optimizers.

    By sums and norms in double precision, parameter by parameter, not bitwise: nodes may round otherwise. Those of the
    whole model, in its order: an optimizer may have them in an order of its own, or some of them alone. The learning
    rate plays no part. Called on all ranks, where a mode's `same_gradients` says that they should be the same; where it
    `shards` them, no step is done.

    Args:
        loop: after its window.
        model: that it trains, without the mode's wrapper.

    Returns:
        `gradients_agree` and `gradients_reason` of `Measured`, the same on all ranks.
    """
    if MODES[loop.job.point.sync].shards:
        return {"gradients_agree": None, "gradients_reason": IN_SHARDS}
    digests = hashlib.sha256()
    given: list[torch.Tensor | None] = []

    def note(*_: Any) -> None:
        # An optimizer may have another one inside.
        if not given:
            given.append(_sums_that_fit(model))

    def noted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            digests.update(digest_of(batch))
            yield batch

    hook = register_optimizer_step_pre_hook(note)
    try:
        loop.step(through=noted)
    finally:
        hook.remove()
    (any_full,) = max_over_ranks(loop.job.device, None in given)
    if any_full:
        return {"gradients_agree": None, "gradients_reason": "a worker has no memory to compare gradients"}
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, (digests.digest(), given[0] if given else torch.zeros(0, 3)))
    agree, reason = judged([digest for digest, _ in everyone], [of_rank for _, of_rank in everyone])
    return {"gradients_agree": agree, "gradients_reason": reason}


def _sums_that_fit(model: nn.Module) -> torch.Tensor | None:
    """`sums_and_norms` of a model; None where memory does not suffice: who raised here would keep others waiting."""
    try:
        return sums_and_norms([p for p in model.parameters() if not getattr(p, "_ddp_ignored", False)])
    except (RuntimeError, MemoryError) as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        return None


def sums_and_norms(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """Of each parameter's gradient the sum, the norm and the number of elements: (parameters, 3) on the CPU."""
    rows = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            rows.append(torch.tensor([0.0, 0.0, parameter.numel()], dtype=torch.float64, device=parameter.device))
            continue
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        values = torch.view_as_real(values) if values.is_complex() else values
        total = square = torch.zeros((), dtype=torch.float64, device=values.device)
        for part in values.detach().reshape(-1).split(CHUNK):
            exact = part.double()
            total, square = total + exact.sum(), square + exact.dot(exact)
        rows.append(torch.stack([total, square.sqrt(), total.new_tensor(parameter.numel())]))
    return torch.stack(rows).cpu() if rows else torch.zeros(0, 3, dtype=torch.float64)


def judged(digests: Sequence[bytes], sums: Sequence[torch.Tensor]) -> tuple[bool | None, str | None]:
    """Compare what the ranks' optimizers were given in one step.

    Args:
        digests: of each rank's batches.
        sums: of each rank: (parameters, 3) the sum, the norm and the number of elements of each gradient.

    Returns:
        Whether they agree, None where that can't be told: batches are equal, or there was no gradient; and why not.
    """
    first = sums[0]
    if any(len(each) != len(first) for each in sums):
        return None, "workers have models of different numbers of parameters, or not all call an optimizer of torch's"
    every = torch.nan_to_num(torch.stack(list(sums)))
    totals, norms, counts = every.unbind(-1)
    largest = norms.max(dim=0).values
    if not len(first) or not bool(largest.any()):
        return None, "the optimizer was given no gradient"
    apart = torch.maximum(_range(norms), _range(totals) / counts[0].clamp(min=1).sqrt()) / largest.clamp(min=1e-300)
    different = int((apart > AGREE).sum())
    if different:
        most = float(f"{float(apart.max()) * 100:.2g}")
        return False, (
            f"gradients of {different} of {len(first)} parameters differ between workers by up to {most:g} %: "
            "they were not exchanged; in loss, call model(...) itself, no method or module inside it"
        )
    if len(set(digests)) == 1:
        return None, "all workers have the same batch, as far as it can be read"
    return True, None


def _range(values: torch.Tensor) -> torch.Tensor:
    """From the smallest to the largest over the ranks."""
    return values.max(dim=0).values - values.min(dim=0).values

"""One attempt at a trial on one rank: builds it, measures it, and returns its result.

This module imports no Ray.
"""

from __future__ import annotations

import bdb
import functools
import hashlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from dtsweep.errors import error_line, in_user_code, raised_at
from dtsweep.hardware.backend_flags import backend_flags_kept
from dtsweep.hardware.bandwidth import operation_rates
from dtsweep.hardware.memory import free_bytes, oom_status, release_memory, total_bytes
from dtsweep.hardware.nvml import Gpu
from dtsweep.hardware.peaks import choose_peak, matmul_rates, peak_flops
from dtsweep.hardware.power_limit import PowerLimitError, give_back, power_limited
from dtsweep.hardware.process_state import ProcessState
from dtsweep.hardware.random_states import set_seed
from dtsweep.measure.flops import count_flops, count_operations, given_flops
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.measure.operations import update_operations
from dtsweep.measure.store_group import GaveUpError
from dtsweep.measure.work import StepWork, step_work
from dtsweep.metrics.product import model_digest
from dtsweep.metrics.rank_result import Measured, RankResult
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.modes import AS_WRITTEN, OWN, has_train_step
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.task import Task
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.sync.mode import Job, MakeOptimizer, SyncMode, load_mode
from dtsweep.sync.model_blocks import WHOLE, described, has_repeated_modules
from dtsweep.sync.pass_time import pass_time_of
from dtsweep.sync.passes import loss_in_precision, make_optimizer
from dtsweep.sync.weights import weight_of
from dtsweep.worker.batch_checks import check_batch
from dtsweep.worker.given_back import loop_state_kept
from dtsweep.worker.loop import Loop
from dtsweep.worker.own_loop import LoopTooShortError
from dtsweep.worker.own_trial import measure_own
from dtsweep.worker.rank import RankContext
from dtsweep.worker.reference import LIMIT_S, GradientCheck
from dtsweep.worker.script_exit import ScriptExitError
from dtsweep.worker.timing import time_trial
from dtsweep.worker.verdict import verdict_on

LOST_PEER = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe"),
    *("Application timeout caused pair closure", "Socket closed", "Socket unexpectedly closed"),
    *("ncclRemoteError", "remote process exited", "Connection closed by remote peer"),
)
"""Messages of gloo and NCCL when a peer has ended or stalls."""


OWN_WRAPPER = (
    "build gave a model with a DistributedDataParallel in it; give the plain model: the sync mode "
    "wraps it"
)
"""Message where gradients would be exchanged twice."""

NO_CHECK = "train_step of the workload takes the step: its gradients are not known"
"""Reason for a missing `gradient_error` that was asked for."""


UNKNOWN_CAPABILITY = (99, 0)
"""Compute capability that no precision is beyond, for a GPU that does not tell its own."""


def run_attempt(
    context: RankContext,
    task: Task,
    *,
    servers: Sequence[Any] = (),
    on_warm: Callable[[float], None] = lambda _: None,
) -> RankResult:
    """Run one attempt to its end, whatever happens in it; restore the state of the process.

    Args:
        context: this rank.
        task: what to run; the same on all ranks.
        servers: shards of the parameter server, if the mode needs them.
        on_warm: called with the slowest warm-up step in seconds, just before the window.
    """
    with backend_flags_kept():
        state = ProcessState(is_shared=context.is_own_process)
        device_free_bytes = free_bytes(context.device)
        if context.watch is not None:
            context.watch.begin()
        try:
            with loop_state_kept(task, context.device) as left_by_loop:
                outcome = _outcome(context, task, servers, on_warm)
            began_cleanup = time.perf_counter()
            memory_left_bytes, device_bytes = _clean_up(context.device)
        finally:
            if context.watch is not None:
                context.watch.end()
            left = state.restore()
    restored = (*left_by_loop.restored, *left.restored)
    remaining = (*left_by_loop.remaining, *left.remaining)
    _say_what_is_left(restored, remaining)
    left_state = (*restored, *remaining)
    if task.point.sync == AS_WRITTEN:
        # The libraries of such loops set variables, filters and handlers in each trial.
        left_state = remaining
    sys.stdout.flush()
    sys.stderr.flush()
    return replace(
        outcome,
        cleanup_s=time.perf_counter() - began_cleanup,
        memory_left_bytes=memory_left_bytes,
        device_bytes=device_bytes,
        device_free_bytes=device_free_bytes,
        is_spent=memory_left_bytes is None,
        left_state=left_state,
        needs_new_process=outcome.needs_new_process or bool(remaining),
    )


def _say_what_is_left(restored: Sequence[str], remaining: Sequence[str]) -> None:
    """Say in the log what the workload has changed in its process."""
    if restored:
        words = f"the workload changed its process: {'; '.join(restored)}"
        print(f"dtsweep: {words}; it is as before", file=sys.stderr)  # noqa: T201
    if remaining:
        words = f"the workload changed its process: {'; '.join(remaining)}"
        print(  # noqa: T201
            f"dtsweep: {words}; that can't be undone, so the next trial needs another process",
            file=sys.stderr,
        )


def _outcome(
    context: RankContext, task: Task, servers: Sequence[Any], on_warm: Callable[[float], None]
) -> RankResult:
    """Measure the task; an exception of any kind becomes a status and a reason."""
    joined = distributed.is_initialized()
    try:
        if reason := _impossible_here(context, task.point):
            return RankResult(status="infeasible", reason=reason)
        if task.point.sync == AS_WRITTEN:
            measured = measure_own(context, task, on_warm)
        else:
            measured = _measure(context, task, servers, on_warm)
    except BaseException as error:  # the user's own code may raise anything
        if _ends_the_run(error, context):
            raise
        # A workload may have closed the stream.
        with suppress(ValueError, OSError):
            _print(error)
        status = status_of(error, has_peers=task.point.workers > 1)
        has_left = joined and not distributed.is_initialized()
        # The end of a session removes its group, and what is still under way then fails. A script
        # has a group of its own, and where it fails alone it can't get the session's back.
        if has_left and task.point.sync != AS_WRITTEN:
            status = "collateral"
        reason = _reason(error, status)
        if status == "user_error" and _may_come_of_an_earlier_loop(error, context, task):
            status = "reused_process"
            has_left = True
        return RankResult(status=status, reason=reason, needs_new_process=has_left)
    status, reason = verdict_on(measured, task, task.point_of(context.workload))
    if task.point.sync == AS_WRITTEN:
        context.loops.append(task.attempt_id)
    has_left = joined and not distributed.is_initialized()
    return RankResult(status=status, reason=reason, measured=measured, needs_new_process=has_left)


def _may_come_of_an_earlier_loop(error: BaseException, context: RankContext, task: Task) -> bool:
    """True if a loop failed where another one has run in its process, and can get a new one.

    A script may do what a process can do once, such as registering a name with a library.
    """
    if task.point.sync != AS_WRITTEN or not context.loops or not context.is_replaceable:
        return False
    return not isinstance(error, (LoopTooShortError, ScriptExitError))


def _impossible_here(context: RankContext, point: Point) -> str | None:
    """Reason why some rank's GPU can't measure the point, the same on all ranks, or None.

    A driver does not know the GPUs of its nodes before a session has started.
    """
    if not PRECISIONS[point.precision].needs_gpu:
        return None
    major, minor = context.facts.compute_capability or UNKNOWN_CAPABILITY
    (negative,) = max_over_ranks(context.device, -(100 * major + minor))
    lowest = divmod(round(-negative), 100)
    return impossible(point, Harness(compute_capability=lowest))


def _ends_the_run(error: BaseException, context: RankContext) -> bool:
    """True for the end of a debugger, and for Ctrl-C in the user's own process.

    A rank of Ray Train runs the workload outside of its main thread. Ctrl-C never arrives there, so
    that the workload itself has raised the exception.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()
    return context.is_own_process and isinstance(error, bdb.BdbQuit)


def _reason(error: BaseException, status: str) -> str:
    """One line on an exception; if the user's code raised it, with its file and line."""
    place = raised_at(error)
    if status != "user_error" or place is None:
        return error_line(error)
    return f"{error_line(error)} ({place})"


def _print(error: BaseException) -> None:
    """Print an exception with its traceback from the user's code on; all of it where it has none.

    How the user's loop has ended is said in a line.
    """
    part = error.__traceback__
    while part is not None and not in_user_code(part.tb_frame.f_code.co_filename):
        part = part.tb_next
    if part is None and getattr(error, "is_whole_reason", False):
        print(error_line(error), file=sys.stderr)  # noqa: T201
    else:
        traceback.print_exception(error.with_traceback(part or error.__traceback__))


def _clean_up(device: torch.device) -> tuple[int | None, int | None]:
    """Release memory; return the bytes still in use and the bytes of the device.

    Both are None if the device fails at any call. After a CUDA kernel has failed, for example by an
    index out of range, its process can't use the device any more.
    """
    try:
        # A backward that was broken off leaves parts of its graph to the next one in this thread.
        torch.zeros(1, device=device, requires_grad=True).sum().backward()
        return release_memory(device), total_bytes(device)
    except RuntimeError:
        traceback.print_exc()
        return None, None


def status_of(error: BaseException, *, has_peers: bool = True) -> str:
    """Name what an exception on a rank means for the trial.

    Args:
        error: that was raised.
        has_peers: whether there are other ranks, which may have gone.
    """
    if full := oom_status(error):
        return full
    if isinstance(error, PowerLimitError):
        return "infeasible"
    gone_server = any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)
    if (
        gone_server
        or isinstance(error, (distributed.DistError, GaveUpError))
        or (has_peers and _tells_of_a_lost_peer(error))
    ):
        return "collateral"
    return "user_error"


def _tells_of_a_lost_peer(error: BaseException) -> bool:
    """True if the error is one of the exchange, such as a lost peer causes.

    The fault is then not this rank's.
    """
    # Python's own connections, of a data set on another host, raise OSErrors with the same words.
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    # Whatever gloo's connections say: but for what it checks itself, such as tensors of other
    # sizes.
    is_gloo = "gloo/transport/" in text and "enforce fail" not in text
    return is_gloo or any(words in text for words in LOST_PEER)


def _measure(
    context: RankContext, task: Task, servers: Sequence[Any], on_warm: Callable[[float], None]
) -> Measured:
    """Build the trial and have it timed."""
    began = time.perf_counter()
    point = task.point_of(context.workload)
    # Refused before anything is measured.
    given_flops(point.workload)
    _set_precision(point.precision)
    seed = _seed_of(task)
    job = Job(
        point=point,
        rank=context.rank,
        device=context.device,
        loss=loss_in_precision(point, context.device),
        ddp_options=getattr(point.workload, "ddp_options", {}),
        servers=servers,
        seed=seed,
        pass_time=pass_time_of(point, context.rank, context.device),
    )
    rates = _device_rates(context, task, point)
    # From here on ranks draw differently: equal dropout masks on all would be a smaller batch.
    seeds = range(seed + 1, seed + 1 + point.data_parallel)
    # The rates are those of the device, so they are measured before its power is limited.
    with (
        closing(load_mode(point.sync)(job)) as mode,
        _power_limit_held(context, point.power_limit) as limit_flags,
    ):
        # A workload of its own: this one travels to the parameter servers, without what `batch` has
        # cached.
        make = functools.partial(make_optimizer, point=task.point_of(context.workload))
        model, flags = _build(job, seed)
        flags += [*_precision_flags(context, point), *limit_flags]
        checkpointed = _checkpointed(model, point)
        # Before the mode takes the model over, which may leave a part of each parameter here.
        parameters = [[list(p.shape), str(p.dtype), p.requires_grad] for p in model.parameters()]
        count = sum(p.numel() for p in model.parameters())
        check = _gradient_check(job, mode, model, task, seeds=seeds)
        # What is counted of a model is counted of a whole one.
        product = {}
        if job.divides_model:
            product = _product(job, model, parameters, context, rates)
        flags += _prepare(mode, model, make)
        model = mode.trained or model
        set_seed(seeds[job.data_rank])
        optimizer, blocks = mode.optimizer_class, mode.blocks or checkpointed
        began_warmup = time.perf_counter()
        loop = Loop(job, mode)
        if context.watch is not None:
            context.watch.follow(loop)
        measured = time_trial(loop, model, task, context=context, on_warm=on_warm, check=check)
        measured = _with_check(measured, check, task, point)
        product = product or _product(job, model, parameters, context, rates, optimizer)
        fields = {
            **rates,
            **product,
            "parameters": count,
            "optimizer_class": optimizer,
            "is_weighted": weight_of(point.workload) is not None,
            "blocks": blocks,
        }
        fields["build_s"] = began_warmup - began
        fields["after_window_s"] = (
            time.perf_counter() - began_warmup - (measured.warmup_s or 0.0) - measured.window_s
        )
        return replace(measured, **fields, flags=[*flags, *measured.flags])


def _seed_of(task: Task) -> int:
    """Seed of the model: the same on all ranks, another for each repeat."""
    digest = hashlib.sha256(f"{task.seed}/{task.repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


@contextmanager
def _power_limit_held(context: RankContext, watts: float | None) -> Iterator[list[str]]:
    """Hold a power limit on the GPUs of all ranks; without one, undo what a killed trial has set.

    Args:
        context: this rank.
        watts: the point's limit, equal on all ranks.

    Yields:
        Flags of the trial.

    Raises:
        PowerLimitError: this rank's GPU can't have the limit.
        DistError: another rank's can't.
    """
    gpu = context.telemetry.gpu
    if watts is None:
        yield _flags_of_a_left_limit(gpu)
        return
    with ExitStack() as held:
        refusal = None
        try:
            held.enter_context(power_limited(gpu, watts))
        except PowerLimitError as error:
            refusal = error
        # All ranks agree: one that gave up alone would keep the others waiting in an exchange.
        (is_refused,) = max_over_ranks(context.device, refusal is not None)
        if refusal is not None:
            raise refusal
        if is_refused:
            raise distributed.DistError("the GPU of another worker can't have the power limit")
        yield []


def _flags_of_a_left_limit(gpu: Gpu | None) -> list[str]:
    """Undo the power limit of a killed trial; a flag where that is not possible."""
    if gpu is None or (reason := give_back(gpu)) is None:
        return []
    print(f"dtsweep: {reason}", file=sys.stderr)  # noqa: T201
    return ["power_limit_left"]


def _prepare(mode: SyncMode, model: nn.Module, make: MakeOptimizer) -> list[str]:
    """Have the mode take the model over; return its flags."""
    could_have_blocks = has_repeated_modules(model)
    mode.prepare(model, make)
    if mode.blocks == WHOLE and could_have_blocks:
        return ["one_block"]
    return []


def _product(
    job: Job,
    model: nn.Module,
    parameters: Sequence[Any],
    context: RankContext,
    rates: Mapping[str, Any],
    optimizer: str | None = None,
) -> dict[str, Any]:
    """Describe the model and the work of a sample and a step: on rank 0, of the whole model.

    Args:
        job: the trial.
        model: on this rank.
        parameters: what is known of each.
        context: of this rank.
        rates: of its device.
        optimizer: its class, where it is made already.
    """
    if context.rank:
        return {}
    point = job.point
    counted = count_flops(
        point.workload,
        model=model,
        precision=point.precision,
        device=context.device,
        checkpointing=point.checkpointing,
    )
    flops = None
    if counted:
        flops = counted.model_per_sample
    tokens = getattr(point.workload, "tokens_per_sample", None)
    work = None
    # How workers divide a model is not known.
    is_divided = point.sync == OWN or point.grid.model > 1
    if not is_divided and _steps_alone(point, optimizer):
        work = _step_work(job, model, rates)
    return {
        "model_digest": model_digest(parameters, flops_per_sample=flops, tokens_per_sample=tokens),
        "flops_per_sample": flops,
        "hardware_flops_per_sample": counted.hardware_per_sample if counted else None,
        "work": work,
    }


def _steps_alone(point: Point, optimizer: str | None) -> bool:
    """True if the optimizer is known not to communicate.

    An optimizer that communicates would wait for the other ranks while its update is counted.
    """
    return not point.has_own_optimizer or point.workers == 1 or optimizer in vars(torch.optim)


def _step_work(job: Job, model: nn.Module, rates: Mapping[str, Any]) -> StepWork | None:
    """Work of a worker's step.

    None where its operations, or its optimizer's, can't be counted, or are compiled.
    """
    point, device = job.point, job.device
    # What a compiler makes one operation is launched once, and moves less.
    if any(
        type(m).__name__ == "OptimizedModule" or m._compiled_call_impl is not None
        for m in model.modules()
    ):
        return None
    passes = count_operations(
        point.workload,
        model=model,
        precision=point.precision,
        device=device,
        checkpointing=point.checkpointing,
    )
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    try:
        update = update_operations(
            functools.partial(make_optimizer, point=point), sizes, device=device
        )
    except Exception as error:  # noqa: BLE001  # the workload's own optimizer may want other parameters
        print(f"operations of the optimizer are not counted: {error_line(error)}", file=sys.stderr)  # noqa: T201
        return None
    if passes is None:
        return None
    # A worker's device updates its part of the parameters, and none where servers or its host do.
    info = point.mode
    operations, moved_bytes = update
    if point.servers or point.offload:
        operations = operations * 0
        moved_bytes = 0
    elif info.shards_optimizer:
        operations = operations / point.workers
    other_ranks = 0
    if device.type == "cpu":
        other_ranks = point.workers - 1
    return step_work(
        # Those of rank 0, which counts.
        passes.at(job.samples_per_pass),
        (operations, moved_bytes),
        accumulation=point.accumulation,
        # What this rank has measured already.
        rates=operation_rates(device, other_ranks=other_ranks),
        flops_per_s=rates["peak_flops_per_s"],
    )


def _device_rates(context: RankContext, task: Task, point: Point) -> dict[str, Any]:
    """Rates of the device, measured on all ranks at once.

    The sweep or a table may give its peak rate; else it is measured.
    """
    on_cpu = context.device.type == "cpu"
    other_ranks = 0
    if on_cpu:
        other_ranks = point.workers - 1
    matmul = matmul_rates(context.device, point.precision, other_ranks=other_ranks)
    moving = operation_rates(context.device, other_ranks=other_ranks)
    table = None
    if not on_cpu:
        table = peak_flops(context.facts.device, point.precision)
    peak, source = choose_peak(given=task.peak_flops_per_s, table=table, measured=matmul.alone)
    return {
        "matmul_flops_per_s": matmul.reached,
        "peak_flops_per_s": peak,
        "peak_source": source,
        "moved_bytes_per_s": moving.peak_bytes_per_s,
        "launch_s": moving.launch_s,
    }


def _build(job: Job, seed: int) -> tuple[nn.Module, list[str]]:
    """Make the model and the first batch with the same seed on all ranks; report its flags."""
    set_seed(seed)
    model = job.point.workload.build().to(job.device).train()
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise ValueError(OWN_WRAPPER)
    return model, check_batch(job, seed=seed)


def _checkpointed(model: nn.Module, point: Point) -> str | None:
    """Checkpoint what the point says; return the blocks in words, or None."""
    if point.checkpointing is None:
        return None
    return described(checkpoint_blocks(model, point.workload))


def _precision_flags(context: RankContext, point: Point) -> list[str]:
    """Flag a precision that the GPU emulates; those that it would replace are refused before."""
    if PRECISIONS[point.precision].is_beyond(context.facts.compute_capability):
        return ["bf16_emulated"]
    return []


def _gradient_check(
    job: Job, mode: SyncMode, model: nn.Module, task: Task, *, seeds: Sequence[int]
) -> GradientCheck | None:
    """Check the first step's gradient if the sweep asks for it and the mode supports it."""
    # A canary is a point of the sweep too, and is checked as that.
    if not task.measure.check or task.is_canary or not _can_be_checked(job.point):
        return None
    # Of a divided model rank 0 needs the parts of all ranks.
    if job.rank and not job.divides_model:
        return None
    return GradientCheck(
        job, mode, model, seeds=seeds, limit_s=min(LIMIT_S, task.measure.max_warmup_seconds / 2)
    )


def _can_be_checked(point: Point) -> bool:
    """True if the gradient of a step is the one of all workers' passes together."""
    if point.sync == OWN:
        return point.semantics == "exact" and not has_train_step(point.workload)
    return point.mode.agree == "gradients" or point.mode.shards


def _with_check(
    measured: Measured, check: GradientCheck | None, task: Task, point: Point
) -> Measured:
    """Measurements, with the results of the check of the first gradient, if there was one."""
    if check is not None:
        return check.added_to(measured)
    if task.measure.check and point.sync == OWN and has_train_step(point.workload):
        return replace(measured, flags=[*measured.flags, "unchecked"], unchecked_reason=NO_CHECK)
    return measured


def _set_precision(precision: str) -> None:
    """Set the flags of the point's precision; `run_attempt` restores them after the trial."""
    is_tf32 = PRECISIONS[precision].is_tf32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.backends.cudnn.benchmark = False

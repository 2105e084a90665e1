"""One rank's attempt at a trial, in a world of one."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Resources, Sweep
from dtsweep.hardware.backend_flags import read_flags
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.measure.store_group import GaveUpError
from dtsweep.metrics.rank_result import Measured, RankFacts, RankResult
from dtsweep.session import attempt as attempt_module
from dtsweep.session.attempt import run_attempt, status_of, status_of_measured
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from dtsweep.worker import timing as timing_module
from dtsweep.worker.rank import RankContext
from dtsweep.workloads import Gpt
from tests.outcomes import outcome
from tests.ranks import alone
from tests.stand_in_nvml import GPU, StandInNvml, torch_sees_a_gpu

__all__ = ["torch_sees_a_gpu"]

CPU = torch.device("cpu")
SHORT = Measure(half_width=None, warmup_steps=2, min_steps=4, min_seconds=0, max_steps=8)
ROOT = Path(__file__).parents[2]

SEEN: dict[str, list[Any]] = {"batches": [], "weights": [], "types": []}
"""Calls of the last trial's workload; after its steps come those that count FLOPs, once each."""


@pytest.fixture(scope="module", autouse=True)
def _world_of_one() -> Iterator[None]:
    # As a session does it; each attempt collects garbage, and a test run has much to look through.
    gc.collect()
    gc.freeze()
    threads = torch.get_num_threads()
    # Several wait for each other on a busy machine.
    torch.set_num_threads(1)
    with alone():
        yield
    torch.set_num_threads(threads)
    gc.unfreeze()


@dataclass(frozen=True)
class Line:
    """Fits a line; `fault` names what goes wrong after `sound_steps` steps of training."""

    fault: str = ""
    sound_steps: int = 0

    def build(self) -> nn.Module:
        model = nn.Linear(4, 4)
        SEEN["weights"].append(model.weight.detach().clone())
        return model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        SEEN["batches"].append(samples)
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch)
        SEEN["types"].append(answer.dtype)
        # Two batches more than steps: the first is drawn twice before training.
        if len(SEEN["batches"]) > self.sound_steps + 2:
            self._fail()
            if self.fault == "nan":
                return answer.mean() * float("nan")
        return answer.square().mean()

    def _fail(self) -> None:
        if self.fault == "host memory":
            torch.empty(2**60)
        if self.fault == "group taken away":
            distributed.destroy_process_group()
            distributed.get_world_size()
        if self.fault in RAISED:
            kind, *words = RAISED[self.fault]
            raise kind(*words)


RAISED: dict[str, tuple[Any, ...]] = {
    "raise": (ValueError, "the third layer\nis missing"),
    "silent": (KeyError,),
    "exit": (SystemExit, "enough of this"),
    "device memory": (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB"),
    "interrupt": (KeyboardInterrupt,),
}


@dataclass(frozen=True)
class Sets(Line):
    """Changes how torch computes, and may fail then."""

    def build(self) -> nn.Module:
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.backends.cuda.enable_flash_sdp(enabled=False)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        torch.backends.mkldnn.enabled = False
        torch.set_float32_matmul_precision("medium")
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_default_dtype(torch.float64)
        gc.disable()
        return super().build().double()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return super().batch(samples, device).double()


FACTS = RankFacts(
    node="one", pid=7, device="Some CPU", device_uuid=None, threads=1, niceness=0, machine={}
)
CONTEXT = RankContext(rank=0, device=CPU, workload=Line(), telemetry=Telemetry(CPU), facts=FACTS)


def tried(
    workload: Any,
    measure: Measure = SHORT,
    context: RankContext = CONTEXT,
    *,
    on_warm: Callable[[float], None] = lambda _: None,
    of_sweep: Mapping[str, Any] = MappingProxyType({}),
    of_task: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> RankResult:
    """Run an attempt at a point with these fields."""
    for seen in SEEN.values():
        seen.clear()
    sweep = Sweep(workload=workload, axes={"workers": [1]}, measure=measure, **of_sweep)
    point = Point(**{"micro_batch": 3, "workload": workload, **fields})
    task = replace(task_of(sweep, point), **of_task)
    return run_attempt(replace(context, workload=workload), task, on_warm=on_warm)


def measured_in(result: RankResult) -> Measured:
    assert result.measured is not None, result.reason
    return result.measured


def test_who_fails_when_its_session_ends_beneath_it_is_not_at_fault() -> None:
    # Ray Train takes the group away from a rank whose session lost another process, before it ends
    # the rank.
    result = tried(Line(fault="group taken away"))
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert (result.status, str(result.reason)[:10]) == ("collateral", "ValueError")
    assert tried(Line()).status == "ok"


@pytest.mark.parametrize(("fault", "status"), [("", "ok"), ("raise", "user_error"), ("nan", "nan")])
def test_what_a_workload_sets_in_torch_does_not_outlive_its_trial(fault: str, status: str) -> None:
    before, own = read_flags(), torch.get_num_threads()
    result = tried(Sets(fault=fault))
    assert result.status == status
    assert read_flags() == before
    # The row has the threads that the workload set; the next trial is as if it were the first.
    if status == "ok":
        assert measured_in(result).threads == own + 1
    assert measured_in(tried(Line())).threads == own
    assert set(SEEN["types"]) == {torch.float32}


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("raise", "user_error", "ValueError: the third layer"),
        ("silent", "user_error", "KeyError"),
        ("exit", "user_error", "SystemExit: enough of this"),
        ("device memory", "oom_device", "OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("host memory", "oom_host", "RuntimeError: "),
        ("nan", "nan", "the loss is not finite in the first step, before any update"),
    ],
)
def test_what_goes_wrong_in_a_workload_is_the_status_and_reason_of_its_trial(
    fault: str, status: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = tried(Line(fault=fault))
    assert result.status == status
    assert result.reason.startswith(reason)
    assert "\n" not in result.reason
    # The whole story is in the rank's log.
    assert (fault == "nan") != ("Traceback" in capfd.readouterr().err)


@dataclass(frozen=True)
class Returns(Line):
    """Its loss returns what an axis says."""

    kind: str = "vector"

    def loss(self, model: nn.Module, batch: Tensor) -> Any:
        losses: Tensor = model(batch).square().mean(dim=1)
        mean = losses.mean()
        kinds = {"vector": losses, "float": mean.item(), "detached": mean.detach()}
        return (kinds | {"nothing": None, "pair": (mean, losses)})[self.kind]


@pytest.mark.parametrize(
    ("kind", "accumulation", "reason"),
    [
        ("vector", 1, "a tensor of shape (3,); {}: take its mean, with .mean()"),
        ("float", 2, "a float; {}: leave .item() and float() out"),
        ("nothing", 1, "None; {}: return that alone"),
        ("pair", 2, "a tuple; {}: return that alone"),
        ("detached", 1, "a tensor without a gradient; {}: leave .detach() and torch.no_grad() out"),
    ],
)
def test_a_loss_that_is_no_scalar_tensor_is_named_with_its_line_and_the_way_out(
    kind: str, accumulation: int, reason: str
) -> None:
    line = Returns.loss.__code__.co_firstlineno
    result = tried(Returns(kind=kind), accumulation=accumulation)
    assert result.status == "user_error"
    words = reason.format("loss must return a scalar tensor")
    assert result.reason == f"LossError: Returns.loss (test_attempt.py:{line}) gave {words}"


@pytest.mark.parametrize(("fault", "status"), [("raise", "user_error"), ("nan", "nan")])
def test_a_fault_inside_the_window_is_found_and_leaves_the_collector_on_and_no_thread(
    fault: str, status: str
) -> None:
    result = tried(Line(fault=fault, sound_steps=4))
    assert result.status == status
    assert fault != "nan" or "from step 4 on" in str(result.reason)
    assert gc.isenabled()
    assert not [each for each in threading.enumerate() if each.name.startswith("dtsweep")]


def test_what_a_rank_sends_is_read_without_torch() -> None:
    # The driver, which never needs it, would stand still for seconds while it imports it.
    code = (
        "import pickle, sys; pickle.load(sys.stdin.buffer); "
        "print({'torch', 'scipy'} & set(sys.modules))"
    )
    sent = pickle.dumps((FACTS, tried(Line())))
    done = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout == b"set()\n"


def test_an_interrupt_is_no_result() -> None:
    with pytest.raises(KeyboardInterrupt):
        tried(Line(fault="interrupt"))
    assert gc.isenabled()
    # Ctrl-C reaches the main thread alone; elsewhere the workload raised it.
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(tried, Line(fault="interrupt")).result()
    assert result.status == "user_error"
    assert str(result.reason).startswith("KeyboardInterrupt")


@pytest.mark.parametrize(("fault", "status"), [("raise", "user_error"), ("", "ok")])
def test_an_attempt_says_what_its_gpu_had_free_and_what_torch_took_of_it(
    monkeypatch: pytest.MonkeyPatch, fault: str, status: str
) -> None:
    # What a CPU has none of.
    monkeypatch.setattr(attempt_module, "free_bytes", lambda _: 7)
    monkeypatch.setattr(timing_module, "reserved_peak_bytes", lambda _: 5)
    result = tried(Line(fault=fault))
    assert (result.status, result.device_free_bytes) == (status, 7)
    if result.measured is not None:
        assert result.measured.memory_reserved_peak_bytes == 5


@pytest.mark.parametrize(("count", "status"), [(2, "timeout"), (3, "ok"), (16, "ok")])
def test_what_was_measured_is_judged_not_what_ended_in_time(count: int, status: str) -> None:
    # Each step ended after `max_seconds`.
    sent = outcome([90.0] * count, stop_reason="max_seconds").result.measured
    point = Point(workload=Line(), workers=1)
    task = task_of(Sweep(workload=Line(), axes={}, measure=Measure(max_seconds=1)), point)
    assert sent is not None
    found, reason = status_of_measured(sent, task, point)
    assert found == status
    if reason is not None:
        assert reason.startswith("2 steps in a window of 180 s, which is the limit; ")


@pytest.mark.parametrize(("fault", "status"), [("raise", "user_error"), ("", "ok")])
def test_a_device_that_fails_whatever_it_is_asked_changes_no_status_and_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, fault: str, status: str
) -> None:
    def fail(device: torch.device) -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    # What a kernel that has failed leaves behind, which no CPU can show.
    monkeypatch.setattr(attempt_module, "release_memory", fail)
    result = tried(Line(fault=fault))
    assert (result.status, result.is_spent, result.memory_left_bytes) == (status, True, None)
    assert (result.measured is not None) == (status == "ok")


ERRORS: dict[str, list[Exception]] = {
    # Libraries that take device memory past torch's allocator: cuBLAS and NCCL.
    "oom_device": [
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cubl"),
        distributed.DistBackendError("ncclUnhandledCudaError: Cuda failure 2 'out of memory'"),
    ],
    "oom_host": [MemoryError()],
    "collateral": [
        GaveUpError("rank 1 ended before it was measured"),
        RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:9"),
        distributed.DistNetworkError("socket timed out"),
        RuntimeError("NCCL error: …, NCCL version 2.28.8\nncclRemoteError: A call"),
    ],
    "user_error": [
        # gloo on what it was given, not on its peer.
        RuntimeError("[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= "),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        # Connections of the user's own code.
        ConnectionResetError(104, "Connection reset by peer"),
        OSError("grpc: Socket closed"),
        RuntimeError("Timed out waiting for the lock of the data set"),
    ],
}


@pytest.mark.parametrize("status", ERRORS)
def test_an_error_says_whose_fault_it_is(status: str) -> None:
    assert {status_of(error) for error in ERRORS[status]} == {status}


def test_one_rank_has_no_peer_to_lose() -> None:
    words = "[gloo] Connection closed by peer [127.0.0.1]:9"
    assert status_of(RuntimeError(words), has_peers=False) == "user_error"


def test_a_window_has_what_was_ordered_and_its_steps_make_it_up() -> None:
    warm: list[float] = []
    result = tried(Line(), accumulation=2, on_warm=warm.append)
    assert (result.status, result.reason) == ("ok", None)
    measured = measured_in(result)
    assert measured.stop_reason == "enough"
    steps = measured.steps
    assert list(steps["step"]) == [0, 1, 2, 3, 4, 5]
    assert list(steps["part"]) == ["warmup"] * 2 + ["window"] * 4
    assert list(steps["block"]) == [-1] * 6
    assert (measured.skipped_steps, measured.window_steps) == (2, 4)
    assert warm == [steps["step_s"][:2].max()]
    phases = sum(steps[f"{name}_s"] for name in ("data", "forward", "backward", "optimizer"))
    assert np.allclose(phases, steps["step_s"], rtol=0, atol=1e-9)
    assert (steps["start_s"][:2] < 0).all()
    assert steps["start_s"][2] == 0
    assert 0 <= measured.window_s - steps["step_s"][2:].sum() < 0.5 * measured.window_s
    # The first batch is drawn once more, before training; then every sample has its turn.
    assert SEEN["batches"][:14] == [range(0, 3)] * 2 + [
        *(range(first, first + 3) for first in range(0, 36, 3))
    ]
    assert np.isfinite(steps["loss"]).all()
    assert measured.memory_peak_bytes > 0
    # One worker exchanges nothing.
    assert measured.exchange_isolated_s is None


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    ("unsupported", "is_known"), [([], True), (["nvmlDeviceGetTotalEnergyConsumption"], False)]
)
def test_a_window_that_is_to_tell_energy_is_long_enough_where_the_device_counts_it(
    unsupported: list[str], is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_module, "ENERGY_FROM_S", 0.5)
    nvml = StandInNvml(unsupported=unsupported)
    # Half a second counts as 50.
    telemetry = Telemetry(GPU, nvml=nvml, now=lambda: time.perf_counter() * 100)
    context = replace(CONTEXT, telemetry=telemetry)
    measured = measured_in(tried(Line(), replace(SHORT, max_steps=10**6, energy=True), context))
    assert (measured.telemetry["energy_j"] is not None) == is_known
    assert (measured.window_s >= 0.5) == is_known


@pytest.mark.parametrize(
    ("warmup", "max_steps", "timed"), [(0, 100, 8), (3, 5, 4), (4, 100, 8), (6, 5, 4)]
)
def test_the_warm_up_ends_a_sync_period_and_the_window_has_whole_ones(
    warmup: int, max_steps: int, timed: int
) -> None:
    measure = replace(SHORT, warmup_steps=warmup, min_steps=5, max_steps=max_steps)
    measured = measured_in(tried(Line(), measure, sync="local_sgd", sync_period=4))
    assert (measured.skipped_steps, measured.window_steps) == (warmup, timed)
    assert list(measured.steps["part"]) == ["warmup"] * warmup + ["window"] * timed
    in_order = [False, False, False, True] * (2 + timed // 4)
    assert (measured.steps["sync_s"] > 0).tolist() == in_order[8 - warmup :]


# What the device could do


@pytest.mark.slow
def test_what_checkpoints_compute_again_is_work_of_the_hardware_alone() -> None:
    gpt = Gpt(layers=2, width=16, heads=2, sequence=8)
    plain, checkpointed = (
        measured_in(tried(gpt, checkpointing=setting)) for setting in (None, "blocks")
    )
    assert (plain.blocks, checkpointed.blocks) == (None, "2 Block")
    assert plain.hardware_flops_per_sample == plain.flops_per_sample
    assert checkpointed.flops_per_sample == plain.flops_per_sample
    assert checkpointed.model_digest == plain.model_digest
    # Of each token and block the matrices, 12 squares of the width, but for the last one, of 4:
    # its output is not needed in backward. And the two products of attention.
    again = 8 * 2 * (2 * 8 * 16**2 + 2 * 2 * 16 * 8)
    assert checkpointed.hardware_flops_per_sample == checkpointed.flops_per_sample + again


def test_rank_0_lists_the_operations_of_a_step_and_what_they_take() -> None:
    work = measured_in(tried(Line())).work
    assert work is not None
    assert work.operations > 5
    # The update alone: it reads the weights and their gradients, and writes the weights.
    assert work.moved_bytes > 3 * 4 * 16
    assert min(work.memory_s, work.launch_s) > 0
    assert work.compute_s >= 0
    twice = measured_in(tried(Line(), accumulation=2)).work
    assert twice is not None
    assert work.operations < twice.operations < 2 * work.operations


def test_an_update_in_main_memory_is_no_work_of_the_device() -> None:
    def moved(**fields: Any) -> float:
        work = measured_in(tried(Line(), sync="fsdp", optimizer="adam", **fields)).work
        assert work is not None
        return work.moved_bytes

    assert moved(offload=True) < moved()


class Compiled(Line):
    """What a compiler makes of its operations is unknown."""

    def build(self) -> nn.Module:
        model = super().build()
        model.compile(backend="eager")
        return model


class Particular(Line):
    """Has an optimizer that wants its very parameters."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        weight, bias = parameters
        groups = [{"params": [weight]}, {"params": [bias], "lr": 0.0}]
        return torch.optim.SGD(groups, lr=learning_rate)


def test_operations_that_can_not_be_counted_are_unknown(capfd: pytest.CaptureFixture[str]) -> None:
    for workload in (Compiled(), Particular()):
        measured = measured_in(tried(workload))
        assert measured.work is None
        assert measured.moved_bytes_per_s is not None
    assert "operations of the optimizer are not counted: " in capfd.readouterr().err


@dataclass(frozen=True)
class Layered:
    """A model whose shapes, work, tokens and data can be chosen."""

    layers: int = 2
    length: int = 6
    frozen: bool = False
    tokens_per_sample: int | None = None

    def build(self) -> nn.Module:
        first = nn.Conv1d(1, 3, 3).requires_grad_(not self.frozen)
        return nn.Sequential(
            first, nn.AdaptiveAvgPool1d(4), *(nn.Linear(4, 4) for _ in range(self.layers))
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.zeros(len(samples), 1, self.length, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch)
        return answer.square().mean()


class WithAdam(Layered):
    """Has an optimizer of its own."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adamax(parameters, lr=learning_rate)


def test_what_was_trained_is_told_by_its_shapes_work_and_tokens_alone() -> None:
    def digest(workload: Layered, **fields: Any) -> str | None:
        return measured_in(tried(workload, **fields)).model_digest

    usual = measured_in(tried(Layered(), sync="fsdp", optimizer="adamw"))
    own = measured_in(tried(WithAdam(), micro_batch=5, precision="bf16"))
    assert usual.parameters == 3 * 3 + 3 + 2 * (4 * 4 + 4)
    assert (usual.optimizer_class, own.optimizer_class) == ("AdamW", "Adamax")
    assert (usual.blocks, own.blocks) == ("2 Linear", None)
    others = [Layered(layers=3), Layered(length=8), Layered(frozen=True)]
    others.append(Layered(tokens_per_sample=6))
    assert usual.model_digest == own.model_digest
    assert len({usual.model_digest, *map(digest, others)}) == 5


def test_the_peak_of_a_cpu_is_measured_by_the_rank_unless_the_sweep_gives_one() -> None:
    measured = measured_in(tried(Line()))
    assert measured.peak_source == "measured"
    assert measured.matmul_flops_per_s is not None
    # By CPU time, which other work on the core does not make longer.
    assert measured.peak_flops_per_s is not None
    assert measured.peak_flops_per_s >= measured.matmul_flops_per_s > 1e8
    given = {"resources": Resources(peak_flops_per_s={"fp32": 1e12, "bf16": 2e12})}
    measured = measured_in(tried(Line(), of_sweep=given, precision="bf16"))
    assert (measured.peak_source, measured.peak_flops_per_s) == ("given", 2e12)


@pytest.mark.parametrize(
    ("capability", "precision", "is_flagged"),
    [("7.5", "bf16", True), ("8.0", "bf16", False), ("7.5", "fp32", False)],
)
def test_emulated_bf16_is_flagged(capability: str, precision: str, is_flagged: bool) -> None:
    context = replace(CONTEXT, facts=replace(FACTS, machine={"compute_capability": capability}))
    measured = measured_in(tried(Line(), context=context, precision=precision))
    assert ("bf16_emulated" in measured.flags) == is_flagged


def test_the_collector_is_off_in_the_window_alone_unless_it_is_wanted() -> None:
    @dataclass(frozen=True)
    class Watch(Line):
        def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
            SEEN["types"].append(gc.isenabled())
            return super().loss(model, batch)

    for wanted in (False, True):
        tried(Watch(), replace(SHORT, gc=wanted))
        assert SEEN["types"][:12:2] == [True] * 2 + [wanted] * 4
        assert gc.isenabled()


def test_a_model_does_not_outlive_its_trial() -> None:
    class Heavy(nn.Linear):
        """Told apart from other tests' models by its name."""

    @dataclass(frozen=True)
    class Cyclic(Line):
        def build(self) -> nn.Module:
            model = Heavy(4, 4)
            model.itself = [model]  # type: ignore[assignment]  # a cycle that only the collector ends
            return model

    for fault in ("", "raise"):
        tried(Cyclic(fault=fault, sound_steps=3))
        assert not [thing for thing in gc.get_objects() if type(thing) is Heavy]


def test_weights_come_from_seed_and_repeat_whatever_the_mode_and_what_ran_before() -> None:
    def first_weights(*, seed: int, repeat: int, **fields: Any) -> Tensor:
        torch.rand(7)
        tried(Line(), of_sweep={"seed": seed}, of_task={"repeat": repeat}, **fields)
        weights: Tensor = SEEN["weights"][0]
        return weights

    base = first_weights(seed=0, repeat=1)
    assert torch.equal(base, first_weights(seed=0, repeat=1, sync="local_sgd", micro_batch=5))
    assert not torch.equal(base, first_weights(seed=0, repeat=2))
    assert not torch.equal(base, first_weights(seed=1, repeat=1))


def test_precisions_are_autocast_and_tf32_needs_a_gpu() -> None:
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        assert tried(Line(), precision=precision).status == "ok"
        assert set(SEEN["types"]) == {dtype}
    result = tried(Line(), precision="tf32")
    assert result.status == "user_error"
    assert "tf32" in str(result.reason)


def test_attempts_leave_no_threads_and_no_open_files_behind() -> None:
    def held() -> list[int]:
        return [len(list(Path("/proc/self", kind).iterdir())) for kind in ("task", "fd")]

    for _ in range(2):
        tried(Line())
    before = held()
    for sync in ("ddp", "local_sgd") * 3:
        tried(Line(), sync=sync)
    assert held() == before

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from dtsweep.errors import SweepError
from dtsweep.measure.clock import CpuClock
from dtsweep.measure.flops import count_flops
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.goal import Goal
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sync.passes import batches_of_steps
from dtsweep.sync.serving import ClosedLoop, serve_in_precision
from dtsweep.workloads import Cifar10Cnn, Gpt, Transformers
from tests.contract.regression import CPU, job_of

SMALL = Gpt(layers=2, width=32, sequence=16, new_tokens=5)
GPT2 = Transformers(
    "gpt2", overrides={"n_layer": 2, "n_embd": 32, "n_head": 2}, sequence=16, new_tokens=5
)


@pytest.mark.parametrize("workload", [SMALL, GPT2], ids=["Gpt", "Transformers"])
def test_tokens_by_the_cache_are_those_of_whole_passes(workload: Any) -> None:
    torch.manual_seed(0)
    model = workload.build().eval()
    batch = workload.batch(range(3), CPU)
    with torch.inference_mode():
        served = torch.stack(list(workload.serve(model, batch)), 1)
        tokens = (batch[0]["input_ids"] if workload is GPT2 else batch)[:, :11]
        for _ in range(5):
            scores = model(tokens).logits if workload is GPT2 else model(tokens)
            tokens = torch.cat([tokens, scores[:, -1:].argmax(-1)], 1)
    assert served.shape == (3, 5)
    assert torch.equal(served, tokens[:, 11:])


def test_a_step_serves_a_batch_without_gradients_and_marks_its_first_output() -> None:
    point = Point(sync="closed_loop", micro_batch=3, precision="bf16", workload=SMALL)
    job, model = job_of(point, 0), SMALL.build()
    mode, clock = ClosedLoop(job), CpuClock()
    mode.prepare(model, lambda _: pytest.fail("an optimizer"))  # type: ignore[arg-type, return-value]
    seen = []
    model[1].register_forward_hook(lambda *call: seen.append(call[2]))
    clock.start()
    assert mode.step(next(batches_of_steps(job)), clock) is None
    clock.end_step()
    # The prompt, then one token after the other.
    assert [tuple(hidden.shape[:2]) for hidden in seen] == [(3, 11)] + [(3, 1)] * 4
    assert not any(hidden.requires_grad for hidden in seen) and not model.training
    times = clock.times()
    parts = times["data_s"] + times["forward_s"] + times["decode_s"]
    assert parts == pytest.approx(times["step_s"])
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


@dataclass(frozen=True)
class OnlyServed:
    """No loss, FLOPs of its own for training, and an iterator in place of a generator."""

    flops_per_sample = 1e6

    def build(self) -> nn.Module:
        return nn.Linear(4, 4, bias=False)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        return torch.ones(len(samples), 4, device=device)

    def serve(self, model: nn.Module, batch: torch.Tensor) -> Iterator[torch.Tensor]:
        return map(model, [batch, batch])


def test_a_workload_that_only_serves_is_served_whole_and_its_work_counted() -> None:
    workload = OnlyServed()
    Sweep(workload=workload, kind="inference", axes={"micro_batch": [1]})
    model, point = workload.build(), Point(sync="closed_loop", workload=workload)
    assert len([*serve_in_precision(point, CPU)(model, workload.batch(range(3), CPU))]) == 2
    counted = count_flops(workload, model=model, precision="fp32", device=CPU, serves=True)
    assert counted is not None and counted.model_per_sample == 2 * 2 * 16


def test_flops_are_those_of_serving() -> None:
    whole = Gpt(layers=2, width=32, sequence=16)
    models = {workload: workload.build() for workload in (whole, SMALL, Cifar10Cnn())}

    def flops(workload: Any, *, serves: bool) -> float:
        counted = count_flops(
            workload, model=models[workload], precision="fp32", device=CPU, serves=serves
        )
        assert counted is not None
        return counted.model_per_sample

    assert flops(whole, serves=True) * 3 == flops(whole, serves=False)
    # 15 of 16 tokens go through the blocks, and 5 through the output layer; the first
    # convolution of images has no gradient of its input.
    blocks, output = 2 * 2 * 12 * 32 * 32, 2 * 32 * 256
    attention = 2 * 4 * 32 * (11 * 11 + 12 + 13 + 14 + 15)
    assert flops(SMALL, serves=True) == 15 * blocks + attention + 5 * output
    assert 2 * flops(Cifar10Cnn(), serves=True) < flops(Cifar10Cnn(), serves=False)


def test_points_of_inference_are_closed_loops_by_batch_and_open_loops_by_rate() -> None:
    sweep = Sweep(
        workload=SMALL,
        kind="inference",
        axes={"replicas": [1, 2], "micro_batch": [1, 8], "rate": [None, 50], "max_batch": [4, 8]},
    )
    points = [candidate.point for candidate in candidates(sweep)]
    assert {(p.sync, p.workers, p.micro_batch, p.rate, p.max_batch) for p in points} == {
        *(("closed_loop", workers, batch, None, None) for workers in (1, 2) for batch in (1, 8)),
        *(("open_loop", workers, 1, 50, most) for workers in (1, 2) for most in (4, 8)),
    }
    assert len(points) == 8
    assert {point.semantics for point in points} == {"inference"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axes": {"rate": [5]}}, "axis 'rate' is of inference; write Sweep(kind='inference')"),
        ({"kind": "serving"}, "kind='serving' is unknown"),
        ({"kind": "inference", "axes": {"sync": ["ddp"]}}, "axis 'sync' is none of inference"),
        ({"kind": "inference", "axes": {"replica": [1]}}, "did you mean 'replicas'?"),
        ({"kind": "inference", "axes": {"replicas": [1], "workers": [2]}}, "leave one out"),
        ({"kind": "inference", "goal": "final_loss"}, "there is no goal"),
        (
            {"kind": "inference", "goal": Goal(minimize="time_to_loss", target=1.0)},
            "trains nothing",
        ),
        (
            {
                "kind": "inference",
                "axes": {"rate": [5]},
                "measure": Measure(max_steps=50),
                "goal": Goal(maximize="requests_per_s", where="request_p99_s < 1"),
            },
            "max_steps=50 leaves request_p99_s unknown; take at least 100",
        ),
    ],
)
def test_what_does_not_belong_to_a_kind_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(SweepError) as error:
        Sweep(**{"workload": SMALL, "axes": {}, **settings})
    assert message in str(error.value)


def test_a_training_has_no_serving_mode() -> None:
    with pytest.raises(SweepError, match="sync=open_loop is of inference"):
        candidates(Sweep(workload=SMALL, axes={"sync": ["open_loop"]}))

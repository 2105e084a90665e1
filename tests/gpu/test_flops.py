"""FLOPs of a sample are the same on a GPU, whose libraries would take other kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtsweep.measure import flops
from dtsweep.measure.flops import count_flops
from dtsweep.workloads import Cifar10Cnn, Gpt


@pytest.mark.parametrize(
    "workload",
    [Gpt(layers=2, width=64), Cifar10Cnn()],
    ids=lambda workload: type(workload).__name__,
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_takes_the_flops_of_a_cpu(
    workload: Any, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = workload.build()
    counted = [count_flops(workload, model=model, precision=precision, device=torch.device("cpu"))]
    monkeypatch.setattr(flops, "_counted", {})
    device = torch.device("cuda", 0)
    model = model.to(device)
    state, used = torch.cuda.get_rng_state(), torch.cuda.memory_allocated()
    counted.append(count_flops(workload, model=model, precision=precision, device=device))
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.cuda.memory_allocated() - used < 2**26  # the workload's samples
    assert counted[0] is not None
    assert counted[0] == counted[1]

"""What does FSDP2 with parameters in bf16 cost next to `ddp` and `fsdp` in fp32?

The policy is the workload's own, so its points have `sync=own`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtsweep import Measure, OwnMode, Sweep, workloads


@dataclass(frozen=True)
class MixedGpt(workloads.Gpt):
    """The small decoder, which `prepare` shards with a policy of its own."""

    own_mode = OwnMode(semantics="exact")

    def optimizer(self, parameters: Any, learning_rate: float) -> Any:
        """The update of all modes."""
        import torch

        return torch.optim.AdamW(parameters, lr=learning_rate)

    def prepare(self, model: Any, job: Any) -> Any:
        """Gather and compute in bf16, reduce gradients in fp32."""
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for module in (*model[1:-1], model):
            fully_shard(module, mesh=job.mesh()["data"], mp_policy=policy)
        return model, self.optimizer(model.parameters(), job.point.learning_rate)


sweep = Sweep(
    workload=MixedGpt(layers=4, width=256, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [4, 16],
        "sync": ["ddp", "fsdp", "own"],
    },
    measure=Measure(repeats=1, max_seconds=10),
)

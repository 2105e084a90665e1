"""Is a second worker better spent on samples of its own, or on half of each layer?

The model is made parallel by the workload itself (`sync="own"`): `workload.tensor_parallel` workers
share each layer's matrices by torch's `parallelize_module`, and groups of them train on samples of
their own, in shards of FSDP2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtsweep import Measure, OwnMode, Sweep


@dataclass(frozen=True)
class Decoder:
    """A small decoder on random tokens, whose layers several workers can share."""

    tensor_parallel: int = 1
    layers: int = 4
    width: int = 256
    heads: int = 8
    sequence: int = 64
    words: int = 1024

    @property
    def own_mode(self) -> OwnMode:
        """An update is that of one worker with the whole batch."""
        return OwnMode(semantics="exact", model_parallel=self.tensor_parallel)

    @property
    def tokens_per_sample(self) -> int:
        """Each predicts the next one."""
        return self.sequence

    def build(self) -> Any:
        """Make the whole model."""
        from torch import nn
        from torch.nn import functional

        class Attention(nn.Module):
            """Heads are divided among the workers: each has its share of the matrices."""

            def __init__(self, width: int, heads: int) -> None:
                super().__init__()
                self.size = width // heads
                self.query, self.key, self.value, self.out = (
                    nn.Linear(width, width) for _ in range(4)
                )

            def forward(self, inputs: Any) -> Any:
                query, key, value = (
                    layer(inputs).unflatten(-1, (-1, self.size)).transpose(1, 2)
                    for layer in (self.query, self.key, self.value)
                )
                heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                return self.out(heads.transpose(1, 2).flatten(2))

        class Block(nn.Module):
            def __init__(self, width: int, heads: int) -> None:
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.attention = Attention(width, heads)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, inputs: Any) -> Any:
                hidden = inputs + self.attention(self.norm1(inputs))
                return hidden + self.down(functional.gelu(self.up(self.norm2(hidden))))

        blocks = [Block(self.width, self.heads) for _ in range(self.layers)]
        embedding = nn.Embedding(self.words, self.width)
        return nn.Sequential(embedding, *blocks, nn.Linear(self.width, self.words))

    def batch(self, samples: range, device: Any) -> Any:
        """Tokens from the samples' numbers: (samples, sequence + 1)."""
        import torch

        numbers = torch.arange(samples.start, samples.stop, device=device)
        places = torch.arange(self.sequence + 1, device=device)
        return (numbers[:, None] * 7919 + places * (numbers[:, None] % 31 + 1)) % self.words

    def loss(self, model: Any, batch: Any) -> Any:
        """Mean over the tokens."""
        from torch.nn import functional

        words = model(batch[:, :-1])
        return functional.cross_entropy(words.flatten(0, 1), batch[:, 1:].flatten())

    def prepare(self, model: Any, job: Any) -> Any:
        """Divide each block among the workers of a model, then shard over the groups."""
        import torch
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = job.mesh()
        _, *blocks, _ = model
        if self.tensor_parallel > 1:
            columns = ("attention.query", "attention.key", "attention.value", "up")
            plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
            plan |= {name: RowwiseParallel() for name in ("attention.out", "down")}
            for block in blocks:
                parallelize_module(block, mesh["model"], plan)
        if mesh["data"].size() > 1:
            for module in (*blocks, model):
                fully_shard(module, mesh=mesh["data"])
        # One by one: parameters of a block and those around it are tensors of different kinds.
        optimizer = torch.optim.SGD(
            model.parameters(), lr=job.point.learning_rate, momentum=0.9, foreach=False
        )
        return model, optimizer


sweep = Sweep(
    workload=Decoder(),
    axes={
        "workers": [1, 2],
        "workload.tensor_parallel": [1, 2],
        "micro_batch": [4, 16],
    },
    measure=Measure(repeats=1, max_seconds=10),
)

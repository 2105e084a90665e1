"""A small transformer in shards, as in PyTorch's tutorial of FSDP2 (`fully_shard`)."""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812  # as PyTorch's own examples have it
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Transformer(nn.Module):
    """A decoder of some blocks."""

    def __init__(self, *, vocabulary: int, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next token."""
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.head(x)
        return logits


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4, help="sequences of a worker")
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()

    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(distributed.get_rank() % torch.cuda.device_count())

    torch.manual_seed(0)
    model = Transformer(vocabulary=512, width=128, layers=2, context=args.context).to(kind)
    mesh = init_device_mesh(kind, (distributed.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    dataset = TensorDataset(torch.randint(512, (2048, args.context + 1)))
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    steps = passes = 0
    while steps < args.steps:
        for (tokens,) in loader:
            passes += 1
            inputs, targets = tokens[:, :-1].to(kind), tokens[:, 1:].to(kind)
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            (loss / args.grad_accum).backward()
            if passes % args.grad_accum:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == args.steps:
                break
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

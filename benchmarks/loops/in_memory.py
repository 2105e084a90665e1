"""A small decoder trained on tokens in memory, without a data loader.

`benchmarks/same_loop.py` measures it as it is, and with its functions as a workload's methods.
"""

import argparse

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, CONTEXT = 256, 64


class Decoder(nn.Module):
    """Blocks of attention over tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next tokens."""
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        logits: torch.Tensor = self.head(x)
        return logits


def make_data(device: torch.device) -> torch.Tensor:
    """Tokens of 4,096 samples."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(VOCABULARY, (4096, CONTEXT + 1), generator=generator).to(device)


def take_batch(data: torch.Tensor, samples: range) -> torch.Tensor:
    """Samples with these numbers."""
    return data[torch.arange(samples.start, samples.stop, device=data.device) % len(data)]


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of a batch."""
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()

    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    data = make_data(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(Decoder(args.width).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(args.steps):
        first = (step * workers + rank) * args.batch_size
        batch = take_batch(data, range(first, first + args.batch_size))
        loss = loss_of(model, batch)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

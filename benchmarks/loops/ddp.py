"""A small CNN trained with DistributedDataParallel, as in PyTorch's DDP tutorial."""

# mypy: ignore-errors

import argparse

import torch
import torch.nn.functional as F  # noqa: N812  # as PyTorch's own examples have it
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 8 * 8, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def main() -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a worker")
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", distributed.get_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(10, (4096,)))
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(Net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    steps = passes = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            passes += 1
            is_last = passes % args.grad_accum == 0
            # Gradients are exchanged in the last pass of a step.
            model.require_backward_grad_sync = is_last
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            (loss / args.grad_accum).backward()
            if not is_last:
                continue
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps % 100 == 0 and distributed.get_rank() == 0:
                print(f"epoch {epoch}, step {steps}: loss {loss.item():.3f}")
            if steps == args.steps:
                distributed.destroy_process_group()
                return
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

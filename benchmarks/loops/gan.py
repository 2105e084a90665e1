"""A generative adversarial network with two optimizers, as in PyTorch's DCGAN tutorial."""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NOISE = 64


def make_generator() -> nn.Module:
    """Images of 3 × 16 × 16 from noise."""
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 64, 4),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(64, 32, 4, 2, 1),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(32, 3, 4, 2, 1),
        nn.Tanh(),
    )


def make_discriminator() -> nn.Module:
    """A logit for each image."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 64, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(64, 1, 4),
        nn.Flatten(0),
    )


def main() -> None:
    """Train both networks in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchSize", type=int, default=16)
    parser.add_argument("--niter", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--lr", type=float, default=0.0002)
    opt = parser.parse_args()

    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    dataset = TensorDataset(torch.rand(2048, 3, 16, 16) * 2 - 1)
    sampler: DistributedSampler[object] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=opt.batchSize, sampler=sampler, drop_last=True)
    netG = DistributedDataParallel(make_generator().to(device))  # noqa: N806  # the tutorial's
    netD = DistributedDataParallel(make_discriminator().to(device))  # noqa: N806  # the tutorial's
    optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))  # noqa: N806
    optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))  # noqa: N806
    criterion = nn.BCEWithLogitsLoss()

    steps = 0
    for _ in range(opt.niter):
        for (real,) in loader:
            images = real.to(device)
            ones = torch.ones(len(images), device=device)
            # Discriminator: maximize log(D(x)) + log(1 - D(G(z))).
            netD.zero_grad()
            criterion(netD(images), ones).backward()
            fake = netG(torch.randn(len(images), NOISE, 1, 1, device=device))
            criterion(netD(fake.detach()), 1 - ones).backward()
            optimizerD.step()
            # Generator: maximize log(D(G(z))).
            netG.zero_grad()
            criterion(netD(fake), ones).backward()
            optimizerG.step()
            steps += 1
            if steps == opt.steps:
                distributed.destroy_process_group()
                return


if __name__ == "__main__":
    main()

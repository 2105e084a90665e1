"""Which batch and learning-rate rule reach a held-out error first, on 1 and 2 workers?

Run: python -m dtsweep sweeps/cifar10_target.py

A small CNN on 5,000 made images in the layout of CIFAR-10 trains until it gets 25 % of 1,000
held-out images wrong, from at least three seeds. For the real ones give `data` the folder with
`data_batch_*.bin` and `test_batch.bin`, and a target of your own.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from dtsweep import Goal, Measure, Point, Sweep
from dtsweep.workloads import Cifar10Cnn

CLASSES, PATTERNS_OF_A_CLASS, SIZE, NOISE, SEED = 10, 16, 32, 2.5, 10
FILES = {"data_batch_1.bin": 5_000, "test_batch.bin": 1_000}


def made_images() -> str:
    """Give the folder with the images, which is filled at the first call on a machine."""
    path = Path(tempfile.gettempdir()) / "dtsweep-made-images"
    path.mkdir(exist_ok=True)
    if any(not (path / name).exists() for name in FILES):
        parts = made_records(sum(FILES.values())).split(list(FILES.values()))
        for name, part in zip(FILES, parts, strict=True):
            # Another process may write the same.
            with tempfile.NamedTemporaryFile(dir=path, delete=False) as file:
                file.write(part.numpy().tobytes())
            Path(file.name).rename(path / name)
    return str(path)


def made_records(count: int) -> torch.Tensor:
    """Draw (count, 3073) bytes: the class, then planes of red, green and blue.

    An image is one of the smooth patterns of its class, moved by up to four pixels, under noise.
    """
    drawn = torch.Generator().manual_seed(SEED)
    coarse = torch.randn(CLASSES * PATTERNS_OF_A_CLASS, 3, 6, 6, generator=drawn)
    smooth = functional.interpolate(coarse, size=SIZE + 8, mode="bicubic", align_corners=False)
    classes = torch.randint(0, CLASSES, (count,), generator=drawn)
    kinds = torch.randint(0, PATTERNS_OF_A_CLASS, (count,), generator=drawn)
    moves = torch.randint(0, 9, (count, 2), generator=drawn).tolist()
    patterns = (classes * PATTERNS_OF_A_CLASS + kinds).tolist()
    images = torch.stack(
        [
            smooth[pattern, :, down : down + SIZE, right : right + SIZE]
            for pattern, (down, right) in zip(patterns, moves, strict=True)
        ]
    )
    images += NOISE * torch.randn(images.shape, generator=drawn)
    pixels = (images * 40 + 120).clamp(0, 255).to(torch.uint8)
    return torch.cat([classes[:, None].to(torch.uint8), pixels.flatten(1)], dim=1)


RULES = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Power of the batch with which the learning rate grows from that of batch 32."""


@dataclass(frozen=True)
class Cifar10WithRule(Cifar10Cnn):
    """The network, with the rule for its learning rate."""

    data: str = made_images()
    rule: str = "linear"


def learning_rate(point: Point) -> float:
    """Scale the learning rate of batch 32 by the rule."""
    return round(0.02 * math.pow(point.global_batch / 32, RULES[point.workload.rule]), 4)


def is_no_other(point: Point) -> str | None:
    """Leave out rules that are equal."""
    if point.global_batch == 32 and point.workload.rule != "none":
        return "all rules are equal at batch 32"
    return None


sweep = Sweep(
    workload=Cifar10WithRule(),
    axes={
        "workers": [1, 2],
        "global_batch": [32, 128, 512],
        "micro_batch": lambda point: point.global_batch // point.workers,
        "workload.rule": list(RULES),
        "learning_rate": learning_rate,
        "optimizer": ["momentum"],
    },
    skip=is_no_other,
    goal=Goal(minimize="time_to_loss_s", target=0.25, longest_s=120),
    measure=Measure(min_seconds=0.5, max_seconds=5, canary=False),
)

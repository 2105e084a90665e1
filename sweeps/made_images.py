"""Images that can be learned, in the binary layout of CIFAR-10, for `cifar10_target.py`."""

import tempfile
from pathlib import Path

import torch
from torch.nn import functional

CLASSES, PATTERNS_OF_A_CLASS, SIZE, NOISE, SEED = 10, 16, 32, 2.5, 10
FILES = {"data_batch_1.bin": 5_000, "test_batch.bin": 1_000}


def folder() -> str:
    """Give the folder with the images, which is filled at the first call on a machine."""
    path = Path(tempfile.gettempdir()) / "dtsweep-made-images"
    path.mkdir(exist_ok=True)
    if any(not (path / name).exists() for name in FILES):
        parts = records(sum(FILES.values())).split(list(FILES.values()))
        for name, part in zip(FILES, parts, strict=True):
            # Another process may write the same.
            with tempfile.NamedTemporaryFile(dir=path, delete=False) as file:
                file.write(part.numpy().tobytes())
            Path(file.name).rename(path / name)
    return str(path)


def records(count: int) -> torch.Tensor:
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

"""A small convolutional network on CIFAR-10 images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.errors import SweepError
from dtsweep.workloads.fields import absolute_data
from dtsweep.workloads.samples import POOL_SAMPLES, KeepsSamples, seeded_generator, take

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_RECORD_BYTES = 1 + 3 * 32 * 32
"""A record of the binary layout: the label, then a red, a green and a blue plane of 32 × 32."""
_CLASSES = 10
_EVALUATED_AT_ONCE = 500
"""Held-out images in a forward pass."""

_CHANNEL_MEAN = (0.4914, 0.4822, 0.4465)
"""Of the 50,000 training images, as a share of 255."""
_CHANNEL_DEVIATION = (0.2470, 0.2435, 0.2616)


@dataclass(frozen=True)
class Cifar10Cnn(KeepsSamples):
    """Two 3×3 convolutions of 16 and 32 channels with pooling, then 128 units and 10 classes.

    268,650 parameters; a sample is one image of 3 × 32 × 32 with its class.
    """

    data: str = "synthetic"
    """"synthetic" (512 images of noise), a file in the CIFAR-10 binary layout, or a folder with
    `data_batch_*.bin`. A relative path is taken from the folder where dtsweep is started."""

    def __post_init__(self) -> None:
        """Make a relative path absolute."""
        object.__setattr__(self, "data", absolute_data(self, self.data, names=["synthetic"]))

    def build(self) -> nn.Module:
        """Make the network: images of (samples, 3, 32, 32) to scores of (samples, 10)."""
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(3, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 8 * 8, 128),
            nn.ReLU(),
            nn.Linear(128, _CLASSES),
        )

    def batch(self, samples: range, device: torch.device) -> tuple[Tensor, Tensor]:
        """Give normalised images (samples, 3, 32, 32), float32, and classes (samples,), int64.

        The whole data set stays on the device as bytes, and repeats after its last image.

        Raises:
            SweepError: the data can't be read, or is not in the CIFAR-10 binary layout.
        """
        kept = self._kept(device, self._read)
        records = take(kept["records"], samples)
        images = records[:, 1:].view(-1, 3, 32, 32)
        return images * kept["scale"] + kept["shift"], records[:, 0].long()

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Give the mean cross entropy over the images."""
        from torch.nn import functional

        images, classes = batch
        return functional.cross_entropy(model(images), classes)

    def serve(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Give the class of each image, (samples,)."""
        scores: Tensor = model(batch[0])
        return scores.argmax(1)

    def evaluate(self, model: nn.Module) -> float:
        """Give the share of held-out images whose class the model gets wrong.

        They are those of `test_batch.bin` in the folder of the data.

        Raises:
            SweepError: the data has no images that are held out.
        """
        device = next(model.parameters()).device
        kept = self._kept(device, self._read)
        if "held_out" not in kept:
            raise SweepError(
                f"Cifar10Cnn(data={self.data!r}) has no held-out images; give a "
                "folder with data_batch_*.bin and test_batch.bin"
            )
        records = kept["held_out"]
        wrong = 0
        for part in records.split(_EVALUATED_AT_ONCE):
            images = part[:, 1:].view(-1, 3, 32, 32) * kept["scale"] + kept["shift"]
            wrong += int((model(images).argmax(1) != part[:, 0]).sum())
        return wrong / len(records)

    def _read(self) -> dict[str, Tensor]:
        import torch

        mean = torch.tensor(_CHANNEL_MEAN).view(3, 1, 1)
        deviation = torch.tensor(_CHANNEL_DEVIATION).view(3, 1, 1)
        kept = {"scale": 1 / (255 * deviation), "shift": -mean / deviation}
        if self.data == "synthetic":
            return {**kept, "records": _draw_records()}
        path = Path(self.data)
        kept["records"] = torch.cat([_read_records(file) for file in _files(path)])
        if (path / "test_batch.bin").is_file():
            kept["held_out"] = _read_records(path / "test_batch.bin")
        return kept


def _draw_records() -> Tensor:
    import torch

    generator = seeded_generator()
    shape = (POOL_SAMPLES, _RECORD_BYTES)
    records = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    records[:, 0] %= _CLASSES
    return records


def _files(path: Path) -> list[Path]:
    """Give the file itself, or the training files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("data_batch_*.bin"))
    if not files:
        pickled = sorted(path.glob("data_batch_*"))
        if pickled:
            raise _pickle_error(pickled[0])
        raise SweepError(
            f"no data_batch_*.bin in {path}; give the folder of the CIFAR-10 binary version"
        )
    return files


def _read_records(file: Path) -> Tensor:
    """Read (images, 3073) bytes, each the class and then three colour planes."""
    import torch

    try:
        content = bytearray(file.read_bytes())
    except OSError as error:
        raise SweepError(f"can't read the CIFAR-10 data {file}: {error.strerror}") from error
    if content[:1] == b"\x80" or (file.name.startswith("data_batch_") and file.suffix != ".bin"):
        raise _pickle_error(file)
    if not content or len(content) % _RECORD_BYTES:
        raise SweepError(
            f"{file} has {len(content)} bytes, no multiple of the {_RECORD_BYTES} of a CIFAR-10 "
            "record; "
            "give a file of the CIFAR-10 binary version"
        )
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, _RECORD_BYTES)
    if int(records[:, 0].max()) >= _CLASSES:
        raise SweepError(f"{file} has a class over 9; give a file of the CIFAR-10 binary version")
    return records


def _pickle_error(file: Path) -> SweepError:
    return SweepError(
        f"{file} is in CIFAR-10's pickle layout, and unpickling runs code; get the binary version "
        "(*.bin)"
    )

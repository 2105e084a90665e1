"""A small decoder language model on bytes of text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError
from dtsweep.workloads.fields import (
    absolute_data,
    check_counts,
    check_new_tokens,
    refused_division,
    refused_stages,
)
from dtsweep.workloads.samples import (
    POOL_SAMPLES,
    KeepsSamples,
    sample_numbers,
    seeded_generator,
    take,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dtsweep.sweep.point import Point


@dataclass(frozen=True)
class Gpt(KeepsSamples):
    """Pre-norm decoder with learned positions, causal attention, MLP of 4 × width, no dropout.

    The output layer has weights of its own (not tied to the embedding). A sample is `sequence`
    tokens, and each predicts the next one.
    """

    layers: int = 4
    """Decoder blocks."""
    width: int = 256
    """Numbers per token between blocks; a multiple of `heads`."""
    sequence: int = 128
    """Tokens per sample."""
    heads: int = 4
    """Attention heads per block."""
    vocabulary: int = 256
    """Different tokens; at least 256 for text, whose tokens are its UTF-8 bytes."""
    data: str = "synthetic"
    """Text to train on: "synthetic", "pydoc" or the path of a UTF-8 file.

    "synthetic" is 512 samples of random tokens. "pydoc" is the topics in Python's own
    documentation, which differ a little between Python versions. A relative path starts at the
    folder in which dtsweep is started.
    """
    new_tokens: int = 0
    """Tokens that `serve` generates; with the prompt they make `sequence`. 0 generates none."""

    def __post_init__(self) -> None:
        """Check the fields, and make a relative path absolute."""
        check_counts(self, "layers", "width", "sequence", "heads", "vocabulary")
        check_new_tokens(self)
        if self.width % self.heads:
            raise SweepError(
                f"Gpt(width={self.width}, heads={self.heads}): width is a multiple of heads"
            )
        object.__setattr__(
            self, "data", absolute_data(self, self.data, names=["synthetic", "pydoc"])
        )
        if self.data != "synthetic" and self.vocabulary < 256:
            raise SweepError(
                f"Gpt(vocabulary={self.vocabulary}): text has bytes as tokens, so 256 or more"
            )

    @property
    def tokens_per_sample(self) -> int:
        """Tokens that one sample trains on.

        >>> Gpt(sequence=64).tokens_per_sample
        64
        """
        return self.sequence

    @property
    def tokens_per_answer(self) -> int:
        """Tokens of an answer of `serve`: the new ones, else those that get scores."""
        return self.new_tokens or self.sequence

    @property
    def unread_fields(self) -> tuple[str, ...]:
        """Settings that have no effect."""
        return () if self.new_tokens else ("new_tokens",)

    def build(self) -> nn.Module:
        """Make the decoder: tokens (samples, sequence) to (samples, sequence, vocabulary)."""
        from dtsweep.workloads.decoder import make_decoder

        return make_decoder(
            layers=self.layers,
            width=self.width,
            sequence=self.sequence,
            heads=self.heads,
            vocabulary=self.vocabulary,
        )

    def tensor_parallel_plan(self, model: nn.Module) -> dict[str, Any]:
        """Give torch's styles by module: workers share heads, MLPs and the output layer."""
        from dtsweep.workloads.decoder import parallel_plan

        return parallel_plan(model, shares_tokens=False)

    def sequence_parallel_plan(self, model: nn.Module) -> dict[str, Any]:
        """As `tensor_parallel_plan`; workers also share the tokens in norms and sums."""
        from dtsweep.workloads.decoder import parallel_plan

        return parallel_plan(model, shares_tokens=True)

    def impossible_grid(self, point: Point) -> str | None:
        """Say why workers can't divide the model so, or None."""
        sizes = {"heads": self.heads, "vocabulary": self.vocabulary}
        if point.sequence_parallel:
            sizes["sequence"] = self.sequence
        return refused_division(sizes, point.tensor_parallel) or refused_stages(
            self.layers, point.stages
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Give tokens (samples, sequence + 1), int64: the last one is only predicted.

        Raises:
            SweepError: the text can't be read, is not UTF-8, or is too short for one sample.
        """
        kept = self._kept(device, self._read)
        if "tokens" in kept:
            return take(kept["tokens"], samples)
        return text_windows(kept["text"], samples, length=self.sequence + 1)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Give the mean cross entropy over all tokens of the batch."""
        from torch.nn import functional

        scores = model(batch[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())

    def serve(self, model: nn.Module, batch: Tensor) -> Iterator[Tensor]:
        """Yield the new tokens one by one, (samples,) each, by a cache of keys and values.

        Without `new_tokens`, yield the scores of all tokens, (samples, sequence, vocabulary).
        """
        if not self.new_tokens:
            yield model(batch[:, :-1])
            return
        from dtsweep.workloads.decoder import generate

        prompt = batch[:, : self.sequence - self.new_tokens]
        yield from generate(model, prompt, self.new_tokens)

    def _read(self) -> dict[str, Tensor]:
        import torch

        if self.data == "synthetic":
            shape = (POOL_SAMPLES, self.sequence + 1)
            return {
                "tokens": torch.randint(0, self.vocabulary, shape, generator=seeded_generator())
            }
        text = _read_text(self.data)
        if len(text) <= self.sequence:
            raise SweepError(
                f"the text {self.data} has {len(text)} bytes, and a sample needs "
                f"{self.sequence + 1}; "
                "give a longer text or a smaller sequence"
            )
        return {"text": torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _read_text(data: str) -> bytes:
    if data == "pydoc":
        from pydoc_data.topics import topics

        return "\n".join(topics.values()).encode()
    try:
        content = Path(data).read_bytes()
        content.decode()
    except OSError as error:
        raise SweepError(f"can't read the text {data}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SweepError(
            f"{data} is not UTF-8 text (byte {error.start}); convert it to UTF-8"
        ) from error
    return content


def text_windows(text: Tensor, samples: range, *, length: int) -> Tensor:
    """Cut the samples with these numbers out of a text.

    Neighbouring numbers lie far apart in the text, and as many numbers as it has positions visit
    each once.

    Args:
        text: (bytes,), at least `length`.
        samples: global numbers, from 0.
        length: bytes per sample.

    Returns:
        (samples, length), int64.
    """
    windows = text.unfold(0, length, 1)
    starts = sample_numbers(samples, windows) * stride_between(len(windows)) % len(windows)
    return windows.index_select(0, starts).long()


def stride_between(positions: int) -> int:
    """Give a stride near the golden section that has no divisor in common with `positions`.

    >>> stride_between(10)
    7
    """
    stride = max(1, round(positions * 0.618))
    while math.gcd(stride, positions) != 1:
        stride += 1
    return stride

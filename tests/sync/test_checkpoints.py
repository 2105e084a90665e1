"""Checkpointed blocks: the same training bit for bit, from fewer activations."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dtsweep.hardware.memory import peak_bytes, restart_peak
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.workloads import Cifar10Cnn, Gpt
from tests.ranks import results_of

CPU = torch.device("cpu")
MIB = 2**20
M_MMAP_THRESHOLD = -3
"""glibc's name of the setting from which size on freed memory goes back to the kernel."""

Gradients = list[Tensor]


@dataclass(frozen=True)
class Stack:
    """Equal blocks, each of a wide hidden layer with dropout."""

    width: int = 8
    hidden: int = 32
    depth: int = 3

    def build(self) -> nn.Sequential:
        ends = self.width, self.hidden
        return nn.Sequential(
            *(
                nn.Sequential(nn.Linear(*ends), nn.Tanh(), nn.Linear(*ends[::-1]))
                for _ in range(self.depth)
            )
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), self.width, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return model(batch).sum()


@dataclass(frozen=True)
class Noisy(Stack):
    """Draws masks in its blocks."""

    def build(self) -> nn.Sequential:
        model = super().build()
        for block in model:
            block.append(nn.Dropout(0.5))
        return model


def built(workload: Any, *, is_checkpointed: bool) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = workload.build()
    if is_checkpointed:
        checkpoint_blocks(model, workload)
    return model


def gradients(model: nn.Module, workload: Any) -> Gradients:
    model.zero_grad()
    torch.manual_seed(1)
    workload.loss(model, workload.batch(range(4), CPU)).backward()
    return [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]


def equal(first: Gradients, second: Gradients) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("workload", [Noisy(), Gpt(layers=2, width=32, sequence=16)], ids=str)
def test_checkpoints_leave_names_and_gradients_as_they_are_bit_for_bit(workload: Any) -> None:
    plain, checkpointed = (built(workload, is_checkpointed=is_so) for is_so in (False, True))
    assert list(plain.state_dict()) == list(checkpointed.state_dict())
    assert [name for name, _ in plain.named_modules()] == [
        name for name, _ in checkpointed.named_modules()
    ]
    assert equal(gradients(plain, workload), gradients(checkpointed, workload))


def test_a_deep_copy_computes_its_own_blocks_again() -> None:
    workload = Noisy()
    original = built(workload, is_checkpointed=True)
    copied = copy.deepcopy(original)
    before = gradients(copied, workload)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.zero_()
    assert equal(gradients(copied, workload), before)
    assert any(gradient.any() for gradient in before)


def test_a_block_computes_again_all_but_the_layer_whose_output_it_does_not_keep() -> None:
    workload = Stack()
    model = built(workload, is_checkpointed=True)
    calls = []
    for block in model.children():
        for layer in block.children():
            layer.register_forward_hook(lambda layer, *_: calls.append(type(layer).__name__))
    workload.loss(model, workload.batch(range(4), CPU)).backward()
    assert calls.count("Tanh") == 2 * workload.depth


def test_a_model_without_blocks_of_several_layers_is_refused() -> None:
    workload = Cifar10Cnn()
    with pytest.raises(ValueError, match=r"found no block .* give the workload blocks\(model\)"):
        checkpoint_blocks(workload.build(), workload)
    named = SimpleNamespace(blocks=lambda model: [model[0]])
    assert len(checkpoint_blocks(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), named)) == 1


def compiled(workload: Any, how: str) -> nn.Module:
    """The model with its blocks or all of it compiled, as a workload's `build` gives it."""
    torch.manual_seed(0)
    model: Any = workload.build()
    compile_it = functools.partial(torch.compile, backend="aot_eager")
    if how == "whole":
        return compile_it(model)
    if how == "blocks":
        return nn.Sequential(*(compile_it(block) for block in model))
    for block in model:
        block.compile(backend="aot_eager")
    return model


@pytest.mark.parametrize(
    "how", [pytest.param("whole", marks=pytest.mark.slow), "blocks", "blocks in place"]
)
def test_compiled_models_have_checkpoints_too(how: str) -> None:
    workload = Stack()
    expected = gradients(built(workload, is_checkpointed=False), workload)
    model = compiled(workload, how)
    assert len(checkpoint_blocks(model, workload)) == workload.depth
    for found, wanted in zip(gradients(model, workload), expected, strict=True):
        torch.testing.assert_close(found, wanted)


WIDE = Stack(width=128, hidden=512, depth=8)
SAMPLES = 4096
INPUT_BYTES = 4 * SAMPLES * WIDE.width
HIDDEN_BYTES = 4 * SAMPLES * WIDE.hidden


def note_peaks(_: int) -> dict[bool, int]:
    """By how much a pass raises the peak, without checkpoints and with them."""
    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 65536)
    raised = {}
    for is_checkpointed in (False, True):
        model = built(WIDE, is_checkpointed=is_checkpointed)
        for samples in (1, SAMPLES):
            # Gradients are there before.
            model.zero_grad(set_to_none=False)
            gc.collect()
            batch = WIDE.batch(range(samples), CPU)
            restart_peak(CPU)
            before = peak_bytes(CPU)
            WIDE.loss(model, batch).backward()
            raised[is_checkpointed] = peak_bytes(CPU) - before
            del batch
    return raised


def test_checkpoints_keep_an_input_of_each_block_and_the_activations_of_one() -> None:
    (raised,) = results_of(note_peaks, workers=1)
    # The batch, which the first block gets, was there before. Most is there when backward comes to
    # the last block: its hidden activation, and the gradients before and behind tanh.
    inputs = (WIDE.depth - 1) * INPUT_BYTES
    gradients = 2 * HIDDEN_BYTES
    assert raised[True] == pytest.approx(inputs + HIDDEN_BYTES + gradients, rel=0.05)
    every = inputs + WIDE.depth * HIDDEN_BYTES + gradients
    assert raised[False] == pytest.approx(every, rel=0.05)

"""What a mode that shards parameters takes for a model's blocks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dtsweep import workloads
from dtsweep.sync.model_blocks import blocks_of, described, has_repeated_modules
from dtsweep.workloads import decoder


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Decoder(nn.Module):
    """Blocks beside an embedding and a head, two levels below the root."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)
        self.body = nn.ModuleDict({"layers": nn.ModuleList(Block() for _ in range(blocks))})


class Stack(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding, self.layers = embedding, nn.ModuleList(Block() for _ in range(2))


def tied() -> nn.Sequential:
    """An encoder and a decoder of blocks, which share an embedding."""
    embedding = nn.Embedding(10, 4)
    return nn.Sequential(Stack(embedding), Stack(embedding))


def stages() -> nn.Module:
    """Two of one class, which have blocks inside."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), *(nn.Sequential(Block(), Block()) for _ in range(2)))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Decoder(3), f"3 {decoder.Block.__name__}"),
        # Not what is inside them.
        (stages(), "2 Sequential"),
        # Inside stacks that share a parameter.
        (tied(), "4 Block"),
        # Where nothing larger is repeated.
        (nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)), "2 Linear"),
        # What has no parameters is no block, and a model may have none.
        (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Linear(2, 2)), "the whole model"),
        (workloads.Gpt(layers=3, width=16).build(), "3 Block"),
        (workloads.Cifar10Cnn().build(), "2 Conv2d, 2 Linear"),
    ],
)
def test_blocks_are_the_outermost_modules_that_a_model_repeats(
    model: nn.Module, words: str
) -> None:
    assert described(blocks_of(None, model)) == words


def test_blocks_that_all_share_a_parameter_leave_none() -> None:
    model = nn.Sequential(Block(), Block())
    shared = nn.Parameter(torch.ones(2))
    for block in model:
        block.shared = shared
    assert blocks_of(None, model) == []
    assert has_repeated_modules(model)


def test_a_model_that_could_have_blocks_is_known() -> None:
    lists = nn.ModuleList([nn.ModuleList([nn.Linear(2, 2)]), nn.ModuleList([nn.Conv2d(1, 1, 1)])])
    assert not has_repeated_modules(lists)
    assert has_repeated_modules(tied())
    assert not has_repeated_modules(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Conv2d(1, 1, 1)))


def test_a_workload_names_its_own_blocks_and_only_modules_of_its_model() -> None:
    class Own:
        def __init__(self, *names: str) -> None:
            self.names = names

        def blocks(self, model: nn.Module) -> list[nn.Module]:
            return [model.get_submodule(name) for name in self.names]

    model = Decoder(2)
    assert blocks_of(Own("head", "body.layers.1"), model) == [model.head, model.body["layers"][1]]  # type: ignore[index]
    for names in (("body.layers", "body.layers.0"), ("",)):
        with pytest.raises(
            ValueError, match=r"Own\.blocks\(model\) must give modules inside the model"
        ):
            blocks_of(Own(*names), model)

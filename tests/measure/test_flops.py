"""FLOPs of a sample: what is counted, what is not, and that counting leaves the trial alone."""

from __future__ import annotations

import itertools
import random
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from dtsweep.errors import SweepError
from dtsweep.hardware.backend_flags import read_flags
from dtsweep.measure import flops
from dtsweep.measure.flops import Flops, count_flops
from dtsweep.workloads import Cifar10Cnn, Gpt, Transformers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_counted", {})


def count(workload: Any, precision: str = "fp32") -> Flops | None:
    return count_flops(workload, model=workload.build(), precision=precision, device=CPU)


@dataclass(frozen=True)
class Chain:
    """Three matrices, of which the second can be computed again in backward."""

    middle: int = 16
    again: str = "never"

    def build(self) -> nn.Module:
        sizes = (8, 16, self.middle, 4)
        return nn.ModuleList(nn.Linear(*pair, bias=False) for pair in itertools.pairwise(sizes))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.tensor(samples, device=device).float()[:, None].expand(-1, 8)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        def middle(hidden: Tensor) -> Tensor:
            return model[1](hidden).tanh()

        hidden = model[0](batch)
        if self.again == "never":
            hidden = middle(hidden)
        else:
            hidden = checkpoint(middle, hidden, use_reentrant=self.again == "reentrant")
        return model[2](hidden).square().mean()


# Forward: 2·8·16 + 2·16·16 + 2·16·4. Backward: as much for the weights, and for what went in, but
# not for the data.
CHAIN = 256 + 512 + 128 + (256 + 512 + 128) + (512 + 128)


@dataclass(frozen=True)
class Net:
    """Any network on 16 random numbers a sample, in the shape it wants."""

    network: str

    def build(self) -> nn.Module:
        return NETWORKS[self.network][0]()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.rand(len(samples), *NETWORKS[self.network][1], device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        result = model(batch)
        return (result[0] if isinstance(result, tuple) else result).square().mean()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "a bias adds nothing": (lambda: nn.Linear(16, 3), (16,), 2 * (2 * 16 * 3)),
    "batch normalization": (
        lambda: nn.Sequential(nn.Linear(16, 3), nn.BatchNorm1d(3), nn.ReLU()),
        (16,),
        2 * (2 * 16 * 3),
    ),
    # 4 channels of 1, each with a 3×3 kernel of its own on 4×4 positions; then the same with its
    # input's gradient.
    "grouped convolutions": (
        lambda: nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1, groups=4) for _ in range(2))),
        (4, 4, 4),
        5 * (2 * 9 * 4 * 16),
    ),
    "transposed convolutions": (
        lambda: nn.ConvTranspose2d(2, 3, 2, stride=2),
        (2, 4, 4),
        2 * (2 * 4 * 2 * 3 * 16),
    ),
    # 5 steps of 4 gates: 2·16·(4·8) of the input, and 2·8·(4·8) of the state, whose gradient the
    # first step needs not.
    "recurrent layers": (
        lambda: nn.LSTM(16, 8, batch_first=True),
        (5, 16),
        5 * 2 * 1024 + 5 * 2 * 512 + 4 * 512,
    ),
}


@pytest.mark.parametrize(("again", "more"), [("never", 0), ("reentrant", 512), ("not", 512)])
def test_what_is_computed_again_is_in_the_hardwares_figure_alone(again: str, more: int) -> None:
    assert count(Chain(again=again)) == Flops(CHAIN, CHAIN + more)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_layer_counts_as_its_matrix_products(network: str) -> None:
    expected = NETWORKS[network][2]
    assert count(Net(network)) == Flops(expected, expected)


def test_a_convolutional_network_counts_as_by_hand() -> None:
    first, second = 2 * 1024 * 27 * 16, 2 * 256 * 144 * 32
    expected = 2 * first + 3 * (second + 2 * 2048 * 128 + 2 * 128 * 10)
    assert count(Cifar10Cnn()) == Flops(expected, expected)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_decoder_takes_six_times_its_weights_per_token_and_its_attention(precision: str) -> None:
    layers, width, sequence, vocabulary = 2, 64, 32, 256
    weights = layers * 12 * width**2 + width * vocabulary
    expected = sequence * (6 * weights + 12 * layers * width * sequence)
    decoder = Gpt(layers=layers, width=width, sequence=sequence, vocabulary=vocabulary)
    assert count(decoder, precision) == Flops(expected, expected)


def test_models_whose_build_needs_numbers_are_counted() -> None:
    pytest.importorskip("transformers")
    small = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
    overrides = small | {"intermediate_size": 64}
    counted = count(Transformers("vit-base", overrides=overrides, image_size=32))
    assert counted is not None
    # 4 patches of 3·16·16 and a token for the class, whose result alone goes to the 1000 classes.
    layer = 5 * 2 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * (2 * 5 * 5 * 32)
    assert counted.model_per_sample == 2 * (4 * 2 * 768 * 32) + 3 * (layer + 2 * 32 * 1000)


def test_batches_may_be_of_any_kind_and_the_workload_may_hold_tensors() -> None:
    class Odd(Chain):
        scale = torch.tensor(2.0)

        def batch(self, samples: range, device: torch.device) -> Any:
            names = ["a sample"] * len(samples)
            return UserDict(inputs=super().batch(samples, device), names=names)

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            return super().loss(model, batch["inputs"]) * self.scale

    assert count(Odd()) == Flops(CHAIN, CHAIN)


def test_attention_counts_whole_though_it_is_causal_and_without_what_flash_computes_again() -> None:
    class Attention(Chain):
        def batch(self, samples: range, device: torch.device) -> Tensor:
            return torch.rand(len(samples), 10, 8, device=device)

        def loss(self, model: Any, batch: Tensor) -> Tensor:
            hidden = model[0](batch)[:, None]
            scores = scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
            return scores.square().mean()

    counted = count(Attention())
    assert counted is not None
    assert counted.model_per_sample == 2 * (10 * 256) + 3 * (2 * 2 * 10 * 10 * 16)


def needs_numbers(model: Any, batch: Tensor) -> Tensor:
    loss = model[0](batch).mean()
    return loss * 2 if loss.item() > 0 else loss


def all_pairs(model: Any, batch: Tensor) -> Tensor:
    hidden = model[0](batch)
    return cross_entropy(hidden @ hidden.T, torch.arange(len(batch)))


def refused(*_: Any) -> Tensor:
    raise ValueError("401 at https://me:hunter2@hub/x?token=t0ps3cret")


def nothing_known(model: Any, batch: Tensor) -> Tensor:
    return (model[0].weight * batch[:, None]).square().mean()


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (needs_numbers, "DataDependentOutputException: aten._local_scalar_dense"),
        (all_pairs, "don't grow with the samples"),
        (nothing_known, "no matrix product"),
        (refused, "ValueError: 401 at https://hub/x?; a workload"),
    ],
)
def test_what_cannot_be_counted_is_none_and_says_why(
    loss: Callable[..., Tensor], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = type("Mine", (Chain,), {"loss": lambda _, model, batch: loss(model, batch)})()
    assert count(workload) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("FLOPs of Mine are not counted: ")
    assert why in line
    assert "flops_per_sample" in line


def test_a_workload_can_give_its_own_count_and_the_hardwares_grows_by_the_counted_share() -> None:
    own: dict[str, Any] = {"flops_per_sample": 1000}
    given = type("Given", (Chain,), own)
    assert count(given()) == Flops(1000, 1000)
    more = (CHAIN + 512) / CHAIN
    assert count(given(again="reentrant")) == Flops(1000, pytest.approx(1000 * more))
    uncounted = own | {"loss": lambda _, *given: needs_numbers(*given)}
    assert count(type("Given", (Chain,), uncounted)()) == Flops(1000, None)
    assert count(type("Given", (Chain,), {"flops_per_sample": None})()) == Flops(CHAIN, CHAIN)


@pytest.mark.parametrize("wrong", [0, -1.0, "many", True, float("nan"), float("inf"), lambda: 1])
def test_a_count_that_is_no_positive_number_is_refused(wrong: object) -> None:
    given = type("Given", (Chain,), {"flops_per_sample": wrong})
    message = r"Given\.flops_per_sample is .*; it must be a positive number, or None"
    with pytest.raises(SweepError, match=message):
        count(given())


def test_a_setting_is_counted_once() -> None:
    counted: list[Chain] = []

    class Watched(Chain):
        def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
            counted.append(self)
            return super().loss(model, batch)

    for workload in (Watched(), Watched(), Watched(middle=32), Watched()):
        assert count(workload) is not None
    assert len(counted) == 2 * len(flops.SAMPLES)
    count(Watched(), "bf16")
    assert len(counted) == 3 * len(flops.SAMPLES)


class Careless(Chain):
    """Draws everywhere, and keeps in itself what it computes."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        random.random()
        np.random.random()
        return torch.rand(len(samples), 8, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        random.random()
        object.__setattr__(self, "last", batch)
        return nn.functional.dropout(super().loss(model, batch))


def states(model: nn.Module) -> Iterator[Any]:
    yield random.getstate()
    yield np.random.get_state()[1].tolist()
    yield torch.get_rng_state().tolist()
    yield read_flags()
    yield model.training
    for tensor in (*model.parameters(), *model.buffers()):
        yield type(tensor), tensor.tolist(), tensor.grad


@pytest.mark.parametrize("fails", [False, True])
def test_counting_leaves_the_trial_as_it_was(fails: bool) -> None:
    failing = {"loss": lambda _, *given: needs_numbers(*given)}
    workload = type("Mine", (Careless,), failing if fails else {})()
    model = nn.ModuleList([*workload.build(), nn.BatchNorm1d(4)])
    before = list(states(model))
    assert (count_flops(workload, model=model, precision="bf16", device=CPU) is None) == fails
    assert list(states(model)) == before
    assert not hasattr(workload, "last")

"""The gradient noise scale against its definition: per-sample gradients of a whole data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.sweep.point import Point
from dtsweep.worker.noise_scale import noise_scale
from tests.worker.on_ranks import Trials, run_trials, start_of, window

SAMPLES, WIDTH, BATCH, GRADIENTS, ROUNDS, DRAWS = 1024, 12, 8, 16, 8, 50
WORKERS = 2


def data() -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, WIDTH, generator=drawn)
    noise = 0.5 * torch.randn(SAMPLES, 1, generator=drawn)
    return inputs, inputs.sum(1, keepdim=True).sin() + noise


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 1))


def convolution() -> nn.Module:
    shaped = nn.Unflatten(1, (1, WIDTH))
    return nn.Sequential(shaped, nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 1))


MODELS = {"line": lambda: nn.Linear(WIDTH, 1), "network": network, "convolution": convolution}


def gradients_of(model: nn.Module) -> NDArray[np.float64]:
    """Gradient of the loss of each sample, (samples, parameters)."""
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, Tensor], row: Tensor, wanted: Tensor) -> Tensor:
        found = torch.func.functional_call(model, values, (row[None],))
        return (found - wanted).square().mean()

    of_each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    found = of_each(parameters, *data())
    flat = torch.cat([found[name].flatten(1) for name in parameters], dim=1)
    gradients: NDArray[np.float64] = flat.detach().double().numpy()
    return gradients


def by_definition(gradients: NDArray[np.float64]) -> float:
    """Trace of the covariance of the samples' gradients over the squared norm of their mean."""
    mean = gradients.mean(axis=0)
    return float((gradients - mean).var(axis=0).sum() / (mean**2).sum())


@pytest.mark.parametrize("name", MODELS)
def test_the_interval_holds_the_noise_scale_in_nine_of_ten_draws(name: str) -> None:
    torch.manual_seed(5)
    gradients = gradients_of(MODELS[name]())
    true = by_definition(gradients)
    random = np.random.default_rng(7)
    held, widths = 0, []
    for _ in range(DRAWS):
        drawn = random.integers(0, SAMPLES, (ROUNDS, GRADIENTS, BATCH))
        means = gradients[drawn].mean(axis=2)
        small = (means**2).sum(axis=2).mean(axis=1)
        large = (means.mean(axis=1) ** 2).sum(axis=1)
        found = noise_scale(small, large, batch=BATCH, gradients=GRADIENTS)
        assert found.low <= found.value <= found.high
        held += found.low <= true <= found.high
        widths.append((found.high - found.low) / found.value)
    assert held >= 0.9 * DRAWS
    # It says something, too.
    assert np.median(widths) < 2


def test_noise_that_hides_the_gradient_leaves_the_upper_end_open() -> None:
    random = np.random.default_rng(1)
    means = random.normal(size=(ROUNDS, GRADIENTS, 200))
    small = (means**2).sum(axis=2).mean(axis=1)
    large = (means.mean(axis=1) ** 2).sum(axis=1)
    found = noise_scale(small, large, batch=BATCH, gradients=GRADIENTS)
    assert found.high == np.inf
    # The noise is 200 × BATCH, the gradient nothing; what is known is a lower limit.
    assert found.low > BATCH


@dataclass(frozen=True)
class Fitted:
    """Trains a model of `MODELS`, which at its learning rate stays as it is."""

    kind: str

    def build(self) -> nn.Module:
        return MODELS[self.kind]()

    def batch(self, samples: range, device: torch.device) -> tuple[Tensor, Tensor]:
        # Drawn with replacement: the data set is then the population.
        drawn = [np.random.default_rng(number).integers(SAMPLES) for number in samples]
        numbers = torch.tensor(np.array(drawn))
        inputs, wanted = data()
        return inputs[numbers].to(device), wanted[numbers].to(device)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, wanted = batch
        return (model(inputs) - wanted).square().mean()


CASES: dict[str, dict[str, Any]] = {
    "ddp": {"sync": "ddp"},
    "ring, accumulated": {"sync": "ring", "accumulation": 3},
    "fsdp": {"sync": "fsdp"},
    "local_sgd": {"sync": "local_sgd", "sync_period": 2},
}


@pytest.fixture(scope="module")
def trials() -> Trials:
    measure = window(4, exchange="off", noise_scale=True)
    usual = {"workers": WORKERS, "micro_batch": BATCH, "learning_rate": 1e-9, "optimizer": "sgd"}
    points = {
        name: Point(**{**usual, **fields, "workload": Fitted("network")})
        for name, fields in CASES.items()
    }
    return run_trials({name: (measure, point) for name, point in points.items()})


@pytest.mark.parametrize("name", ["ddp", "ring, accumulated"])
def test_workers_measure_it_together(trials: Trials, name: str) -> None:
    row = trials.row(name)
    assert (row["status"], row["noise_scale_reason"]) == ("ok", None)
    model = network()
    model.load_state_dict(start_of(trials.points[name]))
    true = by_definition(gradients_of(model))
    assert row["noise_scale_low"] / 1.25 < true < row["noise_scale_high"] * 1.25
    assert row["noise_scale_low"] < row["noise_scale"] < row["noise_scale_high"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("fsdp", "a part of each gradient"), ("local_sgd", "the models of workers differ")],
)
def test_why_it_is_not_known_is_said(trials: Trials, name: str, reason: str) -> None:
    row = trials.row(name)
    assert (row["status"], row["noise_scale"]) == ("ok", None)
    assert reason in row["noise_scale_reason"]

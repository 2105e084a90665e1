"""The small workload of tests, as a class and as the text of a sweep file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CLASS = """\
from dataclasses import dataclass

import torch
from torch import nn

from dtsweep import Measure, Resources, Sweep

@dataclass(frozen=True)
class Linear:
    inputs: int = 2
    outputs: int = 1

    def build(self):
        return nn.Linear(self.inputs, self.outputs)

    def batch(self, samples, device):
        return torch.ones(len(samples), self.inputs, device=device)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""
"""Head of a sweep file: its imports, and the workload."""

SHORT = (
    "Measure(repeats=1, half_width=None, canary=False, min_seconds=0.1, min_steps=3, max_steps=50)"
)
"""A window of a moment, as a sweep file says it."""


@dataclass(frozen=True)
class Linear:
    """One layer, trained to answer 0 to ones."""

    inputs: int = 2
    outputs: int = 1

    def build(self) -> nn.Module:
        return nn.Linear(self.inputs, self.outputs)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), self.inputs, device=device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch)
        return answer.square().mean()


def sweep_text(axes: Mapping[str, Any], *, measure: str = SHORT, more: str = "") -> str:
    """Text of a sweep file that trains `Linear` on CPUs.

    Args:
        axes: names and values, whose `repr` is their Python.
        measure: Python of its `measure`.
        more: further arguments of `Sweep`, as Python.
    """
    return f"""{CLASS}
sweep = Sweep(
    workload=Linear(),
    axes={dict(axes)!r},
    measure={measure},
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
    {more}
)
"""

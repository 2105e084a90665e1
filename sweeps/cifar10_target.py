"""Which batch and learning-rate rule reach a held-out error first, on 1 and 2 workers?

Run: python -m dtsweep sweeps/cifar10_target.py

A small CNN on 5,000 made images in the layout of CIFAR-10 trains until it gets 25 % of 1,000
held-out images wrong, from at least three seeds. For the real ones give `data` the folder with
`data_batch_*.bin` and `test_batch.bin`, and a target of your own.
"""

import math
from dataclasses import dataclass

import made_images

from dtsweep import Goal, Measure, Point, Sweep
from dtsweep.workloads import Cifar10Cnn

RULES = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Power of the batch with which the learning rate grows from that of batch 32."""


@dataclass(frozen=True)
class Cifar10WithRule(Cifar10Cnn):
    """The network, with the rule for its learning rate."""

    data: str = made_images.folder()
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

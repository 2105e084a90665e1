"""Least squares by several workers with their own rows: steps to the optimum by compression."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dtsweep.compression.exchange import mean_for, unmarked
from dtsweep.sweep.point import Point
from tests.contract.simulated import Simulated, on_ranks

WORKERS, ROWS, SHAPE = 4, 256, (30, 20)
NEAR = 0.01
"""Distance to the optimum, as a share of that at the start, that is called there."""
MOST = 2000

SETTINGS: dict[str, dict[str, Any]] = {
    "topk": {"compression_ratio": 0.05},
    "randomk": {"compression_ratio": 0.2},
    "powersgd": {"compression_rank": 2},
}


def problem(worker: int) -> tuple[Tensor, Tensor]:
    """The rows of one worker, and their products with a matrix of `SHAPE`, with noise.

    Each worker's differ.
    """
    random = torch.Generator().manual_seed(worker)
    given = torch.randn(ROWS, SHAPE[0], generator=random) * torch.linspace(0.5, 1.5, SHAPE[0])
    truth = torch.randn(SHAPE, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(ROWS, SHAPE[1], generator=random)
    return given, given @ truth + 0.3 * noise + 0.1 * worker


def optimum() -> Tensor:
    """The matrix that is best for the rows of all."""
    problems = [problem(worker) for worker in range(WORKERS)]
    best: Tensor = torch.linalg.lstsq(
        torch.cat([x for x, _ in problems]), torch.cat([y for _, y in problems])
    ).solution
    return best


def steps_to_optimum(compression: str | None) -> int:
    """Steps of gradient descent until all workers' weights stay near the optimum for 20 steps."""
    best = optimum()

    def train(worker: Simulated) -> list[float]:
        given, wanted = problem(worker.rank)
        weights = torch.zeros(SHAPE)
        point = Point(
            workers=WORKERS, compression=compression, **SETTINGS.get(str(compression), {})
        )
        mean = (
            mean_for(point, weights.view(-1), worker, shapes=[weights.shape])
            if compression
            else None
        )
        distances = list[float]()
        for _ in range(MOST):
            gradient = (given.T @ (given @ weights - wanted) / ROWS).view(-1)
            if mean is None:
                gradient = worker.all_reduce(gradient)() / worker.ranks
            else:
                mean.begin(gradient, unmarked)
                mean.finish(gradient, unmarked)
            # Smaller with time: what a compression adds to each step's mean would else never
            # settle.
            weights -= 0.1 / (1 + len(distances) / 200) * gradient.view(SHAPE)
            distances.append(float((weights - best).norm() / best.norm()))
            if len(distances) >= 20 and max(distances[-20:]) < NEAR:
                break
        return distances

    by_rank = on_ranks(WORKERS, train)
    assert by_rank.count(by_rank[0]) == WORKERS, "workers went different ways"
    return len(by_rank[0]) - 19 if max(by_rank[0][-20:]) < NEAR else MOST


if __name__ == "__main__":
    from dtsweep.sweep.compressions import COMPRESSIONS

    for name in (None, *COMPRESSIONS):
        print(name, steps_to_optimum(name))

"""How fast is the frontier of a million points found, beside the libraries that find it?

Points lie at random in a cube (few are on the frontier), or near a sphere around the origin (many
are). All libraries get the same array in turns, and have to mark the same rows as ours; each one's
time is the best of its turns. One that takes longer than `--limit` is not asked for more points;
one that is not installed is named (`pip install paretoset pymoo`). `ours` is
`dtsweep.analysis.on_frontier`.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.log_entry import heading, table
from dtsweep.analysis import on_frontier

Costs = NDArray[np.float64]
Marks = NDArray[np.bool_]


def by_moocore(costs: Costs) -> Marks:
    """Mark the frontier by moocore, which ours calls."""
    import moocore

    return np.asarray(moocore.is_nondominated(costs, keep_weakly=True), dtype=np.bool_)


def by_paretoset(costs: Costs) -> Marks:
    """Mark the frontier by paretoset."""
    from paretoset import paretoset  # type: ignore[import-not-found]

    return np.asarray(paretoset(costs, distinct=False), dtype=np.bool_)


def by_pymoo(costs: Costs) -> Marks:
    """Mark the frontier by pymoo."""
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting  # type: ignore[import-not-found]

    marks = np.zeros(len(costs), dtype=np.bool_)
    marks[NonDominatedSorting().do(costs, only_non_dominated_front=True)] = True
    return marks


LIBRARIES: dict[str, Callable[[Costs], Marks]] = {
    "ours": on_frontier,
    "moocore": by_moocore,
    "paretoset": by_paretoset,
    "pymoo": by_pymoo,
}


def points(count: int, objectives: int, shape: str) -> Costs:
    """Draw points, in a cube or near a sphere."""
    rng = np.random.default_rng(0)
    if shape == "cube":
        return rng.random((count, objectives))
    directions = np.abs(rng.normal(size=(count, objectives)))
    away = 2 - directions / np.linalg.norm(directions, axis=1)[:, None]
    return np.asarray(away + rng.exponential(0.05, count)[:, None], dtype=np.float64)


def timed(find: Callable[[Costs], Marks], costs: Costs) -> tuple[float, Marks]:
    """Seconds, and the rows that were marked."""
    began = time.perf_counter()
    marks = find(costs)
    return time.perf_counter() - began, marks


def rows(args: argparse.Namespace, shape: str, objectives: int) -> list[list[str]]:
    """Time all libraries on sets that grow."""
    found, slow = (
        [],
        {name for name in LIBRARIES if name != "ours" and importlib.util.find_spec(name) is None},
    )
    for count in args.points:
        costs = points(count, objectives, shape)
        _, expected = timed(on_frontier, costs)
        best: dict[str, float] = {}
        for _ in range(args.turns):
            for name, find in LIBRARIES.items():
                if name in slow:
                    continue
                seconds, marks = timed(find, costs)
                assert (marks == expected).all(), f"{name} marks other rows"
                best[name] = min(seconds, best.get(name, seconds))
                if seconds > args.limit:
                    slow.add(name)
        cells = [
            f"{best[name]:.3g} s ({best[name] / best['ours']:.3g})" if name in best else "–"
            for name in LIBRARIES
        ]
        found.append([shape, str(objectives), f"{count:,}", f"{expected.sum():,}", *cells])
    return found


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--objectives", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--limit",
        type=float,
        default=10.0,
        help="seconds after which a library gets no more points",
    )
    args = parser.parse_args()
    cells = [
        row
        for objectives in args.objectives
        for shape in ("cube", "sphere")
        for row in rows(args, shape, objectives)
    ]
    print(heading("how fast is the frontier of a million points found?"))
    print()
    print(
        "Seconds, in brackets times ours; – is not asked "
        "(not installed, or over the limit with fewer points)."
    )
    print()
    print(table(["points lie in", "objectives", "points", "on the frontier", *LIBRARIES], cells))


if __name__ == "__main__":
    main()

"""How many samples do modes that are not exact need to the loss that `ddp` ends with?

Each variant is a mode with its defaults, or with another choice of one of its fields, or a
compression in `ddp`; all are taken from the mappings, and `MORE` has further settings. It trains on
4 gloo processes. Every 128 samples the mean of the workers' parameters has a held-out loss.

The learning rate is that with the lowest loss after the samples of `ddp`, with a seed that is not
used again: of the problem's rates, and of further ones while the best is at an end of them. The
rate of `ddp` is kept if the best one has a loss less than 1 % lower: one seed can't tell them
apart. Then a variant trains with five seeds, each with the weights and samples of `ddp` with this
seed, until it has reached the loss that `ddp` had at the end, or for 3 times the samples. Two rows
check the method, with the rate of `ddp`: `ddp` with other seeds, and `ring`, which is exact.

With `--write` each row is stored as soon as it is known. What is stored with the same settings of
the problem is not measured again.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from benchmarks.efficiency_problems import LIMIT, MICRO_BATCH, PROBLEMS, SAMPLES, STEPS, WORKERS
from benchmarks.efficiency_training import Curve, Run, curves_of, point_of
from benchmarks.log_entry import ROOT, heading, table
from benchmarks.samples_to_target import loss_at, samples_to
from dtsweep.analysis.statistical_efficiency import (
    TABLE,
    Measured,
    Row,
    Table,
    settings_of,
    stored,
    text_of,
)
from dtsweep.driver.connect import connected
from dtsweep.hardware.fingerprint import cpu
from dtsweep.report.efficiency_words import difference_cell, ratio_cell
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import AXES

SEEDS, OTHER_SEEDS, TUNING_SEED = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9), 10

AS_GOOD = 1.01
"""Losses of two learning rates that count as equal, as a ratio: seeds differ by more."""

BEYOND = 1.5
"""Samples of runs of `ddp`, in those to its loss: its curve has to go on behind that."""

MORE: Sequence[Mapping[str, Any]] = (
    {"sync": "local_sgd", "sync_period": 32},
    {"sync": "local_sgd", "synchronous_steps": 64},
    {"sync": "diloco", "sync_period": 8},
    {"sync": "diloco", "sync_period": 8, "outer_learning_rate": 1.0, "outer_momentum": 0.0},
    {"sync": "gossip", "sync_period": 8},
    {"sync": "federated", "participation": 0.25},
    {"sync": "federated", "sync_period": 32},
    {"sync": "parameter_server", "staleness": 2},
    {"sync": "parameter_server", "staleness": 0, "drop_slowest": 1},
    {"sync": "parameter_server", "push_period": 4, "pull_period": 4},
    {"sync": "ddp", "compression": "topk", "compression_ratio": 0.1},
    {"sync": "ddp", "compression": "randomk", "compression_ratio": 0.1},
)
"""Further settings, which are not a choice of several names."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Settings to measure."""

    fields: Mapping[str, Any]
    """Of its points."""

    check: str = ""
    """Check of the method that it is; empty for a variant."""

    seeds: Sequence[int] = SEEDS

    @property
    def name(self) -> str:
        """Mode, compression and settings: "ddp topk compression_ratio=0.1"."""
        settings = dict(self.fields)
        words = [settings.pop("sync"), settings.pop("compression", ""), self.check]
        words += [f"{name}={value}" for name, value in settings.items()]
        return " ".join(filter(None, words))

    @property
    def is_default(self) -> bool:
        """True if its mode and compression have their defaults."""
        return self.fields.keys() <= {"sync", "compression"}


CHECKS = (
    Variant(fields={"sync": "ddp"}, check="other seeds", seeds=OTHER_SEEDS),
    Variant(fields={"sync": "ring"}, check="exact mode"),
)


def variants() -> list[Variant]:
    """The checks, then every mode and compression that changes the update."""
    settings = [{"sync": "ddp", "compression": name} for name in COMPRESSIONS]
    for name in MODES:
        settings += [{"sync": name}, *({"sync": name, **choice} for choice in _choices(name))]
    changing = [one for one in [*settings, *MORE] if _changes_update(one)]
    return [*CHECKS, *(Variant(fields=fields) for fields in changing)]


def _choices(mode: str) -> Iterator[dict[str, Any]]:
    """Other values of the fields of a mode that are one of several names."""
    for name, default in MODES[mode].reads.items():
        for value in AXES[name].choices:
            if value != default:
                yield {name: value}


def _changes_update(fields: Mapping[str, Any]) -> bool:
    """True if a point can be measured on CPUs, and its update is not that of `ddp`."""
    points = [point_of(problem, fields) for problem in PROBLEMS]
    possible = [impossible(point, Harness(has_gpus=False)) is None for point in points]
    return any(possible) and points[0].semantics != "exact"


PLACE = ROOT / "dtsweep" / "analysis" / TABLE
"""Where the table is kept."""


def main() -> None:
    """Measure what is missing, and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--write", action="store_true", help=f"store each row in {PLACE.name}")
    parser.add_argument("--again", action="store_true", help="also measure what is stored")
    parser.add_argument(
        "--problem", choices=[*PROBLEMS], action="append", help="to measure (default: all)"
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="variants with one of these texts in their names"
    )
    parser.add_argument(
        "--defaults", action="store_true", help="modes and compressions with their defaults alone"
    )
    options = parser.parse_args()
    kept = Table() if options.again else stored()
    failed = []
    for problem in options.problem or PROBLEMS:
        kept = with_reference(problem, kept)
        for variant in missing(problem, kept):
            is_wanted = any(text in variant.name for text in options.only)
            if not is_wanted or (options.defaults and not variant.is_default):
                continue
            row = measured(problem, variant, kept)
            if row is None:
                failed.append(f"{problem} {variant.name}")
                continue
            kept = replace(kept, rows=[*kept.rows, row])
            if options.write:
                PLACE.write_text(text_of(kept), "utf-8")
    print(heading("How many samples do modes that are not exact need?"), end="\n\n")
    print(tables(kept))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def with_reference(problem: str, kept: Table) -> Table:
    """Measure `ddp` on a problem, unless it is stored with the same settings.

    Rows of other settings are left out.
    """
    settings = {
        "workers": WORKERS,
        "micro_batch": MICRO_BATCH,
        "steps": STEPS,
        "limit": LIMIT,
        "optimizer": PROBLEMS[problem].optimizer,
        "clip_norm": PROBLEMS[problem].clip_norm,
        "learning_rates": list(PROBLEMS[problem].learning_rates),
        # "pydoc" differs between versions.
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    stored_one = kept.problems.get(problem)
    if stored_one is not None and stored_one.settings == settings:
        return kept
    rate = best_rate(problem, {"sync": "ddp"})
    runs = [Run(seed=seed, learning_rate=rate, samples=int(BEYOND * SAMPLES)) for seed in SEEDS]
    curves = curves_of(problem, {"sync": "ddp"}, runs)
    reference = Measured(
        settings=settings,
        learning_rate=rate,
        targets=[loss_at(SAMPLES, curve.samples, curve.losses) for curve in curves],
    )
    others = [row for row in kept.rows if row.problem != problem]
    return Table(problems={**kept.problems, problem: reference}, rows=others)


def best_rate(problem: str, fields: Mapping[str, Any], *, usual: float | None = None) -> float:
    """Learning rate with the lowest loss after the samples of `ddp`, between two worse ones.

    Args:
        problem: one of `PROBLEMS`.
        fields: of the point.
        usual: a rate that is taken if it is `AS_GOOD`.
    """
    samples = SAMPLES
    if point_of(problem, fields).drop_slowest:
        # The last updates, after some workers have ended, are made of fewer gradients.
        samples = int(BEYOND * SAMPLES)
    losses: dict[float, float] = {}
    rates = list(PROBLEMS[problem].learning_rates)
    while rates:
        runs = [Run(seed=TUNING_SEED, learning_rate=rate, samples=samples) for rate in rates]
        for rate, curve in zip(rates, curves_of(problem, fields, runs), strict=True):
            losses[rate] = loss_at(SAMPLES, curve.samples, curve.losses)
        best = min(losses, key=losses.__getitem__)
        rates = [rate for rate in (best / 2, best * 2) if rate not in losses]
    if usual in losses and losses[usual] <= AS_GOOD * losses[best]:
        return usual
    return best


def missing(problem: str, kept: Table) -> Iterator[Variant]:
    """Yield the variants that can be measured on a problem and have no row yet."""
    known = [(row.sync, row.compression, row.settings, row.check) for row in kept.of(problem)]
    for variant in variants():
        point = point_of(problem, variant.fields)
        key = (point.sync, point.compression, settings_of(point.columns()), variant.check)
        if key not in known and impossible(point, Harness(has_gpus=False)) is None:
            yield variant


def measured(problem: str, variant: Variant, kept: Table) -> Row | None:
    """Measure a variant, and say how long it took; None if its training fails."""
    began = time.monotonic()
    needs_ray = point_of(problem, variant.fields).mode.needs_ray
    try:
        with connected("local", folder=None) if needs_ray else nullcontext():
            row = row_of(problem, variant, kept.problems[problem])
    except Exception:  # noqa: BLE001  # the others can still be measured
        traceback.print_exc()
        return None
    seconds = time.monotonic() - began
    print(
        f"{problem} {variant.name}: {ratio_cell(row.ratio)}, {seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return row


def row_of(problem: str, variant: Variant, reference: Measured) -> Row:
    """Train a variant with the best learning rate; the checks with that of `ddp`."""
    rate = reference.learning_rate
    if not variant.check:
        rate = best_rate(problem, variant.fields, usual=rate)
    runs = [
        Run(seed=seed, learning_rate=rate, samples=LIMIT * SAMPLES, target=target)
        for seed, target in zip(variant.seeds, reference.targets, strict=True)
    ]
    curves = curves_of(problem, variant.fields, runs)
    point = point_of(problem, variant.fields)
    return Row(
        problem=problem,
        sync=point.sync,
        compression=point.compression,
        settings=settings_of(point.columns()),
        check=variant.check,
        learning_rate=rate,
        limit=LIMIT,
        ratios=[_ratio(*one) for one in zip(curves, reference.targets, strict=True)],
        loss_differences=[_difference(*one) for one in zip(curves, reference.targets, strict=True)],
        staleness=_mean_staleness(curves),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=f"{cpu()['cpu']}, {os.cpu_count()} cores",
    )


def _ratio(curve: Curve, target: float) -> float | None:
    count = samples_to(target, curve.samples, curve.losses)
    return None if count is None else count / SAMPLES


def _difference(curve: Curve, target: float) -> float | None:
    loss = loss_at(SAMPLES, curve.samples, curve.losses)
    return loss - target if math.isfinite(loss) else None


def _mean_staleness(curves: Sequence[Curve]) -> float | None:
    late = [curve.staleness for curve in curves if curve.staleness is not None]
    return sum(late) / len(late) if late else None


def tables(kept: Table) -> str:
    """Each problem with its rows."""
    texts = []
    headers = ("variant", "learning rate", "samples", "loss difference", "staleness")
    for problem, reference in kept.problems.items():
        texts.append(f"{problem}: {reference.settings}, `ddp` with {reference.learning_rate}")
        texts.append(table(headers, [_cells(row) for row in kept.of(problem)]))
    return "\n\n".join(texts)


def _cells(row: Row) -> list[str]:
    late = "" if row.staleness is None else f"{row.staleness:.1f}"
    name = f"{row.name} ({row.check})" if row.check else row.name
    difference = difference_cell(row)
    return [name, f"{row.learning_rate:g}", ratio_cell(row.ratio), difference, late]


if __name__ == "__main__":
    main()

"""Predict the peak memory of trials from a few others, on 2 and 4 ranks.

The model is 8 blocks as in `benchmarks.sharding`, of 64 MiB of parameters in fp32, trained by
AdamW. Trials of each world run one after another in the same processes, as in a session. Some of
them are measured for the model of memory, the others are predicted:

- *random*: 8 or 16 of them, in 20 draws (seeds 0 to 19);
- *outwards*: those on 2 ranks with at most 16 samples; those with 4 ranks or more samples are
  predicted.

A capacity is one of the deciles of all peaks. A prediction says "fits" where that has a probability
of at least 95 %, and "will not fit" where it has one below 5 %, as a plan does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import distributed, nn

from benchmarks.log_entry import heading, table, torchrun
from benchmarks.sharding import NODE, THRESHOLD, Blocks, peak_of
from dtsweep import Measure, Point, Sweep
from dtsweep.analysis.memory import memory_model_of
from dtsweep.analysis.settings import settings_of_points
from dtsweep.worker.rank import become_rank, take_device


@dataclass(frozen=True)
class DeepBlocks(Blocks):
    """Blocks with many activations for their parameters, so that large batches take little time."""

    width: int = 512
    hidden: int = 2048
    repeated: int = 16
    """Activations in a row."""

    def _block(self) -> nn.Module:
        tanh = (nn.Tanh() for _ in range(self.repeated))
        return nn.Sequential(
            nn.Linear(self.width, self.hidden), *tanh, nn.Linear(self.hidden, self.width)
        )


MODEL = DeepBlocks()

MICRO_BATCHES = (1, 16, 64, 128)
"""Samples of a pass; the largest have 145 MiB of activations."""

VARIANTS: Sequence[Mapping[str, Any]] = (
    *({"sync": mode} for mode in ("ddp", "zero1", "fsdp_grad", "fsdp", "ring")),
    {"sync": "hsdp", "node_size": NODE},
    {"sync": "ddp", "checkpointing": "blocks"},
    {"sync": "ddp", "optimizer": "sgd"},
    {"sync": "fsdp", "precision": "bf16", "shard_precision": "bf16"},
)
"""Axes of each variant."""

DRAWS = 20
"""Random choices of measured trials."""


class Score(NamedTuple):
    """Errors of the predictions of one fit."""

    errors: list[float]
    """Of the expected peak, as shares of the measured one."""

    covered: list[bool]
    """Whether the measured peak lies in the 90 % interval."""

    fits: list[bool]
    """Whether what was said to fit did."""

    too_much: list[bool]
    """Whether what was said not to fit did not."""

    asked: int
    """Predictions for all capacities."""


def be_a_rank() -> None:
    """Measure all trials of a world; rank 0 prints their rows as JSON, with the largest peaks."""
    sweep = Sweep(workload=MODEL, axes={}, measure=Measure(repeats=1))
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    context = become_rank(
        distributed.get_rank(), device, workload=MODEL, own_variables=["OMP_NUM_THREADS"]
    )
    workers = distributed.get_world_size()
    rows = []
    for axes in (
        {**variant, "micro_batch": size} for variant in VARIANTS for size in MICRO_BATCHES
    ):
        if workers < axes.get("node_size", 0) * 2:
            continue
        everyone: list[Any] = [None] * workers
        distributed.all_gather_object(everyone, peak_of(context, axes, MODEL))
        rows.append({"workers": workers, **axes, "memory_peak_bytes": max(everyone)})
        if context.rank == 0:
            print(rows[-1], file=sys.stderr, flush=True)
    if context.rank == 0:
        print(json.dumps(rows), flush=True)
    distributed.destroy_process_group()


def measured_rows(worlds: Sequence[int]) -> list[dict[str, Any]]:
    """Measure the trials of all worlds."""
    os.environ[THRESHOLD] = "65536"
    return [
        row
        for workers in worlds
        for row in json.loads(torchrun("benchmarks.memory", "--rank", workers=workers))
    ]


def point_of(row: Mapping[str, Any]) -> Point:
    """The point of a row."""
    axes = {name: value for name, value in row.items() if name != "memory_peak_bytes"}
    return Point(workload=MODEL, **{"optimizer": "adamw", **axes})


def score_of(rows: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> Score:
    """Fit to the chosen rows, predict the others."""
    parameters = MODEL.depth * MODEL.block_bytes // 4
    settings = settings_of_points(point_of(rows[index]) for index in chosen)
    known = [
        {
            **one,
            **{"status": "ok", "parameters": parameters, "blocks": f"{MODEL.depth} Sequential"},
            "memory_peak_bytes": rows[index]["memory_peak_bytes"],
        }
        for one, index in zip(settings, chosen, strict=True)
    ]
    model = memory_model_of(known)
    assert model is not None, "no peak was measured"
    others = [row for index, row in enumerate(rows) if index not in set(chosen)]
    points = [point_of(row) for row in others]
    truth = np.array([row["memory_peak_bytes"] for row in others], dtype=float)
    need = model.predict(points)
    peaks = [row["memory_peak_bytes"] for row in rows]
    fits: list[bool] = []
    too_much: list[bool] = []
    for capacity in np.quantile(peaks, np.arange(1, 10) / 10):
        probability = model.probability_to_fit(points, float(capacity))
        fits += list(truth[probability >= 0.95] <= capacity)
        too_much += list(truth[probability < 0.05] > capacity)
    return Score(
        errors=list(np.abs(need.expected / truth - 1)),
        covered=list((need.low <= truth) & (truth <= need.high)),
        fits=fits,
        too_much=too_much,
        asked=9 * len(truth),
    )


def cells_of(name: str, scores: Sequence[Score]) -> list[str]:
    """A row of the table."""
    errors = np.concatenate([score.errors for score in scores])
    covered = np.array([right for score in scores for right in score.covered], dtype=bool)
    fits = np.array([right for score in scores for right in score.fits], dtype=bool)
    too_much = np.array([right for score in scores for right in score.too_much], dtype=bool)
    asked = sum(score.asked for score in scores)
    return [
        name,
        f"{errors.mean():.1%}",
        f"{np.quantile(errors, 0.9):.1%}",
        f"{covered.mean():.0%}",
        f"{(~fits).sum()} of {len(fits)} ({(~fits).mean():.1%})",
        f"{(~too_much).sum()} of {len(too_much)} ({(~too_much).mean():.1%})",
        f"{1 - (len(fits) + len(too_much)) / asked:.0%}",
    ]


def main() -> None:
    """Measure, predict, and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="(default 2 4)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="read or write the peaks here")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        be_a_rank()
        return
    if options.keep and options.keep.exists():
        rows = json.loads(options.keep.read_text())
    else:
        rows = measured_rows(options.workers)
    if options.keep:
        options.keep.write_text(json.dumps(rows))
    table_rows = []
    for count in (8, 16):
        draws = [
            np.random.default_rng(seed).choice(len(rows), count, replace=False).tolist()
            for seed in range(DRAWS)
        ]
        table_rows.append(cells_of(f"{count} random", [score_of(rows, draw) for draw in draws]))
    inside = [
        index
        for index, row in enumerate(rows)
        if row["workers"] == min(options.workers) and row["micro_batch"] <= 16
    ]
    table_rows.append(cells_of(f"{len(inside)} outwards", [score_of(rows, inside)]))
    headers = [
        *("measured", "mean error", "90 % below", "in the 90 % interval"),
        *("wrong fits", "wrong will not fit", "undecided"),
    ]
    print(heading("Is the peak memory of trials known from that of a few?"), end="\n\n")
    print(table(headers, table_rows), end="\n\n")
    peaks = [row["memory_peak_bytes"] / 2**20 for row in rows]
    print(f"{len(rows)} trials, with peaks of {min(peaks):.0f} to {max(peaks):.0f} MiB.")


if __name__ == "__main__":
    main()

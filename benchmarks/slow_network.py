"""When does compression pay? Step times of every compression behind networks of several bandwidths.

A launch of two ranks under torchrun runs in a network namespace of its own, whose loopback `tc` limits (`tbf`, a token
bucket) to one rate after another. A trial runs as any does (`dtsweep.worker.attempt`); before the first of a rate a
plain socket shows what the limit lets through. Every launch after the first leaves out the slowest rate, at which steps
take seconds and differ little, and goes through the variants the other way round. What doesn't depend on the rate,
bytes and `compression_error`, is measured at the first one.

The loopback carries what both ranks send. So the exchange of a step takes at least

    both ranks' `bytes_sent_per_step` × 8 ÷ rate

and a rate stands for a link of half of it, each way, between two machines. By arithmetic a step takes its work, the
compression's own time and that: a compression wins over plain `ddp` below

    (bits that both ranks send with `ddp` − bits that they send with it) ÷ `compress_s`

and at any bandwidth where it has no time of its own. The same bandwidth is measured where the step times cross: between
two rates a step time is taken for linear in 1 ÷ rate; each launch has a crossing of its own, because what else runs on
the machine meets its variants alike. The interval of a step time is the hull of the launches' own 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import distributed

from benchmarks.curves import curves
from benchmarks.log_entry import heading, table, torchrun
from dtsweep import Measure, Sweep, workloads
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.task import task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import RankContext, become_rank, take_device

WORKERS = 2

MODELS: Mapping[str, Any] = {
    "1.7M": workloads.Gpt(layers=2, width=256, sequence=64, data="pydoc"),
    "6.6M": workloads.Gpt(layers=2, width=512, sequence=64, data="pydoc"),
}
"""By the number of parameters."""

PLAIN = "ddp"

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    **{name: {"compression": name} for name in ("fp16", "bf16")},
    **{
        f"{name}{' zstd' if coding else ''}": {"compression": name, "compression_coding": coding}
        for name in ("int8", "int4", "sign", "topk")
        for coding in (None, "zstd")
    },
    **{name: {"compression": name} for name in ("randomk", "powersgd")},
    "local_sgd": {"sync": "local_sgd"},
    "local_sgd int8": {"sync": "local_sgd", "compression": "int8"},
}
"""Fields of a point; those of a compression are its own defaults."""

DRAWN = [name for name in VARIANTS if name != "bf16" and not name.endswith("zstd")]
"""What the picture has: the others lie on lines that are there."""

MEASURE = Measure(half_width=None, warmup_steps=2, min_steps=4, min_seconds=1.5, max_seconds=60)

KEPT = (
    *("step_mean_s", "step_mean_s_low", "step_mean_s_high", "comm_share", "overlap_share"),
    *("compress_s", "bytes_sent_per_step", "compression_error", "parameters"),
)
"""Columns of a row."""

BURST_S, LEAST_BURST_BYTES = 0.0005, 72 * 1024
"""What passes at once: so long at the rate, but at least a packet of the loopback, whose MTU is 64 KiB."""

CHECK_S = 0.5
"""How long the transfer takes that checks a limit."""


def words_before() -> list[str]:
    """The words before a command that give it a loopback of its own, and the right to limit it.

    Raises:
        SystemExit: there are no rights, or no `tc`.
    """
    said = "no `tc` (package iproute2)"
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]) if shutil.which("tc") else ():
        try:
            _limit(1000, words)
            return [*words, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        except (OSError, subprocess.CalledProcessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
    print(f"slow_network: can't limit the loopback of a network namespace: {said}", file=sys.stderr)
    raise SystemExit(2)


def _limit(mbits: int, words: Sequence[str] = ()) -> None:
    """Limit the loopback of this namespace, or of the one that these words make."""
    burst = max(LEAST_BURST_BYTES, int(mbits * 1e6 / 8 * BURST_S))
    limit = ["rate", f"{mbits}mbit", "burst", str(burst), "latency", "100ms"]
    command = [*words, "tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *limit]
    subprocess.run(command, check=True, capture_output=True, text=True)


def passing_mbits(mbits: int) -> float:
    """What a plain socket gets through the loopback, in Mbit/s."""
    sent_bytes = int(mbits * 1e6 / 8 * CHECK_S)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            with socket.create_connection(server.getsockname()) as sender:
                sender.sendall(bytes(sent_bytes))

        thread = threading.Thread(target=send)
        thread.start()
        receiver, _ = server.accept()
        room, came, began = bytearray(2**20), 0, time.perf_counter()
        with receiver:
            while count := receiver.recv_into(room):
                came += count
        spent_s = time.perf_counter() - began
        thread.join()
    return came * 8 / spent_s / 1e6


def be_a_rank(model: str, rates: Sequence[int], variants: Sequence[str]) -> None:
    """Measure variants at one rate after another; rank 0 prints a row as JSON of each."""
    sweep = Sweep(workload=MODELS[model], axes={})
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    context = become_rank(rank, device, workload=sweep.workload, own_variables=["OMP_NUM_THREADS"])
    for mbits in rates:
        passing = 0.0
        if rank == 0:
            _limit(mbits)
            passing = passing_mbits(mbits)
        distributed.barrier()
        if mbits != rates[-1]:
            # Timed by itself, the exchange is kept there; at the slowest rate that would take minutes and tell nothing.
            context = replace(context, exchanges={})
        for name in variants:
            row = measured(context, model, name, role="trial" if mbits == rates[0] else "canary")
            if rank == 0:
                said = {"model": model, "mbits": mbits, "passing_mbits": passing, "variant": name, **row}
                print(json.dumps(said), flush=True)
                print(f"{model} {mbits} Mbit/s {name}: {row['step_mean_s'] * 1e3:.0f} ms", file=sys.stderr)
    distributed.destroy_process_group()


def measured(context: RankContext, model: str, name: str, *, role: str) -> dict[str, Any]:
    """The columns of a variant's trial, on rank 0."""
    axes = {"workers": WORKERS, "micro_batch": 8, **VARIANTS[name]}
    sweep = Sweep(workload=MODELS[model], axes={key: [value] for key, value in axes.items()}, measure=MEASURE)
    (candidate,) = candidates(sweep)
    assert candidate.reason is None, candidate.reason
    # The attempt's name is drawn: all ranks take rank 0's.
    tasks = [task_of(sweep, candidate.point, role=role)]
    distributed.broadcast_object_list(tasks, src=0)
    result = run_attempt(context, tasks[0])
    assert result.measured is not None, f"{name} failed on this rank; its traceback is above"
    everyone: list[Any] = [None] * WORKERS
    distributed.all_gather_object(everyone, (context.facts, result))
    facts = {rank: own for rank, (own, _) in enumerate(everyone)}
    results = with_warmup_marked(candidate.point, {rank: own for rank, (_, own) in enumerate(everyone)})
    row = trial_row(sweep, candidate.point, tasks[0], facts, results, harness="torchrun")
    return {column: row.get(column) for column in KEPT}


def launched(words: Sequence[str], model: str, rates: Sequence[int], variants: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of one launch."""
    own = ["--model", model, "--rates", *map(str, rates), "--variants", *variants]
    said = torchrun("benchmarks.slow_network", *own, workers=WORKERS, before=words)
    return [json.loads(line) for line in said.splitlines()]


def all_rows(words: Sequence[str], options: argparse.Namespace) -> pd.DataFrame:
    """Rows of all launches."""
    rows, rates, variants = [], options.rates, options.variants
    for launch in range(options.launches):
        for model in options.models:
            here = rates if launch == 0 else rates[:-1]
            order = variants if launch % 2 == 0 else variants[::-1]
            rows += [{"launch": launch, **row} for row in launched(words, model, here, order)] if here else []
    return pd.DataFrame(rows)


def cells_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over launches by model, variant and rate; of the step also `low` and `high`, in seconds."""
    for end in ("low", "high"):
        rows[end] = rows[f"step_mean_s_{end}"].astype(float).fillna(rows["step_mean_s"])
    keys = ["model", "variant", "mbits"]
    grouped = rows[[*keys, *KEPT, "passing_mbits", "low", "high"]].astype(dict.fromkeys(KEPT, float)).groupby(keys)
    cells = grouped.mean()
    cells["low"], cells["high"] = grouped["low"].min(), grouped["high"].max()
    for column in ("bytes_sent_per_step", "compression_error"):
        cells[column] = cells[column].groupby(["model", "variant"]).transform("mean")
    return cells


def crossing(rates: Sequence[float], plain: Sequence[float], other: Sequence[float]) -> float:
    """The bandwidth below which another step time is shorter than the plain one.

    Args:
        rates: the fastest first.
        plain: step times at each.
        other: of what may win.

    Returns:
        In the unit of `rates`; infinite where it is shorter at all of them, 0 where it isn't at the slowest.

    >>> crossing([100, 10], [1.0, 10.0], [2.0, 2.0])
    50.0
    """
    slowness, gain = 1 / np.array(rates), np.array(plain) - np.array(other)
    if gain[-1] <= 0:
        return 0.0
    if (gain > 0).all():
        return math.inf
    last = int(np.flatnonzero(gain <= 0)[-1])
    share = -gain[last] / (gain[last + 1] - gain[last])
    return float(1 / (slowness[last] + share * (slowness[last + 1] - slowness[last])))


def crossings(rows: pd.DataFrame, model: str, name: str) -> list[float]:
    """Where a variant begins to win over the plain one, in Mbit/s: by the launches' mean step times, and by each's."""
    own = rows[rows["model"] == model]
    steps = own.pivot_table(index="mbits", columns=["variant", "launch"], values="step_mean_s").sort_index(
        ascending=False
    )
    plain, other = steps[PLAIN], steps[name]
    pairs = [(plain.mean(axis=1), other.mean(axis=1))]
    # The slowest rate was there in the first launch alone.
    pairs += [(plain[each].fillna(pairs[0][0]), other[each].fillna(pairs[0][1])) for each in plain]
    return [crossing(list(steps.index), mine.tolist(), its.tolist()) for mine, its in pairs]


def crossing_by_arithmetic(cells: pd.DataFrame, model: str, name: str) -> float:
    """The same by the bytes saved and the compression's own time."""
    plain, other = cells.loc[(model, PLAIN)], cells.loc[(model, name)]
    saved = plain["bytes_sent_per_step"].iloc[0] - other["bytes_sent_per_step"].iloc[0]
    own_s = other["compress_s"].fillna(0).mean()
    if saved <= 0:
        return 0.0
    return float(saved * 8 * WORKERS / own_s / 1e6) if own_s else math.inf


def as_rate(mbits: float) -> str:
    """A bandwidth in words.

    >>> as_rate(10_000), as_rate(430.4), as_rate(0), as_rate(math.inf)
    ('10 Gbit/s', '430 Mbit/s', 'never', 'at all')
    """
    if mbits in (0, math.inf):
        return "at all" if mbits else "never"
    return f"{mbits / 1000:.3g} Gbit/s" if mbits >= 1000 else f"{mbits:.3g} Mbit/s"


def table_of_steps(cells: pd.DataFrame, model: str, rates: Sequence[int], variants: Sequence[str]) -> str:
    """Step time, exchange and the compression's own time at each rate."""
    rows = []
    for name in variants:
        own = cells.loc[(model, name)]
        error = own["compression_error"].iloc[0]
        line = [
            f"`{name}`",
            f"{own['bytes_sent_per_step'].iloc[0] / 1e6:.3g}",
            "" if math.isnan(error) else f"{error:.3g}",
        ]
        for mbits in rates:
            cell = own.loc[mbits]
            step, low, high = (cell[column] * 1e3 for column in ("step_mean_s", "low", "high"))
            line += [f"{step:.0f} ({low:.0f}–{high:.0f})", _share(own, mbits), _milliseconds(cell["compress_s"])]
        rows.append(line)
    of_rate = [
        f"{what} at {as_rate(mbits)}" for mbits in rates for what in ("step, ms,", "exchange, %,", "compress, ms,")
    ]
    return table(["variant", "MB sent per step", "error", *of_rate], rows)


def _share(own: pd.DataFrame, mbits: int) -> str:
    """The exchange's share of a step; where no steps without it were taken, by those at the fastest rate."""
    cell, fastest = own.loc[mbits], own.loc[own.index.max()]
    if not math.isnan(cell["comm_share"]):
        return f"{cell['comm_share'] * 100:.0f}"
    work_s = fastest["step_mean_s"] * (1 - fastest["comm_share"])
    return f"≈ {(1 - work_s / cell['step_mean_s']) * 100:.0f}"


def _milliseconds(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds * 1e3:.1f}"


def table_of_crossings(rows: pd.DataFrame, cells: pd.DataFrame, models: Sequence[str], variants: Sequence[str]) -> str:
    """Below which bandwidth each variant wins."""
    lines = []
    for name in variants:
        line = [f"`{name}`"]
        for model in models:
            mean, *each = crossings(rows, model, name)
            line += [
                f"{as_rate(mean)} ({', '.join(map(as_rate, each))})",
                as_rate(crossing_by_arithmetic(cells, model, name)),
            ]
        if name != PLAIN:
            lines.append(line)
    return table(["variant", *(f"{model}, {how}" for model in models for how in ("measured", "by arithmetic"))], lines)


def picture(cells: pd.DataFrame, models: Sequence[str], variants: Sequence[str]) -> str:
    """Step time over bandwidth, as SVG."""
    panels = {}
    for model in models:
        parameters = cells.loc[model]["parameters"].iloc[0] / 1e6
        lines = {name: cells.loc[(model, name)]["step_mean_s"] * 1e3 for name in variants if name in DRAWN}
        panels[f"{parameters:.1f} million parameters"] = {
            name: list(zip(line.index.tolist(), line.tolist(), strict=True)) for name, line in lines.items()
        }
    return curves(panels, x="bandwidth, Mbit/s", y="step, ms")


def main() -> None:
    """Measure and print an entry for docs/log.md."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_network", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[10_000, 1000, 100], help="Mbit/s (default 10000 1000 100)"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="(default all)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="(default all)")
    parser.add_argument("--launches", type=int, default=2, help="of each model (default 2)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where rows.csv and compression.svg go")
    parser.add_argument("--read", type=Path, metavar="FILE", help="rows.csv of an earlier run, instead of measuring")
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rates.sort(reverse=True)
    if options.model:
        be_a_rank(options.model, options.rates, options.variants)
        return
    rows = pd.read_csv(options.read) if options.read else all_rows(words_before(), options)
    cells = cells_of(rows)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        rows.to_csv(options.out / "rows.csv", index=False)
        (options.out / "compression.svg").write_text(picture(cells, options.models, options.variants), "utf-8")
    print(heading("When does compression pay?"), end="\n\n")
    passing = rows.groupby("mbits")["passing_mbits"].agg(["min", "max"]).sort_index(ascending=False)
    print("A plain socket got, in Mbit/s:", end=" ")
    print("; ".join(f"{low:.0f} to {high:.0f} of {mbits}" for mbits, low, high in passing.itertuples()), end="\n\n")
    for model in options.models:
        print(
            f"{model} parameters:",
            table_of_steps(cells, model, options.rates, options.variants),
            sep="\n\n",
            end="\n\n",
        )
    print("Below which bandwidth each wins over `ddp`, by the means and by each launch:", end="\n\n")
    print(table_of_crossings(rows, cells, options.models, options.variants))
    hidden = cells.xs(PLAIN, level="variant")["overlap_share"].drop(index=options.rates[-1], level="mbits")
    print("\nOf the exchange of `ddp` hides behind backward:", end=" ")
    print("; ".join(f"{share * 100:.0f} % ({model}, {as_rate(mbits)})" for (model, mbits), share in hidden.items()))


if __name__ == "__main__":
    main()

"""When does compression pay? Step times of every compression behind networks of several bandwidths.

A launch of two ranks under torchrun runs in a network namespace of its own, whose loopback `tc`
limits (`tbf`, a token bucket) to one rate after another. A trial runs as any does
(`dtsweep.session.attempt`); before the first of a rate a plain socket shows what the limit lets
through. Every launch after the first leaves slow rates out, at which steps take seconds and differ
little; every second one goes through the variants the other way round. What doesn't depend on the
rate, bytes and `compression_error`, is measured at the first one.

The loopback carries what both ranks send. So the exchange of a step takes at least

    both ranks' `bytes_sent_per_step` × 8 ÷ rate

and a rate stands for a link of half of it, each way, between two machines. By arithmetic a step
takes its work, the compression's own time and that: a compression wins over plain `ddp` below

    (bits that both ranks send with `ddp` − bits that they send with it) ÷ `compress_s`

and at any bandwidth where it has no time of its own. The same bandwidth is measured where the step
times cross: between two rates a step time is taken for linear in 1 ÷ rate. A step time is
`latency_s`, the median step (of `local_sgd` the mean) of the launch in which it is shortest,
because what else runs on the machine only makes steps longer; its interval is the hull of all
launches' own 95 % intervals. A compression's own time is its least, too.
"""

from __future__ import annotations

import argparse
import json
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

from torch import distributed

from benchmarks.crossings import (
    PLAIN,
    WORKERS,
    Curve,
    Rows,
    as_rate,
    curves_of,
    picture,
    table_of_crossings,
    table_of_steps,
)
from benchmarks.log_entry import heading, torchrun
from dtsweep import Measure, Sweep, workloads
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import RankContext, become_rank, take_device

MODELS: Mapping[str, Any] = {
    "1.7M": workloads.Gpt(layers=2, width=256, sequence=64, data="pydoc"),
    "6.6M": workloads.Gpt(layers=2, width=512, sequence=64, data="pydoc"),
}
"""By the number of parameters."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    **{name: {"compression": name} for name in COMPRESSIONS},
    "local_sgd": {"sync": "local_sgd"},
    "local_sgd int8": {"sync": "local_sgd", "compression": "int8"},
}
"""Fields of a point; those of a compression are its own defaults."""

DRAWN = [name for name in VARIANTS if name != "bf16"]
"""What the picture has: the others lie on lines that are there."""

MEASURE = Measure(
    repeats=1,
    half_width=None,
    warmup_steps=2,
    min_steps=4,
    min_seconds=1,
    max_seconds=60,
    exchange="precise",
)

KEPT = (
    *("latency_s", "latency_s_low", "latency_s_high", "comm_share", "overlap_share"),
    *("compress_s", "bytes_sent_per_step", "compression_error", "parameters"),
)
"""Columns of a row."""

BURST_S, LEAST_BURST_BYTES = 0.0005, 72 * 1024
"""Burst that passes at once: so long at the rate, at least a loopback packet (MTU 64 KiB)."""

SLOW_MBITS = 500
"""Rates below it are slow: steps take seconds and differ little.

The first launch alone measures them, and the exchange is not timed by itself.
"""

CHECK_S = 0.5
"""How long the transfer takes that checks a limit."""


def words_before() -> list[str]:
    """The words before a command that give it a loopback of its own, and the right to limit it.

    Raises:
        SystemExit: there are no rights, or no `tc`.
    """
    said = "no `tc` (package iproute2)"
    for words in (
        (["unshare", "--net"], ["unshare", "--map-root-user", "--net"])
        if shutil.which("tc")
        else ()
    ):
        try:
            limit_loopback(1000, words)
            return [*words, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        except (OSError, subprocess.CalledProcessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
    print(f"slow_network: can't limit the loopback of a network namespace: {said}", file=sys.stderr)
    raise SystemExit(2)


def limit_loopback(mbits: int, words: Sequence[str] = ()) -> None:
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
    sweep = Sweep(workload=MODELS[model], axes={}, measure=Measure(repeats=1))
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    context = become_rank(rank, device, workload=sweep.workload, own_variables=["OMP_NUM_THREADS"])
    for mbits in rates:
        passing = 0.0
        if rank == 0:
            limit_loopback(mbits)
            passing = passing_mbits(mbits)
        distributed.barrier()
        if mbits >= SLOW_MBITS:
            # Timed by itself, an exchange is kept there.
            context = replace(context, exchanges={})
        for name in variants:
            row = measured(context, model, name)
            if rank == 0:
                row["overlap_share"] = row["overlap_share"] if mbits >= SLOW_MBITS else None
                said = {
                    "model": model,
                    "mbits": mbits,
                    "passing_mbits": passing,
                    "variant": name,
                    **row,
                }
                print(json.dumps(said), flush=True)
                print(
                    f"{model} {mbits} Mbit/s {name}: {row['latency_s'] * 1e3:.0f} ms",
                    file=sys.stderr,
                )
    distributed.destroy_process_group()


def measured(context: RankContext, model: str, name: str) -> dict[str, Any]:
    """The columns of a variant's trial, on rank 0."""
    axes = {"workers": WORKERS, "micro_batch": 8, **VARIANTS[name]}
    sweep = Sweep(
        workload=MODELS[model], axes={key: [value] for key, value in axes.items()}, measure=MEASURE
    )
    (candidate,) = candidates(sweep)
    assert candidate.reason is None, candidate.reason
    # The attempt's name is drawn: all ranks take rank 0's.
    tasks = [task_of(sweep, candidate.point)]
    distributed.broadcast_object_list(tasks, src=0)
    result = run_attempt(context, tasks[0])
    assert result.measured is not None, f"{name} failed on this rank; its traceback is above"
    everyone: list[Any] = [None] * WORKERS
    distributed.all_gather_object(everyone, (context.facts, result))
    facts = {rank: own for rank, (own, _) in enumerate(everyone)}
    results = with_warmup_marked(
        candidate.point, {rank: own for rank, (_, own) in enumerate(everyone)}
    )
    row = trial_row(sweep, candidate.point, tasks[0], facts, results, harness="torchrun")
    return {column: row.get(column) for column in KEPT}


def launched(
    words: Sequence[str], model: str, rates: Sequence[int], variants: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of one launch."""
    own = ["--model", model, "--rates", *map(str, rates), "--variants", *variants]
    said = torchrun("benchmarks.slow_network", *own, workers=WORKERS, before=words)
    return [json.loads(line) for line in said.splitlines()]


def all_rows(words: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all launches; kept after each, where something is to be kept."""
    rows, rates, variants = list[dict[str, Any]](), options.rates, options.variants
    for launch in range(options.launches):
        for model in options.models:
            here = [rate for rate in rates if launch == 0 or rate >= SLOW_MBITS]
            order = variants if launch % 2 == 0 else variants[::-1]
            rows += (
                [{"launch": launch, **row} for row in launched(words, model, here, order)]
                if here
                else []
            )
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "rows.json").write_text(json.dumps(rows), "utf-8")
    return rows


def print_entry(rows: Rows, models: Mapping[str, Mapping[str, Curve]]) -> None:
    """Print an entry for docs/log/."""
    print(heading("When does compression pay?"), end="\n\n")
    passing: dict[float, list[float]] = {}
    for row in rows:
        passing.setdefault(row["mbits"], []).append(row["passing_mbits"])
    limits = (f"{min(each):.0f} to {max(each):.0f} of {rate}" for rate, each in passing.items())
    print("A plain socket got, in Mbit/s:", "; ".join(limits), end="\n\n")
    for model, known in models.items():
        print(f"{model} parameters:", table_of_steps(known), sep="\n\n", end="\n\n")
    print(
        "Below which bandwidth each wins over `ddp`, by the shortest steps and by each launch:",
        end="\n\n",
    )
    print(table_of_crossings(models), end="\n\n")
    hidden = {
        (model, rate): cell.overlap_share
        for model in models
        for rate, cell in models[model][PLAIN].cells.items()
    }
    shares = (
        f"{s * 100:.0f} % ({model}, {as_rate(rate)})"
        for (model, rate), s in hidden.items()
        if s is not None
    )
    print("Of the exchange of `ddp` hides behind backward:", "; ".join(shares))


def main() -> None:
    """Measure and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_network", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--rates",
        type=int,
        nargs="+",
        default=[10_000, 1000, 100],
        help="Mbit/s (default 10000 1000 100)",
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), help="(default all)"
    )
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="(default all)"
    )
    parser.add_argument("--launches", type=int, default=2, help="of each model (default 2)")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where rows.json and compression.svg go"
    )
    parser.add_argument(
        "--read",
        type=Path,
        metavar="FILE",
        help="rows.json of an earlier run, instead of measuring",
    )
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rates.sort(reverse=True)
    if options.model:
        be_a_rank(options.model, options.rates, options.variants)
        return
    rows = (
        json.loads(options.read.read_text("utf-8"))
        if options.read
        else all_rows(words_before(), options)
    )
    models = {model: curves_of(rows, model) for model in options.models}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "compression.svg").write_text(picture(models, DRAWN), "utf-8")
    print_entry(rows, models)


if __name__ == "__main__":
    main()

"""What does a compression cost for each byte of gradients, beside a copy of the same bytes?

One process with as many threads as a worker has cores. Copy, compression and decompression of the
same values take turns; each is held against the copy of its own turn. Compression is what comes
before the exchange, decompression what a worker does with one payload; `powersgd` counts its second
half as compression. Gradients are normal random numbers, and matrices of 500 × 500 for `powersgd`:
1 MB each.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.log_entry import heading, quartiles, table
from dtsweep.compression.compression import Compression, Layout, compression_for
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point

MATRIX = torch.Size([500, 500])


def settings() -> dict[str, Point]:
    """Points by what they are called: each compression."""
    return {f"`{name}`": Point(compression=name) for name in COMPRESSIONS}


def timed(work: Callable[[], Tensor], device: torch.device) -> tuple[float, Tensor]:
    """The seconds of a piece of work until the device has done it, and what came of it."""
    _wait_for(device)
    began = time.perf_counter()
    result = work()
    _wait_for(device)
    return time.perf_counter() - began, result


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compress(compression: Compression, values: Tensor) -> Tensor:
    """Make all that a worker sends; of several payloads the last."""
    payload = compression.compress(values)
    while (following := compression.proceed(payload)) is not None:
        payload = following
    return payload


def decompress(compression: Compression, payload: Tensor, values: Tensor) -> Tensor:
    """Write what a payload stands for into values."""
    compression.decompress(payload, values)
    return values


def sent(compression: Compression, values: Tensor) -> int:
    """Bytes of all payloads of one exchange."""
    payload = compression.compress(values)
    count = payload.nbytes
    while (following := compression.proceed(payload)) is not None:
        count, payload = count + following.nbytes, following
    return count


def turns(
    point: Point, megabytes: int, *, device: torch.device, turns: int
) -> dict[str, list[float]]:
    """Seconds of copy, compression and decompression by turn, and the share of bytes sent."""
    layout = Layout(
        numel=megabytes * MATRIX.numel(),
        dtype=torch.float32,
        device=device,
        shapes=[MATRIX] * megabytes,
        seed=1,
    )
    compression = compression_for(point, layout)
    values = torch.randn(layout.numel, generator=torch.Generator().manual_seed(0)).to(device)
    back, found = torch.empty_like(values), defaultdict[str, list[float]](list)
    for turn in range(2 + turns):
        copy_s, _ = timed(lambda: back.copy_(values), device)
        compress_s, payload = timed(lambda: compress(compression, values), device)
        decompress_s, _ = timed(lambda: decompress(compression, payload, back), device)  # noqa: B023
        if turn >= 2:
            for name, spent in (
                ("copy", copy_s),
                ("compress", compress_s),
                ("decompress", decompress_s),
            ):
                found[name].append(spent)
    return {**found, "share": [sent(compression, values) / values.nbytes]}


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compression", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--megabytes", type=int, nargs="+", default=[1, 10, 100], help="sizes (default 1 10 100)"
    )
    parser.add_argument("--turns", type=int, default=15, help="of each size (default 15)")
    parser.add_argument("--threads", type=int, default=1, help="of a worker (default 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ratios, costs, copies = (
        list[list[str]](),
        list[list[str]](),
        defaultdict[int, list[float]](list),
    )
    for name, point in settings().items():
        ratio, cost, share = [name], [name], float("nan")
        for size in options.megabytes:
            found = turns(point, size, device=torch.device(options.device), turns=options.turns)
            copies[size] += found["copy"]
            share = found["share"][0]
            for part in ("compress", "decompress"):
                ratio.append(quartiles(np.divide(found[part], found["copy"]), form=".1f"))
                cost.append(f"{np.median(found[part]) / size * 1e3:.3f}")
        ratios.append([ratio[0], f"{share:.4f}", *ratio[1:]])
        costs.append(cost)
    parts = [
        f"{size} MB: {part}" for size in options.megabytes for part in ("compress", "decompress")
    ]
    print(heading("What does compression cost for each byte, beside a copy?"), end="\n\n")
    print(
        "Times as long as a copy of the same turn, median (quartiles); "
        "share: bytes sent of bytes given.",
        end="\n\n",
    )
    print(table(["compression", "share", *parts], ratios), end="\n\n")
    copied = [
        cell
        for size in options.megabytes
        for cell in (f"{np.median(copies[size]) / size * 1e3:.3f}", "")
    ]
    print("Nanoseconds for a byte of gradients, median.", end="\n\n")
    print(table(["compression", *parts], [["copy", *copied], *costs]))


if __name__ == "__main__":
    main()

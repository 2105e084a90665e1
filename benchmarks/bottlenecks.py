"""Check what `bottleneck` names as a step's limit, on workloads that are bound in one way each.

They run on a private Ray. Each launch is judged by itself, as a sweep without repeats is, and all
of them together. A GPU that waits for its host and NCCL's exchange can't be made without a GPU:
they are tried on rows in tests/analysis/test_bottleneck.py.
"""

from __future__ import annotations

import argparse
import tempfile

import pandas as pd

from benchmarks.log_entry import ROOT, heading, run, table
from dtsweep.analysis import bottleneck
from dtsweep.sweep.file import read_sweep

BOUND = ROOT / "benchmarks" / "bound.py"

MADE_TO_BE = {"update": "memory"}
"""By what a kind of workload is bound, where that is not its name."""


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bottlenecks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--results",
        help="keep the results there, or judge those that are there (default: none kept)",
    )
    options = parser.parse_args()
    sweep, _ = read_sweep(BOUND)
    with tempfile.TemporaryDirectory(prefix="dtsweep-bottlenecks-") as folder:
        frame = run(sweep, options.results or folder)
    print(heading("Is what limits a step named rightly?"), "", _table(frame), sep="\n")


def _table(frame: pd.DataFrame) -> str:
    ok = frame[frame["status"] == "ok"]
    kinds = ok.drop_duplicates("point_id").set_index("point_id")["workload_kind"]
    alone = pd.concat([bottleneck(rows) for _, rows in ok.groupby("repeat")])
    rows = []
    for found in bottleneck(ok).to_dict("records"):
        kind = str(kinds[found["point_id"]])
        made, bounds = (
            MADE_TO_BE.get(kind, kind),
            alone.loc[alone["point_id"] == found["point_id"], "bound"],
        )
        right, silent = int((bounds == made).sum()), int(bounds.isna().sum())
        told = f"{right} of {len(bounds)}, {len(bounds) - right - silent} wrong"
        rows.append(
            [
                f"{kind} ({made})",
                told,
                found["bound"] or "can't tell",
                str(found["bound_reason"]),
            ]
        )
    headers = [
        "workload (made to be bound by)",
        "single launches",
        "all together",
        "because",
    ]
    return table(headers, rows)


if __name__ == "__main__":
    main()

"""The shell command that starts a script of the user at a point, without dtsweep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.report.code import comment, in_shell, is_known, on_secrets, variables_of

if TYPE_CHECKING:
    import pandas as pd

PORT = 29500
"""Port at which the nodes meet: the usual one of `torchrun`."""


def shell_command(row: pd.Series[Any]) -> str | None:
    """Write the command that starts a script with the workers, variables and arguments of a point.

    Args:
        row: of `over_launches`.

    Returns:
        Comments, then the command in one line. None for a workload that is not a script.

    >>> import pandas as pd
    >>> row = {"workers": 2, "hosts": 1, "command": '["train.py", "--name", "a b"]'}
    >>> print(shell_command(pd.Series(row)))
    torchrun --nproc-per-node 2 train.py --name 'a b'
    """
    if not is_known(row, "command"):
        return None
    path, *arguments = json.loads(row["command"])
    words = [f"{name}={in_shell(value)}" for name, value in _variables(row).items()]
    words += ["torchrun", *_launch(row), *map(in_shell, [_from_here(path), *arguments])]
    lines = [*_on_nodes(row), *on_secrets(row), " ".join(words)]
    return "\n".join(lines)


def _variables(row: pd.Series[Any]) -> dict[str, str]:
    """Variables of the point, and the threads of a worker, of which `torchrun` takes one."""
    variables = variables_of(row, is_secret=False)
    if is_known(row, "cpus_per_worker"):
        variables = {"OMP_NUM_THREADS": f"{row['cpus_per_worker']:.0f}", **variables}
    return variables


def _launch(row: pd.Series[Any]) -> list[str]:
    """Options of `torchrun` for the nodes that the workers ran on."""
    workers, nodes = int(row["workers"]), _nodes(row)
    if nodes == 1:
        return ["--nproc-per-node", str(workers)]
    here = "$WORKERS_HERE"
    if workers % nodes == 0:
        here = str(workers // nodes)
    return [
        *("--nnodes", str(nodes), "--nproc-per-node", here, "--node-rank", "$NODE_RANK"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"$HOST:{PORT}"),
    ]


def _nodes(row: pd.Series[Any]) -> int:
    if not is_known(row, "hosts"):
        return 1
    return int(row["hosts"])


def _on_nodes(row: pd.Series[Any]) -> list[str]:
    """Comments on what has to be set on each of several nodes."""
    workers, nodes = int(row["workers"]), _nodes(row)
    if nodes == 1:
        return []
    text = f"on each of {nodes} nodes: NODE_RANK is its number from 0, HOST the address of node 0"
    if workers % nodes:
        text += f", WORKERS_HERE its share of {workers} workers"
    return [comment(text)]


def _from_here(path: str) -> str:
    """Path of a script from the working directory, if it lies below it."""
    if Path(path).is_relative_to(Path.cwd()):
        return os.path.relpath(path)
    return path

"""A point as code for dtsweep, and as the shell command that starts a script of the user.

A comment names each setting that the code can't have.
"""

from __future__ import annotations

import json
import os
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.settings import axis_name
from dtsweep.secret import HIDDEN, hidden
from dtsweep.sweep.point_axes import AXES, DEFAULTS
from dtsweep.sweep.values import LOADER, python_value

if TYPE_CHECKING:
    import pandas as pd

_PORT = 29500
"""Port at which the nodes meet: the usual one of `torchrun`."""

_WIDTH = 76
"""Columns of a line of code: a terminal of 80 columns shows it with an indent of 4."""


def point_arguments(row: pd.Series[Any]) -> dict[str, Any]:
    """Give the arguments of `Point` that the row sets differently from the default, as JSON values.

    Args:
        row: of `over_launches`.

    Returns:
        Axes by name; and `environment` if the workers have variables that are not secret: those of
        `env.` axes and of the sweep's resources, which are stored in one column.
    """
    settings = {name: python_value(row[name]) for name in AXES if _has_value(row, name)}
    settings = {name: value for name, value in settings.items() if value != DEFAULTS[name]}
    if variables := _variables_of(row, is_secret=False):
        settings["environment"] = variables
    return settings


def point_code(row: pd.Series[Any]) -> str:
    """Write a point in Python.

    Args:
        row: of `over_launches`.

    Returns:
        The code, in one line if that is short; then a comment for the workload, and one for each
        secret variable.

    >>> import pandas as pd
    >>> print(point_code(pd.Series({"workers": 2, "micro_batch": 4, "workload": "Gpt"})))
    Point(workers=2, micro_batch=4)
    # of the workload Gpt
    """
    arguments = [f"{name}={value!r}" for name, value in point_arguments(row).items()]
    code = f"Point({', '.join(arguments)})"
    if len(code) > _WIDTH:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        code = f"Point(\n{lines})"
    return "\n".join([code, *_on_secrets(row), *_on_workload(row)])


def _comment(text: str) -> str:
    """Write a comment in as many lines as it takes; a word is never broken.

    >>> _comment("of the workload Gpt")
    '# of the workload Gpt'
    """
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _on_workload(row: pd.Series[Any]) -> list[str]:
    """Comment on the workload with its fields as axes: "workload.layers=2"; empty if unknown."""
    if not _has_value(row, "workload"):
        return []
    columns = setting_columns(row.to_frame().T)
    names = [name for name in columns if name.startswith("workload_") and _has_value(row, name)]
    fields = [f"{axis_name(name)}={python_value(row[name])!r}" for name in names]
    return [_comment(f"of the workload {', '.join([str(row['workload']), *fields])}")]


def in_shell(value: str) -> str:
    r"""Quote a value for bash, in one line.

    >>> print(in_shell("Ring"), in_shell("a b"), in_shell("a\nb's"))
    Ring 'a b' $'a\U0000000ab\'s'
    """
    if value.isprintable():
        return shlex.quote(value)
    escaped = value.replace("\\", r"\\").replace("'", r"\'")
    letters = [letter if letter.isprintable() else rf"\U{ord(letter):08x}" for letter in escaped]
    return f"$'{''.join(letters)}'"


def _on_secrets(row: pd.Series[Any]) -> list[str]:
    """Comments on the secret variables, of which only a hash is stored."""
    why = "is secret and stored as a hash: set it yourself"
    return [_comment(f"variable {name} {why}") for name in _variables_of(row, is_secret=True)]


def _variables_of(row: pd.Series[Any], *, is_secret: bool) -> dict[str, str]:
    """Select the secret variables of the workers, or the others.

    Only a hash of a secret value is stored.
    """
    if not _has_value(row, "environment"):
        return {}
    stored = hidden(json.loads(row["environment"]))
    secret = {name for name, value in stored.items() if HIDDEN.fullmatch(value)}
    return {name: value for name, value in stored.items() if (name in secret) == is_secret}


def _has_value(row: pd.Series[Any], name: str) -> bool:
    """True if a row has a column that is not null."""
    import pandas as pd

    return name in row.index and bool(pd.notna(row[name]))


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
    if not _has_value(row, "command"):
        return None
    path, *arguments = json.loads(row["command"])
    words = [f"{name}={in_shell(value)}" for name, value in _variables(row).items()]
    words += ["torchrun", *_launch(row), *map(in_shell, [_from_here(path), *arguments])]
    lines = [*_on_nodes(row), *_on_secrets(row), *_on_loaders(row), " ".join(words)]
    return "\n".join(lines)


def _variables(row: pd.Series[Any]) -> dict[str, str]:
    """Variables of the point, and the threads of a worker: `torchrun` alone would take one."""
    variables = _variables_of(row, is_secret=False)
    if _has_value(row, "cpus_per_worker"):
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
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"$HOST:{_PORT}"),
    ]


def _nodes(row: pd.Series[Any]) -> int:
    if not _has_value(row, "hosts"):
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
    return [_comment(text)]


def _on_loaders(row: pd.Series[Any]) -> list[str]:
    """A comment on settings of data loaders, which no argument of the script has."""
    names = [name for name in row.index if axis_name(str(name)).startswith(LOADER)]
    settings = [
        f"{axis_name(name).removeprefix(LOADER)}={python_value(row[name])!r}"
        for name in names
        if _has_value(row, name)
    ]
    if not settings:
        return []
    return [_comment(f"measured with DataLoader(…, {', '.join(settings)}): set that in the script")]


def _from_here(path: str) -> str:
    """Path of a script from the working directory, if it lies below it."""
    if Path(path).is_relative_to(Path.cwd()):
        return os.path.relpath(path)
    return path

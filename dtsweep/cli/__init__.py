"""The command line: `python -m dtsweep …`, or the script `dtsweep …`.

The driver; imports click and rich, and all else in functions, so that help and mistakes are answered at once. In order:

    options         arguments and options that commands share, and where their output goes
    plan_table      a plan in the terminal, and as JSON values
    decide          commands that read results
    compare         commands that compare: two points, two runs
    measure         commands that measure, or say what would be
    commands        the group of commands, and what their errors end with
"""

from __future__ import annotations

from dtsweep.cli.commands import cli, main

__all__ = ["cli", "main"]

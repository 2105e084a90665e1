"""The command line: `python -m dtsweep …`, or the script `dtsweep …`.

The driver; imports click and rich, and all else in functions, so that help and mistakes are
answered at once. In order:

    options         arguments and options that commands share, the question that they ask, output
    plan_table      a plan in the terminal, and as JSON values
    predictions     predictions of configurations: in the terminal, and as JSON values
    status_view     state of a campaign: in the terminal, and as JSON values
    decide          `report`, `recommend` and `predict`
    compare         `difference` of two points, `compare` of two runs
    status          `status`: how far the runs on some results are
    export          `export`: trials for other tools
    measure         `run`, `plan` and `doctor`
    script          `script`: writes and runs the sweep file of a training script
    claim           `claim`: a point for others, and `claim check`, which measures it here
    import_table    `import`: other people's tables, as results
    commands        the group of commands, and what their errors end with
"""

from __future__ import annotations

from dtsweep.cli.commands import cli, main

__all__ = ["cli", "main"]

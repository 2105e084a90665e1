"""Commands called in the process of the test, for claims that are not about a process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from dtsweep.cli import cli
from dtsweep.errors import SweepError
from tests.schemas import check_output


def called(*arguments: object) -> Result:
    """Call `dtsweep …`; an error that a user would read as one line is raised."""
    done = CliRunner().invoke(cli, [*map(str, arguments)], terminal_width=80)
    if isinstance(done.exception, SweepError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def in_one_line(*arguments: object) -> str:
    """What a command prints, on one line."""
    return " ".join(called(*arguments).stdout.split())


def as_json(*arguments: object) -> Any:
    """What a command prints with `--json`: as its schema says, without values that JSON lacks."""
    values = json.loads(called(*arguments, "--json").stdout)
    json.dumps(values, allow_nan=False)
    check_output(str(arguments[0]), values)
    return values

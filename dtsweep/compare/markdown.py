"""A comparison of runs in Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtsweep.compare.runs_table import chosen_rows, columns_of_rows
from dtsweep.compare.words import Row
from dtsweep.errors import one_line
from dtsweep.secret import without_homes

_MOST = 16
"""Most lines of the table, and of each of the two lists."""

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")
_MENTION = re.compile(r"([@#])(?=\w)")


def markdown_of(compared: Row) -> str:
    """Write a comparison as Markdown of at most 60 lines, without hosts and users.

    Args:
        compared: as `comparison_json` gives it, with `changes`.
    """
    broken = [f"No longer runs: {row['label']}: {row['status']}" for row in compared["broken"]]
    columns = columns_of_rows(chosen_rows(compared), compared)
    heads = [head.replace("\n", " ") for head in columns]
    rows = [
        heads,
        ["---"] * len(heads),
        *zip(*columns.values(), strict=True),
    ]
    table = [f"| {' | '.join(map(_prose, row))} |" for row in rows]
    parts = [
        ["### Speed, by dtsweep"],
        [f"**{_prose(compared['words'])}**"],
        [f"- {_prose(text)}" for text in (*broken, *compared["grew"], *compared["changes"])],
        table if columns else [],
        [f"- {_prose(text)}" for text in compared["notes"]],
    ]
    return "\n\n".join("\n".join(_short(lines)) for lines in parts if lines)


def _short(lines: Sequence[str]) -> Sequence[str]:
    if len(lines) <= _MOST:
        return lines
    return [*lines[: _MOST - 1], f"\n{len(lines) - _MOST + 1} more lines."]


def _prose(text: str) -> str:
    r"""Text of others as Markdown shows it: no markup, no mention of a user, no link to an issue.

    >>> print(_prose("sync_period=8 | <b>"))
    sync\_period=8 \| \<b\>
    """
    escaped = _SPECIAL.sub(r"\\\1", without_homes(one_line(text)))
    # A backslash would not keep a user from being mentioned.
    return _MENTION.sub("\\1\N{ZERO WIDTH SPACE}", escaped)

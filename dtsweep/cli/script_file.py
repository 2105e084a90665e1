"""The sweep file that a command `dtsweep script` stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, quoted
from dtsweep.sweep.goal import Goal
from dtsweep.sweep.search import Search

if TYPE_CHECKING:
    from dtsweep.cli.script_sweep import ScriptSweep

LINE = 88
"""Most columns of a line, unless it is one long text: that of Python's formatters."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Code between brackets: `head`, the opening bracket, items, the closing bracket."""

    head: str
    brackets: str
    items: Sequence[str | Group]
    is_long: bool = False
    """True if each item has a line of its own in any case."""

    def flat(self) -> str:
        """Code in one line.

        >>> Group(head="a=", brackets="()", items=["1"]).flat()
        'a=(1,)'
        """
        items = [item if isinstance(item, str) else item.flat() for item in self.items]
        comma = ""
        is_call = self.head[-1:].isalnum()
        if self.brackets == "()" and len(items) == 1 and not is_call:
            comma = ","
        return f"{self.head}{self.brackets[0]}{', '.join(items)}{comma}{self.brackets[1]}"

    def lines(self, indent: int = 0) -> list[str]:
        """Code in as many lines as it takes, without the indent of the first one.

        Args:
            indent: columns in front of the first line.
        """
        if not self.is_long and indent + len(self.flat()) < LINE:
            return [self.flat()]
        lines = [f"{self.head}{self.brackets[0]}"]
        for item in self.items:
            *first, last = [item] if isinstance(item, str) else item.lines(indent + 4)
            lines += [f"    {line}" for line in (*first, f"{last},")]
        return [*lines, self.brackets[1]]


def save(asked: ScriptSweep, path: Path, *, command: str) -> None:
    """Write the sweep file that a command stands for.

    Args:
        asked: by the command.
        path: the file.
        command: the command itself, for the file's docstring.

    Raises:
        SweepError: there is such a file, or it can't be written.
    """
    if path.suffix != ".py":
        raise SweepError(
            f"--save {quoted(str(path))} is not the name of a sweep file, which ends in .py"
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(file_text(asked, command=command))
    except FileExistsError:
        raise SweepError(f"there is a file {str(path)!r}; give --save another name") from None
    except OSError as error:
        raise SweepError(f"{str(path)!r} can't be written: {error.strerror}") from None


def file_text(asked: ScriptSweep, *, command: str) -> str:
    """Text of the sweep file."""
    names = []
    if isinstance(asked.question.get("goal"), Goal):
        names.append("Goal")
    if asked.measure:
        names.append("Measure")
    if "search" in asked.question:
        names.append("Search")
    return "\n".join(
        [
            f'"""Sweep of {_in_docstring(Path(asked.path).name)}, as this command has it:',
            "",
            _in_docstring(command),
            '"""',
            "",
            f"from dtsweep import {', '.join([*names, 'Sweep', 'workloads'])}",
            "",
            *_sweep_code(asked).lines(),
            "",
        ]
    )


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', r"\"\"\"")


def _sweep_code(asked: ScriptSweep) -> Group:
    fields = [literal(value, head=f"{name}=") for name, value in asked.fields.items()]
    script = [literal(asked.path), *fields]
    axes = [literal(values, head=f"{literal(name)}: ") for name, values in asked.axes.items()]
    items = [
        Group(head="workload=workloads.Script", brackets="()", items=script),
        Group(head="axes=", brackets="{}", items=axes, is_long=len(axes) > 1),
    ]
    if asked.measure:
        settings = [literal(value, head=f"{name}=") for name, value in asked.measure.items()]
        items.append(Group(head="measure=Measure", brackets="()", items=settings))
    items += [literal(value, head=f"{name}=") for name, value in asked.question.items()]
    return Group(head="sweep = Sweep", brackets="()", items=items, is_long=True)


def literal(value: Any, *, head: str = "") -> Any:
    r"""Code of a value after some other code.

    >>> literal("it's"), literal([1, None], head="a=").flat()
    ('"it\'s"', 'a=[1, None]')
    """
    match value:
        case str():
            return head + _text(value)
        case list():
            return Group(head=head, brackets="[]", items=[*map(literal, value)])
        case Goal() | Search():
            given = [
                literal(getattr(value, item.name), head=f"{item.name}=")
                for item in fields(value)
                if getattr(value, item.name) != item.default
            ]
            return Group(head=f"{head}{type(value).__name__}", brackets="()", items=given)
        case tuple():
            return Group(head=head, brackets="()", items=[*map(literal, value)])
        case dict():
            items = [literal(one, head=f"{_text(name)}: ") for name, one in value.items()]
            return Group(head=head, brackets="{}", items=items)
    return f"{head}{value!r}"


def _text(value: str) -> str:
    """Code of a text, between double quotes unless it has some."""
    code = repr(value)
    if code.startswith('"') or '"' in value:
        return code
    return f'"{code[1:-1]}"'

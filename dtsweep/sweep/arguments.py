"""The command line of a script of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dtsweep.errors import SweepError, quoted
from dtsweep.secret import is_secret, without_secrets
from dtsweep.sweep.values import Scalar


def command_line(fixed: Sequence[str], values: Mapping[str, Scalar]) -> list[str]:
    """Arguments of a script for values by name.

    Args:
        fixed: arguments that do not change; they come first.
        values: by name. `--name value` by default, where True is a flag alone and False leaves the
            argument out. A name with a dot, or that begins with `--` or `+`, is `name=value`,
            as it is, also for True and False. A name with one hyphen is `-n value`. A name that is
            a number is the position of a value without a name. None leaves any of them out.

    >>> command_line(["--data", "x"], {"batch-size": 8, "amp": True, "model.width": 64, "0": "run"})
    ['--data', 'x', 'run', '--batch-size', '8', '--amp', 'model.width=64']
    >>> command_line([], {"--batch_size": 8, "--compile": False, "-j": 2})
    ['--batch_size=8', '--compile=False', '-j', '2']
    """
    positions = sorted((int(name), value) for name, value in values.items() if name.isdigit())
    words = [*fixed, *(str(value) for _, value in positions)]
    for name, value in values.items():
        if name.isdigit() or value is None:
            continue
        if "." in name or name.startswith(("--", "+")):
            words.append(f"{name}={value}")
            continue
        word = name if name.startswith("-") else f"--{name}"
        if value is True:
            words.append(word)
        elif value is not False:
            words += [word, str(value)]
    return words


def bare(name: str) -> str:
    """Name of an argument without what stands in front of it on a command line."""
    return name.lstrip("-+")


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that hold a secret: they are printed and stored.

    Raises:
        SweepError: for a text after a name that marks a secret, or a URL with credentials.
    """
    for name, value in _named(arguments):
        is_marked = is_secret(name) and not _is_number(value)
        if is_marked or without_secrets(value) != value:
            marked = "has a password or a token in its value"
            if is_marked:
                marked = "has a name that marks a secret"
            raise SweepError(
                f"argument {quoted(name or 'of the script')} {marked}, and arguments are printed "
                "and stored; have the script read it from a variable, and set that in "
                "Resources(environment=…)",
                word="arguments",
            )


def _named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each value with the name before it, which may be empty."""
    name = ""
    for word in arguments:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            if equals:
                yield name, value
        else:
            before, equals, value = word.partition("=")
            yield (before, value) if equals and not name else (name, word)
            name = ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""YAML with comments, which PyYAML does not write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

YOURS = "yours: "
"""Beginning of a comment on a line that depends on the user's account."""


@dataclass(frozen=True)
class Noted:
    """A value with a comment, which stands on the line above its key."""

    value: Any
    comment: str


def yours(value: Any, comment: str) -> Noted:
    """A value that depends on the user's account."""
    return Noted(value, f"{YOURS}{comment}")


def yaml_text(value: Mapping[str, Any], *, head: Sequence[str] = ()) -> str:
    """Write a mapping as YAML, with its comments.

    Args:
        value: of mappings, sequences, texts, numbers and truth values; each may be `Noted`.
        head: lines of a comment in front of it.

    >>> print(yaml_text({"nodes": Noted({"most": 2}, "a comment"), "names": ["a"]}), end="")
    # a comment
    nodes:
      most: 2
    names:
    - a
    """
    lines = [f"# {line}".rstrip() for line in head]
    return "\n".join([*lines, *_of_mapping(value)]) + "\n"


def _of_mapping(value: Mapping[str, Any]) -> Iterator[str]:
    for key, item in value.items():
        comment, plain = _parts(item)
        yield from comment
        if isinstance(plain, Mapping) and plain:
            yield f"{_scalar(key)}:"
            yield from (_indented(line) for line in _of_mapping(plain))
        elif isinstance(plain, (list, tuple)) and plain:
            yield f"{_scalar(key)}:"
            yield from _of_sequence(plain)
        else:
            yield from _dumped({key: plain})


def _of_sequence(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        comment, plain = _parts(item)
        yield from comment
        if isinstance(plain, Mapping) and plain:
            yield from _as_item(_of_mapping(plain))
        elif isinstance(plain, (list, tuple)) and plain:
            yield from _as_item(_of_sequence(plain))
        else:
            yield from _dumped([plain])


def _as_item(lines: Iterator[str]) -> Iterator[str]:
    """Lines of an item of a sequence: the dash stands before the first one without a comment."""
    has_dash = False
    for line in lines:
        if has_dash or line.startswith("#"):
            yield _indented(line)
        else:
            yield f"- {line}"
            has_dash = True


def _indented(line: str) -> str:
    if not line:
        return ""
    return f"  {line}"


def _parts(item: Any) -> tuple[list[str], Any]:
    """Lines of an item's comment, and its value."""
    if not isinstance(item, Noted):
        return [], item
    return [f"# {line}" for line in item.comment.splitlines()], item.value


def _scalar(key: str) -> str:
    return _dumped(key)[0]


def _dumped(value: Any) -> list[str]:
    """Lines of a value without comments."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
        """Writes texts of several lines as they stand."""

    def text(dumper: Any, value: str) -> Any:
        # A block of empty lines alone would be read as no text.
        style = "|" if "\n" in value and value.strip() else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(
        value, Dumper=Dumper, sort_keys=False, width=float("inf"), allow_unicode=True
    )
    return written.removesuffix("\n...\n").removesuffix("\n").split("\n")

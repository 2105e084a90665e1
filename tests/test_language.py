"""Docstrings and docs are written in plain technical English."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.pages import ROOT

BEGINNINGS = re.compile(r"(What|Whether|How|Where|Why|Who|Whose|Which|When|The same)\b")
"""Words that no docstring begins with: it names the thing, or says what to do."""

IDIOMS = re.compile(
    r"\b([Aa]new|[Bb]eside|[Tt]old|[Aa]like|[Ww]hoever|otherwise than|that of|of which|none is"
    r"|(?<![Tt]here )is no (?!longer|more|one|other)\w+)\b"
)
"""Phrases for which the field has a plainer word."""

IDIOMS_PER_1000 = 0.5
"""Of these, per 1,000 words."""


@cache
def _docstrings() -> list[tuple[str, str]]:
    """Place and text of each docstring of the package, those of attributes too."""
    docstrings = []
    for file in sorted((ROOT / "dtsweep").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
                continue
            if isinstance(node.value.value, str):
                place = f"{file.relative_to(ROOT)}:{node.lineno}"
                docstrings.append((place, node.value.value))
    return docstrings


def _prose(page: Path) -> str:
    """Text of a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def _idioms_per_1000(text: str) -> float:
    return len(IDIOMS.findall(text)) / len(text.split()) * 1000


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    others = [f"{place}: {text[:60]}" for place, text in _docstrings() if BEGINNINGS.match(text)]
    assert others == []


def test_docstrings_use_plain_words() -> None:
    text = "\n".join(text for _, text in _docstrings())
    assert _idioms_per_1000(text) < IDIOMS_PER_1000


def test_docs_use_plain_words() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/adr").glob("*.md")]
    assert _idioms_per_1000("\n".join(map(_prose, pages))) < IDIOMS_PER_1000


def test_an_idiom_is_found() -> None:
    text = "Whoever reads it anew is told that it is no folder, where there is no file."
    assert IDIOMS.findall(text) == ["Whoever", "anew", "told", "is no folder"]

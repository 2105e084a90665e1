"""Text and values of YAML with comments."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.cluster_files.yaml_text import Noted, yaml_text, yours

LETTERS = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"), include_characters="\n\t")
SCALARS = st.one_of(
    st.text(LETTERS), st.integers(), st.booleans(), st.sampled_from(["yes", "1.0", "~", "# no", ""])
)
NAMES = st.text(LETTERS.filter(lambda letter: letter != "\n"), min_size=1)


def noted(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values with comments and without."""
    return values | st.builds(Noted, values, st.sampled_from(["why", "two\nlines", "a: b"]))


VALUES = st.recursive(
    SCALARS,
    lambda inner: noted(st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)


def plain(value: Any) -> Any:
    if isinstance(value, Noted):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_read_is_what_was_written(value: dict[str, Any]) -> None:
    text = yaml_text(value, head=["a comment", ""])
    assert (yaml.safe_load(text) or {}) == plain(value)


def test_comments_stand_above_what_they_are_about() -> None:
    value = {"a": [{"b": yours(1, "your own."), "c": 2}, Noted("d", "why")], "e": "f\n g\n"}
    assert yaml_text(value).splitlines() == [
        "a:",
        "  # yours: your own.",
        "- b: 1",
        "  c: 2",
        "# why",
        "- d",
        "e: |",
        "  f",
        "   g",
    ]

"""Colours can be seen on light and dark pages, and text of others is text."""

from __future__ import annotations

import pytest

from dtsweep.plots.style import COLOURS, DARK, FORMS, GREY, SERIES, cut, label

WHITE, DARK_PAGE = "#ffffff", "#15181d"
USED = {*COLOURS.values(), GREY, *(line.colour for line in SERIES)}


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", sorted(USED))
def test_each_colour_is_seen_on_a_light_and_on_a_dark_page(colour: str) -> None:
    assert contrast(colour, WHITE) >= 3
    assert contrast(DARK.get(colour, colour), DARK_PAGE) >= 3


def test_semantics_and_lines_are_told_apart_without_colour() -> None:
    assert FORMS.keys() == COLOURS.keys()
    assert len({symbol for symbol, _ in FORMS.values()}) == len(FORMS)
    assert len({dash for _, dash in FORMS.values()}) == len(FORMS)
    assert len({(line.symbol, line.dash) for line in SERIES}) == len(SERIES)


def test_a_label_has_no_tag_no_formula_and_no_control_character() -> None:
    shown = label("<b>$x$</b>\x1b")
    assert not set("<>$\x1b") & set(shown)


def test_a_cut_text_keeps_both_ends() -> None:
    assert cut("ddp micro_batch=16", 9) == "ddp …h=16"
    assert cut("ddp", 9) == "ddp"

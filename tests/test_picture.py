"""The README's picture is drawn from results, and can be looked at by itself."""

from __future__ import annotations

from xml.etree import ElementTree

from docs.picture import picture
from dtsweep.report import content_of
from tests.frames import trials
from tests.report.study import sweep

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_has_each_frontier_its_words_and_no_unknown_place() -> None:
    drawn = picture(content_of(sweep()))
    root = ElementTree.fromstring(drawn)
    words = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for word in (
        "exact updates",
        "stale updates",
        "local updates",
        "step time, ms",
        "samples/s",
        "recommended: ddp",
    ):
        assert word in words
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    assert "nan" not in drawn
    assert len(drawn) < 60_000


def test_what_to_ignore_stands_below_the_picture() -> None:
    rows = [
        {"micro_batch": size, "step_p50_s": size / 100, "samples_per_s": 10.0 * size}
        for size in (4, 8)
    ]
    rows[1] |= {"flags": ["implausible"], "implausible": "mfu is 7"}
    assert "numbers of 1 trial can" in picture(content_of(trials(*rows)))


def test_a_point_without_an_interval_is_drawn_without_bars() -> None:
    known = {
        "step_p50_s": 0.1,
        "step_p50_s_low": -0.01,
        "step_p50_s_high": 0.2,
        "samples_per_s": 10.0,
    }
    unknown = {"step_p50_s": 0.2, "samples_per_s": 20.0, "micro_batch": 8}
    root = ElementTree.fromstring(picture(content_of(trials(known, unknown))))
    bars = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("opacity") == "0.6"]
    assert [bar != "" for bar in bars] == [True, False]

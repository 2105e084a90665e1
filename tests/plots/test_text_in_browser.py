"""Text of results is text in plotly.js: no link, no tag, no formula, and none of it is run."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dtsweep
from dtsweep.escape import html_json
from dtsweep.plots import plots_of
from dtsweep.plots.plot import Plot
from dtsweep.report.content import content_of
from tests.frames import trials

PAYLOAD = '<a href="javascript:document.title=1">$x$ &lt; %{x}</a>'
BUNDLE = Path(dtsweep.__file__).parent / "page" / "plotly-strict.min.js.xz"
KNOWN: dict[str, Any] = {
    "data_share": 0.1,
    "exchange_share": 0.3,
    "wait_share": 0.05,
    "step_mean_s": 0.1,
    "memory_peak_bytes": 2**30,
}


def hostile_plots() -> list[Plot]:
    """Plots of points whose every text that a plot may show is the payload."""
    rows = [
        KNOWN
        | {
            "workload": PAYLOAD,
            "workload_name": f"{PAYLOAD}{model}",
            f"workload_args.{PAYLOAD}": model,
            "sync": PAYLOAD,
            "compression": PAYLOAD,
            "devices": PAYLOAD,
            "comm_reason": PAYLOAD,
            "straggler": PAYLOAD if workers > 1 else None,
            "model_digest": f"{PAYLOAD}{model}",
            "flags": [PAYLOAD],
            "workers": workers,
            "samples_per_s": 40.0 * workers + number,
            "step_p50_s": 0.1 / workers + number,
        }
        for number, (model, workers) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2)])
    ]
    return plots_of(content_of(trials(*rows)))


def html_of(plots: list[Plot]) -> str:
    """Page that draws plots, and sets `drawn` when all are."""
    data = html_json([{"data": list(plot.traces), "layout": plot.layout} for plot in plots])
    places = "".join(f'<div id="{plot.name}"></div>' for plot in plots)
    code = lzma.decompress(BUNDLE.read_bytes()).decode()
    return (
        f'<!doctype html><meta charset="utf-8">{places}<script>{code}</script><script>'
        f"const divs = document.querySelectorAll('div'); const plots = {data};"
        "Promise.all(plots.map((plot, place) => "
        "Plotly.newPlot(divs[place], plot.data, plot.layout)))"
        ".then(() => { window.drawn = true; });</script>"
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    file = tmp_path_factory.mktemp("plots") / "plots.html"
    file.write_text(html_of(hostile_plots()), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--enable-unsafe-swiftshader"],
        )
        page = browser.new_page()
        page.goto(file.as_uri())
        page.wait_for_function("window.drawn")
        yield page
        browser.close()


def test_every_plot_shows_the_payload_as_text_and_has_no_link(page: Any) -> None:
    names = [plot.name for plot in hostile_plots()]
    assert {"frontier", "scaling", "shares", "memory"} <= set(names)
    for name in names:
        shown = " ".join(page.locator(f"#{name} svg text").all_text_contents())
        assert "<a h" in shown or "…" in shown, name
        assert "&lt;a" not in shown, name
    assert page.evaluate("document.querySelectorAll('svg a').length") == 0


def test_hover_shows_the_payload_as_text(page: Any) -> None:
    page.evaluate(
        "Plotly.Fx.hover(document.getElementById('frontier'), [{curveNumber: 0, pointNumber: 0}])"
    )
    shown = page.locator("#frontier .hoverlayer text").first.text_content()
    assert 'href="javascript:document.title=1">$x$ &lt; %{x}</a>' in shown
    assert page.evaluate("document.querySelectorAll('.hoverlayer a').length") == 0

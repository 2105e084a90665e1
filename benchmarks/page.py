"""How soon a page can be used: text, table and first plot, in headless Chromium.

Each page is opened in a new window, with the processor as it is and slowed down by DevTools, which
is how a busy machine looks to a browser. Times are from the start of the navigation until the next
frame is painted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Browser

from benchmarks.log_entry import heading, quartiles, table
from tests.show.browser import LAPTOP, chromium

MARKS = {"text": "main", "table": "#shown:not(:empty)", "first plot": ".plot.drawn"}
"""What appears, and the selector that finds it."""

WATCH = """marks => {
  window.seen = {};
  const look = () => {
    for (const [name, selector] of Object.entries(marks)) {
      if (!(name in seen) && document.querySelector(selector)) {
        seen[name] = NaN;
        requestAnimationFrame(() => setTimeout(() => { seen[name] = performance.now(); }));
      }
    }
  };
  new MutationObserver(look).observe(document, {
    subtree: true, childList: true, attributes: true,
  });
}"""


def main() -> None:
    """Open each page many times and print an entry of the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--opens", type=int, default=9, help="of each page at each speed")
    parser.add_argument("--slower", type=float, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    rows = []
    with chromium() as browser:
        for file in arguments.pages:
            size = f"{file.stat().st_size / 2**20:.2f}"
            for times in arguments.slower:
                opens = [opened_in(browser, file, times) for _ in range(arguments.opens)]
                spent = [quartiles([one[name] for one in opens], form=".0f") for name in MARKS]
                rows.append([file.name, size, f"{times:g}", *spent])
    print(heading("How soon can a page be used?"), end="\n\n")
    headers = ["page", "MiB", "times slower", *(f"{name}, ms" for name in MARKS)]
    print(table(headers, rows))


def opened_in(browser: Browser, file: Path, times: float) -> dict[str, float]:
    """Milliseconds until each mark of a page is painted, on a processor this many times slower."""
    width, height = LAPTOP
    window = browser.new_context(viewport={"width": width, "height": height})
    page = window.new_page()
    window.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": times})
    page.add_init_script(f"({WATCH})({MARKS})")
    page.goto(file.resolve().as_uri())
    page.wait_for_function(
        "count => Object.values(seen).filter(Boolean).length === count",
        arg=len(MARKS),
        timeout=120_000,
    )
    seen: dict[str, float] = page.evaluate("seen")
    window.close()
    return seen


if __name__ == "__main__":
    main()

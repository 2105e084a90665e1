"""The page of some results: computed, and written whole."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import secrets
import zlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.escape import changed_texts, html_json, printable_values
from dtsweep.report.content import Content
from dtsweep.secret import without_homes
from dtsweep.show.markup import html_of
from dtsweep.show.plot import Plot
from dtsweep.show.points_table import NO_POINTS
from dtsweep.show.style import DARK
from dtsweep.show.view import page_view, plot_values


def _document_of(view: dict[str, Any]) -> str:
    """Assemble the page."""
    script, plotly, table = _file("page.js"), _plotly(), view["points"]
    raw = {
        "policy": _policy(script, plotly),
        "style": _file("page.css"),
        # The script reads it at once: what sorts and filters the table of points.
        "data": html_json(
            {
                "place": view["place"],
                "dark": DARK,
                "ids": table["ids"],
                "values": [column["values"] for column in table["columns"]],
                "filters": [one["values"] for one in table["filters"]],
                "settings": [one["name"] for one in table["filters"]],
            }
        ),
        "packed": _packed(view["plots"]),
        "script": script,
        "plotly": plotly,
    }
    made = f"made {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return html_of({**view, "version": version("dtsweep"), "made": made}, raw=raw)


def _packed(value: list[dict[str, Any]]) -> str:
    """JSON values, compressed: plots are most of what a page has to say."""
    text = json.dumps(printable_values(value), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _policy(*scripts: str) -> str:
    """Content security policy: these scripts, styles and pictures of the page itself alone."""
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _file(name: str) -> str:
    return files("dtsweep.show").joinpath(name).read_text("utf-8")


@cache
def _plotly() -> str:
    """Unpack plotly.js, the basic bundle, which creates no code from text."""
    packed = files("dtsweep.show").joinpath("plotly-basic.min.js.xz").read_bytes()
    text = lzma.decompress(packed).decode().rstrip()
    # In brackets, the bundle's one large function is compiled as it is parsed; without them, a
    # browser parses its 1.1 MB twice.
    begin, end = text.index("() => {\n"), text.rindex("}") + 1
    return f"{text[:begin]}({text[begin:end]}){text[end:]}"


def page_of_content(content: Content, *, place: str) -> str:
    """Make the page of a report that is computed already.

    Args:
        content: made without hosts if others are to see the page.
        place: of the results.
    """
    view = page_view(content, place=place)
    return _document_of(changed_texts(view, without_homes))


def page_of_plots(title: str, paragraphs: Sequence[str], plots: Sequence[Plot]) -> str:
    """Make a page of some plots, each with its table.

    Args:
        title: of the page.
        paragraphs: sentences next to the first plot, the first one in bold; code in backquotes.
        plots: at least one; the first stands on the first screen, the others in sections.
    """
    view = {
        "title": title,
        "place": title,
        "paragraphs": [*paragraphs],
        "plots": [plot_values(plot) for plot in plots],
        "points": NO_POINTS,
    }
    return _document_of(changed_texts(view, without_homes))


def write_page(page: str, file: str | Path) -> None:
    """Write a page whole: next to its place first, and then renamed, so that no half is ever read.

    Raises:
        SweepError: the file can't be written.
    """
    path = Path(file)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        part.write_text(page, "utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise SweepError(
            f"{path} can't be written: {error.strerror}; name a file in a folder that exists"
        ) from None

"""The HTML text of a page: template, style, scripts, data, and the policy that allows nothing else.

Scripts run by their digest alone, and nothing is loaded, so that no text of results can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from dtsweep.escape import html_json, printable_values
from dtsweep.page.markup import html_of
from dtsweep.page.traces import example_plot
from dtsweep.plots.style import DARK


def document_of(view: dict[str, Any]) -> str:
    """Assemble the page.

    Args:
        view: as `dtsweep.page.view.view_of` gives it.
    """
    script, plotly = _file("page.js"), _plotly()
    raw = {
        "policy": _policy(script, plotly, asks=view["refresh_s"] is not None),
        "style": _file("page.css"),
        "data": html_json(_data(view)),
        "packed": _packed(
            {"plots": view["plots"], "traces": [one["steps"] for one in view["traces"]]}
        ),
        "script": script,
        "plotly": plotly,
    }
    return html_of(
        view,
        raw=raw,
        title=f"dtsweep · {view['place'].rstrip('/').rpartition('/')[2]}",
        made=f"made {view['made_at'].replace('T', ' ').removesuffix('Z')} UTC",
    )


def _data(view: dict[str, Any]) -> dict[str, Any]:
    """Values that the script reads at once: what sorts and filters the table of points."""
    table = view["table"]
    return {
        "made_at": view["made_at"],
        "refresh_s": view["refresh_s"],
        "place": view["place"],
        "dark": DARK,
        "trace": example_plot(),
        "ids": table["ids"],
        "values": [column["values"] for column in table["columns"]],
        "filters": [one["values"] for one in table["filters"]],
        "settings": [one["name"] for one in table["filters"]],
    }


def _packed(value: dict[str, Any]) -> str:
    """JSON values, compressed: plots and step times are most of what a page has to say."""
    text = json.dumps(printable_values(value), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _policy(*scripts: str, asks: bool) -> str:
    """Content security policy: these scripts, styles and pictures of the page itself alone.

    Args:
        scripts: of the page.
        asks: let it ask its own server whether there is a newer one.
    """
    own_server = "connect-src 'self'; " if asks else ""
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        f"{own_server}img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _file(name: str) -> str:
    return files("dtsweep.page").joinpath(name).read_text("utf-8")


@cache
def _plotly() -> str:
    """Unpack plotly.js, the strict bundle, which creates no code from text."""
    packed = files("dtsweep.page").joinpath("plotly-strict.min.js.xz").read_bytes()
    text = lzma.decompress(packed).decode().rstrip()
    # In brackets, the bundle's one large function is compiled as it is parsed; without them, a
    # browser parses its 5 MB twice.
    begin, end = text.index("() => {\n"), text.rindex("}") + 1
    return f"{text[:begin]}({text[begin:end]}){text[end:]}"

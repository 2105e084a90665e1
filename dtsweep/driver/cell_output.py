"""Output of a run in a notebook: one display of its cell, which is updated in place."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from dtsweep.errors import printable
from dtsweep.escape import html_text
from dtsweep.privacy import local_redactor

PAUSE_S = 0.25
"""Least time between two updates that may wait."""


@dataclass(frozen=True, kw_only=True)
class CellContent:
    """Text of a run's display."""

    done: int
    total: int
    state: str
    """State of the run in one line."""
    notices: Sequence[str]
    """Lines that stay until the run ends."""
    last: Sequence[str]
    """Lines on the trials that have ended last."""

    def as_text(self) -> str:
        """Give it for a notebook that shows no HTML."""
        shown = local_redactor().text
        return "\n".join(printable(shown(line)) for line in (*self.notices, *self.last, self.state))

    def as_html(self) -> str:
        """Give it as HTML in the colours of the notebook."""
        shown = local_redactor().text
        notices = "".join(f"<div>{html_text(shown(line))}</div>" for line in self.notices)
        last = "".join(f"<div>{html_text(shown(line))}</div>" for line in self.last)
        bar = (
            f'<progress value="{self.done}" max="{max(self.total, 1)}" '
            f'aria-label="trials that have ended"></progress>'
        )
        state = f"<div>{bar} <strong>{html_text(shown(self.state))}</strong></div>"
        return f'<div style="font-family: monospace">{notices}{state}{last}</div>'


class CellOutput:
    """A display in the output of a cell."""

    def __init__(self) -> None:
        """Make nothing yet: the first `show` makes the display."""
        self._display_id = uuid.uuid4().hex
        self._is_shown = False
        self._shown_at = -PAUSE_S
        self._lock = threading.Lock()

    def show(self, content: CellContent, *, may_wait: bool) -> None:
        """Show the content in place of the last one; from any thread.

        Args:
            content: to show.
            may_wait: leave it to the next call if the last update was less than `PAUSE_S` ago.
        """
        from IPython.display import display

        with self._lock:
            now = time.monotonic()
            if may_wait and now - self._shown_at < PAUSE_S:
                return
            self._shown_at = now
            bundle = {"text/plain": content.as_text(), "text/html": content.as_html()}
            options = {"raw": True, "display_id": self._display_id, "update": self._is_shown}
            display(bundle, **options)  # type: ignore[no-untyped-call]  # IPython has no types
            self._is_shown = True


def cell_output() -> CellOutput | None:
    """Make the output of the present cell; None outside of a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    # A shell in a terminal has no kernel: there the live line is shown.
    if getattr(get_ipython(), "kernel", None) is None:
        return None
    return CellOutput()

"""HTTP server of the page, for this machine alone."""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
import time
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dtsweep.errors import StorageError, SweepError, error_line
from dtsweep.escape import html_text
from dtsweep.results.store import Results
from dtsweep.show.page import page_of

_ADDRESS = "127.0.0.1"

_REFRESH_S = 5.0
"""Time after which a page in a browser asks again."""

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page of some results, with its newest rows, to those who have the URL."""

    daemon_threads = True

    def __init__(self, results: Results, *, port: int) -> None:
        """Listen on the loopback interface.

        Args:
            results: the place of the results.
            port: 0 is a free one.

        Raises:
            SweepError: another process listens on the port, or it is reserved.
        """
        self.page = ServedPage(results)
        self._token = secrets.token_urlsafe(24)
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except OSError as error:
            raise SweepError(
                f"port {port} can't be used: {error.strerror}; leave --port out for a free one"
            ) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away before it had the whole page."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    @property
    def path(self) -> str:
        """Path of the page, which holds the token."""
        return f"/{self._token}/"

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{_ADDRESS}:{self.server_port}{self.path}"


class ServedPage:
    """The page, made again when there are new rows."""

    def __init__(self, results: Results) -> None:
        """Make nothing yet."""
        self._results = results
        self._lock = threading.Lock()
        self._shown: Any = None
        self._html, self._made_s = "", 0.0

    def html(self) -> tuple[str, float]:
        """Give the page of the present rows, and when it was made in seconds since 1970.

        Raises:
            SweepError: there are no results yet, or they can't be used.
            StorageError: they can't be read.
        """
        with self._lock:
            # Another one once there are new rows.
            state = self._results.storage.sizes("trials")
            if state != self._shown or not self._html:
                # It stays on this machine, so it has what a terminal shows.
                self._html = page_of(self._results, with_hosts=True, refresh_s=_REFRESH_S)
                self._shown, self._made_s = state, time.time()
            return self._html, self._made_s


class _Answer(NamedTuple):
    status: HTTPStatus
    text: str
    made_s: float | None = None
    """Time at which the page was made, in seconds since 1970; None of other pages."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: PageServer
    timeout = 30.0
    server_version, sys_version = "dtsweep", ""

    def do_GET(self) -> None:  # the name of http.server
        """Send the page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers of the page."""
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        """Print nothing: the path holds the token."""

    def _answer(self, *, with_body: bool) -> None:
        answer = _Answer(HTTPStatus.NOT_FOUND, "")
        if self._is_from_here() and self._has_token():
            answer = self._page()
        body = answer.text.encode()
        self.send_response(answer.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if answer.made_s is not None:
            # A page asks for this before it loads itself again.
            self.send_header("Last-Modified", formatdate(answer.made_s, usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _is_from_here(self) -> bool:
        """True if the browser was given a name of this machine.

        A page elsewhere whose name is made to stand for 127.0.0.1 sends its own name.
        """
        try:
            # Browsers leave the port out if it is 80.
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return False
        return host in (_ADDRESS, "localhost")

    def _has_token(self) -> bool:
        return hmac.compare_digest(self.path.encode(), self.server.path.encode())

    def _page(self) -> _Answer:
        try:
            return _Answer(HTTPStatus.OK, *self.server.page.html())
        except SweepError as error:
            return _Answer(HTTPStatus.OK, _waiting(str(error)))
        except StorageError as error:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, _waiting(str(error)))
        except Exception as error:  # noqa: BLE001  # a browser without an answer asks no more
            return _Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _waiting(error_line(error)))


def _waiting(words: str) -> str:
    """Page without results, which asks again."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>dtsweep</title>'
        f'<meta http-equiv="refresh" content="{_REFRESH_S:.0f}">'
        f"<p>No page yet: {html_text(words)}</p></html>"
    )

"""What a dashboard answers, and what clocks tell."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dtsweep.doctor.look_around import ask_clock, dashboard_answers
from dtsweep.hardware.readiness import interfaces


@contextmanager
def dashboard(status: int, *, host: str) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer((host, 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "asks"), [(401, True), (200, False), (404, False)])
def test_a_dashboard_that_others_reach_is_asked_without_a_token(status: int, asks: bool) -> None:
    outside = [
        address
        for name, own in interfaces().items()
        if name != "lo"
        for address in own
        if "." in address
    ]
    if not outside:
        pytest.skip("this machine has no address but the loopback")
    with dashboard(status, host="0.0.0.0") as port:  # for the length of this test
        answer = dashboard_answers(f"{outside[0]}:{port}")
        assert answer == {"address": f"{outside[0]}:{port}", "asks_for_token": asks}


def test_a_dashboard_on_the_loopback_or_none_is_not_reached_by_others() -> None:
    with dashboard(200, host="127.0.0.1") as port:
        assert dashboard_answers(f"127.0.0.1:{port}") is None
    assert dashboard_answers(None) is None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert dashboard_answers(f"{socket.gethostname()}.invalid:{port}") is None


def test_what_speaks_no_http_is_no_dashboard() -> None:
    outside = [
        address
        for name, own in interfaces().items()
        if name != "lo"
        for address in own
        if "." in address
    ]
    if not outside:
        pytest.skip("this machine has no address but the loopback")

    def greet(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            connection.recv(100)
            connection.sendall(b"220 mail ready\r\n")

    with socket.create_server(("0.0.0.0", 0)) as server:
        thread = threading.Thread(target=greet, args=[server])
        thread.start()
        assert dashboard_answers(f"{outside[0]}:{server.getsockname()[1]}") is None
        thread.join()


def test_a_clock_is_believed_by_the_soonest_answer() -> None:
    # Asked at 0, 1, …; each answer takes 1 s, and the other clock is 100 s ahead.
    ours = iter(float(second) for second in range(100))
    there = iter(100.5 + 2 * second for second in range(100))
    assert ask_clock(lambda: next(there), clock=lambda: next(ours)) == {
        "clock_offset_s": 100.0,
        "clock_error_s": 0.5,
    }

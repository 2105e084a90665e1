"""A proxy in front of a server, which can be made to fail in several ways."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time
from types import TracebackType

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""The answer of a store that has no time."""


SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

CONTINUE_S = 0.02
"""Between this answer and the one after it: of two that come at once Azure's library drops the
second, and waits until the server closes the connection."""

REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) /")

STRUCK = 0.05
"""Share of the requests that `random` answers with an error; it cuts twice as many."""

LATE_S = 60.0
"""Longest time for which `late` holds a request."""

LATE_ANSWER_S = 2.0
"""Time for the server to do what a late request asks."""


class Proxy:
    """Passes bytes between clients and one server; `fault` is what it does with new connections.

    `closed` closes them at once, `silent` takes them and never answers, `busy` answers 503, `cut`
    passes a few bytes and closes, and None passes all. `random` answers some requests with 500 or
    503, cuts and delays others on their way and on the way of their answers; `struck` counts them.
    `late` holds the next PUT until `release`; the server gets it, and after it all is `closed`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: str | None = None
        self.connections = 0
        self.release = threading.Event()
        self.struck = {"error": 0, "cut": 0, "delay": 0}
        self._random = random.Random(7)
        self._cut_next: set[socket.socket] = set()
        """Clients of which the next bytes are cut: the rest of a request, or its answer."""
        self.short_head: bytes | None = None
        """Part of a path: the next answer to a HEAD of it is cut after its first line."""
        self._short: set[socket.socket] = set()
        """Clients whose next answer is cut so."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not end a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()

    def fail(self, fault: str | None) -> None:
        """Do this with new connections from now on; those that are open are closed."""
        self.fault = fault
        self.drop_all()

    def drop_all(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.connections += 1
            if self.fault == "closed":
                client.close()
                continue
            self._open.append(client)
            if self.fault == "silent":
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self.fault == "busy":
            with contextlib.suppress(OSError):
                client.recv(65536)
                client.sendall(BUSY)
                client.close()
            return
        most = 300 if self.fault == "cut" else None
        server = socket.create_connection(self._server)
        self._open.append(server)
        threading.Thread(target=self._copy, args=(server, client, None), daemon=True).start()
        self._copy(client, server, most)

    def _copy(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        copied = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.fault == "late" and data.startswith(b"PUT "):
                    self._pass_late(data, target)
                    break
                if self._is_short(data, source, target):
                    break
                if self.fault == "random" and not self._passes(data, source, target):
                    break
                copied += len(data)
                if data.startswith(CONTINUE):
                    target.sendall(CONTINUE)
                    time.sleep(CONTINUE_S)
                    data = data.removeprefix(CONTINUE)
                target.sendall(data)
                if most is not None and copied > most:
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_short(self, data: bytes, source: socket.socket, target: socket.socket) -> bool:
        """True if this was an answer of which the first line alone was passed."""
        if self.short_head and data.startswith(b"HEAD ") and self.short_head in data:
            self.short_head = None
            self._short.add(source)
        if target not in self._short:
            return False
        target.sendall(data[: data.index(b"\n") + 1])
        return True

    def _pass_late(self, data: bytes, target: socket.socket) -> None:
        self.fault = None
        self.release.wait(LATE_S)
        target.sendall(data)
        time.sleep(LATE_ANSWER_S)
        self.fail("closed")

    def _passes(self, data: bytes, source: socket.socket, target: socket.socket) -> bool:
        """Strike some of what passes; False if the connection is to end."""
        if source in self._cut_next or target in self._cut_next:
            # A client's own next bytes, or the server's first ones for it.
            self._cut_next -= {source, target}
            target.sendall(data[: self._random.randrange(len(data))])
            return False
        if not REQUEST.match(data):
            return True
        fate = self._random.random() / STRUCK
        if fate < 1:
            self.struck["error"] += 1
            self._answer_error(source, has_body=not data.startswith(b"HEAD"))
            return False
        if fate < 2:
            self.struck["cut"] += 1
            target.sendall(data[: self._random.randrange(len(data))])
            return False
        if fate < 3:
            self.struck["cut"] += 1
            self._cut_next.add(source)
        elif fate < 4:
            self.struck["delay"] += 1
            time.sleep(self._random.uniform(0, 0.2))
        return True

    def _answer_error(self, client: socket.socket, *, has_body: bool) -> None:
        status = self._random.choice([b"500 Internal Server Error", b"503 Slow Down"])
        body = SLOW_DOWN if has_body else b""
        lines = [
            b"HTTP/1.1 " + status,
            b"Content-Type: application/xml",
            b"Content-Length: " + str(len(body)).encode(),
            b"Connection: close",
        ]
        client.sendall(b"\r\n".join([*lines, b"", body]))

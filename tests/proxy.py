"""A proxy in front of a server, which can be made to fail in several ways."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""The answer of a store that has no time."""


class Proxy:
    """Passes bytes between clients and one server; `fault` is what it does with new connections.

    `closed` closes them at once, `silent` takes them and never answers, `busy` answers 503, `cut`
    passes a few bytes and closes, and None passes all.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: str | None = None
        self.connections = 0
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
                target.sendall(data)
                copied += len(data)
                if most is not None and copied > most:
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

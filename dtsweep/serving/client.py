"""The client of an open loop: sends each request at its time, and waits for none of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import numpy as np

from dtsweep.serving.requests import ReplicaAnswer, Requests, WindowEnd

_LOOK_S = 0.1
"""Between two looks at whether the window ends."""

_LEAST_WAIT_S, _WAIT_SHARE, _WAIT_SERVICES = 2.0, 0.25, 3
"""Wait after a window for its answers: the most of seconds, share of it, and longest services."""

Send = Callable[[int], AsyncIterator[ReplicaAnswer]]
"""Sends the request with this number, and gives its answers as they come."""


class Client:
    """Sends requests on a schedule of its own, whatever becomes of the earlier ones.

    Latencies count from the scheduled arrival: a request that waits because the server or this
    client is late counts with its whole wait.
    """

    def __init__(self, send: Send, requests: Requests, end: WindowEnd) -> None:
        """Take what is sent, how, and until when."""
        self._send = send
        self._requests = requests
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = threading.Event()

    async def run(self, *, on_window: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Send all requests until the window ends; wait a bounded time for what is unanswered.

        Args:
            on_window: called at the window's start in a thread, while requests go on.
            on_end: as that, at its end.
        """
        requests, self._began = self._requests, time.perf_counter()
        # A thread's sleep is true to 0.1 ms, an event loop's to 1 ms.
        pacing = asyncio.create_task(asyncio.to_thread(self._pace, asyncio.get_running_loop()))
        try:
            await asyncio.sleep(requests.window_at)
            await asyncio.to_thread(on_window)
            while not (reason := self._end.reason(requests, now_s=self._now_s())):
                await asyncio.sleep(_LOOK_S)
            requests.window_s = self._now_s() - requests.window_at
            requests.scheduled = int(np.searchsorted(requests.arrival_s, self._now_s()))
            requests.stop_reason = reason
            await asyncio.to_thread(on_end)
            # It may be behind the schedule.
            await asyncio.wait({pacing}, timeout=self._wait_s())
            await asyncio.wait({pacing, *self._tasks}, timeout=self._wait_s())
        finally:
            self._ended.set()
            await pacing
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _now_s(self) -> float:
        return time.perf_counter() - self._began

    def _wait_s(self) -> float:
        longest_s = float(np.nanmax(self._requests.served_s, initial=0.0))
        share_s = _WAIT_SHARE * self._requests.window_s
        return max(_LEAST_WAIT_S, share_s, _WAIT_SERVICES * longest_s)

    def _pace(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin each request at its time."""
        for number, arrival_s in enumerate(self._requests.arrival_s):
            has_ended = self._ended.wait(max(0.0, arrival_s - self._now_s()))
            if has_ended or number >= self._requests.scheduled:
                return
            loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        self._tasks.append(asyncio.create_task(self._ask(number)))

    async def _ask(self, number: int) -> None:
        """Send one request, and note its answers or its loss."""
        self._requests.sent_s[number] = self._now_s()
        try:
            async for answer in self._send(number):
                self._requests.note(number, answer, at_s=self._now_s())
        except Exception as error:  # noqa: BLE001  # whatever it is, the request is lost
            self._requests.end(number, error)
        else:
            self._requests.end(number)

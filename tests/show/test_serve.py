"""The page served to this machine: by its URL alone, and with the newest rows."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dtsweep import SweepError
from dtsweep.results.store import Results
from dtsweep.show import serve
from dtsweep.show.serve import PageServer, ServedPage
from tests.cli.called import called
from tests.pages import ROOT
from tests.report.test_notebook import ROWS, stored
from tests.show.browser import chromium
from tests.stores import BUCKET, running_store


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    text: str


def ask(server: PageServer, path: str, *, method: str = "GET", host: str | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.getheaders()), response.read().decode())
    connection.close()
    return answer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "results"


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[PageServer]:
    """A server whose results have no row at first."""
    with PageServer(Results(place, keeps_files=True), port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_page_waits_for_rows_and_renews_itself_with_each_commit(
    server: PageServer, place: Path
) -> None:
    first = ask(server, server.path)
    assert first.status == 200
    assert "No page yet: no results in" in first.text
    assert 'http-equiv="refresh"' in first.text
    stored(ROWS[:1], place)
    one = ask(server, server.path)
    assert "plotly" in one.text
    assert "1 trial: 1 ok" in one.text
    assert ask(server, server.path).text == one.text
    stored(ROWS, place)
    assert f"{len(ROWS)} trials: {len(ROWS)} ok" in ask(server, server.path).text


@pytest.mark.slow
def test_results_in_an_object_store_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_store("s3", tmp_path) as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        stored(ROWS, f"s3://{BUCKET}/r")
        page = ServedPage(Results(f"s3://{BUCKET}/r"))
        assert f"{len(ROWS)} trials" in page.html()[0]


def test_a_browser_keeps_no_copy_and_tells_no_other_site(server: PageServer) -> None:
    headers = ask(server, server.path, method="HEAD").headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/", "/index.html", "/%s", "/../%s/", "/%s/x"])
def test_without_the_token_there_is_no_answer(server: PageServer, path: str) -> None:
    token = server.path.strip("/")[:-1]
    answer = ask(server, path % token if "%s" in path else path)
    assert (answer.status, answer.text) == (404, "")


@pytest.mark.parametrize(
    ("method", "host", "status"),
    [
        # A name may stand for this machine elsewhere.
        ("HEAD", "evil.example:{}", 404),
        ("HEAD", "127.0.0.1.evil.example", 404),
        ("HEAD", "[x", 404),
        ("HEAD", "localhost:8000", 200),
        ("HEAD", "127.0.0.1", 200),
        ("POST", "127.0.0.1", 501),
        ("DELETE", "127.0.0.1", 501),
    ],
)
def test_the_server_only_reads_and_answers_to_its_own_names_alone(
    server: PageServer, method: str, host: str, status: int
) -> None:
    answer = ask(server, server.path, host=host.format(server.server_port), method=method)
    assert answer.status == status


def test_each_server_listens_on_this_machine_alone_with_a_token_of_its_own(
    server: PageServer, place: Path
) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    # Linux has all of 127.0.0.0/8 on the loopback: a server on 0.0.0.0 would answer here.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.server_port), timeout=5)
    with PageServer(Results(place), port=0) as other:
        assert len(other.path) > 30
        assert other.path != server.path


def test_the_command_prints_the_url_and_ends_well_with_ctrl_c(tmp_path: Path) -> None:
    stored(ROWS, tmp_path / "r")
    command = [sys.executable, "-m", "dtsweep", "serve", str(tmp_path / "r")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            url = re.search(r"http://127\.0\.0\.1:(\d+)(/\S+/)$", process.stdout.readline().strip())
            assert url is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=60)
            connection.request("GET", url[2])
            assert connection.getresponse().status == 200
            connection.close()  # Before the whole page is there: that is no error.
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
            assert process.stderr.read().splitlines()[-1] == "dtsweep: no longer serving"
        finally:
            process.kill()


def test_what_cannot_be_served_is_refused_in_one_line(
    server: PageServer, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=r"^no results in .*$"):
        called("serve", tmp_path / "r")
    with pytest.raises(SweepError, match=r"port \d+ can't be used: Address already in use; leave"):
        PageServer(Results(place), port=server.server_port)


def test_after_an_error_of_its_own_the_page_asks_again(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise OverflowError("no such number")

    monkeypatch.setattr(server.page, "html", fail)
    answer = ask(server, server.path)
    assert answer.status == 500
    assert "OverflowError: no such number" in answer.text
    assert 'http-equiv="refresh"' in answer.text


@pytest.mark.slow
def test_a_page_in_a_browser_loads_itself_again_only_for_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_REFRESH_S", 0.2)
    results = tmp_path / "results"
    stored(ROWS[:1], results)
    with (
        PageServer(Results(results), port=0) as server,
        chromium() as browser,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.method))
        page.goto(server.url)
        page.wait_for_selector("html[data-ready]")
        while asked.count("HEAD") < 3:
            page.wait_for_timeout(50)
        assert asked.count("GET") == 1
        stored(ROWS[:2], results)
        page.get_by_text("2 trials: 2 ok").wait_for(timeout=60_000)
        assert asked.count("GET") == 2
        server.shutdown()
        thread.join()

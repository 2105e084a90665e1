"""Real servers that speak as S3, Azure and Google do, each a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow.fs as pafs
import pytest

ACCOUNT = "devstoreaccount1"

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every emulator of Azure; its documentation publishes it."""

BUCKET = "bucket"

KINDS = ("s3", "gs", "az")


@dataclass(frozen=True, kw_only=True)
class Store:
    """A server with one empty bucket."""

    kind: str
    """The scheme of its URIs."""

    port: int

    def place(self, folder: str = "some/results") -> str:
        """Address of results."""
        return f"{self.kind}://{BUCKET}/{folder}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Variables by which it is reached, through another port if one is given."""
        address = f"http://127.0.0.1:{port or self.port}"
        if self.kind == "s3":
            return {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_ENDPOINT_URL": address,
            }
        if self.kind == "gs":
            return {"STORAGE_EMULATOR_HOST": address}
        return {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": KEY,
            "AZURE_STORAGE_SERVICE_ENDPOINT": f"{address}/{ACCOUNT}",
        }


@contextmanager
def running_store(kind: str, folder: Path) -> Iterator[Store]:
    """Start a server with an empty bucket; skip the test if there is none of this kind."""
    port = _free_port()
    with (folder / f"{kind}.log").open("wb") as log:
        server = subprocess.Popen(
            _command(kind, port, folder), cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(port, server)
        store = Store(kind=kind, port=port)
        _make_bucket(store)
        yield store
    finally:
        server.kill()
        server.wait()


def azurite() -> str | None:
    """Azure's emulator, a package of npm: `DTSWEEP_AZURITE`, or `azurite-blob` on the path."""
    return os.environ.get("DTSWEEP_AZURITE") or shutil.which("azurite-blob")


def _command(kind: str, port: int, folder: Path) -> list[str]:
    address = ["127.0.0.1", str(port)]
    if kind == "s3":
        return [sys.executable, "-m", "moto.server", "-H", address[0], "-p", address[1]]
    if kind == "gs":
        start = "from gcp_storage_emulator.__main__ import main; main()"
        options = ["start", "--host", address[0], "--port", address[1], "--in-memory", "--quiet"]
        return [sys.executable, "-c", start, *options]
    if (program := azurite()) is None:
        pytest.skip("no azurite: npm install azurite, and name azurite-blob in DTSWEEP_AZURITE")
    checks = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--location", str(folder)]
    return [program, "--blobHost", address[0], "--blobPort", address[1], *checks]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while True:
        assert server.poll() is None, f"{server.args!r} has ended"
        try:
            with urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return
        except HTTPError:  # an answer
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


def _make_bucket(store: Store) -> None:
    address = f"127.0.0.1:{store.port}"
    if store.kind == "s3":
        pafs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=f"http://{address}",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
    elif store.kind == "gs":
        body = json.dumps({"name": BUCKET}).encode()
        json_type = {"Content-Type": "application/json"}
        with urlopen(Request(f"http://{address}/storage/v1/b?project=p", body, json_type)):
            return
    else:
        authorities = {"blob_storage_authority": address, "dfs_storage_authority": address}
        schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        pafs.AzureFileSystem(ACCOUNT, account_key=KEY, **authorities, **schemes).create_dir(BUCKET)

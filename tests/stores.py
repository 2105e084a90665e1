"""Real servers that speak as S3, Azure and Google do, each a process of its own."""

from __future__ import annotations

import base64
import hmac
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
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pyarrow.fs as pafs
import pytest

ACCOUNT = "devstoreaccount1"

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every emulator of Azure; its documentation publishes it."""

BUCKET = "bucket"

KINDS = ("s3", "gs", "abfs")


@dataclass(frozen=True, kw_only=True)
class Store:
    """A server with one empty bucket."""

    kind: str
    """The scheme of its URIs."""

    port: int

    def place(self, folder: str = "some/results", port: int | None = None) -> str:
        """Address of results, through another port if one is given."""
        host = f"127.0.0.1:{port or self.port}"
        if self.kind == "gs":
            return f"gs://anonymous@{BUCKET}/{folder}?endpoint_override={host}&scheme=http"
        if self.kind == "abfs":
            return f"abfs://{ACCOUNT}@{host}/{BUCKET}/{folder}?enable_tls=false"
        return f"s3://{BUCKET}/{folder}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Variables by which it is reached; those of S3 through another port if one is given."""
        if self.kind == "s3":
            return {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            }
        return {"AZURE_STORAGE_SAS_TOKEN": sas_token()}


def sas_token(key: str = KEY) -> str:
    """A token for everything in the emulator's account, as Azure's own tools make it."""
    version, permissions, expiry = "2021-08-06", "rwdlac", "2100-01-01T00:00:00Z"
    signed = (ACCOUNT, permissions, "b", "sco", "", expiry, "", "https,http", version, "", "")
    text = "\n".join(signed).encode()
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), text, "sha256")).decode()
    fields = {"sv": version, "ss": "b", "srt": "sco", "sp": permissions, "se": expiry}
    return urlencode(fields | {"spr": "https,http", "sig": signature})


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

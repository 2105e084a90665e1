"""Object stores: how the address of one is opened, and which of its errors won't pass."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow.fs as pafs

from dtsweep.errors import did_you_mean
from dtsweep.secret import without_credentials

_S3_OPTIONS = ("endpoint_override", "region", "scheme")

S3_ATTEMPTS = 6
"""Of a request to S3, within some seconds."""

_GS_RETRIES_S = 10
"""Time in which a request to Google's store is tried again."""

TOKEN_S = 240.0
"""Time for which a new token of Azure is good without a question: they are valid for longer."""

_REFUSALS = re.compile(
    "ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|"
    "INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|HTTP status 40[0134]|No such bucket|"
    # Azure: such as "Azure Error: [ContainerNotFound] 404".
    r"Azure Error: \[\w*\] 40[0134]|"
    # Google: a session of an upload may be lost in an outage; then the upload begins again.
    r"Status\((PERMISSION_DENIED|UNAUTHENTICATED|INVALID_ARGUMENT|NOT_FOUND(?!.*UploadChunk))",
    re.IGNORECASE | re.DOTALL,
)
"""Words of an object store that refuses: the same call will not succeed later."""


@dataclass(frozen=True)
class ObjectStore:
    """An opened store."""

    files: Any
    """Arrow's file system."""

    root: str
    """Bucket or container, with the folder."""

    address: str
    """Of this folder, without credentials: two stores of one name have two addresses."""

    opened_again: Callable[[], Any] | None = None
    """Opens the file system again with a new token, due every `TOKEN_S`; None if none is needed."""


def open_store(where: str) -> ObjectStore:
    """Open the store of a URI, without touching it.

    Raises:
        ValueError: the URI, or a variable that goes with it, is not as it should be.
        pyarrow.ArrowException: Arrow can't open it.
        OSError: it can't be reached.
    """
    uri = urlsplit(where)
    match uri.scheme:
        case "s3":
            return _s3(where, uri)
        case "gs" | "gcs":
            # Google's own limit is a quarter of an hour.
            limit = f"retry_limit_seconds={_GS_RETRIES_S}"
            where = uri._replace(query=f"{uri.query}&{limit}".removeprefix("&")).geturl()
        case "abfs" | "abfss":
            return _azure(uri)
    files, root = pafs.FileSystem.from_uri(where)
    root = root.rstrip("/")
    if isinstance(files, pafs.LocalFileSystem):
        return ObjectStore(files, root, root)
    return ObjectStore(files, root, without_credentials(where))


def leave_calls() -> None:
    """Have the end of the process not wait for calls of S3; only before `os._exit`."""
    atexit.unregister(pafs.ensure_s3_finalized)


def refuses(error: BaseException) -> bool:
    """True if the same call will not succeed later."""
    # In an outage Google's store may lose the session of an upload; the next one has its own.
    if isinstance(error, FileNotFoundError) and "UploadChunk" not in str(error):
        return True
    return _REFUSALS.search(str(error)) is not None


def reason_of(error: BaseException) -> str:
    r"""Reason of a failed call in one line, less what the libraries repeat around it.

    >>> reason_of(OSError("Copy failed. Azure Error: [Gone] 404 The blob is gone.\nRequestId:7"))
    'Gone 404 The blob is gone.'
    """
    text = str(error)
    if "DefaultAzureCredential" in text:
        return (
            "Azure's DefaultAzureCredential has no token; set AZURE_STORAGE_SAS_TOKEN, or log in "
            "with `az login`"
        )
    if "OAuth2 access token" in text:
        return (
            "Google's default credentials give no token; set GOOGLE_APPLICATION_CREDENTIALS or "
            "log in with `gcloud auth application-default login`"
        )
    if match := re.search(r"Azure Error: \[(\w*)\] ([^\n]*)", text):
        return f"{match[1]} {match[2]}".strip()
    if match := re.search(r"cloud::Status\((\w+): .*?message of (.*?) error_info", text, re.DOTALL):
        function = re.search(r"gcloud-cpp\.retry\.function=(\w+)", text)
        where = f" ({function[1]})" if function else ""
        return f"{match[1]}: {match[2]}{where}"
    return " ".join(text.split())


def _s3(where: str, uri: SplitResult) -> ObjectStore:
    options = _options(uri, _S3_OPTIONS)
    shown = without_credentials(where)
    if "@" not in uri.netloc and shown.partition("?")[0] != where.partition("?")[0]:
        raise ValueError("a slash in the secret key is written %2F")
    bucket = uri.netloc.rpartition("@")[2]
    address = f"{shown} {os.environ.get('AWS_ENDPOINT_URL', '')}"
    options.setdefault("endpoint_override", os.environ.get("AWS_ENDPOINT_URL", ""))
    if not options["endpoint_override"]:
        del options["endpoint_override"]
        options["region"] = options.get("region") or pafs.resolve_s3_region(bucket)
    arguments = {
        "access_key": unquote(uri.username) if uri.username else None,
        "secret_key": unquote(uri.password) if uri.password else None,
        # The default, three attempts within a second, gives up on a store that is merely busy.
        # Longer outages are the outbox's business, which says so.
        "retry_strategy": pafs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS),
        "connect_timeout": 3.0,
        "request_timeout": 10.0,
        **options,
    }
    try:
        # One PUT for a small file, in place of an upload in parts.
        files = pafs.S3FileSystem(**arguments, allow_delayed_open=True)
    except TypeError:  # an older Arrow
        files = pafs.S3FileSystem(**arguments)
    return ObjectStore(files, f"{bucket}{uri.path}".rstrip("/"), address)


def _azure(uri: SplitResult) -> ObjectStore:
    if uri.password is not None:
        # Arrow would take no notice of it.
        raise ValueError("a key of an account is not taken; set AZURE_STORAGE_SAS_TOKEN")
    address = without_credentials(uri.geturl())
    token = os.environ.get("AZURE_STORAGE_SAS_TOKEN", "").removeprefix("?")
    has_token = "sig" in dict(parse_qsl(uri.query))
    if token and not has_token:
        uri = uri._replace(query=f"{uri.query}&{token}".removeprefix("&"))
        has_token = True
    files, root = pafs.FileSystem.from_uri(uri.geturl())
    root = root.strip("/")
    again = None
    if not has_token:
        again = partial(_azure_with_token, uri.geturl(), root)
    return ObjectStore(files, root, address, opened_again=again)


def _azure_with_token(where: str, root: str) -> Any:
    """Open Azure's file system and have it ask for its token in the one call that may fail.

    Arrow catches the library's AuthenticationException in the first call of a file system alone.
    In any later one, as at the renewal of a token, it would end the process.
    """
    files, _ = pafs.FileSystem.from_uri(where)
    files.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    return files


def _options(uri: SplitResult, allowed: tuple[str, ...]) -> dict[str, str]:
    """Options of a URI, all of them known."""
    options = dict(parse_qsl(uri.query))
    for name in options:
        if name not in allowed:
            raise ValueError(f"option {name!r} is unknown, {did_you_mean(name, allowed)}")
    return options

"""Azure Blob Storage: account, credentials and address, from the variables of Azure's tools."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
ACCOUNT = "AZURE_STORAGE_ACCOUNT"
KEY = "AZURE_STORAGE_KEY"
SAS_TOKEN = "AZURE_STORAGE_SAS_TOKEN"  # noqa: S105  # the name of a variable
ENDPOINT = "AZURE_STORAGE_SERVICE_ENDPOINT"

PUBLIC_SUFFIX = "core.windows.net"

EMULATOR = (
    "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;AccountKey="
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Meaning of `UseDevelopmentStorage=true`: the published account of every emulator."""


def azure_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of Arrow's file system for an account, without those that are unknown.

    A connection string comes before the other variables, as in Azure's command line. Without a key
    or a token Arrow asks `DefaultAzureCredential`.

    >>> azure_options({"AZURE_STORAGE_ACCOUNT": "acme", "AZURE_STORAGE_KEY": "YQ=="})
    {'account_name': 'acme', 'account_key': 'YQ=='}

    Raises:
        ValueError: no account is named, or an address can't be used.
    """
    fields = _fields(environment)
    if not fields.get("AccountName"):
        raise ValueError(f"no account is named; set {ACCOUNT} or {CONNECTION_STRING}")
    options = {
        "account_name": fields["AccountName"],
        "account_key": fields.get("AccountKey"),
        "sas_token": fields.get("SharedAccessSignature", "").removeprefix("?") or None,
        **_endpoint(fields),
    }
    if options["account_key"]:
        options["sas_token"] = None
        _refuse_malformed_key(fields["AccountKey"])
    return {name: value for name, value in options.items() if value}


def azure_address(options: Mapping[str, Any]) -> str:
    """Address of an account, without its credentials.

    >>> azure_address({"account_name": "acme", "account_key": "YQ=="})
    'https://acme.blob.core.windows.net'
    """
    authority = options.get("blob_storage_authority", f".blob.{PUBLIC_SUFFIX}")
    scheme = options.get("blob_storage_scheme", "https")
    if authority.startswith("."):
        return f"{scheme}://{options['account_name']}{authority}"
    return f"{scheme}://{authority}/{options['account_name']}"


def azure_files(options: Mapping[str, Any]) -> Any:
    """Open the account's file system.

    Raises:
        ValueError: the installed Arrow can't.
    """
    upgrade = "upgrade it: pip install --upgrade pyarrow"
    try:
        return pafs.AzureFileSystem(**options)
    except (ImportError, AttributeError):
        raise ValueError(f"the installed pyarrow has no Azure support; {upgrade}") from None
    except TypeError as error:
        raise ValueError(
            f"the installed pyarrow has not all of its Azure support ({error}); {upgrade}"
        ) from None


def _refuse_malformed_key(key: str) -> None:
    """Refuse a key that is not base64: Azure's library would end the process in a thread."""
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise ValueError(f"the key of {KEY} or {CONNECTION_STRING} is not base64") from None


def _fields(environment: Mapping[str, str]) -> dict[str, str]:
    """Fields of the connection string, or the same from single variables."""
    text = environment.get(CONNECTION_STRING, "")
    if not text:
        return {
            "AccountName": environment.get(ACCOUNT, ""),
            "AccountKey": environment.get(KEY, ""),
            "SharedAccessSignature": environment.get(SAS_TOKEN, ""),
            "BlobEndpoint": environment.get(ENDPOINT, ""),
        }
    parts = [part.partition("=") for part in text.strip().strip('"').split(";") if part]
    fields = {name.strip(): value.strip() for name, _, value in parts}
    if fields.get("UseDevelopmentStorage", "").lower() == "true":
        return _fields({CONNECTION_STRING: EMULATOR})
    if "AccountName" not in fields:
        # A string with a token may name the account in its endpoint alone.
        host = urlsplit(fields.get("BlobEndpoint", "")).hostname or ""
        name, _, rest = host.partition(".")
        fields["AccountName"] = name if rest.startswith("blob.") else environment.get(ACCOUNT, "")
    return fields


def _endpoint(fields: Mapping[str, str]) -> dict[str, str]:
    """Scheme and authorities of an address that is not the public cloud's."""
    account, address = fields["AccountName"], fields.get("BlobEndpoint", "")
    if not address:
        suffix = fields.get("EndpointSuffix", PUBLIC_SUFFIX)
        scheme = fields.get("DefaultEndpointsProtocol", "https")
        if (suffix, scheme) == (PUBLIC_SUFFIX, "https"):
            return {}
        return _authorities(scheme, f".blob.{suffix}")
    uri = urlsplit(address)
    path = uri.path.strip("/")
    if uri.scheme in {"http", "https"} and uri.hostname:
        if path == account:
            return _authorities(uri.scheme, uri.netloc)
        if not path and uri.netloc.startswith(f"{account}."):
            return _authorities(uri.scheme, uri.netloc.removeprefix(account))
    raise ValueError(
        f"the address {address!r} can't be used; give https://{account}.HOST or "
        f"http://HOST:PORT/{account}"
    )


def _authorities(scheme: str, blob: str) -> dict[str, str]:
    return {
        "blob_storage_scheme": scheme,
        "blob_storage_authority": blob,
        "dfs_storage_scheme": scheme,
        "dfs_storage_authority": blob.replace(".blob.", ".dfs.", 1),
    }


def azure_from_environment() -> dict[str, Any]:
    """Arguments for the account that this process's variables name."""
    return azure_options(os.environ)

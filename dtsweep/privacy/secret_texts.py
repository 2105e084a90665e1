"""Secrets in texts: tokens by their form, and values after a name that marks a secret."""

from __future__ import annotations

import re

from dtsweep.errors import without_credentials
from dtsweep.sweep.secret import HIDDEN, is_secret

SECRET = "[secret]"  # noqa: S105  # it stands in the place of one

_TOKENS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bhf_[A-Za-z0-9]{16,}|\bgh[opusr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bsk-[\w-]{16,}|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{30,}"
    r"|\bya29\.[\w-]{16,}|\bnpm_\w{16,}|\bpypi-[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.DOTALL,
)
"""Secrets that are known by their form."""

_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)[\w.~+/=-]{12,}", re.IGNORECASE)

_NAMED = re.compile(
    r"""(?P<quote>["']?)\b(?P<name>[A-Za-z][\w.-]*)(?P=quote)(?P<sign>\s*[=:]\s*)"""
    r"""(?P<before>["']?)(?P<value>[^\s"',;&()\[\]{}]+)"""
)
"""A value with its name, as `HF_TOKEN=x` or `"password": "x"`."""

_OPTION = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w-]*)(?P<space>\s+)(?P<value>[^\s-]\S*)")

_SPOKEN = re.compile(r"(?:password|passwd|passphrase|secret|token|api[-_]?key)", re.IGNORECASE)
"""Names that mark a secret before a colon, which follows other words in any sentence."""

_PLAIN = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?|true|false|null|none", re.IGNORECASE)
"""Values that are not secrets."""


def without_secrets(text: str) -> str:
    """Text with a word in the place of each secret.

    >>> without_secrets("HF_TOKEN=abc tokens=512 --password x, KeyError: 'a'")
    "HF_TOKEN=[secret] tokens=512 --password [secret] KeyError: 'a'"
    """
    text = _TOKENS.sub(SECRET, without_credentials(text))
    text = _BEARER.sub(rf"\1\2{SECRET}", text)
    return _OPTION.sub(_option, _NAMED.sub(_named, text))


def _named(match: re.Match[str]) -> str:
    """A value with its name, and without the value if the name marks a secret."""
    name = match["name"]
    is_marked = is_secret(name)
    if ":" in match["sign"] and not match["quote"]:
        is_marked = _SPOKEN.fullmatch(name) is not None
    if not is_marked or not _may_be_secret(match["value"]):
        return match[0]
    quote = match["quote"]
    return f"{quote}{name}{quote}{match['sign']}{match['before']}{SECRET}"


def _option(match: re.Match[str]) -> str:
    if not is_secret(match["name"]) or not _may_be_secret(match["value"]):
        return match[0]
    return f"{match['name']}{match['space']}{SECRET}"


def _may_be_secret(value: str) -> bool:
    is_shown = _PLAIN.fullmatch(value) or HIDDEN.match(value) or value.startswith(SECRET)
    return not is_shown

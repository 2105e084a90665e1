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
    r"|\bya29\.[\w-]{16,}|\bnpm_\w{16,}|\bpypi-[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\bwandb_v\d_\w{16,}",
    re.DOTALL,
)
"""Secrets that are known by their form."""

_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)[\w.~+/=-]{12,}", re.IGNORECASE)

_NAMED = re.compile(
    r"""(?P<quote>["']?)(?<![\w.-])[-.]*+(?P<name>[A-Za-z_][\w.-]*+)(?P=quote)\s*+(?P<sign>[=:])\s*+"""
)
"""A name before its value, as `HF_TOKEN=` or `"password": `.

It begins where a word begins and never gives characters back, so that a long text takes a time in
proportion to its length.
"""

_VALUE = re.compile(
    r"""(?P<before>["'])(?P<quoted>(?:\\.|(?!(?P=before))[^\\\n])*+)"""
    r"""|(?P<bare>(?:[^\s"',;&()\[\]{}]|,(?=[^\s"',;&()\[\]{}])(?![\w.-]*+[=:]))++)"""
)
"""A value: to its closing quote, or the end of its line; without quotes to a space or a sign.

A comma ends it where another name follows.
"""

_KEY = re.compile(r"""(\bkey\b[\s:="']{1,9})[0-9a-f]{40}\b""", re.IGNORECASE)
"""A key of W&B: only the word before it distinguishes it from a commit."""

_OPTION = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w-]*)(?P<space>\s+)(?P<value>[^\s-]\S*)")

_SPOKEN = re.compile(r"(?:password|passwd|passphrase|secret|token|api[-_]?key)", re.IGNORECASE)
"""Names that mark a secret before a colon, which follows other words in any sentence."""

_PLAIN = re.compile(
    r"[+-]?[\d.]+(?:[eE][+-]?\d+)?(?:,[+-]?[\d.]+(?:[eE][+-]?\d+)?)*|true|false|null|none",
    re.IGNORECASE,
)
"""Values that are not secrets."""


def without_secrets(text: str) -> str:
    """Text with a word in the place of each secret.

    >>> without_secrets("HF_TOKEN=abc tokens=512 --password x, KeyError: 'a'")
    "HF_TOKEN=[secret] tokens=512 --password [secret] KeyError: 'a'"
    """
    text = _TOKENS.sub(SECRET, without_credentials(text))
    text = _BEARER.sub(rf"\1\2{SECRET}", text)
    text = _KEY.sub(rf"\1{SECRET}", text)
    return _OPTION.sub(_option, _without_named(text))


def _without_named(text: str) -> str:
    """Text without the values whose names mark a secret."""
    pieces = []
    place = after = 0
    for name in _NAMED.finditer(text):
        # The value of an earlier name may hold this one.
        if name.start() < after or not _is_marked(name):
            continue
        value = _VALUE.match(text, name.end())
        if value is None:
            continue
        after = value.end()
        if _may_be_secret(value["bare"] or value["quoted"] or ""):
            pieces += [text[place : value.start()], value["before"] or "", SECRET]
            place = after
    return "".join([*pieces, text[place:]])


def _is_marked(match: re.Match[str]) -> bool:
    """True if a name marks the value after it as a secret."""
    if match["sign"] == ":" and not match["quote"]:
        return _SPOKEN.fullmatch(match["name"]) is not None
    return is_secret(match["name"])


def _option(match: re.Match[str]) -> str:
    if not is_secret(match["name"]) or not _may_be_secret(match["value"]):
        return match[0]
    return f"{match['name']}{match['space']}{SECRET}"


def _may_be_secret(value: str) -> bool:
    is_shown = (
        not value or _PLAIN.fullmatch(value) or HIDDEN.match(value) or value.startswith(SECRET)
    )
    return not is_shown

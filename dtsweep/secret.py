"""Secrets, by one list of patterns, and what pages and exports leave out.

`without_secrets` is for every text that is stored: reasons, logs, arguments. `without_credentials`
leaves out what is a secret by its form, and is for settings and messages.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import pandas as pd

_SECRET = "[secret]"  # noqa: S105  # it stands in the place of one

HIDDEN = re.compile(r"hidden:[0-9a-f]{4}")

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

_MARK = re.compile(
    "KEY|TOKEN(?!I[ZS])|SECRET|PASS(?!ING|IVE|ENGER|AGE)|PWD|CRED(?!IT)|COOKIE|JWT"
    "|AUTH(?!OR)|AUTHORI[SZ]|CONNECTION.*STRING|STRING.*CONNECTION"
)
"""Parts of a name in capitals that mark its value as a secret, anywhere in the name."""

_NOT_SECRET = re.compile(
    r"(OLD)?PWD|RAY_AUTH_MODE|(NCCL|UCX)_IB_PKEY"
    r"|(?i:(PAD|BOS|EOS|UNK|MASK|SEP|CLS|NEXT|PREV|FIRST|LAST|START|STOP|END|IMAGE|SPECIAL)_TOKEN(_ID)?"
    r"|TOKEN_COUNT|(MAX|MIN|NUM|MAX_NEW)_TOKENS|MAX_KEYS|KEY_LENGTH|PASSES|PASS_COUNT"
    r"|(.*_)?(BY|COM|TRES)PASS(_.*)?)"
)
"""Whole names that are not secrets though they have such a part; fields may be in small letters."""

_SPOKEN = re.compile(
    r"(?i:(?:.*[-_.])?token|.*(?:password|passwd|passphrase|secret)|\w*(?:auth|access|api)token"
    r"|(?:.*[-_.])?(?:api|access|secret|private|auth|ssh|account|signing|encryption|subscription"
    r"|shared|storage|wandb)[-_]?key)|[A-Z][A-Z0-9_]*_KEY"
)
"""Names that mark a secret before a colon, which follows other words in any sentence."""

_BY_FORM: Mapping[str, str] = {
    # User and password of a URL, which may hold slashes and `@`; a port is not a password.
    r"(?<=//)[^\s/:\[\"]{0,256}:(?!\d{1,5}[/?#])(?:(?!://)[^\s@\"]){0,256}@(?:[^\s/@\"]*@)*": "",
    # Tokens and options of a URL; `ssh://git@host` has a name there, `abfs://` a container.
    r"(?i)(?:(?<=http://)|(?<=https://)|(?<=s3://)|(?<=gs://))[^\s/@:\"]+@"
    r"|(?<=[?&])(?:[\w.-]*(?:key|secret|token|password|credential|signature)"
    r"|sig|pwd|pass|auth)=[^\s&\"']+": "",
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bhf_[A-Za-z0-9]{16,}|\bgh[opusr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"
    r"|\bglpat-[\w-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bsk-[\w-]{16,}"
    r"|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{16,}|\bnpm_\w{16,}"
    r"|\bpypi-[\w-]{16,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\bwandb_v\d_\w{16,}": _SECRET,
    r"(?i)\b((?:Bearer|Basic)\s+)[\w.~+/=-]{12,}": rf"\1{_SECRET}",
    # A key of W&B: only the word before it distinguishes it from a commit.
    r"(?i)(\bkey\b[\s:=\"']{1,9})[0-9a-f]{40}\b": rf"\1{_SECRET}",
}
"""Patterns of secrets that are known by their form, each with the text in its place."""

_NAMED = re.compile(
    r"""(?P<quote>["']?)(?<![\w.-])[-.]*+(?P<name>[A-Za-z_][\w.-]*+)(?P=quote)\s*+(?P<sign>=(?!=)|:)\s*+"""
)
"""A name before its value, as `HF_TOKEN=` or `"password": `; it never gives characters back."""

_VALUE = re.compile(
    r"""(?P<before>["'])(?P<quoted>(?:\\.|(?!(?P=before))[^\\\n])*+)"""
    r"""|(?P<bare>(?:[^\s"',;&()\[\]{}]|,(?=[^\s"',;&()\[\]{}])(?![\w.-]*+[=:]))++)"""
)
"""A value: to its closing quote, or the end of its line; without quotes to a space or a sign."""

_OPTION = re.compile(
    r"""(?<!\S)(?P<name>--?[A-Za-z][\w-]*)(?P<space>\s+)"""
    r"""(?P<value>(?!-)(?:"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?|\\.|[^\s"'])++)"""
)
"""An option and its value, a word of a shell."""

_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*+[(\[]|self\.")
"""Python's own code, as `key = self.proj(x)` in a traceback."""

_SHOWN = re.compile(
    r"(?:[+-]?[\d.]+(?:[eE][+-]?\d+)?(?:,[+-]?[\d.]+(?:[eE][+-]?\d+)?)*|true|false|null|none)?\Z"
    r"|hidden:[0-9a-f]{4}|\[secret\]",
    re.IGNORECASE,
)
"""Values that are not secrets, or not any more."""

_ORDINARY = frozenset(
    {"disabled", "required", "optional", "password", "localhost", "anonymous", "undefined"}
    | {"kubernetes", "keyboard", "training", "standard", "external", "internal", "unlimited"}
)
"""Values that are words of many texts, of 8 characters or more: shorter ones aren't looked for."""

LEFT_OUT = "left out (--with-hosts keeps it)"

_REASONS = ("reason", "gradients_reason", "loop_reason", "samples_reason")
PRIVATE_COLUMNS = (*_REASONS, "log", "command", "imported_from", "sources")
"""Columns of trials that may name hosts, users and folders: pages and exports have none of them."""

_HOME = re.compile(
    r"(?:/[\w.@-]+){0,4}?(?:/|%2F)(?:home|homes|Users)(?:/|%2F)[^/%\s'\"`:;,&()\[\]{}<>|]+"
    r"|\b[A-Za-z]:\\{1,2}Users\\{1,2}[^\\/:*?\"'<>|\s]+"
    r"|(?<![\w.-])/root(?![\w.-])|(?<![\w~])~[A-Za-z_][\w.-]*(?=/)"
)


def is_secret(name: str, value: str = "") -> bool:
    """True if a name marks its value as a secret, or the value is one by its form.

    >>> [is_secret(name) for name in ("HF_TOKEN", "wandbApiKey", "TOKENIZERS_PARALLELISM")]
    [True, True, False]
    """
    capitals = name.upper()
    as_variable = name.lstrip("-").replace("-", "_")
    if _MARK.search(capitals) and not _NOT_SECRET.fullmatch(as_variable):
        return True
    # The address of a proxy goes without a scheme too.
    is_bare = "PROXY" in capitals and "//" not in value
    return has_credentials(f"//{value}" if is_bare else value)


def has_credentials(text: str) -> bool:
    """True if a text has a secret that is known by its form, as a URL with a password."""
    return without_credentials(text) != text


def without_credentials(text: str) -> str:
    """Text without secrets that are known by their form.

    >>> without_credentials("s3://AKIA:a/b+c@bucket/runs?region=us-1&token=t0")
    's3://bucket/runs?region=us-1&'
    """
    for pattern, shown in _BY_FORM.items():
        text = re.sub(pattern, shown, text)
    return text


def without_secrets(text: str, variables: Mapping[str, str] = NO_VARIABLES) -> str:
    """Text as it is stored: without secrets.

    A value of a secret variable, of this process or given, becomes `hidden:` and a short hash; a
    secret by its form, and a value after a name that marks one, become a word.

    >>> without_secrets("401 for abcd-efgh", {"HF_TOKEN": "abcd-efgh"})
    '401 for hidden:64fd'
    >>> without_secrets("HF_TOKEN=abc tokens=512 --password x, KeyError: 'a'")
    "HF_TOKEN=[secret] tokens=512 --password [secret] KeyError: 'a'"
    """
    text = without_values(without_values(text, variables), os.environ)
    return _OPTION.sub(_option, _without_named(without_credentials(text)))


def without_values(text: str, variables: Mapping[str, str]) -> str:
    """Text without the values of the secret variables among these."""
    for name, value in variables.items():
        for spelling in _spellings(value):
            if spelling in text and is_looked_for(name, value):
                text = text.replace(spelling, _hash_of(name, value))
    return text


def is_looked_for(name: str, value: str) -> bool:
    """True for a secret variable whose value is no part of many texts: not short, nor a path."""
    if len(value) < 8 or value.lower() in _ORDINARY or not is_secret(name, value):
        return False
    return not os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111


def secret_variables() -> dict[str, str]:
    """Variables of this process whose values are looked for in texts."""
    return {name: value for name, value in os.environ.items() if is_looked_for(name, value)}


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as stored and shown: a secret is `hidden:` and a short hash of its value."""
    return {
        name: _hash_of(name, value) if is_secret(name, value) else value
        for name, value in environment.items()
    }


def print_traceback(error: BaseException) -> None:
    """Print an exception as Python does, without secrets."""
    text = without_secrets("".join(traceback.format_exception(error)))
    print(text, end="", file=sys.stderr)  # noqa: T201


def without_homes(text: str) -> str:
    """Text with `~` in place of home folders, which name users."""
    return _HOME.sub("~", text)


def shared_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials without `PRIVATE_COLUMNS` and hosts.

    Reasons of `skipped`, `budget` and `cancelled` stay: dtsweep's own, and what the sweep's `skip`
    returned.
    """
    changed: dict[str, Any] = {name: None for name in PRIVATE_COLUMNS if name in trials}
    is_own = trials["status"].isin(["skipped", "budget", "cancelled"])
    changed["reason"] = trials["reason"].mask(trials["reason"].notna() & ~is_own, LEFT_OUT)
    if trials["straggler"].notna().any():
        changed["straggler"] = trials["straggler"].str.extract(r"^(rank \d+)")[0]
    return trials.assign(**changed)


@cache
def _spellings(value: str) -> tuple[str, ...]:
    """A value as it stands in texts: as it is, in a URL, in quotes."""
    in_url = quote(value, safe="", errors="surrogateescape")
    return tuple(filter(None, dict.fromkeys((value, in_url, repr(value)[1:-1]))))


def _without_named(text: str) -> str:
    """Text without the values whose names mark a secret."""
    pieces = []
    place = after = 0
    for name in _NAMED.finditer(text):
        is_marked = is_secret(name["name"])
        if name["sign"] == ":" and not name["quote"]:
            is_marked = is_marked and _SPOKEN.fullmatch(name["name"]) is not None
        # The value of an earlier name may hold this one.
        if name.start() < after or not is_marked:
            continue
        value = _VALUE.match(text, name.end())
        if value is None or (value["bare"] and _CALL.match(text, value.start())):
            continue
        after = value.end()
        if not _SHOWN.match(value["bare"] or value["quoted"] or ""):
            pieces += [text[place : value.start()], value["before"] or "", _SECRET]
            place = after
    return "".join([*pieces, text[place:]])


def _option(match: re.Match[str]) -> str:
    if not is_secret(match["name"]) or _SHOWN.match(match["value"]):
        return match[0]
    return f"{match['name']}{match['space']}{_SECRET}"


@cache
def _hash_of(name: str, value: str) -> str:
    """A hash that distinguishes two values, and gives neither away.

    16 bits: anyone who guesses passwords is left with thousands that fit; scrypt makes each guess
    slow. A salt would have to lie next to the results, where the guesser finds it.
    """
    if HIDDEN.fullmatch(value):
        return value
    encoded = value.encode(errors="surrogateescape")
    return "hidden:" + hashlib.scrypt(encoded, salt=name.encode(), n=2**14, r=8, p=1, dklen=2).hex()

"""Secrets: variables found by their names, and their values, tokens and passwords in texts.

`without_secrets` is the one function for every text that is stored, printed or shown.
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
from urllib.parse import quote

from dtsweep.errors import without_credentials

MARK = re.compile(
    """
    KEY | TOKEN(?!I[ZS]) | SECRET | PASS(?!ING|IVE|ENGER|AGE) | PWD | CRED(?!IT)
    | COOKIE | JWT
    | AUTH(?!OR) | AUTHORI[SZ] | CONNECTION.*STRING | STRING.*CONNECTION
    """,
    re.VERBOSE,
)
"""Parts of a name in capitals that mark its value as a secret, anywhere in the name."""

NOT_SECRET = re.compile(
    """
    (OLD)?PWD | RAY_AUTH_MODE | (NCCL|UCX)_IB_PKEY
    | (?i: (PAD|BOS|EOS|UNK|MASK|SEP|CLS)_TOKEN(_ID)? | TOKEN_COUNT | (MAX|MIN|NUM|MAX_NEW)_TOKENS
         | MAX_KEYS | KEY_LENGTH | PASSES | PASS_COUNT | (.*_)?(BY|COM|TRES)PASS(_.*)?
         | (NEXT|PREV|FIRST|LAST|START|STOP|END|IMAGE|SPECIAL)_TOKEN(_ID)? )
    """,
    re.VERBOSE,
)
"""Whole names that are not secrets though they have such a part; fields may be in small letters."""

TELLING = 8
"""Characters from which on a secret is looked for in texts."""

ORDINARY = frozenset(
    {"disabled", "required", "optional", "password", "localhost", "anonymous", "undefined"}
    | {"kubernetes", "keyboard", "training", "standard", "external", "internal", "unlimited"}
)
"""Values of that length that are words of many texts."""

HIDDEN = re.compile(r"hidden:[0-9a-f]{4}")

SECRET = "[secret]"  # noqa: S105  # it stands in the place of one

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

_TOKENS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bhf_[A-Za-z0-9]{16,}|\bgh[opusr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bsk-[\w-]{16,}|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{30,}"
    r"|\bya29\.[\w-]{16,}|\bnpm_\w{16,}|\bpypi-[\w-]{16,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\bwandb_v\d_\w{16,}",
    re.DOTALL,
)
"""Secrets that are known by their form."""

_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)[\w.~+/=-]{12,}", re.IGNORECASE)

_NAMED = re.compile(
    r"""(?P<quote>["']?)(?<![\w.-])[-.]*+(?P<name>[A-Za-z_][\w.-]*+)(?P=quote)\s*+(?P<sign>=(?!=)|:)\s*+"""
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

_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*+[(\[]|self\.")
"""Python's own code, as `key = self.proj(x)` in a traceback."""

_KEY = re.compile(r"""(\bkey\b[\s:="']{1,9})[0-9a-f]{40}\b""", re.IGNORECASE)
"""A key of W&B: only the word before it distinguishes it from a commit."""

_OPTION = re.compile(
    r"""(?<!\S)(?P<name>--?[A-Za-z][\w-]*)(?P<space>\s+)"""
    r"""(?P<value>(?!-)(?:"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?|\\.|[^\s"'])++)"""
)
"""An option and its value, a word of a shell."""

_SPOKEN = re.compile(
    r"(?i:(?:.*[-_.])?token|.*(?:password|passwd|passphrase|secret)|\w*(?:auth|access|api)token"
    r"|(?:.*[-_.])?(?:api|access|secret|private|auth|ssh|account|signing|encryption|subscription"
    r"|shared|storage|wandb)[-_]?key)"
    r"|[A-Z][A-Z0-9_]*_KEY"
)
"""Names that mark a secret before a colon, which follows other words in any sentence."""

_PLAIN = re.compile(
    r"[+-]?[\d.]+(?:[eE][+-]?\d+)?(?:,[+-]?[\d.]+(?:[eE][+-]?\d+)?)*|true|false|null|none",
    re.IGNORECASE,
)
"""Values that are not secrets."""


def mark_in(name: str) -> str:
    """Give the part of a name that marks its value as a secret.

    >>> mark_in("tokens_path")
    'TOKEN'
    """
    match = MARK.search(name.upper())
    if match:
        return match.group()
    return name


def is_secret(name: str, value: str = "") -> bool:
    """True if a name marks its value as a secret, or the value is a URL with credentials.

    >>> [is_secret(name) for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "wandbApiKey", "MONKEY")]
    [True, True, True, True]
    >>> [is_secret(name) for name in ("TOKENIZERS_PARALLELISM", "NCCL_IB_PKEY", "--max-tokens")]
    [False, False, False]
    """
    capitals = name.upper()
    as_variable = name.lstrip("-").replace("-", "_")
    if MARK.search(capitals) and not NOT_SECRET.fullmatch(as_variable):
        return True
    # The address of a proxy goes without a scheme too.
    is_bare = "PROXY" in capitals and "//" not in value
    return has_credentials(f"//{value}" if is_bare else value)


def has_credentials(text: str) -> bool:
    """True if a text has a URL with a password or a token.

    >>> has_credentials("postgres://me:p/w@host/db"), has_credentials("ssh://git@host/x")
    (True, False)
    """
    return without_credentials(text) != text


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as stored and shown: a secret is `hidden:` and a short hash of its value.

    >>> hidden({"NCCL_ALGO": "Ring", "HF_TOKEN": "hidden:03f9"})
    {'NCCL_ALGO': 'Ring', 'HF_TOKEN': 'hidden:03f9'}
    """
    return {
        name: _hash_of(name, value) if is_secret(name, value) or _TOKENS.search(value) else value
        for name, value in environment.items()
    }


def without_secrets(text: str, variables: Mapping[str, str] = NO_VARIABLES) -> str:
    """Text as it is stored, printed and shown: without secrets.

    A value of a secret variable, of this process or given, becomes `hidden:` and a short hash. URLs
    lose their credentials. A token that is known by its form, and a value after a name that marks
    a secret, become a word.

    Args:
        text: of any kind.
        variables: by name, in addition to those of this process.

    >>> without_secrets("401 for abcd-efgh", {"HF_TOKEN": "abcd-efgh"})
    '401 for hidden:64fd'
    >>> without_secrets("HF_TOKEN=abc tokens=512 --password x, KeyError: 'a'")
    "HF_TOKEN=[secret] tokens=512 --password [secret] KeyError: 'a'"
    """
    text = without_values(without_values(text, variables), os.environ)
    text = _TOKENS.sub(SECRET, without_credentials(text))
    text = _BEARER.sub(rf"\1\2{SECRET}", text)
    text = _KEY.sub(rf"\1{SECRET}", text)
    return _OPTION.sub(_option, _without_named(text))


def without_values(text: str, variables: Mapping[str, str]) -> str:
    """Text without the values of the secret variables among these, which takes little time."""
    for name, value in variables.items():
        for spelling in _spellings(value):
            # Most variables are in no text.
            if spelling in text and is_looked_for(name, value):
                text = text.replace(spelling, _hash_of(name, value))
    return text


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Secret variables whose values are looked for in texts.

    >>> secrets_in({"HF_TOKEN": "abcd-efgh", "KEY": "1", "AUTH_MODE": "disabled", "HOME": "/home"})
    {'HF_TOKEN': 'abcd-efgh'}
    """
    return {name: value for name, value in environment.items() if is_looked_for(name, value)}


def is_looked_for(name: str, value: str) -> bool:
    """True for a secret variable whose value is no part of many texts: not short, nor a path."""
    if len(value) < TELLING or value.lower() in ORDINARY or not is_secret(name, value):
        return False
    # `Path` raises where a value is no path.
    return not os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111


def print_traceback(error: BaseException) -> None:
    """Print an exception as Python does, without secrets."""
    text = without_secrets("".join(traceback.format_exception(error)))
    print(text, end="", file=sys.stderr)  # noqa: T201


@cache
def _spellings(value: str) -> tuple[str, ...]:
    """A value as it stands in texts: as it is, in a URL, in quotes; empty for a short one."""
    if len(value) < TELLING:
        return ()
    in_url = quote(value, safe="", errors="surrogateescape")
    return tuple(dict.fromkeys((value, in_url, repr(value)[1:-1])))


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
        if value["bare"] and _CALL.match(text, value.start("bare")):
            continue
        if _may_be_secret(value["bare"] or value["quoted"] or ""):
            pieces += [text[place : value.start()], value["before"] or "", SECRET]
            place = after
    return "".join([*pieces, text[place:]])


def _is_marked(match: re.Match[str]) -> bool:
    """True if a name marks the value after it as a secret."""
    if match["sign"] == ":" and not match["quote"]:
        return bool(_SPOKEN.fullmatch(match["name"])) and is_secret(match["name"])
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


@cache
def _hash_of(name: str, value: str) -> str:
    """A hash that distinguishes two values, and gives neither away.

    16 bits: one other value in 65,536 looks the same, so anyone who guesses passwords is left with
    thousands that fit; scrypt makes each guess slow. A salt would have to lie next to the results,
    where the guesser finds it.
    """
    if HIDDEN.fullmatch(value):
        return value
    encoded = value.encode(errors="surrogateescape")
    return "hidden:" + hashlib.scrypt(encoded, salt=name.encode(), n=2**14, r=8, p=1, dklen=2).hex()

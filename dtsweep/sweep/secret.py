"""Secret environment variables: found by name, stored and shown as a short hash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache

from dtsweep.errors import without_credentials

SECRET = re.compile(
    """
    KEY | TOKEN(?!I[ZS]) | SECRET | PASS | PWD | CRED(?!IT) | COOKIE | JWT
    | AUTH(?!OR) | AUTHORI[SZ] | CONNECTION.*STRING | STRING.*CONNECTION
    """,
    re.VERBOSE,
)
"""Parts of a name in capitals that mark its value as a secret, anywhere in the name."""

NOT_SECRET = re.compile(
    """
    (OLD)?PWD | RAY_AUTH_MODE | (NCCL|UCX)_IB_PKEY
    | (?i: (PAD|BOS|EOS|UNK|MASK|SEP|CLS)_TOKEN(_ID)? | TOKEN_COUNT | (MAX|MIN|NUM|MAX_NEW)_TOKENS
         | MAX_KEYS | KEY_LENGTH | PASSES | PASS_COUNT )
    """,
    re.VERBOSE,
)
"""Whole names that are not secrets though they have such a part; fields may be in small letters."""

TELLING = 8
"""Characters from which on a secret is looked for in texts."""

HIDDEN = re.compile(r"hidden:[0-9a-f]{4}")


def mark_in(name: str) -> str:
    """Give the part of a name that marks its value as a secret.

    >>> mark_in("tokens_path")
    'TOKEN'
    """
    match = SECRET.search(name.upper())
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
    if SECRET.search(capitals) and not NOT_SECRET.fullmatch(as_variable):
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
        name: _hash_of(name, value) if is_secret(name, value) else value
        for name, value in environment.items()
    }


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """Text without credentials, and without the values of the secret variables of an environment.

    >>> without_secrets("401 for hf_abcdefgh", {"HF_TOKEN": "hf_abcdefgh"})
    '401 for hidden:5768'
    """
    for name, value in environment.items():
        # A short one is a part of many words.
        if len(value) >= TELLING and is_secret(name, value):
            text = text.replace(value, _hash_of(name, value))
    return without_credentials(text)


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

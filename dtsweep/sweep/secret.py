"""Environment variables whose values nobody else should read: found by name, stored and shown as a short hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache

WORDS = frozenset(
    {
        *("TOKEN", "SECRET", "SECRETS", "KEY", "KEYS", "PASSWORD", "PASSWORDS", "CREDENTIAL", "CREDENTIALS"),
        *("PASSWD", "PASSPHRASE"),
    }
)
"""Words of a name that speak of a secret, between its underscores; TOKENS, which training counts, is none."""

RUN_TOGETHER = re.compile(r"(API|ACCESS|PRIVATE|AUTH)KEY|.+(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")
"""Such words without an underscore before them: APIKEY, PGPASSWORD; but not MONKEY."""

IN_URL = re.compile(r"//[^/\s@]*:[^/\s@]+@")
"""A password in a URL, as proxies have it, whatever the variable is called."""

HIDDEN = re.compile(r"hidden:[0-9a-f]{4}")


def is_secret(name: str, value: str = "") -> bool:
    """Whether the name of a variable speaks of a secret, or its value is a URL with a password.

    >>> [is_secret(name) for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "wandbApiKey", "PGPASSWORD")]
    [True, True, True, True]
    >>> [is_secret(name) for name in ("TOKENIZERS_PARALLELISM", "MONKEY_COUNT", "NCCL_IB_PKEY", "MAX_TOKENS")]
    [False, False, False, False]
    """
    words = [word.upper() for word in re.split(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])", name)]
    named = any(word in WORDS or RUN_TOGETHER.fullmatch(word) for word in words)
    return named or IN_URL.search(value) is not None


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as they are stored and shown: a secret is `hidden:` and a short hash, which hides to itself.

    >>> hidden({"NCCL_ALGO": "Ring", "HF_TOKEN": "hidden:03f9"})
    {'NCCL_ALGO': 'Ring', 'HF_TOKEN': 'hidden:03f9'}
    """
    return {name: _hash_of(name, value) if is_secret(name, value) else value for name, value in environment.items()}


def hidden_json(text: str) -> str:
    """The same of a stored JSON object: rows of earlier versions have secrets in it as they are."""
    return json.dumps(hidden(json.loads(text)), sort_keys=True)


@cache
def _hash_of(name: str, value: str) -> str:
    """Tell two values apart, without giving either away.

    16 bits: one other value in 65,536 looks the same, so whoever guesses passwords is left with thousands that fit;
    scrypt makes each guess slow. A salt would have to lie beside the results, where the guesser finds it.
    """
    if HIDDEN.fullmatch(value):
        return value
    given = value.encode(errors="surrogateescape")
    return "hidden:" + hashlib.scrypt(given, salt=name.encode(), n=2**14, r=8, p=1, dklen=2).hex()

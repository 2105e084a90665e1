"""Environment variables whose values nobody else should read: found by name, stored and shown as a short hash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache

from dtsweep.errors import without_credentials

WORDS = frozenset(
    {
        *("SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"),
        *("AUTHORIZATION", "COOKIE", "COOKIES", "JWT", "CREDS", "SSHPASS"),
    }
)
"""Words of a name that speak of a secret, between its underscores."""

LAST_WORDS = frozenset({"AUTH", "PASS", "PWD"})
"""Those that do as the last of several: DB_PASS, but not PASS_COUNT; NPM_AUTH, but not RAY_AUTH_MODE; not PWD."""

KEYS = frozenset({"TOKEN", "KEY", "KEYS"})
"""Those that do where no word beside them speaks of a text or a number; TOKENS, which training counts, are none but
beside a word of access."""

OF_TEXT_OR_NUMBER = frozenset(
    {
        *("PAD", "BOS", "EOS", "UNK", "MASK", "SEP", "CLS"),
        *("COUNT", "LENGTH", "LEN", "LIMIT", "SIZE", "MAX", "MIN", "NUM"),
    }
)

OF_ACCESS = frozenset({"API", "ACCESS", "AUTH", "PRIVATE", "HF"})

RUN_TOGETHER = re.compile(
    r".*(API|ACCESS|AUTH|PRIVATE|SECRET|SSH|SIGNING|LICENSE)KEY(ID|S)?|.+(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
)
"""Such words without an underscore before them: OPENAIAPIKEY, PGPASSWORD; but not MONKEY."""

TELLING = 8
"""Characters from which on a secret is looked for in texts."""

HIDDEN = re.compile(r"hidden:[0-9a-f]{4}")


def is_secret(name: str, value: str = "") -> bool:
    """Whether the name of a variable speaks of a secret, or its value is a URL with credentials.

    >>> [is_secret(name) for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "wandbApiKey", "PGPASSWORD")]
    [True, True, True, True]
    >>> [is_secret(name) for name in ("TOKENIZERS_PARALLELISM", "MONKEY_COUNT", "NCCL_IB_PKEY", "MAX_TOKENS")]
    [False, False, False, False]
    """
    words = [word.upper() for word in re.split(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])", name) if word]
    # The address of a proxy goes without a scheme too.
    text = f"//{value}" if words[-1:] == ["PROXY"] and "//" not in value else value
    return _speaks_of_secret(words) or has_credentials(text)


def _speaks_of_secret(words: Sequence[str]) -> bool:
    if any(word in WORDS or RUN_TOGETHER.fullmatch(word) for word in words):
        return True
    if len(words) > 1 and words[-1] in LAST_WORDS:
        return True
    if {"CONNECTION", "STRING"} <= {*words} or ("TOKENS" in words and not OF_ACCESS.isdisjoint(words)):
        return True
    return not KEYS.isdisjoint(words) and (OF_TEXT_OR_NUMBER.isdisjoint(words) or not OF_ACCESS.isdisjoint(words))


def has_credentials(text: str) -> bool:
    """Whether a text has a URL with a password or a token.

    >>> has_credentials("postgres://me:p/w@host/db"), has_credentials("ssh://git@host/x")
    (True, False)
    """
    return without_credentials(text) != text


def hidden(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as they are stored and shown: a secret is `hidden:` and a short hash, which hides to itself.

    >>> hidden({"NCCL_ALGO": "Ring", "HF_TOKEN": "hidden:03f9"})
    {'NCCL_ALGO': 'Ring', 'HF_TOKEN': 'hidden:03f9'}
    """
    return {name: _hash_of(name, value) if is_secret(name, value) else value for name, value in environment.items()}


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
    """Tell two values apart, without giving either away.

    16 bits: one other value in 65,536 looks the same, so whoever guesses passwords is left with thousands that fit;
    scrypt makes each guess slow. A salt would have to lie beside the results, where the guesser finds it.
    """
    if HIDDEN.fullmatch(value):
        return value
    given = value.encode(errors="surrogateescape")
    return "hidden:" + hashlib.scrypt(given, salt=name.encode(), n=2**14, r=8, p=1, dklen=2).hex()

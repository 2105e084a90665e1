"""Ray's token: private to its user, sent to a cluster that asks for one, and to no other."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray._private.authentication import authentication_token_setup
from ray._raylet import (  # type: ignore[attr-defined]  # its stub has the identifiers alone
    AuthenticationTokenLoader,
    Config,
    GcsClient,
)
from ray.exceptions import AuthenticationError

from dtsweep.errors import SweepError

_MODE = "RAY_AUTH_MODE"
_PATIENCE = "RAY_py_gcs_connect_timeout_s"

_ANSWER_S = 10
"""Time limit for a head node that has accepted our connection."""


def make_token_private() -> list[str]:
    """Make the token that a private Ray would make for all to read, for this user alone.

    Returns:
        A line for the user if others could read the one that is there; they can't any more.

    Raises:
        OSError: it can't be written.
    """
    file = Path.home() / ".ray" / "auth_token"
    # Before Ray 2.59 a private Ray asked for no token by itself.
    is_wanted = hasattr(authentication_token_setup, "enable_token_auth_by_default")
    is_wanted = is_wanted and os.environ.get(_MODE, "token").lower() == "token"
    if is_wanted and not AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        mask = os.umask(0o077)
        try:
            authentication_token_setup.generate_and_save_token()
        finally:
            os.umask(mask)
            forget_token()
    try:
        token = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # there is none, or it is a link, whose target is kept by somebody else
        return []
    try:
        info = os.fstat(token)
        if info.st_uid != os.getuid() or not stat.S_IMODE(info.st_mode) & 0o077:
            return []
        os.fchmod(token, 0o600)
    finally:
        os.close(token)
    return [f"others could read {file}, Ray's token; now only you can"]


def send_token_if_asked(address: str) -> bool:
    """Ask a cluster whether it wants Ray's token, and have this process send it there if so.

    Ray itself does not ask: to `auto` it sends a token that is there, to HOST:PORT none. A cluster
    without one can't be used with a token, for its workers would have to show it to this process.

    Args:
        address: HOST:PORT of a head node that answers.

    Returns:
        True if it wants one.

    Raises:
        SweepError: it wants a token that is not here.
        RayError: no Ray answers there.
    """
    wanted = os.environ.get(_MODE, "").lower()
    if _lets_in(address, mode="disabled"):
        return False
    asks = f"the Ray at {address!r} asks for a token"
    copy = "copy ~/.ray/auth_token of its head node here, or name a copy in RAY_AUTH_TOKEN_PATH"
    if wanted == "disabled":
        raise SweepError(f"{asks}, and {_MODE}=disabled keeps it back; unset that")
    if not AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        raise SweepError(f"{asks}, and there is none; {copy}")
    if not _lets_in(address, mode="token"):
        raise SweepError(f"{asks}, and this machine's is another; {copy}")
    return True


def forget_token() -> None:
    """Make Ray read again if it sends a token, and which; Ray caches its first answers."""
    # In this order: a thread of Ray that still runs would look for the token where there may be
    # none.
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _lets_in(address: str, *, mode: str) -> bool:
    previous = os.environ.get(_PATIENCE)
    os.environ |= {_MODE: mode, _PATIENCE: str(_ANSWER_S)}
    forget_token()
    try:
        # A refusal is an answer here, but Ray also writes a line about it.
        with _without_stderr():
            GcsClient(address=address)
    except AuthenticationError:
        return False
    finally:
        del os.environ[_PATIENCE]
        os.environ |= {} if previous is None else {_PATIENCE: previous}
        forget_token()
    return True


@contextmanager
def _without_stderr() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

"""Ray's token lies where no other user reads it. No Ray runs here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtsweep.cluster.token import forget_token, make_token_private


@pytest.fixture(autouse=True)
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The token of a user who has none."""
    for name in [name for name in os.environ if name.startswith("RAY_AUTH")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    forget_token()
    mask = os.umask(0o022)
    yield tmp_path / ".ray" / "auth_token"
    os.umask(mask)
    monkeypatch.undo()
    forget_token()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_token_and_its_folder_are_made_for_this_user_alone(token: Path) -> None:
    assert make_token_private() == []
    assert (mode(token), mode(token.parent)) == (0o600, 0o700)
    made = token.read_text()
    assert len(made) == 64
    assert make_token_private() == []
    assert token.read_text() == made
    assert os.umask(0o022) == 0o022


def test_a_token_that_others_can_read_is_taken_from_them_in_a_line(token: Path) -> None:
    token.parent.mkdir()
    token.write_text("a" * 64)
    assert make_token_private() == [f"others could read {token}, Ray's token; now only you can"]
    assert (mode(token), mode(token.parent), token.read_text()) == (0o600, 0o755, "a" * 64)
    assert make_token_private() == []


def test_a_link_to_a_token_is_left_to_its_owner(token: Path, tmp_path: Path) -> None:
    (tmp_path / "mounted").write_text("a" * 64)
    token.parent.mkdir()
    token.symlink_to(tmp_path / "mounted")
    assert make_token_private() == []
    assert mode(tmp_path / "mounted") == 0o644


@pytest.mark.parametrize(
    ("name", "value"), [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "a" * 64)]
)
def test_no_token_is_made_where_none_is_wanted(
    token: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    forget_token()
    assert make_token_private() == []
    assert not token.exists()

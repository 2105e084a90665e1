"""Modes that installed packages declare, loaded and checked once in each process that needs one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from dtsweep.errors import error_line, quoted
from dtsweep.provenance.installed import (
    DeclarationError,
    Declared,
    check_reads,
    entry_of,
    load,
)
from dtsweep.sweep.compressions import EXCHANGES
from dtsweep.sweep.mode_info import AGREEMENTS, EXCHANGE_PARTS, SEMANTICS, Fields, Grid, ModeInfo

OF_A_POINT = (
    *("semantics", "is_asynchronous", "steps_per_update", "grid", "shares", "servers"),
    *("first_steps", "changes_one_worker", "renews_optimizer", "participants"),
)
"""Functions of a declaration that are called with the fields of a point."""


@cache
def installed_mode(name: str, mode_fields: tuple[str, ...]) -> ModeInfo:
    """Declaration of a mode by an installed package.

    Args:
        name: value of the axis `sync`.
        mode_fields: fields of a point that a mode can read.

    Raises:
        LookupError: no package that is installed here declares it.
        DeclarationError: the declaration can't be used.
    """
    info: ModeInfo = load("mode", name, ModeInfo)
    one = entry_of("mode", name)
    check_reads(one, info.reads, mode_fields)
    _check_words(one, "agree", [info.agree], AGREEMENTS)
    _check_words(one, "can_leave_out", info.can_leave_out, EXCHANGE_PARTS)
    _check_words(one, "carries", info.carries, EXCHANGES)
    if info.participants and info.can_leave_out:
        # Steps without the exchange are timed without the workers being drawn.
        raise DeclarationError(
            f"{one} has participants and can_leave_out; leave can_leave_out empty, and mark the "
            f"exchange as sync ({one.again})",
            word=one.name,
        )
    functions: dict[str, Any] = {
        field: _guarded(one, field, function)
        for field in OF_A_POINT
        if (function := getattr(info, field)) is not None
    }
    return _with_checked_workers(one, replace(info, **functions))


def _with_checked_workers(one: Declared, info: ModeInfo) -> ModeInfo:
    """The declaration, whose grids and shares are refused where they don't fit the workers."""

    def grid(fields: Fields) -> Grid:
        value, workers = info.grid(fields), fields["workers"]
        if value.model < 1:
            raise DeclarationError(f"{one} has {value}; {one.again}", word=one.name)
        if workers % value.model:
            # Such a point is impossible.
            return Grid(data=max(1, workers // value.model), model=value.model)
        if value.data * value.model != workers:
            raise DeclarationError(
                f"{one} has {value} for workers={workers}; data × model must be {workers} "
                f"({one.again})",
                word=one.name,
            )
        return value

    def shares(fields: Fields) -> Sequence[int]:
        assert info.shares is not None
        value, groups = info.shares(fields), grid(fields).data
        # A share of 0 makes the point impossible.
        is_right = isinstance(value, Sequence) and len(value) == groups
        if (
            is_right
            and all(isinstance(share, int) and share >= 0 for share in value)
            and any(value)
        ):
            return value
        raise DeclarationError(
            f"{one} has shares={quoted(value)}; give a list of {groups} numbers of samples "
            f"({one.again})",
            word=one.name,
        )

    def participants(fields: Fields) -> int:
        assert info.participants is not None
        value, groups = info.participants(fields), grid(fields).data
        if isinstance(value, int) and 1 <= value <= groups and not info.shares:
            return value
        raise DeclarationError(
            f"{one} has participants={quoted(value)}; give a number from 1 to {groups}, and no "
            f"shares ({one.again})",
            word=one.name,
        )

    return replace(
        info,
        grid=grid,
        shares=info.shares and shares,
        participants=info.participants and participants,
    )


def _check_words(
    one: Declared, field: str, words: Collection[str], allowed: Collection[str]
) -> None:
    """Refuse words that dtsweep does not know.

    Raises:
        DeclarationError: it names the first.
    """
    for word in words:
        if word not in allowed:
            raise DeclarationError(
                f"{one} has {field}={quoted(word)}; allowed: {', '.join(allowed)} ({one.again})",
                word=one.name,
            )


def _guarded(one: Declared, field: str, function: Callable[[Fields], Any]) -> Callable[..., Any]:
    """A function of a declaration whose failures, and values of no use, name the package."""

    def value_of(fields: Fields) -> Any:
        try:
            value = function(fields)
        except Exception as error:  # a package's own code may raise anything
            raise DeclarationError(
                f"{field} of {one} failed: {error_line(error)}; {one.again}", word=one.name
            ) from error
        if field == "semantics":
            _check_words(one, field, [value], SEMANTICS)
        if field == "grid" and not isinstance(value, Grid):
            raise DeclarationError(
                f"{one} has grid={quoted(value)}, no Grid; {one.again}", word=one.name
            )
        return value

    return value_of

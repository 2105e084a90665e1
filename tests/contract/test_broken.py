"""Modes and compressions that break one promise each, and what the contract says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtsweep.errors import SweepError
from tests.contract import wrong
from tests.contract.compression_check import check_compression
from tests.contract.mode_check import check_mode


@pytest.fixture(autouse=True, scope="module")
def broken_ones() -> Iterator[None]:
    """Declare them in this process; those that it starts do so themselves."""
    with pytest.MonkeyPatch.context() as patch:
        wrong.declare(patch)
        yield


def broken_by(mode: str) -> list[str]:
    with pytest.raises(ExceptionGroup, match=f"mode '{mode}' breaks what it promises") as caught:
        check_mode(mode)
    assert all(isinstance(error, AssertionError) for error in caught.value.exceptions)
    return [str(error) for error in caught.value.exceptions]


def test_updates_that_are_never_made_are_missed() -> None:
    (line,) = broken_by("undrained")
    assert line.startswith("a run of steps ends all its updates: 2 workers: rank 0 makes 5 updates")
    assert "does drain end the last ones?" in line


def test_an_exchange_that_is_not_marked_is_missed() -> None:
    (line,) = broken_by("unmarked")
    assert line.startswith("its exchange is left out or marked: rank 0 marks `sync` in other steps")


def test_workers_that_apply_their_own_gradients_do_not_agree() -> None:
    assert any(
        line.startswith("workers agree as it declares: plain, 2 workers: ranks have other weights")
        for line in broken_by("forgetful")
    )


def test_gradients_that_no_check_sees_are_missed() -> None:
    (line,) = broken_by("unseen")
    assert line.startswith("its gradients can be seen before each update: rank 0 calls")


def test_a_refusal_needs_a_word_of_the_exchange() -> None:
    (line,) = broken_by("wordless")
    assert line.endswith(
        "raises NotImplementedError('no'), whose message lacks the word 'exchange'"
    )


def test_a_mode_that_fails_is_said_once_with_its_reason() -> None:
    assert broken_by("failing") == ["its training by 1 worker fails: RuntimeError: no step today"]


def test_a_mode_that_needs_ray_is_not_checked() -> None:
    with pytest.raises(SweepError, match="'parameter_server' needs Ray, and the contract runs"):
        check_mode("parameter_server")


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("drawing", "random numbers of the workload are left alone: compress draws from torch's"),
        ("longer", "adding with a scale is adding so much of it: add_to with scale=0.25 does not"),
    ],
)
def test_a_compression_that_breaks_a_promise_is_named_with_it(name: str, promise: str) -> None:
    with pytest.raises(ExceptionGroup, match=f"compression '{name}' breaks") as caught:
        check_compression(name)
    assert any(str(error).startswith(promise) for error in caught.value.exceptions)


def test_dtsweep_s_own_keep_their_promises() -> None:
    check_mode("ddp")
    check_mode("ring", clip_norm=0.1)
    check_mode("local_sgd", clip_norm=0.1, local_momentum="reset")
    check_compression("int8")

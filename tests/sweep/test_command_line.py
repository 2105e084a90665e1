"""Values of arguments as words of a command line, and words that hold a secret."""

from __future__ import annotations

import pytest

from dtsweep import SweepError
from dtsweep.sweep.arguments import check_arguments, command_line


def test_values_are_arguments_as_parsers_want_them() -> None:
    assert command_line([], {"batch_size": 8, "amp": False, "lr": None}) == ["--batch_size", "8"]


def test_false_is_a_value_where_a_parser_wants_name_and_value_in_one_word() -> None:
    values = {"model.bias": False, "--compile": False, "++seed": 1, "--trainer.fast": True}
    words = ["model.bias=False", "--compile=False", "++seed=1", "--trainer.fast=True"]
    assert command_line([], values) == words
    assert command_line([], dict.fromkeys(values)) == []


def test_a_name_with_one_hyphen_is_a_short_option() -> None:
    assert command_line([], {"-b": 8, "-v": True, "-q": False}) == ["-b", "8", "-v"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hf-token", "hf_abcdefgh"],
        ["--hf_token=hf_abcdefgh"],
        ["run", "login.token=hf_abcdefgh"],
        ["--data", "s3://key:word@bucket/data"],
        ["s3://key:word@bucket/data"],
    ],
)
def test_an_argument_that_holds_a_secret_is_refused_and_not_repeated(arguments: list[str]) -> None:
    with pytest.raises(SweepError, match="arguments are printed and stored") as refused:
        check_arguments(arguments)
    assert "hf_abcdefgh" not in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")


def test_numbers_and_flags_are_no_secrets() -> None:
    check_arguments(["--max-tokens", "8", "--key-frames", "3", "--with-auth", "--lr", "-1e-3"])

"""Prices of nodes, and the files that they are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtsweep import SweepError
from dtsweep.plan.prices import Prices, prices_of, read_prices, read_types, written_types
from tests.pages import ROOT


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text)
    return path


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "decide.md").read_text("utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert example.startswith("# Made-up prices; enter your own.\n")
    prices = read_prices(written(tmp_path, example))
    assert prices.price_of("gpu") == 30.0
    assert prices.price_of("gpu@spot") == 12.0
    assert prices.price_of("cheap") == prices.price_of("cheap@spot") == 0.4
    assert prices.price_of("head") == 0.2


def test_one_price_is_that_of_every_node() -> None:
    prices = prices_of(None, 2.5)
    assert prices is not None
    assert prices.of_nodes({"a": 2, "8gpu-96cpu": 0.5}) == 6.25
    assert prices_of(None, None) is None


def test_nodes_with_one_unknown_price_have_an_unknown_one(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, "[a]\nusd_per_hour = 1"))
    assert (prices.of_nodes({"a": 2}), prices.of_nodes({"a": 2, "b": 1})) == (2.0, None)
    # Free is not unknown.
    assert Prices(every_node=0.0).of_nodes({"b": 3}) == 0.0


def test_a_node_type_without_a_price_is_named_with_the_key_to_add(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, "[a]\nusd_per_hour = 1"))
    assert prices.how_to_add("2cpu").startswith("add usd_per_hour to [2cpu] of ")
    assert prices.how_to_add("ray.head.default").startswith('add usd_per_hour to ["ray.head.')
    assert prices.how_to_add("a@spot").startswith("add spot_usd_per_hour to [a] of ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[gpu]\nusd_per_huor = 1",
            r"\[gpu\] has no key 'usd_per_huor'; did you mean 'usd_per_hour'\?",
        ),
        ("[gpu]\nusd_per_hour = -1", r"\[gpu\]: usd_per_hour = -1 must be a finite number, 0 or"),
        ("[gpu]\nusd_per_hour = inf", "usd_per_hour = inf must be a finite number"),
        ('[gpu]\nusd_per_hour = "1"', "usd_per_hour = '1' must be a finite number"),
        ("[gpu]", r"\[gpu\] needs usd_per_hour: USD for one node for one hour"),
        ("gpu = 2.5", r"gpu must be a table of a node type: \[gpu\] with usd_per_hour below it"),
        ("", r"prices\.toml has no node type; add one"),
        ("[gpu", r"prices\.toml' are not TOML: "),
        ('["gpu@spot"]\nusd_per_hour = 1', "spot nodes have the key spot_usd_per_hour"),
    ],
)
def test_a_mistake_in_prices_is_one_line_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SweepError, match=message) as mistake:
        read_prices(written(tmp_path, text))
    assert "\n" not in str(mistake.value)
    assert "prices.toml" in str(mistake.value)


def test_prices_that_are_not_there_or_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"no\.toml' can't be read: No such file"):
        read_prices(tmp_path / "no.toml")
    with pytest.raises(SweepError, match="--price one for all; give one"):
        prices_of("prices.toml", 2.0)
    with pytest.raises(SweepError, match="must be a finite number"):
        prices_of(None, -2.0)


def test_types_of_nodes_are_read_as_they_were_written() -> None:
    counts = {"gpu": 2.0, "cpu@spot": 0.125, "g5+x1:a": 1.0}
    assert read_types(written_types(counts)) == counts
